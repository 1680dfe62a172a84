"""`cairn ingest` over a small library: one line a file, exit statuses, what is refused and what is gone on with."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.cli.ingest import files_below, progress_line
from retrieval.documents import Documents
from retrieval.errors import MemoryMismatch
from retrieval.jobs import Jobs
from retrieval.library import Library
from retrieval.types.records import Job
from tests.app.api_client import locked_pdf
from tests.app.cli_client import Commands, cairn, rows
from tests.app.small_library import pdf_of

INGEST_KEYS = ["source", "document_id", "status", "pages", "tokens", "blocks", "size_bytes", "seconds", "error"]


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """Texts, and a PDF where it matters: PDFs are read in a process of their own."""
    folder = tmp_path / "papers"
    (folder / "old").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    for name in ("b.txt", "a.TXT", "old/c.md", "old/d.html", "notes.bin", ".hidden/e.txt", ".f.txt"):
        (folder / name).write_text(f"The paper called {name} speaks of the dam and of the lake behind it.")
    return folder


def test_ingest_writes_one_json_line_a_file_and_nothing_else(
    commands: Commands, library: Library, tmp_path: Path
) -> None:
    (tmp_path / "b.pdf").write_bytes(pdf_of(["One page speaks of the dam.", "The other speaks of the lake."]))
    result = cairn("ingest", tmp_path / "b.pdf", "--json")
    assert result.exit_code == 0 and result.stderr == ""
    (row,) = rows(result.stdout)
    assert list(row) == INGEST_KEYS
    assert row["source"] == "b.pdf" and row["status"] == "done" and row["error"] is None
    assert library.documents.get(row["document_id"]).pages == row["pages"] == 2 and row["blocks"] == 1


def test_ingest_reads_folders_in_order_and_leaves_out_hidden_and_other_files(commands: Commands, papers: Path) -> None:
    result = cairn("ingest", papers, "--json")
    assert [row["source"] for row in rows(result.stdout)] == ["a.TXT", "b.txt", "old/c.md", "old/d.html"]


def test_ingest_follows_no_links_out_of_a_folder_and_reads_no_home_below_it(
    commands: Commands, papers: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("Nobody meant this file.")
    (papers / "link.txt").symlink_to(tmp_path / "secret.txt")
    (papers / "linked").symlink_to(tmp_path, target_is_directory=True)
    home = papers / "home"
    (home / "kv").mkdir(parents=True)
    for name in ("home.json", "report.txt"):
        (home / name).write_text("{}")
    found = [name for _, name in files_below([papers])]
    assert found and not any("link" in name or "home" in name or "secret" in name for name in found)
    assert [name for _, name in files_below([papers / "link.txt"])] == ["link.txt"], "named, it is meant"


@pytest.mark.parametrize(
    "words",
    [["ingest", ""], ["ask", "Where is the dam?", ""], ["sync", ""], ["serve", "--watch", ""], ["--home", "", "list"]],
    ids=str,
)
def test_an_empty_path_is_not_the_current_folder(
    commands: Commands, papers: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(papers)
    monkeypatch.setattr("app.cli.serve.run_server", lambda *_given, **_named: None)
    ended = cairn(*words)
    assert ended.exit_code == 2 and "the path is empty" in ended.stderr and not commands.opened


def test_a_name_with_line_breaks_and_escape_codes_is_told_on_one_line(commands: Commands, tmp_path: Path) -> None:
    told = cairn("ingest", str(tmp_path / "evil\nDone.\x1b[31m\u202e.txt"))
    assert told.exit_code == 1 and "evil Done.[31m.txt" in told.stderr and "\nDone" not in told.stderr


def test_a_device_is_no_bundle(commands: Commands) -> None:
    ended = cairn("import-library", "/dev/zero")
    assert ended.exit_code == 1 and "device" in ended.stderr and "Traceback" not in ended.stderr


def test_ingest_goes_on_after_a_bad_file_and_ends_with_status_1(commands: Commands, papers: Path) -> None:
    (papers / "a.TXT").write_text("")
    (papers / "b.pdf").write_bytes(b"%PDF-1.7\nnothing of a document")
    result = cairn("ingest", papers / "missing.pdf", papers, "--json")
    assert result.exit_code == 1
    found = {row["source"]: row for row in rows(result.stdout)}
    assert {name: row["status"] for name, row in found.items()} == {
        "missing.pdf": "failed", "a.TXT": "failed", "b.pdf": "failed",
        "b.txt": "done", "old/c.md": "done", "old/d.html": "done",
    }  # fmt: skip
    assert "There is no file" in found["missing.pdf"]["error"] and found["missing.pdf"]["document_id"] is None
    assert "empty" in found["a.TXT"]["error"] and "cannot be read" in found["b.pdf"]["error"]
    assert all(list(row) == INGEST_KEYS for row in found.values())


def test_a_folder_that_cannot_be_read_is_named(papers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shut(folder: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(os, "scandir", shut)  # the tests may run as root
    assert list(files_below([papers])) == [(papers, "papers")]


def test_ingest_says_that_a_file_is_already_stored(commands: Commands, library: Library, papers: Path) -> None:
    cairn("ingest", papers / "b.txt")
    result = cairn("ingest", papers / "b.txt", "--json")
    assert result.exit_code == 0 and rows(result.stdout)[0]["status"] == "already stored"
    assert "already stored" in cairn("ingest", papers / "b.txt").stdout
    (document,) = library.documents.list(search="b.txt")
    library.documents.move(document.id, library.collections.create("Reports").id)
    result = cairn("ingest", papers / "b.txt", "--collection", "Other", "--json")
    assert rows(result.stdout)[0]["status"] == "already stored"
    assert "already stored, in collection Reports" in result.stderr


def test_ingest_puts_documents_into_a_collection_and_passes_the_password(
    commands: Commands, library: Library, tmp_path: Path
) -> None:
    (tmp_path / "b.pdf").write_bytes(locked_pdf("open sesame"))
    assert cairn("ingest", tmp_path / "b.pdf").exit_code == 1
    assert cairn("ingest", tmp_path / "b.pdf", "--collection", "water", "--password", "open sesame").exit_code == 0
    assert [(one.name, one.documents) for one in library.collections.list()] == [("water", 1)]


def test_ingest_of_a_folder_without_documents_is_a_failure(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    result = cairn("ingest", tmp_path / "nothing")
    assert result.exit_code == 1 and "nothing to read" in result.stderr


def test_ingest_stops_at_once_when_the_memory_belongs_to_another_model(
    commands: Commands, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def refuse(_documents: Documents, path: Path, **_options: object) -> None:
        calls.append(path)
        raise MemoryMismatch(["weights"])

    monkeypatch.setattr(Documents, "submit", refuse)
    result = cairn("ingest", papers, "--json")
    assert result.exit_code == 1 and len(calls) == 1
    assert result.stderr.startswith("cairn: The stored memory does not belong to this model: weights differs.")


def test_interrupted_ingestion_says_how_to_go_on(
    commands: Commands, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_jobs: Jobs, _job: str, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Jobs, "run", interrupt)
    result = cairn("ingest", papers / "b.txt")
    assert result.exit_code == 130 and "to resume" in result.stderr and commands.closed == 1


def test_a_file_that_a_server_is_reading_is_waited_for(
    commands: Commands, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: Any = iter(["running", "running", "done"])

    def elsewhere(jobs: Jobs, job_id: str, **_options: object) -> Job:
        return replace(jobs.get(job_id), state=next(states))

    monkeypatch.setattr("app.cli.ingest.WATCH_SECONDS", 0.0)
    monkeypatch.setattr(Jobs, "run", elsewhere)
    result = cairn("ingest", papers / "b.txt", "--json")
    assert result.exit_code == 0 and rows(result.stdout)[0]["status"] == "done" and next(states, None) is None


@pytest.mark.parametrize(
    ("stage", "bar", "words"),
    [
        ("extracting", "##########----------", "extracting, 5/10 pages, 0:40 left"),
        ("recognising", "##########----------", "recognising, 5/10 pages, 0:40 left"),
        ("reading", "#####---------------", "reading, 5/10 pages, 25/100 tokens, 0:40 left"),
    ],
)
def test_the_bar_shows_how_far_the_stage_is(stage: str, bar: str, words: str) -> None:
    is_read = stage == "reading"
    job = Job(
        id="", document_id="", source="a.pdf", collection_id=None, state="running", stage=stage, pages_done=5, pages=10,
        tokens_done=25 if is_read else 0, tokens=100 if is_read else 0, blocks=0, size_bytes=0, tokens_per_second=0.0,
        eta_seconds=40.0, seconds=1.0, error="", note="", created_at="",
    )  # fmt: skip
    assert progress_line(job, 120).split("] ") == [f"a.pdf [{bar}", words]
