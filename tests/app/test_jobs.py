"""The job runner: works the queue off, stops amid a job, survives a library that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.work import JobRunner
from retrieval.jobs import Jobs
from retrieval.library import Library
from retrieval.types.records import Job
from storage.errors import CatalogueUnavailable
from tests.tiny_model import tiny_model
from tests.waiting import until


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with Library.open(tmp_path / "home", lambda: tiny_model(block_size=16)) as library:
        yield library


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    return another(tmp_path / "a.txt")


def another(path: Path) -> Path:
    path.write_text(f"The dam of {path.name} is old.")
    return path


def test_jobs_are_worked_off_in_order_also_those_that_come_later(library: Library, paper: Path) -> None:
    first = library.documents.submit(paper, source="first")
    with JobRunner(library, idle_seconds=0.01):
        until(lambda: not library.jobs.get(first.id).active)
        second = library.documents.submit(another(paper.with_name("b.txt")), source="second")
        until(lambda: not library.jobs.get(second.id).active)
    assert library.documents.get(second.document_id).state == "ready"


def test_stopping_leaves_the_job_in_the_queue(library: Library, paper: Path) -> None:
    reached = threading.Event()

    def slow(*, on_progress: Callable[[Job], None], idle_owners_only: bool) -> Job:
        job = library.jobs.list()[0]
        while True:
            reached.set()
            on_progress(job)
            time.sleep(0.005)

    job = library.documents.submit(paper)
    library.jobs.run_next = slow  # type: ignore[method-assign,assignment]
    runner = JobRunner(library)
    runner.start()
    assert reached.wait(30)
    assert runner.stop(timeout_seconds=30) and library.jobs.get(job.id).active


def test_a_drained_runner_finishes_its_job_and_begins_no_other(library: Library, paper: Path) -> None:
    work, begun, go = Jobs.run_next, threading.Event(), threading.Event()

    def slow(*, on_progress: Callable[[Job], None], idle_owners_only: bool) -> Job | None:
        if idle_owners_only:
            return None
        begun.set()
        go.wait(10)
        return work(library.jobs, on_progress=on_progress)

    jobs = [library.documents.submit(paper), library.documents.submit(another(paper.with_name("b.txt")))]
    library.jobs.run_next = slow  # type: ignore[method-assign,assignment]
    runner = JobRunner(library, idle_seconds=0.01)
    runner.start()
    assert begun.wait(30) and runner.busy
    runner.drain()
    go.set()
    until(lambda: not runner.busy)
    assert [library.jobs.get(job.id).state for job in jobs] == ["done", "queued"] and runner.num_done == 1
    assert runner.stop()


def test_a_failing_library_is_tried_again_and_logged(
    library: Library, paper: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work = Jobs.run_next
    failures = [OSError("disk full"), OSError("disk full")]

    def flaky(**options: object) -> Job | None:
        if failures and not options["idle_owners_only"]:
            raise failures.pop()
        return work(library.jobs, **options)  # type: ignore[arg-type]

    library.jobs.run_next = flaky  # type: ignore[method-assign,assignment]
    job = library.documents.submit(paper)
    with JobRunner(library, idle_seconds=0.01, pause_seconds=0.01):
        until(lambda: not library.jobs.get(job.id).active)
    assert [record.levelname for record in caplog.records].count("ERROR") == 2


def test_documents_are_read_also_after_one_could_not_be_described(library: Library, paper: Path) -> None:
    work, failures = Jobs.run_next, [OSError("disk full")]

    def describe() -> bool:
        if failures:
            raise failures.pop()
        return False

    def first_thread_only(*, on_progress: Callable[[Job], None], idle_owners_only: bool) -> Job | None:
        return None if idle_owners_only else work(library.jobs, on_progress=on_progress)

    library.descriptions.make_next = describe  # type: ignore[method-assign]
    library.jobs.run_next = first_thread_only  # type: ignore[method-assign,assignment]
    with JobRunner(library, idle_seconds=0.01, pause_seconds=0.01):
        until(lambda: not failures)
        job = library.documents.submit(paper)
        until(lambda: not library.jobs.get(job.id).active)


def test_an_idle_runner_stops_at_once(library: Library) -> None:
    runner = JobRunner(library)
    runner.start()
    begun = time.monotonic()
    assert runner.stop() and time.monotonic() - begun < 3


def test_a_runner_that_never_started_can_be_stopped(library: Library) -> None:
    assert JobRunner(library).stop()


def test_a_catalogue_that_cannot_be_used_is_one_line_in_the_log(
    library: Library, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_arguments: object, **_options: object) -> None:
        raise CatalogueUnavailable("The catalogue is locked by another program.")

    monkeypatch.setattr(library.jobs, "run_next", locked)
    with JobRunner(library, idle_seconds=0.01, pause_seconds=0.01):
        until(lambda: bool(caplog.records))
    line = next(record for record in caplog.records if record.name == "cairn.jobs")
    assert "locked by another program" in line.getMessage() and not line.exc_info
