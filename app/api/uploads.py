"""Uploads: limits, names, a private staging folder, and the cost of each file, before any work starts.

- A staged file has a random name on disk; its own name is only ever shown.
- Estimates run in background threads, one of each user in turn, small files beside large ones: many files dropped at
  once, or a slow one, hold up nobody else, and a file of a page does not wait for one of hundreds.
- Each user sees and handles their own; number and size of waiting files are bounded for each.
- All servers of a library know the waiting files: the file is in the store, its row among the shared values. Any server
  may show, start or discard it, and none takes it along when it ends. After a day it is removed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import secrets
import shutil
import time
import unicodedata
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from fastapi.concurrency import run_in_threadpool

from app.api.dependencies import shared
from app.api.errors import Refused, describe
from app.limits.fair_queue import FairQueue, QueueFull
from app.settings import Settings
from retrieval.errors import CairnError, Cancelled, UnknownKind
from retrieval.extraction.formats import HEAD_BYTES, format_of
from retrieval.library import Library
from retrieval.types.records import Estimate, Job
from retrieval.types.serialisation import Record

log = logging.getLogger("cairn.api")

COPY_BYTES = 1 << 20
STAGED_SECONDS = 24 * 3600.0
MAX_NAME_LENGTH = 180
LARGE_BYTES = 500_000
STAGED_BYTES = 4_000_000_000  # of one user
ESTIMATES_AT_ONCE = 2  # of either size, for different people; the sandbox bounds the processes in all
ESTIMATED_SECONDS = 60.0  # after which another server estimates a file once more, as this one may have ended
UNKNOWN_SECONDS, SWEEP_SECONDS = 3600.0, 600.0  # how long a file may be without a row; how often to look
KIND = "upload"


@dataclass(frozen=True)
class StagedFile(Record):
    """`state`: "estimating" (`pages_done` of `pages` so far), then "ready" or "refused" (`problem` says why)."""

    id: str
    user_id: str | None
    name: str
    size_bytes: int
    state: str
    estimate: Estimate | None
    problem: str
    at: float
    """When it arrived, by its server's clock, in seconds since 1970."""
    pages_done: int = 0
    pages: int = 0
    sent_as: str = ""
    """What its sender calls it, who so knows it again in a list that comes before the answer to the sending."""

    @property
    def stored_file(self) -> str:
        return f"{self.id}{Path(self.name).suffix.lower()}"

    def shown(self) -> dict[str, Any]:
        return {key: value for key, value in self.to_dict().items() if key not in ("at", "user_id")}


def _no_longer_waiting() -> Refused:
    return Refused(404, "not_found", "This file is no longer waiting. Add it again.")


def _too_many_estimates() -> Refused:
    return Refused(429, "too_many_files", "Too many files are waiting to be estimated. Try again shortly.", 10)


