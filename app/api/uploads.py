"""Files on their way in: limits, names, a private staging folder, and what each would cost, before any work starts.

- A staged file has a random name on disk; the name it came with is only ever shown.
- Estimates run in background threads, one of each person in turn: many files dropped at once, or one that takes long,
  keep nobody else waiting.
- Each person sees and handles their own; number and size of what waits are bounded for each.
- Nothing staged survives a restart: the folder is emptied when the app starts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import threading
import time
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from fastapi.concurrency import run_in_threadpool

from app.api.errors import Refused, describe
from app.limits.fair_queue import FairQueue, QueueFull
from retrieval.errors import CairnError, Cancelled, ExtractError
from retrieval.extraction.formats import HEAD_BYTES, format_of
from retrieval.library import Library
from retrieval.types.records import Estimate, Job
from retrieval.types.serialisation import Record

log = logging.getLogger("cairn.api")

COPY_BYTES = 1 << 20
STAGED_SECONDS = 24 * 3600.0
MAX_NAME_LENGTH = 180
ESTIMATES_AT_ONCE = 2


@dataclass(frozen=True)
class UploadLimits:
    """Bounds on what each person may send. Bytes, except `files` (sent and not started) and `jobs` (started and not
    done)."""

    file_bytes: int = 200_000_000
    files: int = 100
    jobs: int = 2000
    staged_bytes: int = 4_000_000_000
    library_bytes: int | None = None
    free_disk_bytes: int = 1_000_000_000


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
    pages_done: int = 0
    pages: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().to_dict().items() if key not in ("at", "user_id")}


def _too_many_estimates() -> Refused:
    return Refused(429, "too_many_files", "Too many files are waiting to be estimated. Try again shortly.", 10)


def shown_name(name: str) -> str:
    """A name that came from outside -> one line to show: no folders, no control or direction characters."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    kept = "".join(char for char in last if unicodedata.category(char)[0] != "C").strip()
    stem, dot, suffix = kept.rpartition(".")
    if len(kept) > MAX_NAME_LENGTH:
        kept = f"{stem[: MAX_NAME_LENGTH - len(suffix) - 1]}{dot}{suffix}"[:MAX_NAME_LENGTH]
    return kept or "unnamed"


