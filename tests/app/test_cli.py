"""The command line over a library without a model: shapes of output, exit statuses, one line for every problem."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app import assembly
from app.cli import cli
from app.cli.output import printable
from app.settings import Settings
from retrieval.errors import ExtractError, MemoryMismatch
from retrieval.types.records import DamageReport, Job
from tests.app.cli_library import CliLibrary

INGEST_KEYS = ["source", "document_id", "status", "pages", "tokens", "blocks", "size_bytes", "seconds", "error"]
ASK_KEYS = {"id", "answer", "passages", "memory_share", "first_token_seconds", "seconds"}
PASSAGE_KEYS = {"document_id", "source", "pages", "start_index", "end_index", "text", "score", "block_ids"}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> CliLibrary:
    """What every command opens; `library.settings` is what it was opened with."""
    made = CliLibrary()

    def open_library(settings: Settings) -> CliLibrary:
        made.settings = settings
        return made

    monkeypatch.setattr(assembly, "open_library", open_library)
    for name in [name for name in os.environ if name.startswith("CAIRN_")]:
        monkeypatch.delenv(name)
    return made


def cairn(*words: object, input: str | None = None):
    return CliRunner().invoke(cli, [str(word) for word in words], input=input)


def rows(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    folder = tmp_path / "papers"
    (folder / "old").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    for name in ("b.pdf", "a.PDF", "old/c.txt", "old/d.docx", "notes.xlsx", ".hidden/e.pdf", ".f.pdf"):
        (folder / name).write_bytes(b"%PDF-1.7 " + name.encode())
    return folder


def test_ingest_writes_one_json_line_a_file_and_nothing_else(library: CliLibrary, papers: Path) -> None:
    result = cairn("ingest", papers / "b.pdf", "--json")
    assert result.exit_code == 0 and result.stderr == ""
    (row,) = rows(result.stdout)
    assert list(row) == INGEST_KEYS
    assert row["source"] == "b.pdf" and row["status"] == "done" and row["error"] is None
    assert row["document_id"] in library.document_rows and row["pages"] == 4 and row["blocks"] == 36


def test_ingest_reads_folders_in_order_and_leaves_out_hidden_and_other_files(library: CliLibrary, papers: Path) -> None:
    result = cairn("ingest", papers, "--json")
    assert [row["source"] for row in rows(result.stdout)] == ["a.PDF", "b.pdf", "old/c.txt", "old/d.docx"]


def test_ingest_goes_on_after_a_bad_file_and_ends_with_status_1(library: CliLibrary, papers: Path) -> None:
    library.broken = {"b.pdf"}
    (papers / "a.PDF").write_bytes(b"HOSTILE")
    result = cairn("ingest", papers / "missing.pdf", papers, "--json")
    assert result.exit_code == 1
    found = {row["source"]: row for row in rows(result.stdout)}
    assert [found[name]["status"] for name in ("missing.pdf", "a.PDF", "b.pdf", "old/c.txt")] == ["failed"] * 3 + [
        "done"
    ]
    assert "No such file" in found["missing.pdf"]["error"]
    assert "refers to itself" in found["a.PDF"]["error"] and found["a.PDF"]["document_id"] is None
    assert "Page 2 is damaged" in found["b.pdf"]["error"]
    assert all(list(row) == INGEST_KEYS for row in found.values())


def test_ingest_says_that_a_file_is_already_stored(library: CliLibrary, papers: Path) -> None:
    cairn("ingest", papers / "b.pdf")
    result = cairn("ingest", papers / "b.pdf", "--json")
    assert result.exit_code == 0 and rows(result.stdout)[0]["status"] == "already stored"
    assert "already stored" in cairn("ingest", papers / "b.pdf").stdout
    library.kept_in = ", in collection Reports"
    result = cairn("ingest", papers / "b.pdf", "--json")
    assert rows(result.stdout)[0]["status"] == "already stored"
    assert "already stored, in collection Reports" in result.stderr


def test_ingest_puts_documents_into_a_collection_and_passes_the_password(library: CliLibrary, papers: Path) -> None:
    (papers / "b.pdf").write_bytes(b"ENCRYPTED")
    assert cairn("ingest", papers / "b.pdf").exit_code == 1
    assert cairn("ingest", papers / "b.pdf", "--collection", "water", "--password", "open sesame").exit_code == 0
    assert [(one.name, one.documents) for one in library.collections()] == [("water", 1)]


def test_ingest_of_a_folder_without_documents_is_a_failure(library: CliLibrary, tmp_path: Path) -> None:
    result = cairn("ingest", tmp_path)
    assert result.exit_code == 1 and "nothing to read" in result.stderr


def test_ingest_stops_at_once_when_the_memory_belongs_to_another_model(
    library: CliLibrary, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def refuse(path: Path, **_options: object) -> None:
        calls.append(path)
        raise MemoryMismatch(["weights"])

    monkeypatch.setattr(library, "submit", refuse)
    result = cairn("ingest", papers, "--json")
    assert result.exit_code == 1 and len(calls) == 1
    assert result.stderr.startswith("cairn: The stored memory does not belong to this model: weights differs.")


def test_interrupted_ingestion_says_how_to_go_on(
    library: CliLibrary, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_job: str, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(library, "run_job", interrupt)
    result = cairn("ingest", papers / "b.pdf")
    assert result.exit_code == 130 and "to resume" in result.stderr and library.closed == 1


def test_a_file_that_a_server_is_reading_is_waited_for(
    library: CliLibrary, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(["running", "running", "done"])

    def elsewhere(job_id: str, **_options: object) -> Job:
        return replace(library.job(job_id), state=next(states))

    monkeypatch.setattr("app.cli.ingest.WATCH_SECONDS", 0.0)
    monkeypatch.setattr(library, "run_job", elsewhere)
    result = cairn("ingest", papers / "b.pdf", "--json")
    assert result.exit_code == 0 and rows(result.stdout)[0]["status"] == "done" and next(states, None) is None


def test_search_writes_the_promised_shape(library: CliLibrary) -> None:
    library.add("dam.pdf")
    result = cairn("search", "Who raised the dam?", "-k", "3", "--json")
    (row,) = rows(result.stdout)
    assert result.exit_code == 0 and {"id", "passages", "seconds"} <= set(row) and "answer" not in row
    assert len(row["passages"]) == 3 and set(row["passages"][0]) >= PASSAGE_KEYS
    scores = [passage["score"] for passage in row["passages"]]
    assert scores == sorted(scores, reverse=True)


def test_ask_writes_the_promised_shape(library: CliLibrary) -> None:
    library.add("dam.pdf")
    result = cairn("ask", "Who raised the dam?", "--json", "-k", "5")
    (row,) = rows(result.stdout)
    assert result.exit_code == 0 and set(row) >= ASK_KEYS and set(row["passages"][0]) >= PASSAGE_KEYS
    assert row["answer"] and 0 <= row["memory_share"] <= 1 and row["answer_id"] in library.answer_rows
    assert library.asked[0]["k"] == 5 and library.asked[0]["quote"] is None


def test_ask_passes_on_what_its_options_say(library: CliLibrary) -> None:
    water = library.create_collection("water")
    one = library.add("dam.pdf", collection_id=water.id)
    assert cairn("ask", "Why?", "--free", "--json").exit_code == 0 and library.asked.pop()["quote"] is False
    words = ("--quote", "--max-tokens", 7, "--document", "dam.pdf", "--collection", "water")
    assert cairn("ask", "Why?", *words, "--json").exit_code == 0
    asked = library.asked[0]
    assert asked["quote"] is True and asked["max_tokens"] == 7
    assert asked["within"].document_ids == (one.id,) and asked["within"].collection_ids == (water.id,)


def test_question_files_give_one_line_an_item_in_their_order(library: CliLibrary, tmp_path: Path) -> None:
    library.add("dam.pdf")
    file = tmp_path / "questions.jsonl"
    items = [{"id": f"q{number}", "question": f"What of {number}?"} for number in range(3)]
    file.write_text("\n".join(map(json.dumps, items)) + "\n\n")
    for command, expected in (("ask", ASK_KEYS), ("search", ASK_KEYS - {"answer"})):
        result = cairn(command, "--questions", file)
        assert result.exit_code == 0
        assert [row["id"] for row in rows(result.stdout)] == ["q0", "q1", "q2"]
        assert all(set(row) >= expected for row in rows(result.stdout))
    assert library.closed == 2, "the library is opened once a command, not once a question"


def test_questions_come_from_stdin_too_and_ids_keep_their_type(library: CliLibrary) -> None:
    library.add("dam.pdf")
    result = cairn("search", "--questions", "-", "--json", input='{"id": 7, "question": "dam?"}\n')
    assert [row["id"] for row in rows(result.stdout)] == [7]


def test_one_failing_question_does_not_stop_the_rest(library: CliLibrary, tmp_path: Path) -> None:
    library.add("dam.pdf")
    file = tmp_path / "questions.jsonl"
    file.write_text('{"id": "empty", "question": " "}\n{"id": "good", "question": "dam?"}\n')
    result = cairn("ask", "--questions", file)
    first, second = rows(result.stdout)
    assert result.exit_code == 1 and first == {"id": "empty", "error": "The question is empty."} and second["answer"]


@pytest.mark.parametrize("line", ["{", '{"id": 1}', '{"id": 1, "question": 2}', '["a"]', "3"])
def test_a_bad_line_in_a_question_file_is_named_before_any_work(library: CliLibrary, tmp_path: Path, line: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"id": 1, "question": "fine?"}\n' + line + "\n")
    result = cairn("ask", "--questions", file)
    assert result.exit_code == 1 and result.stdout == "" and "line 2" in result.stderr and library.asked == []


@pytest.mark.parametrize("words", [(), ("question", "--questions", "f.jsonl")])
def test_a_question_and_a_file_exclude_each_other(library: CliLibrary, words: tuple[str, ...]) -> None:
    result = cairn("ask", *words)
    assert result.exit_code == 2 and "either a question or --questions" in result.stderr


def test_ask_streams_words_and_then_names_its_passages(library: CliLibrary) -> None:
    library.add("dam.pdf")
    result = cairn("ask", "Who raised the dam?")
    assert "dam.pdf, page" in result.stdout and "of the attention went to documents" in result.stdout
    assert result.stdout.split("\n\n")[0].count("\n") == 0, "the answer is there once"


def test_an_unanswered_question_shows_the_nearest_passages(library: CliLibrary) -> None:
    library.add("dam.pdf")
    result = cairn("ask", "Where do unicorns sleep?")
    assert "The documents do not say." in result.stdout and "Closest passages" in result.stdout


def test_list_show_and_delete_agree(library: CliLibrary) -> None:
    one = library.add("dam.pdf")
    library.add("lake.pdf")
    assert {row["id"] for row in rows(cairn("list", "--json").stdout)} == set(library.document_rows)
    assert "dam.pdf" in cairn("list").stdout
    shown = rows(cairn("show", "dam.pdf", "--page", 2, "--json").stdout)[0]
    assert shown["id"] == one.id and shown["page"]["page"] == 2 and shown["page"]["text"]
    deleted = rows(cairn("delete", one.id, "--json").stdout)[0]
    assert deleted["documents"] == 1 and deleted["freed_bytes"] > 0
    assert [row["source"] for row in rows(cairn("list", "--json").stdout)] == ["lake.pdf"]


def test_list_shows_collections_jobs_and_answers(library: CliLibrary, papers: Path) -> None:
    cairn("ingest", papers / "b.pdf", "--collection", "water")
    cairn("ask", "What of the dam?")
    assert [row["name"] for row in rows(cairn("list", "--collections", "--json").stdout)] == ["water"]
    assert [row["state"] for row in rows(cairn("list", "--jobs", "--json").stdout)] == ["done"]
    assert [row["question"] for row in rows(cairn("list", "--answers", "--json").stdout)] == ["What of the dam?"]
    assert all(cairn("list", kind).stdout for kind in ("--collections", "--jobs", "--answers"))
    assert cairn("list", "--jobs", "--answers").exit_code == 2


def test_nothing_is_deleted_unless_every_name_is_known(library: CliLibrary) -> None:
    library.add("dam.pdf")
    result = cairn("delete", "dam.pdf", "nowhere.pdf", "--yes")
    assert result.exit_code == 1 and len(library.document_rows) == 1
    assert (
        result.stderr
        == "cairn: There is no document 'nowhere.pdf' in this library. `cairn list` shows what there is.\n"
    )


def test_a_name_that_fits_several_documents_is_refused(library: CliLibrary) -> None:
    library.add("dam.pdf")
    library.add("dam.pdf")
    result = cairn("show", "dam.pdf")
    assert result.exit_code == 1 and "matches 2 documents" in result.stderr


def test_a_quotation_comes_with_the_sentences_that_came_next(library: CliLibrary, tmp_path: Path) -> None:
    for name in ("dam.pdf", "bridge.pdf", "harbour.pdf"):
        library.add(name)
    (row,) = rows(cairn("ask", "Who raised the dam?", "--quote", "-k", 2, "--json").stdout)
    assert len(row["other_sentences"]) == 2
    for other in row["other_sentences"]:
        assert other["short_answer"] and other["text"].startswith(other["short_answer"]) and other["page_labels"]
    told = cairn("ask", "Who raised the dam?", "--quote", "-k", 2).stdout
    assert told.index("Other possible answers:") < told.index(row["other_sentences"][1]["text"][:40])
    cairn("export", "last", "-o", tmp_path / "answer.html")
    other = row["other_sentences"][0]
    wanted = f"<li><b>{other['short_answer']}</b>{other['text'][len(other['short_answer']) :]}<div"
    assert wanted in (tmp_path / "answer.html").read_text()
    assert not rows(cairn("ask", "Who raised the dam?", "--free", "--json").stdout)[0]["other_sentences"]


def test_export_writes_html_and_json_of_the_last_answer(library: CliLibrary, tmp_path: Path) -> None:
    library.add("dam.pdf")
    cairn("ask", "Who raised the dam?")
    answer = library.heads[0].id
    assert json.loads(cairn("export", answer[:8], "--json").stdout)["id"] == answer
    assert cairn("export", "last", "-o", tmp_path / "answer.html").exit_code == 0
    assert (tmp_path / "answer.html").read_text().startswith("<!doctype html>")
    assert cairn("export", "ffff").exit_code == 1


def test_verify_fails_when_anything_is_damaged(library: CliLibrary) -> None:
    assert cairn("verify").exit_code == 0 and "all whole" in cairn("verify").stdout
    library.damage = (DamageReport("d1", "dam.pdf", "s1.kv", "block 7 of layer 3: checksum differs"),)
    result = cairn("verify", "--json")
    assert result.exit_code == 1 and rows(result.stdout)[0]["ok"] is False
    assert "dam.pdf" in cairn("verify").stderr and "cairn repair" in cairn("verify").stdout


def test_repair_reports_what_it_could_not_do(library: CliLibrary) -> None:
    library.damage = (DamageReport("d1", "dam.pdf", "s1.kv", "block 7"),)
    assert cairn("repair").exit_code == 0 and library.reingested is False
    library.damage = (DamageReport("d1", "dam.pdf", "s1.kv", "hopeless"),)
    result = cairn("repair", "--reingest", "--json")
    assert result.exit_code == 1 and library.reingested and rows(result.stdout)[0]["failed"]


def test_gc_says_what_it_freed(library: CliLibrary) -> None:
    library.orphans = ("kv/a/1.kv", "kv/a/2.kv")
    assert rows(cairn("gc", "--json").stdout)[0]["swept_bytes"] == 2000 and library.grace_seconds == 7 * 24 * 3600
    assert "2 files (2.0 kB) moved to the trash, which keeps them for 7 days" in cairn("gc").stdout
    assert "2 files (2.0 kB) removed" in cairn("gc", "--now").stdout and library.grace_seconds == 0


def test_doctor_names_problems_and_fails(library: CliLibrary, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    result = cairn("doctor", "--json", "--home", tmp_path, "--model", tmp_path / "model")
    report = rows(result.stdout)[0]
    assert result.exit_code == 1 and "config.json is missing" in report["problems"][0]
    (tmp_path / "model" / "config.json").write_text("{}")
    result = cairn("doctor", "--json", "--home", tmp_path, "--model", tmp_path / "model")
    report = rows(result.stdout)[0]
    assert result.exit_code == 0 and report["problems"] == [] and report["device"] == "cpu"
    assert report["versions"]["torch"] and report["home"] == "/data/cairn"
    assert "Nothing is wrong" in cairn("doctor", "--home", tmp_path, "--model", tmp_path / "model").stdout


def test_home_and_model_stand_before_or_after_the_command(library: CliLibrary, tmp_path: Path) -> None:
    cairn("--home", tmp_path / "a", "--model", "m1", "list")
    assert library.settings.home == tmp_path / "a" and library.settings.model == "m1"
    cairn("--home", tmp_path / "a", "list", "--home", tmp_path / "b", "--model", "m2")
    assert library.settings.home == tmp_path / "b" and library.settings.model == "m2"


def test_the_environment_chooses_the_home_unless_an_option_does(
    library: CliLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAIRN_HOME", str(tmp_path / "env"))
    cairn("list")
    assert library.settings.home == tmp_path / "env"
    cairn("list", "--home", tmp_path / "b")
    assert library.settings.home == tmp_path / "b"


def test_a_mistake_of_ours_keeps_its_traceback(library: CliLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "documents", lambda **_options: 1 // 0)
    assert isinstance(cairn("list").exception, ZeroDivisionError)


def test_terminal_control_codes_of_documents_never_reach_the_terminal(library: CliLibrary) -> None:
    library.add("evil\x1b]0;owned\x07.pdf", text="dam \x1b[2J\u202e dam")
    for words in (("list",), ("search", "dam"), ("ask", "dam")):
        out = cairn(*words).stdout
        assert "\x1b" not in out and "\x07" not in out and "\u202e" not in out
    assert printable("a\x1b[2J\tb\nü") == "a[2J\tb\nü"


def test_unreadable_documents_are_one_line(library: CliLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise ExtractError("The page cannot be drawn.")

    library.add("dam.pdf")
    monkeypatch.setattr(library, "page_text", refuse)
    result = cairn("show", "dam.pdf", "--page", 1)
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