def shown_name(name: str) -> str:
    """A name from outside as one line to show: no folders, no control or direction characters."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    kept = "".join(char for char in last if unicodedata.category(char)[0] != "C").strip()
    stem, dot, suffix = kept.rpartition(".")
    if len(kept) > MAX_NAME_LENGTH:
        kept = f"{stem[: MAX_NAME_LENGTH - len(suffix) - 1]}{dot}{suffix}"[:MAX_NAME_LENGTH]
    return kept or "unnamed"


class Uploads:
    """The staging folder of one app. `library`, here and below: the view of the sender; for limits, the whole
    library."""

    def __init__(self, library: Library, settings: Settings):
        self._library, self._folder, self.settings = library, settings.home / "uploads", settings
        replicas = library.replicas
        self._values, self._store = replicas.uploads, replicas.upload_files
        self._estimating: set[str] = set()  # by this server
        self._swept_at = -math.inf
        self._estimates, self._large_estimates = (
            FairQueue(name, at_once=ESTIMATES_AT_ONCE, each_waiting=settings.max_uploads)
            for name in ("cairn-estimate", "cairn-large-estimate")
        )
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep()

    def close(self) -> None:
        self._estimates.close()
        self._large_estimates.close()

    def _queue_of(self, staged: StagedFile) -> FairQueue:
        return self._large_estimates if staged.size_bytes >= LARGE_BYTES else self._estimates

    def stage(self, library: Library, person: str, stream: BinaryIO, name: str, *, sent_as: str = "") -> StagedFile:
        """Copy one file in and start estimating it. `person`: whose share of the machine that uses.

        Raises Refused for a kind, size or number that is not accepted.
        """
        staged = replace(self._receive(library, stream, name), sent_as=sent_as)
        try:
            self._keep(staged)
            self._begin_estimate(library, person, staged)
        except BaseException as error:
            self._remove(staged)
            if isinstance(error, QueueFull):
                raise _too_many_estimates() from None
            raise
        return staged

    def _keep(self, staged: StagedFile) -> None:
        """Make it known to all servers."""
        self._store.bring(self._path(staged), staged.stored_file)
        row = json.dumps(staged.to_dict())
        self._values.put(KIND, staged.id, row, seconds=STAGED_SECONDS, owner=staged.user_id or "")

    def _receive(self, library: Library, stream: BinaryIO, name: str) -> StagedFile:
        self._sweep()
        name, suffix = shown_name(name), Path(shown_name(name)).suffix.lower()
        try:
            format_ = format_of(name)
        except UnknownKind as error:
            raise Refused(415, "unknown_kind", f"{name}: {error.short}") from error
        user_id = library.principal.user_id
        own = self._of(user_id)
        waiting, staged_bytes = len(own), sum(file.size_bytes for file in own)
        if waiting >= self.settings.max_uploads:
            raise Refused(429, "too_many_files", f"{waiting} files are already waiting. Start or discard some first.")
        self._check_room(name)
        identity = secrets.token_hex(16)
        path = self._folder / f"{identity}{suffix}"
        try:
            size = self._copy(stream, path, name, staged_bytes)
            with path.open("rb") as file:
                if not format_.matches(file.read(HEAD_BYTES)):
                    raise Refused(
                        415, "unknown_kind", f"{name} is named {suffix} but its content is not {format_.label}."
                    )
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return StagedFile(identity, user_id, name, size, "estimating", None, "", time.time())

    def new_path(self) -> Path:
        """A path for a temporary file; the caller removes it."""
        return self._folder / secrets.token_hex(16)

    def take(self, stream: BinaryIO, name: str) -> Path:
        """Copy in a file that is no document; the caller removes it. Raises Refused for its size."""
        self._check_room(name)
        path = self.new_path()
        try:
            self._copy(stream, path, name, 0)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def files(self, library: Library) -> list[StagedFile]:
        """The waiting files, in the order of arrival. If a server ended before it estimated one, this server does."""
        found = self._of(library.principal.user_id)
        silent = time.time() - ESTIMATED_SECONDS
        for staged in found:
            if staged.state == "estimating" and staged.at < silent and staged.id not in self._estimating:
                with suppress(QueueFull):  # at the next look
                    self._begin_estimate(library, staged.user_id or "", staged)
        return found

    def start(self, library: Library, identity: str, *, collection: str | None, password: str | None = None) -> Job:
        """Hand a staged file over to the library as a job."""
        self._check_jobs(library)
        staged = self._own(library, identity)
        job = library.documents.submit(
            self._fetched(staged), collection=collection, source=staged.name, password=password
        )
        self._remove(staged)
        return job

    def submit(
        self, library: Library, stream: BinaryIO, name: str, *, collection: str | None, password: str | None
    ) -> Job:
        """Stage and start in one go, without an estimate."""
        self._check_jobs(library)
        staged = self._receive(library, stream, name)
        path = self._path(staged)
        try:
            return library.documents.submit(path, collection=collection, source=staged.name, password=password)
        finally:
            path.unlink(missing_ok=True)

    async def estimate_now(
        self, library: Library, person: str, stream: BinaryIO, name: str, password: str | None
    ) -> Estimate:
        """What a file would cost; the file is not kept."""
        staged = await run_in_threadpool(self._receive, library, stream, name)
        try:
            task = self._queue_of(staged).submit(
                person, library.documents.estimate, self._path(staged), password=password
            )
            return replace(await asyncio.wrap_future(task), source=staged.name)
        except QueueFull:
            raise _too_many_estimates() from None
        finally:
            self._path(staged).unlink(missing_ok=True)

    def discard(self, library: Library, identity: str) -> None:
        """Forget a staged file. Raises Refused if there is none."""
        self._remove(self._own(library, identity))

    def _of(self, user_id: str | None) -> list[StagedFile]:
        return [StagedFile.from_dict(json.loads(row)) for row in self._values.of(KIND, user_id or "")]

    def _own(self, library: Library, identity: str) -> StagedFile:
        for file in self._of(library.principal.user_id):
            if file.id == identity:
                return file
        raise _no_longer_waiting()

    def _remove(self, staged: StagedFile) -> None:
        self._values.take(KIND, staged.id)
        self._store.delete([staged.stored_file])
        self._path(staged).unlink(missing_ok=True)

    def _path(self, staged: StagedFile) -> Path:
        return self._folder / staged.stored_file

    def _fetched(self, staged: StagedFile) -> Path:
        """The file on this machine, also if another server received it. Raises Refused if it is gone."""
        path = self._path(staged)
        if not path.exists():
            fetched = self.new_path()
            try:
                with self._store.copy(staged.stored_file) as stored:
                    self._copy(stored, fetched, staged.name, 0)
                fetched.replace(path)
            except FileNotFoundError:
                raise _no_longer_waiting() from None
            finally:
                fetched.unlink(missing_ok=True)
        return path

    def _check_jobs(self, library: Library) -> None:
        if (waiting := library.jobs.num_active()) >= self.settings.max_jobs:
            raise Refused(
                429, "too_many_jobs", f"{waiting:,} of your documents are already waiting to be stored. Try later.", 60
            )

    def check_room(self, name: str, size_bytes: int) -> None:
        """Raises Refused unless the disk of the staging folder has room for a file of this size."""
        free = shutil.disk_usage(self._folder).free
        if free < self.settings.min_free_bytes + size_bytes:
            raise Refused(
                507, "not_enough_space", f"{name}: only {free / 1e9:.1f} GB are free on the disk. Free some first."
            )

    def _check_room(self, name: str) -> None:
        self.check_room(name, self.settings.max_upload_bytes)
        if (quota := self.settings.max_library_bytes) is not None:
            used = sum(document.size_bytes for document in self._library.documents.list())
            if used >= quota:
                message = f"{name}: the library has reached its {quota / 1e9:.1f} GB. Delete documents first."
                raise Refused(507, "quota", message)

    def _copy(self, stream: BinaryIO | BufferedIOBase, path: Path, name: str, staged_bytes: int) -> int:
        size = 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            while piece := stream.read(COPY_BYTES):
                size += len(piece)
                if size > self.settings.max_upload_bytes:
                    most = self.settings.max_upload_bytes / 1e6
                    raise Refused(413, "too_large", f"{name} is larger than {most:,.0f} MB, the largest size accepted.")
                if staged_bytes + size > STAGED_BYTES:
                    raise Refused(429, "too_many_files", "The waiting files are too large in total. Start some first.")
                out.write(piece)
        if size == 0:
            raise Refused(422, "empty_file", f"{name} is empty.")
        return size

    def _begin_estimate(self, library: Library, person: str, staged: StagedFile) -> None:
        """Raises QueueFull."""
        self._estimating.add(staged.id)
        try:
            self._queue_of(staged).submit(person, self._estimate, library, staged)
        except QueueFull:
            self._estimating.discard(staged.id)
            raise

    def _estimate(self, library: Library, staged: StagedFile) -> None:
        def watch(done: int, total: int) -> None:
            told = replace(staged, pages_done=done, pages=total)
            if not self._values.update(KIND, staged.id, json.dumps(told.to_dict())):
                raise Cancelled(f"{staged.name} was discarded.")

        try:
            estimate = replace(library.documents.estimate(self._fetched(staged), watch=watch), source=staged.name)
            if estimate.fits:
                outcome = replace(staged, state="ready", estimate=estimate)
            else:
                problem = "The disk is too full for this document's memory. Free some space first."
                outcome = replace(staged, state="refused", estimate=estimate, problem=problem)
        except Exception as error:  # the thread's last line: whatever it was, the person who waits is told
            gone = isinstance(error, FileNotFoundError)  # was started or discarded meanwhile
            if not (gone or isinstance(error, CairnError | Refused)):
                log.error("estimate failed", exc_info=error)
            outcome = replace(staged, state="refused", problem=describe(error)[2])
        finally:
            self._estimating.discard(staged.id)
        self._values.update(KIND, staged.id, json.dumps(outcome.to_dict()))

    def _sweep(self) -> None:
        """Now and then, files whose rows are gone: of a day ago, started elsewhere, or of a server that ended."""
        if time.monotonic() - self._swept_at < SWEEP_SECONDS:
            return
        self._swept_at = time.monotonic()
        here, older = [*self._folder.iterdir()], self._store.now() - UNKNOWN_SECONDS
        stored = [fact for fact in self._store.listing() if fact.changed_at < older]
        waiting = {StagedFile.from_dict(json.loads(row)).stored_file for row in self._values.of(KIND, None)}
        self._store.delete([fact.name for fact in stored if fact.name not in waiting])
        for path in here:
            with suppress(FileNotFoundError):  # another server's sweep, in a folder that they share
                if path.name not in waiting and path.stat().st_mtime < time.time() - UNKNOWN_SECONDS:
                    path.unlink()


ServerUploads = Annotated[Uploads, shared("uploads")]
