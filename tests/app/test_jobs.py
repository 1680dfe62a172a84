"""The job runner: works the queue off, stops amid a job, survives a library that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.jobs import JobRunner
from retrieval.types.records import Job
from tests.app.cli_library import CliLibrary


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF-1.7")
    return path


def test_jobs_are_worked_off_in_order_also_those_that_come_later(paper: Path) -> None:
    library = CliLibrary()
    first = library.submit(paper, source="first")
    with JobRunner(library, idle_seconds=0.01):
        until(lambda: not library.job(first.id).active)
        second = library.submit(paper, source="second")
        until(lambda: not library.job(second.id).active)
    assert library.document(second.document_id).state == "ready"


def test_stopping_leaves_the_job_in_the_queue(paper: Path) -> None:
    library, reached = CliLibrary(), threading.Event()

    def slow(*, on_progress: Callable[[Job], None], idle_owners_only: bool) -> Job:
        job = library.jobs()[0]
        while True:
            reached.set()
            on_progress(job)
            time.sleep(0.005)

    job = library.submit(paper)
    library.run_next_job = slow  # type: ignore[method-assign,assignment]
    runner = JobRunner(library)
    runner.start()
    assert reached.wait(5)
    assert runner.stop(timeout_seconds=5) and library.job(job.id).active


def test_a_failing_library_is_tried_again_and_logged(paper: Path, caplog: pytest.LogCaptureFixture) -> None:
    library, work = CliLibrary(), CliLibrary.run_next_job
    failures = [OSError("disk full"), OSError("disk full")]

    def flaky(**options: object) -> Job | None:
        if failures and not options["idle_owners_only"]:
            raise failures.pop()
        return work(library, **options)  # type: ignore[arg-type]

    library.run_next_job = flaky  # type: ignore[method-assign,assignment]
    job = library.submit(paper)
    with JobRunner(library, idle_seconds=0.01, pause_seconds=0.01):
        until(lambda: not library.job(job.id).active)
    assert [record.levelname for record in caplog.records].count("ERROR") == 2


def test_an_idle_runner_stops_at_once() -> None:
    runner = JobRunner(CliLibrary())
    runner.start()
    begun = time.monotonic()
    assert runner.stop() and time.monotonic() - begun < 3


def test_a_runner_that_never_started_can_be_stopped() -> None:
    assert JobRunner(CliLibrary()).stop()
