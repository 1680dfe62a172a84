"""`cairn search`, `ask` and `export` over a small library: the shapes of their output, and what their options do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app import assembly
from app.cli.output import printable
from app.settings import Settings
from retrieval.library import Library
from retrieval.types.answers import EARLIER_VERSION, NOTHING_FOUND, WHO_CHOSE
from retrieval.writers.server import ServerWriter
from tests.app.cli_client import Commands, cairn, rows
from tests.app.small_library import QUESTION, RESERVOIR, UNANSWERED

ASK_KEYS = {"id", "answer", "passages", "memory_share", "first_token_seconds", "seconds"}
PASSAGE_KEYS = {"document_id", "source", "pages", "start_index", "end_index", "text", "score", "block_ids"}


def used_settings(library: Library) -> dict[str, Any]:
    """How the newest answer was asked for."""
    return dict(library.answers.get(library.answers.list(limit=1)[0].id).settings)


def test_search_writes_the_promised_shape(commands: Commands) -> None:
    result = cairn("search", "Who raised the dam?", "-k", "3", "--json")
    (row,) = rows(result.stdout)
    assert result.exit_code == 0 and {"id", "passages", "seconds"} <= set(row) and "answer" not in row
    assert len(row["passages"]) == 3 and set(row["passages"][0]) >= PASSAGE_KEYS
    scores = [passage["score"] for passage in row["passages"]]
    assert scores == sorted(scores, reverse=True)


def test_ask_writes_the_promised_shape(commands: Commands, library: Library) -> None:
    result = cairn("ask", QUESTION, "--json", "-k", "5")
    (row,) = rows(result.stdout)
    assert result.exit_code == 0 and set(row) >= ASK_KEYS and set(row["passages"][0]) >= PASSAGE_KEYS
    assert "1981" in row["answer"] and 0 <= row["memory_share"] <= 1
    assert library.answers.get(row["answer_id"]).text == row["answer"] and used_settings(library)["k"] == 5


def test_ask_passes_on_what_its_options_say(commands: Commands, library: Library) -> None:
    water = library.collections.create("water")
    (one,) = library.documents.list(search=RESERVOIR)
    library.documents.move(one.id, water.id)
    words = ("--quote", "--max-tokens", 7, "--document", RESERVOIR, "--collection", "water")
    assert cairn("ask", QUESTION, *words, "--json").exit_code == 0
    used = used_settings(library)
    assert used["quote"] is True and used["max_tokens"] == 7
    assert used["scope"] == {"document_ids": [one.id], "collection_ids": [water.id], "where": []}


def test_question_files_give_one_line_an_item_in_their_order(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    items = [{"id": f"q{number}", "question": f"What of {number}?"} for number in range(3)]
    file.write_text("\n".join(map(json.dumps, items)) + "\n\n")
    for command, expected in (("ask", ASK_KEYS), ("search", ASK_KEYS - {"answer"})):
        result = cairn(command, "--questions", file)
        assert result.exit_code == 0
        assert [row["id"] for row in rows(result.stdout)] == ["q0", "q1", "q2"]
        assert all(set(row) >= expected for row in rows(result.stdout))
    assert len(commands.opened) == commands.closed == 2, "opened once a command, not once a question"


def test_questions_come_from_stdin_too_and_ids_keep_their_type(commands: Commands) -> None:
    result = cairn("search", "--questions", "-", "--json", input='{"id": 7, "question": "dam?"}\n')
    assert [row["id"] for row in rows(result.stdout)] == [7]


def test_one_failing_question_does_not_stop_the_rest(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"id": "empty", "question": " "}\n{"id": "good", "question": "dam?"}\n')
    result = cairn("ask", "--questions", file)
    first, second = rows(result.stdout)
    assert result.exit_code == 1 and first == {"id": "empty", "error": "The question is empty."} and second["answer"]


@pytest.mark.parametrize("line", ["{", '{"id": 1}', '{"id": 1, "question": 2}', '["a"]', "3"])
def test_a_bad_line_in_a_question_file_is_named_and_stops_no_other(
    commands: Commands, tmp_path: Path, line: str
) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text("\ufeff" + line + '\n{"id": "good", "question": "dam?"}\n', encoding="utf-8")
    result = cairn("search", "--questions", file)
    first, second = rows(result.stdout)
    assert result.exit_code == 1 and "line 1" in first["error"] and second["id"] == "good" and second["passages"]


def test_a_folder_is_read_and_asked_in_one_command(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "lake.txt").write_text("The lake freezes in January. The ferry stops then. " * 8)
    first = rows(cairn("ask", "When does the lake freeze?", tmp_path / "notes", "--json").stdout)[-1]
    again = rows(cairn("ask", "When does the lake freeze?", tmp_path / "notes", "--json").stdout)[-1]
    for row in (first, again):
        assert {one["source"] for one in (*row["passages"], *row["near_misses"])} == {"lake.txt"}
    nothing = cairn("ask", "Anything?", tmp_path / "nowhere.txt")
    assert nothing.exit_code == 1 and "no file there could be read" in nothing.stderr


@pytest.mark.parametrize("words", [(), ("question", "--questions", "f.jsonl")])
def test_a_question_and_a_file_exclude_each_other(commands: Commands, words: tuple[str, ...]) -> None:
    result = cairn("ask", *words)
    assert result.exit_code == 2 and "either a question or --questions" in result.stderr


def test_ask_streams_words_and_then_names_its_passages(commands: Commands) -> None:
    result = cairn("ask", QUESTION)
    assert f"{RESERVOIR}, page" in result.stdout and "of the attention" not in result.stdout
    assert result.stdout.count(WHO_CHOSE["reader"]) == 1
    told = result.stdout.split("\nIn short:")[0]
    assert told.count("raised by three metres") == 1, "the answer is there once"


def test_an_unanswered_question_shows_the_nearest_passages(commands: Commands) -> None:
    result = cairn("ask", UNANSWERED)
    assert NOTHING_FOUND in result.stdout and "Nearest passages" in result.stdout


def test_a_quotation_comes_with_the_sentences_that_came_next(commands: Commands, tmp_path: Path) -> None:
    (row,) = rows(cairn("ask", QUESTION, "--quote", "--json").stdout)
    assert row["other_sentences"] and row["short_answer"] == "1981"
    for other in row["other_sentences"]:
        assert other["short_answer"] in other["text"] and other["page_labels"]
    told = cairn("ask", QUESTION, "--quote").stdout
    assert told.index("Other possible answers:") < told.index(row["other_sentences"][-1]["text"][:40])
    cairn("export", "last", "-o", tmp_path / "answer.html")
    listed = re.findall("<li>(.*?)</li>", (tmp_path / "answer.html").read_text(), re.DOTALL)
    for item, other in zip(listed, row["other_sentences"], strict=True):
        assert f"{other['short_answer']}</b>" in item and re.sub("<[^>]*>", "", item).startswith(other["text"])


def test_what_an_earlier_version_says_otherwise_stands_beside_the_answer(
    commands: Commands, library: Library, tmp_path: Path
) -> None:
    for which, months in (("2023", "eighteen"), ("2026", "thirty")):
        file = tmp_path / f"records {which}.txt"
        file.write_text(f"Keeping of records, {which}\n\nRecords of visitors are kept for {months} months.\n")
        library.jobs.run(library.documents.submit(file).id)
    (row,) = rows(cairn("ask", "How long are records of visitors kept?", "--json").stdout)
    assert "thirty" in row["answer"]
    earlier = row["earlier_version"]
    assert earlier["source"] == "records 2023.txt" and "eighteen" in earlier["text"]
    assert not any(earlier["text"] in other["text"] for other in row["other_sentences"]), "it is no other answer"
    told = cairn("ask", "How long are records of visitors kept?").stdout
    assert f"{EARLIER_VERSION}: “{earlier['text']}” (records 2023.txt)" in told
    cairn("export", "last", "-o", tmp_path / "answer.html")
    assert EARLIER_VERSION in (exported := (tmp_path / "answer.html").read_text()) and "records 2023.txt" in exported
    (row,) = rows(cairn("ask", "How long were records of visitors kept in 2023?", "--json").stdout)
    assert "eighteen" in row["answer"] and row["earlier_version"] is None


def test_export_writes_html_and_json_of_the_last_answer(commands: Commands, library: Library, tmp_path: Path) -> None:
    cairn("ask", QUESTION)
    (answer,) = library.answers.list()
    assert json.loads(cairn("export", answer.id[:8], "--json").stdout)["id"] == answer.id
    assert cairn("export", "last", "-o", tmp_path / "answer.html").exit_code == 0
    assert (tmp_path / "answer.html").read_text().startswith("<!doctype html>")
    assert cairn("export", "ffff").exit_code == 1


def test_an_export_into_a_pipe_is_the_one_into_a_file_with_characters_that_nobody_sees(
    commands: Commands, tmp_path: Path
) -> None:
    cairn("ask", "When was the \u200cdam raised?")
    for options in ((), ("--json",)):
        cairn("export", "last", "-o", tmp_path / "answer", *options)
        kept = (tmp_path / "answer").read_text()
        assert "\u200c" in kept and cairn("export", "last", *options).stdout == kept + "\n"


def test_terminal_control_codes_of_documents_never_reach_the_terminal(
    commands: Commands, library: Library, tmp_path: Path
) -> None:
    (tmp_path / "evil.txt").write_text("The wombat \x1b[2J\u202e lives in the old mill \x07 by the river.")
    job = library.documents.submit(tmp_path / "evil.txt", source="evil\x1b]0;owned\x07.txt")
    assert library.jobs.run(job.id).state == "done"
    for words in (("list",), ("search", "wombat"), ("ask", "Where does the wombat live?")):
        out = cairn(*words).stdout
        assert "evil" in out and "\x1b" not in out and "\x07" not in out and "\u202e" not in out
    assert printable("a\x1b[2J\tb\nü") == "a[2J\tb\nü"


def test_free_without_a_writer_says_how_to_get_one_and_a_writer_that_cannot_be_reached_is_an_error(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = cairn("ask", QUESTION, "--free")
    assert free.exit_code == 1 and "This needs a writer." in free.stderr and "CAIRN_WRITER=" in free.stderr
    opened = assembly.open_library

    def with_writer(settings: Settings) -> Library:
        library = opened(settings)
        library.use_writer(lambda: ServerWriter("http://127.0.0.1:9/v1#m"))
        return library

    monkeypatch.setattr(assembly, "open_library", with_writer)
    for options in (["--json"], []):
        gone = cairn("ask", QUESTION, *options)
        assert gone.exit_code == 1 and "cannot be reached" in gone.stderr
