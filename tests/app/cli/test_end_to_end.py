"""The command line over a real library with a small random model: files in, passages and answers out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import cli
from tests.tiny_model import tiny_model

TEXT = (
    "The reservoir supplies four towns. Its dam was finished in 1964.\n\n"
    "Maintenance is carried out every spring, before the snow melts.\n"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint, documents, and a library that has read one of them."""
    folder = tmp_path_factory.mktemp("end-to-end")
    tiny_model(block_size=16).save(folder / "model")
    (folder / "dam.txt").write_text(TEXT)
    (folder / "empty.txt").write_text("")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing of a document")
    return folder


@pytest.fixture(scope="module")
def environment(place: Path) -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
    return {**given, "CAIRN_HOME": str(place / "home"), "CAIRN_MODEL": str(place / "model"), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def document(place: Path, environment: dict[str, str]) -> str:
    """Id of the stored document; read by a process of its own, as a user does it."""
    command = [sys.executable, "-m", "app", "ingest", str(place / "dam.txt"), "--collection", "water", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert row["status"] == "done" and row["tokens"] == len(TEXT.rstrip().encode())
    assert row["blocks"] == -(-row["tokens"] // 15)
    return row["document_id"]


@pytest.fixture
def cairn(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    def run(*words: object, status: int = 0) -> list[dict]:
        result = CliRunner().invoke(cli, [*map(str, words), "--json"], env=environment)
        assert result.exit_code == status, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def test_what_one_process_stored_another_finds(document: str, cairn) -> None:
    (row,) = cairn("list")
    assert (row["id"], row["source"], row["state"]) == (document, "dam.txt", "ready")
    assert cairn("show", "dam.txt", "--page", 1)[0]["page"]["text"].split() == TEXT.split()


def test_the_same_content_is_read_once(document: str, place: Path, cairn) -> None:
    (row,) = cairn("ingest", place / "dam.txt")
    assert row["status"] == "already stored" and row["document_id"] == document


def test_bad_files_fail_alone_with_a_reason(place: Path, tmp_path: Path, cairn) -> None:
    files = [place / name for name in ("broken.pdf", "empty.txt", "no.pdf", "dam.txt")]
    rows = cairn("ingest", *files, "--home", tmp_path, status=1)
    assert [row["status"] for row in rows] == ["failed", "failed", "failed", "done"]
    assert all(row["error"] and "Traceback" not in row["error"] for row in rows[:3])


def test_passages_are_the_text_between_their_places(document: str, cairn) -> None:
    (row,) = cairn("search", "When was the dam finished?", "-k", 3)
    text = cairn("show", document, "--page", 1)[0]["page"]["text"]
    assert row["passages"]
    for passage in row["passages"]:
        assert passage["document_id"] == document and passage["block_ids"]
        assert passage["text"] == text[passage["start_index"] : passage["end_index"]]


def test_of_a_misspelt_word_the_nearest_of_the_library_is_named(document: str, environment: dict[str, str]) -> None:
    found = CliRunner().invoke(cli, ["find", "finishd"], env=environment)
    assert (found.exit_code, document in found.stdout) == (0, True)
    assert found.stderr == "No document holds all of these words. The nearest in the library: finished\n"
    placed = CliRunner().invoke(cli, ["grep", "finishd"], env=environment)
    assert placed.exit_code == 1 and placed.stderr == "It stands nowhere. The nearest in the library: finished\n"


def test_an_answer_is_the_same_in_every_process_and_can_be_exported(document: str, place: Path, cairn) -> None:
    questions = place / "questions.jsonl"
    questions.write_text('{"id": "a", "question": "When was the dam finished?"}\n' * 2)
    first, second = cairn("ask", "--questions", questions, "--max-tokens", 6)
    (alone,) = cairn("ask", "When was the dam finished?", "--max-tokens", 6)
    assert first["answer"] == second["answer"] == alone["answer"]
    assert first["passages"] == alone["passages"] and 0 <= first["memory_share"] <= 1
    assert 0 < first["first_token_seconds"] <= first["seconds"]
    page = place / "answer.json"
    cairn("export", alone["answer_id"], "-o", page)
    exported = json.loads(page.read_text())
    assert exported["text"] == alone["answer"] and exported["tokens"] and exported["heat"]


def test_a_collection_can_be_asked_alone(document: str, cairn) -> None:
    (row,) = cairn("search", "dam", "--collection", "water", "-k", 2)
    assert {passage["document_id"] for passage in row["passages"]} == {document}
    assert cairn("search", "dam", "--collection", "fire", status=1) == []


def test_a_stored_memory_verifies_and_damage_is_found_and_repaired(document: str, place: Path, cairn) -> None:
    assert cairn("verify")[0]["ok"] is True
    (shard,) = (place / "home" / "kv").rglob("*.kv")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    assert cairn("verify", status=1)[0]["damage"][0]["document_id"] == document
    assert cairn("repair")[0]["failed"] == []
    assert cairn("verify")[0]["ok"] is True and cairn("gc")[0]["files"] == []


def test_another_models_memory_is_refused_by_field_and_command(document: str, place: Path, cairn) -> None:
    tiny_model(block_size=16, seed=2).save(place / "other")
    command = ["search", "dam", "--model", str(place / "other"), "--home", str(place / "home")]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 1 and "weights" in result.stderr and "--reingest" in result.stderr


def test_doctor_finds_nothing_wrong(document: str, cairn) -> None:
    (report,) = cairn("doctor")
    assert report["problems"] == [] and report["memory"]["num_documents"] == 1 and report["free_bytes"] > 0


@pytest.fixture(scope="module")
def server(document: str, environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen, str]]:
    command = [sys.executable, "-m", "app", "serve", "--port", "0", "--json"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.communicate()


def test_a_server_shows_what_the_command_line_stored(
    server: tuple[subprocess.Popen, str], document: str, environment: dict[str, str]
) -> None:
    with urllib.request.urlopen(f"{server[1]}/healthz") as answer:
        assert json.load(answer) == {"status": "ok"}
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{server[1]}/api/v1/documents")
    token = (Path(environment["CAIRN_HOME"]) / "token").read_text().strip()
    bearer = {"Authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(f"{server[1]}/api/v1/documents", headers=bearer)) as answer:
        assert [one["id"] for one in json.load(answer)["documents"]] == [document]


def test_a_taken_port_and_an_open_address_are_refused_in_one_line(
    server: tuple[subprocess.Popen, str], environment: dict[str, str]
) -> None:
    port = server[1].rpartition(":")[2]
    taken = CliRunner().invoke(cli, ["serve", "--port", port], env=environment)
    assert taken.exit_code == 1 and "Choose others with --host and --port" in taken.stderr
    opened = CliRunner().invoke(cli, ["serve", "--port", "0", "--host", "0.0.0.0"], env=environment)
    assert opened.exit_code == 1 and "CAIRN_PASSWORD" in opened.stderr.splitlines()[-1]


def test_a_server_that_is_told_to_stop_ends_cleanly(server: tuple[subprocess.Popen, str]) -> None:
    server[0].send_signal(signal.SIGTERM)
    # Told so while it starts, it first finishes what it is importing and loading, which a busy machine makes long.
    assert server[0].wait(timeout=120) in (0, -signal.SIGTERM)
