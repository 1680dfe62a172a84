"""The other commands over a small library: lists, deletion, maintenance, and what they say where something is wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from retrieval.documents import Documents
from retrieval.errors import ExtractError
from retrieval.jobs import Jobs
from retrieval.library import Library
from retrieval.maintenance import Maintenance
from retrieval.types.records import RepairReport
from tests.app.cli_client import Commands, cairn, rows
from tests.app.small_library import RESERVOIR, WALKS


def damage(home: Path, document_id: str) -> None:
    """One bit of the stored memory is another."""
    shard = next((home / "kv" / document_id).glob("*.kv"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)


def id_of(library: Library, source: str) -> str:
    (document,) = library.documents.list(search=source)
    return document.id


def test_list_show_and_delete_agree(commands: Commands, library: Library) -> None:
    one = id_of(library, RESERVOIR)
    assert {row["id"] for row in rows(cairn("list", "--json").stdout)} == {one, id_of(library, WALKS)}
    assert RESERVOIR in cairn("list").stdout
    shown = rows(cairn("show", RESERVOIR, "--page", 2, "--json").stdout)[0]
    assert shown["id"] == one and shown["page"]["page"] == 2 and "Maintenance" in shown["page"]["text"]
    deleted = rows(cairn("delete", one, "--json").stdout)[0]
    assert deleted["documents"] == 1 and deleted["freed_bytes"] > 0
    assert [row["source"] for row in rows(cairn("list", "--json").stdout)] == [WALKS]


def test_list_shows_collections_jobs_and_answers(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Jobs.list.__kwdefaults__, "limit", 1)  # of a page of jobs; a list holds all of them
    (tmp_path / "b.txt").write_text("The dam is old.")
    cairn("ingest", tmp_path / "b.txt", "--collection", "water")
    cairn("ask", "What of the dam?")
    assert [row["name"] for row in rows(cairn("list", "--collections", "--json").stdout)] == ["water"]
    assert [row["state"] for row in rows(cairn("list", "--jobs", "--json").stdout)] == ["done"] * 3
    assert [row["question"] for row in rows(cairn("list", "--answers", "--json").stdout)] == ["What of the dam?"]
    assert all(cairn("list", kind).stdout for kind in ("--collections", "--jobs", "--answers"))
    assert cairn("list", "--jobs", "--answers").exit_code == 2


def test_nothing_is_deleted_unless_every_name_is_known(commands: Commands, library: Library) -> None:
    result = cairn("delete", RESERVOIR, "nowhere.pdf", "--yes")
    assert result.exit_code == 1 and len(library.documents.list()) == 2
    assert (
        result.stderr
        == "cairn: There is no document 'nowhere.pdf' in this library. `cairn list` shows what there is.\n"
    )


def test_a_name_that_fits_several_documents_is_refused(commands: Commands, library: Library, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("Another text under the same name.")
    library.jobs.run(library.documents.submit(tmp_path / "other.txt", source=WALKS).id)
    result = cairn("show", WALKS)
    assert result.exit_code == 1 and "matches 2 documents" in result.stderr


def test_verify_fails_when_anything_is_damaged_and_repair_mends_it(commands: Commands, library: Library) -> None:
    assert cairn("verify").exit_code == 0 and "all whole" in cairn("verify").stdout
    damage(commands.home, id_of(library, RESERVOIR))
    result = cairn("verify", "--json")
    assert result.exit_code == 1 and rows(result.stdout)[0]["ok"] is False
    told = cairn("verify")
    assert RESERVOIR in told.stderr and "cairn repair" in told.stdout
    assert cairn("repair").exit_code == 0 and cairn("verify").exit_code == 0


def test_repair_reports_what_it_could_not_do(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fails(_maintenance: Maintenance, *, reingest: bool = False, later: bool = False) -> RepairReport:
        asked.append(reingest)
        return RepairReport((), (("d1", "The original is gone."),), 0, 0.2)

    monkeypatch.setattr(Maintenance, "repair", fails)
    result = cairn("repair", "--reingest", "--json")
    assert result.exit_code == 1 and rows(result.stdout)[0]["failed"] == [["d1", "The original is gone."]]
    assert "The original is gone." in cairn("repair").stderr and asked == [True, False]


def test_gc_says_what_it_swept_and_what_it_freed(commands: Commands) -> None:
    (commands.home / "kv" / "stranger").mkdir()
    (commands.home / "kv" / "stranger" / "1.kv").write_bytes(b"x" * 2000)
    swept = rows(cairn("gc", "--json").stdout)[0]
    assert (swept["files"], swept["swept_bytes"], swept["freed_bytes"]) == (["kv/stranger/1.kv"], 2000, 0)
    assert "0 files (0 B) moved to the trash, which keeps them for 7 days" in cairn("gc").stdout
    assert rows(cairn("gc", "--now", "--json").stdout)[0]["freed_bytes"] >= 2000
    assert "0 files (0 B) removed" in cairn("gc", "--now").stdout


def test_rescue_says_what_the_new_catalogue_was_made_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAIRN_HOME", str(tmp_path / "home"))
    assert cairn("list").exit_code == 0
    assert "nothing to rescue" in cairn("rescue").stdout
    (tmp_path / "home" / "files" / f"{'a' * 32}.txt").write_text("Something to read.")
    for path in (tmp_path / "home").glob("cairn.sqlite3*"):
        path.unlink()
    refused = cairn("list")
    assert refused.exit_code == 1 and "is empty" in refused.stderr and refused.stderr.count("\n") == 1
    said = cairn("rescue").stdout
    assert "no sound copy of the old one was found" in said and "1 documents are read again" in said
    assert rows(cairn("list", "--json").stdout)[0]["state"] == "ingesting"
    monkeypatch.setenv("CAIRN_DATABASE_URL", "mysql://nowhere")
    assert "SQLite or PostgreSQL, not in mysql" in cairn("rescue").stderr


def test_doctor_names_problems_and_fails(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    result = cairn("doctor", "--json", "--home", tmp_path, "--model", tmp_path / "model")
    report = rows(result.stdout)[0]
    assert result.exit_code == 1 and "config.json is missing" in report["problems"][0]
    (tmp_path / "model" / "config.json").write_text("{}")
    result = cairn("doctor", "--json", "--home", tmp_path, "--model", tmp_path / "model")
    report = rows(result.stdout)[0]
    assert result.exit_code == 0 and report["problems"] == [] and report["model"]["device"] == "cpu"
    assert report["versions"]["torch"] and report["home"] == str(commands.home)
    assert "Nothing is wrong" in cairn("doctor", "--home", tmp_path, "--model", tmp_path / "model").stdout


def test_home_and_model_stand_before_or_after_the_command(commands: Commands, tmp_path: Path) -> None:
    cairn("--home", tmp_path / "a", "--model", "m1", "list")
    assert (commands.opened[-1].home, commands.opened[-1].model) == (tmp_path / "a", "m1")
    cairn("--home", tmp_path / "a", "list", "--home", tmp_path / "b", "--model", "m2")
    assert (commands.opened[-1].home, commands.opened[-1].model) == (tmp_path / "b", "m2")


def test_the_environment_chooses_the_home_unless_an_option_does(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAIRN_HOME", str(tmp_path / "env"))
    cairn("list")
    assert commands.opened[-1].home == tmp_path / "env"
    cairn("list", "--home", tmp_path / "b")
    assert commands.opened[-1].home == tmp_path / "b"


def test_a_mistake_of_ours_keeps_its_traceback(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Documents, "list", lambda _documents, **_options: 1 // 0)
    assert isinstance(cairn("list").exception, ZeroDivisionError)


def test_unreadable_documents_are_one_line(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise ExtractError("The page cannot be drawn.")

    monkeypatch.setattr(Documents, "page_text", refuse)
    result = cairn("show", RESERVOIR, "--page", 1)
    assert result.exit_code == 1 and result.stderr == "cairn: The page cannot be drawn.\n"


def test_help_loads_nothing_heavy() -> None:
    heavy = ("torch", "gradio", "pydantic", "numpy", "sqlalchemy")
    probe = f"import sys; from app.cli import cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_program_starts_as_a_module() -> None:
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "app", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("cairn ") and time.perf_counter() - begun < 10
