"""Blobs in a bucket, with what was used lately on this machine's disk.

Below the prefix: kv/<document>/<name>.kv, files/<document>.<kind>, sidecars/<document>.json.gz, home.json,
uploads/<file>.<kind> (waiting to be started), preferences.json and preferences/<user>.json, trash/<batch>/..., clock.

- Nothing on this machine is the truth: the cache may be emptied at any time.
- There is no lock among machines, so what has no row yet is left alone for `settle_seconds`, by the bucket's clock.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from storage.blobs.bucket import Bucket
from storage.blobs.cache import BlobCache, OpenCached
from storage.blobs.protocol import BlobFacts
from storage.errors import DamagedOriginal
from storage.trash import FOLDER as TRASH

FIRST_BYTES = 512 << 10  # of a shard: its header, checksums and landmarks, or most of them
_COPIED_AT_ONCE = 8
_T = TypeVar("_T")


class ObjectBlobs:
    """Objects below `folder`, a part of the bucket's prefix; "" is all of it."""

    settle_seconds = 3600.0
    at_once = 16

    def __init__(self, bucket: Bucket, cache: BlobCache, folder: str = ""):
        self._bucket, self._cache, self._folder = bucket, cache, folder
        self.place = f"{bucket.place}/{folder}".rstrip("/")

    def inside(self, folder: str) -> ObjectBlobs:
        return ObjectBlobs(self._bucket, self._cache, f"{self._folder}{folder}/")

    def create(self, name: str, contents: memoryview) -> None:
        """What was just written is read soon, so it is kept here, too."""
        self._bucket.create(self._key(name), contents)
        if name.endswith(".kv"):
            with contextlib.suppress(OSError):  # the disk is full: it will be fetched
                os.close(self._cache.begin(self._key(name), bytes(contents), len(contents)))

    def bring(self, staged: Path, name: str) -> None:
        self._bucket.create(self._key(name), staged.read_bytes())

    def settle(self, staged: Path, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # the bucket has it
            self._cache.put(staged, self._key(name))

    def replace(self, name: str, contents: bytes) -> None:
        self._bucket.replace(self._key(name), contents)

    def open(self, name: str) -> OpenCached:
        key = self._key(name)
        front = partial(self._bucket.first, key, FIRST_BYTES)
        descriptor = self._cache.open(key)
        if descriptor is None:
            descriptor = self._cache.begin(key, *front())
        return OpenCached(self._cache, descriptor, partial(self._bucket.ranges, key), front)

    def expect(self, names: Sequence[str]) -> None:
        missing = [key for key in map(self._key, names) if not self._cache.path(key).exists()]

        def begin(key: str) -> None:
            with contextlib.suppress(FileNotFoundError):  # named by whoever opens it
                os.close(self._cache.begin(key, *self._bucket.first(key, FIRST_BYTES)))

        _all_at_once(begin, missing, self.at_once)

    def copy(self, name: str) -> BufferedIOBase:
        self._cache.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, path = tempfile.mkstemp(dir=self._cache.folder)
        os.unlink(path)
        file = os.fdopen(descriptor, "w+b")
        try:
            self._bucket.download(self._key(name), file)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    def read(self, name: str) -> bytes:
        return self._bucket.read(self._key(name))

    def local(self, name: str, sha256: str) -> Path:
        key = self._key(name)
        if (path := self._cache.whole(key)) is not None:
            return path
        staging = self._cache.staging(key)
        try:
            with open(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                digest = self._bucket.download(key, file)
            if digest.hex() != sha256:
                raise DamagedOriginal(name, self.place)
            return self._cache.put(staging, key)
        finally:
            staging.unlink(missing_ok=True)

    def listing(self, folder: str = "") -> Iterator[BlobFacts]:
        """What is not in the list any more leaves the cache: another machine deleted it."""
        prefix = self._key(folder).rstrip("/")
        cached, found = set(self._cache.names(prefix)), set()
        for fact in self._bucket.listing(prefix):
            found.add(fact.name)
            yield BlobFacts(fact.name.removeprefix(self._folder), fact.size_bytes, fact.changed_at)
        for key in cached - found:
            self._cache.drop(key)

    def size(self, names: Iterable[str]) -> int:
        return sum(_all_at_once(self._bucket.size, [self._key(name) for name in names], self.at_once))

    def delete(self, names: Iterable[str]) -> int:
        """Nothing is said of the bytes freed: that would be a question for each."""
        keys = [self._key(name) for name in names]
        self._bucket.delete(keys)
        for key in keys:
            self._cache.drop(key)
        return 0

    def sweep(self, names: Sequence[str]) -> None:
        batch = f"{TRASH}/{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"

        def take(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):  # another process took or deleted it
                self._bucket.move(self._key(name), f"{batch}/{self._key(name)}")
            self._cache.drop(self._key(name))

        _all_at_once(take, list(names), _COPIED_AT_ONCE)

    def empty_trash(self, older_than_seconds: float) -> int:
        now, due = self.now(), []
        for found in self._bucket.listing(TRASH):
            if found.changed_at <= now - older_than_seconds:
                due.append(found)
        self._bucket.delete([found.name for found in due])
        return sum(found.size_bytes for found in due)

    def now(self) -> float:
        return self._bucket.now()

    def free_bytes(self) -> int | None:
        return None

    def _key(self, name: str) -> str:
        assert ".." not in name and not name.startswith("/"), name
        return self._folder + name


def _all_at_once(action: Callable[[str], _T], names: Sequence[str], most: int) -> list[_T]:
    """Raises the first error, when all have ended."""
    if len(names) < 2:
        return [action(name) for name in names]
    with ThreadPoolExecutor(min(most, len(names)), "cairn-store") as pool:
        return list(pool.map(action, names))
