"""`cairn work` reads what waits and stops when told to; `cairn serve --no-jobs` reads nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from app import assembly
from retrieval.jobs import Jobs
from retrieval.library import Library
from tests.app.cli_client import cairn, rows
from tests.tiny_model import tiny_model


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assembly, "load_model", lambda settings: tiny_model(block_size=16))
    monkeypatch.setenv("CAIRN_HOME", str(tmp_path / "home"))


def submit(folder: Path, *names: str) -> None:
    with Library.open(folder / "home", lambda: tiny_model(block_size=16)) as library:
        for name in names:
            (folder / name).write_text(f"The dam of {name} is old.")
            library.documents.submit(folder / name)


def test_a_worker_reads_all_that_waits(tmp_path: Path) -> None:
    submit(tmp_path, "a.txt", "b.txt")
    ended = cairn("work", "--until-empty", "--json")
    assert ended.exit_code == 0 and rows(ended.stdout)[0]["documents"] == 2, ended.output
    assert {row["state"] for row in rows(cairn("list", "--json").stdout)} == {"ready"}


def test_a_worker_that_is_told_to_stop_begins_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(tmp_path, "a.txt", "b.txt")
    work = Jobs.run_next

    def told_meanwhile(self: Jobs, *, on_progress: object, idle_owners_only: bool) -> object:
        if idle_owners_only:
            return None
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
        return work(self, on_progress=on_progress)  # type: ignore[arg-type]

    monkeypatch.setattr(Jobs, "run_next", told_meanwhile)
    before = signal.getsignal(signal.SIGTERM)
    ended = cairn("work", "--json")
    assert ended.exit_code == 0 and rows(ended.stdout)[0]["documents"] == 1, "the document at hand was finished"
    assert sorted(row["state"] for row in rows(cairn("list", "--json").stdout)) == ["ingesting", "ready"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_grace_the_document_goes_back_into_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(tmp_path, "a.txt")
    begun = threading.Event()

    def slow(self: Jobs, *, on_progress: object, idle_owners_only: bool) -> object:
        begun.set()
        while True:
            on_progress(None)  # type: ignore[operator]
            time.sleep(0.01)

    monkeypatch.setattr(Jobs, "run_next", slow)
    threading.Thread(target=lambda: begun.wait(30) and os.kill(os.getpid(), signal.SIGTERM)).start()
    ended = cairn("work", "--grace", "0")
    assert ended.exit_code == 0 and "0 documents were read" in ended.stdout


def test_a_server_can_leave_the_documents_to_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import uvicorn

    started: list[str] = []
    monkeypatch.setattr("app.work.JobRunner.start", lambda self: started.append("runner"))
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: started.append("server"))
    for options, expected in (([], ["runner", "server"]), (["--no-jobs"], ["server"])):
        started.clear()
        assert cairn("serve", "--port", "0", *options).exit_code == 0
        assert started == expected
