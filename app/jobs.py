"""JobRunner: one thread that works off the library's queue of documents while a server runs.

- The queue is in the catalogue, so nothing here needs saving: a runner that dies leaves a job that another resumes.
- Knows nothing of browsers or requests.
"""

from __future__ import annotations

import logging
import threading

from retrieval.library import Library
from retrieval.types.records import Job

log = logging.getLogger("cairn.jobs")

IDLE_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class Stopped(BaseException):
    """The runner was asked to stop amid a job. Not an Exception: a job must not take it for its own failure."""


class JobRunner:
    """Works off waiting jobs until `stop`.

    A failure of the library itself (full disk, locked database) is logged and retried, slower each time; failures of
    a document are the job's own business.
    """

    def __init__(
        self, library: Library, *, idle_seconds: float = IDLE_SECONDS, pause_seconds: float = FIRST_PAUSE_SECONDS
    ):
        self._library = library
        self._idle_seconds, self._pause_seconds = idle_seconds, pause_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="cairn-jobs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> bool:
        """Stop after the window that is being read; the job stays in the queue. True if the thread has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def __enter__(self) -> JobRunner:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _work(self) -> None:
        pause = self._pause_seconds
        while not self._stopping.is_set():
            try:
                job = self._library.run_next_job(on_progress=self._check)
            except Stopped:
                return
            except Exception:
                log.exception("Working on the job queue failed; trying again in %.0f s", pause)
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                continue
            pause = self._pause_seconds
            if job is None:
                self._stopping.wait(self._idle_seconds)
            else:
                log.info("Job %s: %s after %.1f s", job.id, job.state, job.seconds)

    def _check(self, job: Job) -> None:
        if self._stopping.is_set():
            raise Stopped