class Uploads:
    """The staging folder of one app. `library`, here and below: as seen by whoever sends; for limits, the whole one."""

    def __init__(self, library: Library, folder: Path, limits: UploadLimits):
        self._library, self._folder, self.limits = library, folder, limits
        self._files: dict[str, StagedFile] = {}
        self._lock = threading.Lock()
        self._estimates = FairQueue("cairn-estimate", at_once=ESTIMATES_AT_ONCE, each_waiting=limits.files)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left_over in folder.iterdir():
            left_over.unlink() if left_over.is_file() else shutil.rmtree(left_over)

    def close(self) -> None:
        self._estimates.close()

    def stage(self, library: Library, person: str, stream: BinaryIO, name: str) -> StagedFile:
        """Copy one file in and start estimating it. `person`: whose share of the machine that takes.

        Raises Refused for a kind, size or number that is not accepted.
        """
        staged = self._receive(library, stream, name)
        try:
            self._estimates.submit(person, self._estimate, library, staged)
        except QueueFull:
            self._remove([staged.id])
            raise _too_many_estimates() from None
        return staged

    def _receive(self, library: Library, stream: BinaryIO, name: str) -> StagedFile:
        self._forget_old()
        name, suffix = shown_name(name), Path(shown_name(name)).suffix.lower()
        try:
            format_ = format_of(name)
        except ExtractError as error:
            raise Refused(415, "unknown_kind", f"{name}: {error}") from error
        user_id = library.principal.user_id
        own = self._of(user_id)
        waiting, staged_bytes = len(own), sum(file.size_bytes for file in own)
        if waiting >= self.limits.files:
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
        staged = StagedFile(identity, user_id, name, size, "estimating", None, "", time.monotonic())
        with self._lock:
            self._files[identity] = staged
        return staged

    def new_path(self) -> Path:
        """Where something can lie for a moment; whoever asks removes it."""
        return self._folder / secrets.token_hex(16)

    def take(self, stream: BinaryIO, name: str) -> Path:
        """Copy a file in that is no document; whoever calls removes it. Raises Refused for its size."""
        self._check_room(name)
        path = self.new_path()
        try:
            self._copy(stream, path, name, 0)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def files(self, library: Library) -> list[StagedFile]:
        """In the order they came."""
        self._forget_old()
        return self._of(library.principal.user_id)

    def start(self, library: Library, identity: str, *, collection: str | None, password: str | None = None) -> Job:
        """Hand a staged file over to the library as a job."""
        self._check_jobs(library)
        staged = self._own(library, identity)
        path = self._path(staged)
        job = library.submit(path, collection=collection, source=staged.name, password=password)
        self._remove([identity])
        return job

    def submit(
        self, library: Library, stream: BinaryIO, name: str, *, collection: str | None, password: str | None
    ) -> Job:
        """Stage and start in one go, without an estimate."""
        self._check_jobs(library)
        staged = self._receive(library, stream, name)
        try:
            return self.start(library, staged.id, collection=collection, password=password)
        except CairnError:
            self._remove([staged.id])
            raise

    async def estimate_now(
        self, library: Library, person: str, stream: BinaryIO, name: str, password: str | None
    ) -> Estimate:
        """What a file would cost; the file is not kept."""
        staged = await run_in_threadpool(self._receive, library, stream, name)
        try:
            task = self._estimates.submit(person, library.estimate, self._path(staged), password=password)
            return replace(await asyncio.wrap_future(task), source=staged.name)
        except QueueFull:
            raise _too_many_estimates() from None
        finally:
            self._remove([staged.id])

    def discard(self, library: Library, identity: str) -> None:
        """Forget a staged file. Raises Refused if there is none."""
        self._own(library, identity)
        self._remove([identity])

    def _of(self, user_id: str | None) -> list[StagedFile]:
        with self._lock:
            return [file for file in self._files.values() if file.user_id == user_id]

    def _own(self, library: Library, identity: str) -> StagedFile:
        for file in self._of(library.principal.user_id):
            if file.id == identity:
                return file
        raise Refused(404, "not_found", "This file is no longer waiting. Add it again.")

    def _remove(self, identities: Iterable[str]) -> None:
        for identity in identities:
            with self._lock:
                staged = self._files.pop(identity, None)
            if staged is not None:
                self._path(staged).unlink(missing_ok=True)

    def _path(self, staged: StagedFile) -> Path:
        return self._folder / f"{staged.id}{Path(staged.name).suffix.lower()}"

    def _check_jobs(self, library: Library) -> None:
        if (waiting := library.num_active_jobs()) >= self.limits.jobs:
            raise Refused(
                429, "too_many_jobs", f"{waiting:,} of your documents are already waiting to be stored. Try later.", 60
            )

    def _check_room(self, name: str) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < self.limits.free_disk_bytes + self.limits.file_bytes:
            raise Refused(
                507, "not_enough_space", f"{name}: only {free / 1e9:.1f} GB are free on the disk. Free some first."
            )
        if self.limits.library_bytes is not None:
            used = sum(document.size_bytes for document in self._library.documents())
            if used >= self.limits.library_bytes:
                quota = self.limits.library_bytes / 1e9
                raise Refused(
                    507, "quota", f"{name}: the library has reached its {quota:.1f} GB. Delete documents first."
                )

    def _copy(self, stream: BinaryIO, path: Path, name: str, staged_bytes: int) -> int:
        size = 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            while piece := stream.read(COPY_BYTES):
                size += len(piece)
                if size > self.limits.file_bytes:
                    most = self.limits.file_bytes / 1e6
                    raise Refused(413, "too_large", f"{name} is larger than {most:,.0f} MB, the largest size accepted.")
                if staged_bytes + size > self.limits.staged_bytes:
                    raise Refused(429, "too_many_files", "The waiting files are too large in total. Start some first.")
                out.write(piece)
        if size == 0:
            raise Refused(422, "empty_file", f"{name} is empty.")
        return size

    def _estimate(self, library: Library, staged: StagedFile) -> None:
        with self._lock:
            if staged.id not in self._files:
                return

        def watch(done: int, total: int) -> None:
            if not self._renew(replace(staged, pages_done=done, pages=total)):
                raise Cancelled(f"{staged.name} was discarded.")

        try:
            estimate = replace(library.estimate(self._path(staged), watch=watch), source=staged.name)
            if estimate.fits:
                outcome = replace(staged, state="ready", estimate=estimate)
            else:
                problem = "The disk is too full for this document's memory. Free some space first."
                outcome = replace(staged, state="refused", estimate=estimate, problem=problem)
        except Exception as error:  # the thread's last line: whatever it was, the person who waits is told
            if not isinstance(error, CairnError):
                log.error("estimate failed", exc_info=error)
            outcome = replace(staged, state="refused", problem=describe(error)[2])
        self._renew(outcome)

    def _renew(self, staged: StagedFile) -> bool:
        """False if it is no longer waiting."""
        with self._lock:
            if staged.id not in self._files:
                return False
            self._files[staged.id] = staged
            return True

    def _forget_old(self) -> None:
        now = time.monotonic()
        with self._lock:
            old = [file.id for file in self._files.values() if now - file.at > STAGED_SECONDS]
        self._remove(old)
