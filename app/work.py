"""JobRunner: threads that process the library's queue of documents, in a server or in `cairn work`. FolderWatcher: a
thread that checks followed folders.

- One thread takes the next job, the other only documents of users who have none at work: a slow file, or a thousand
  files of one user, hold up nobody else. With one user, one document is read at a time.
- The queue is in the catalogue, so nothing here needs saving: if a runner dies, another resumes its job.
- With nothing to read it lets the library describe its documents.
- The watcher puts files into the queue; a later check completes what was read meanwhile.
- Knows nothing of browsers or requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from retrieval.errors import CairnError
from retrieval.library import Library
from retrieval.types.records import FolderReport, FollowedFolder, Job
from storage.errors import CatalogueUnavailable, StorageError

folder_log = logging.getLogger("cairn.folders")

FIRST_LOOK_SECONDS, WATCH_SECONDS = 2.0, 60.0


class FolderWatcher:
    """Checks the folders that are marked as watched, and those `given`, until `stop`."""

    def __init__(self, library: Library, given: Sequence[Path], *, interval_seconds: float = WATCH_SECONDS):
        self._library, self._interval_seconds = library, interval_seconds
        self.given = frozenset(library.folders.follow(path).id for path in given)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="cairn-folders", daemon=True)

    def __enter__(self) -> FolderWatcher:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join(10.0)

    def look(self, folder: FollowedFolder) -> None:
        """One run. What keeps it from ending is logged, and the next run tries again."""
        try:
            for one in self._library.folders.run(folder.id):
                if self._stopping.is_set():
                    return
                if isinstance(one, FolderReport) and set(one.counts) - {"same", "skipped"}:
                    folder_log.info("Folder %s: %s", folder.path, dict(one.counts))
        except (CairnError, StorageError) as error:
            folder_log.warning("Folder %s: %s", folder.path, error)
        except Exception:  # a thread that dies would watch nothing any more
            folder_log.exception("looking at folder %s failed", folder.path)

    def _work(self) -> None:
        pause = FIRST_LOOK_SECONDS
        while not self._stopping.wait(pause):
            pause = self._interval_seconds
            try:
                followed = self._library.folders.list()
            except StorageError as error:
                folder_log.warning("The followed folders could not be listed: %s", error)
                continue
            for folder in followed:
                if (folder.watched or folder.id in self.given) and not self._stopping.is_set():
                    self.look(folder)


log = logging.getLogger("cairn.jobs")

IDLE_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class Stopped(BaseException):
    """The runner was asked to stop in the middle of a job. Not an Exception: a job must not take it for its own
    failure."""


class JobRunner:
    """Does waiting jobs until `stop`.

    A failure of the library itself (full disk, locked database) is logged and retried, slower each time; failures of a
    document belong to its job.
    """

    def __init__(
        self, library: Library, *, idle_seconds: float = IDLE_SECONDS, pause_seconds: float = FIRST_PAUSE_SECONDS
    ):
        self._library = library
        self._idle_seconds, self._pause_seconds = idle_seconds, pause_seconds
        self._stopping = threading.Event()
        self._draining = threading.Event()
        self._undescribed = True  # for all that is known
        self._counting = threading.Lock()
        self._num_busy = 0
        self.num_done, self.seconds_done = 0, 0.0
        self.last_sign = time.monotonic()
        """When it last looked for a document, or got on with one."""
        self._threads = [
            threading.Thread(target=self._work, args=(idle_owners_only,), name="cairn-jobs", daemon=True)
            for idle_owners_only in (False, True)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def busy(self) -> bool:
        """Whether a job is at work here."""
        return self._num_busy > 0

    def drain(self) -> None:
        """Begin no further job; running ones go on to their end, or until `stop`."""
        self._draining.set()

    def stop(self, timeout_seconds: float = 10.0) -> bool:
        """Stop after the windows that are being read; the jobs stay in the queue. True if the threads have ended; 0: do
        not wait for that."""
        self._stopping.set()
        until = time.monotonic() + timeout_seconds
        alive = [thread for thread in self._threads if thread.is_alive()]
        for thread in alive:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in alive)

    def __enter__(self) -> JobRunner:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _work(self, idle_owners_only: bool) -> None:
        pause = self._pause_seconds
        while not (self._stopping.is_set() or self._draining.is_set()):
            self.last_sign = time.monotonic()
            try:
                with self._counted():
                    job = self._library.jobs.run_next(on_progress=self._check, idle_owners_only=idle_owners_only)
                described = job is None and not idle_owners_only and self._describe()
            except Stopped:
                return
            except Exception as error:
                known = isinstance(error, CatalogueUnavailable)
                log.error(
                    "Working on the job queue failed; trying again in %.0f s: %s", pause, error, exc_info=not known
                )
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                continue
            pause = self._pause_seconds
            if job is None:
                if not described:
                    self._stopping.wait(self._idle_seconds)
            else:
                self._undescribed = True
                if job.state == "done":
                    with self._counting:
                        self.num_done, self.seconds_done = self.num_done + 1, self.seconds_done + job.seconds
                log.info("Job %s: %s after %.1f s", job.id, job.state, job.seconds)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._counting:
            self._num_busy += 1
        try:
            yield
        finally:
            with self._counting:
                self._num_busy -= 1

    def _describe(self) -> bool:
        """While no document waits: descriptions of those that have none. Whether there was one to make."""
        if self._undescribed:
            self._undescribed = self._library.descriptions.make_next()
        return self._undescribed

    def _check(self, job: Job) -> None:
        self.last_sign = time.monotonic()
        if self._stopping.is_set():
            raise Stopped
