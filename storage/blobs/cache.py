"""The part of a bucket that is on this machine: a folder that may be emptied at any time.

- A whole file (an original) gets its name only after its checksum was right.
- Shards are files with holes: their first bytes are fetched when they are opened, pieces when they are read. The
  checksums in a shard tell contents from a hole or a torn write, so there is no record of the parts that are present.
- The size is bounded: the least recently used files are removed. A reader that has one open keeps its contents;
  `OpenCached` notices the removal.

Times: the access time of a file tells its last use. The modification time of a shard is a constant that is set again
after each filling, so that a change by another program is noticed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from storage.blobs.files import TEMPORARY, create_file
from storage.blobs.protocol import Range

_MARK_NS = 10**18
_USED_EVERY_SECONDS = 60.0
_IN_USE_SECONDS = 600.0  # a whole file may be read by name that long after it was asked for
_AFTER_LEAVING = 0.9  # of the limit


class BlobCache:
    """The cache in `folder`, of at most about `limit_bytes`. Thread-safe; processes may share a folder."""

    def __init__(self, folder: Path, limit_bytes: int):
        self.folder, self.limit_bytes = folder, limit_bytes
        self._lock = threading.Lock()
        self._used_bytes: int | None = None  # as far as this process knows; None: not looked yet

    def open(self, name: str) -> int | None:
        """A descriptor for reading and filling; None if no part of it is here."""
        try:
            descriptor = os.open(self.path(name), os.O_RDWR)
        except FileNotFoundError:
            return None
        use(descriptor)
        return descriptor

    def begin(self, name: str, first: bytes, size_bytes: int) -> int:
        """Make a file of that size with these first bytes and a hole behind them, in place of one that is there.
        Returns its descriptor."""
        temporary = self.staging(name)
        descriptor = create_file(temporary)
        try:
            os.ftruncate(descriptor, size_bytes)
            fill(descriptor, 0, first[:size_bytes])
            os.rename(temporary, self.path(name))
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        self.grown(len(first))
        return descriptor

    def whole(self, name: str) -> Path | None:
        """The path of a whole file that was `put` here, which counts as used now; None if it is not here."""
        path = self.path(name)
        try:
            state = path.stat()
            os.utime(path, ns=(time.time_ns(), state.st_mtime_ns))
        except FileNotFoundError:
            return None
        return path

    def staging(self, name: str) -> Path:
        """A new name beside that of a file to come."""
        return self.path(name).with_name(f"{TEMPORARY}{uuid.uuid4().hex}")

    def put(self, staged: Path, name: str) -> Path:
        """Move a staged file, whose checksum was right, to its name."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.rename(staged, path)
        self.grown(path.stat().st_size)
        return path

    def drop(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def names(self, folder: str) -> Iterator[str]:
        for parent, _, files in os.walk(self.folder / folder):
            for file in files:
                if not file.startswith(TEMPORARY):
                    yield Path(parent, file).relative_to(self.folder).as_posix()

    def grown(self, by_bytes: int) -> None:
        """Note that the cache grew; above its limit the least recently used files are removed."""
        with self._lock:
            if self._used_bytes is not None:
                self._used_bytes += by_bytes
            if self._used_bytes is None or self._used_bytes > self.limit_bytes:
                self._used_bytes = self._let_leave()

    def _let_leave(self) -> int:
        """Returns the bytes that are left, on the disk and without holes."""
        found = sorted(_files(self.folder))
        total = sum(size for _, size, _ in found)
        target = int(_AFTER_LEAVING * self.limit_bytes) if total > self.limit_bytes else total
        now = time.time()
        for used, size, path in found:
            if total <= target:
                break
            by_name = path.suffix != ".kv"  # somebody may be about to open it
            if by_name and now - used < _IN_USE_SECONDS:
                continue
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            with contextlib.suppress(OSError):  # not empty
                path.parent.rmdir()
            total -= size
        return total

    def path(self, name: str) -> Path:
        assert ".." not in name and not name.startswith("/"), name
        return self.folder / name


class OpenCached:
    """A shard of a bucket, open through its file in the cache. `fetch` gets ranges of it from the bucket, `front` its
    first bytes and its size."""

    def __init__(
        self,
        cache: BlobCache,
        descriptor: int,
        fetch: Callable[[Sequence[Range]], list[bytes]],
        front: Callable[[], tuple[bytes, int]],
    ):
        self._cache, self.descriptor, self._fetch, self._front = cache, descriptor, fetch, front
        self._used = time.monotonic()
        weakref.finalize(self, os.close, descriptor)

    def state(self) -> tuple[int, ...]:
        state = os.fstat(self.descriptor)
        if not state.st_nlink:  # it left, and was perhaps begun again
            return ()
        if time.monotonic() - self._used > _USED_EVERY_SECONDS:
            self._used = time.monotonic()
            use(self.descriptor)
        return state.st_size, state.st_mtime_ns, state.st_ino

    def again(self, ranges: Sequence[Range]) -> list[bytes]:
        return self._fetch(ranges)

    def keep(self, offset: int, contents: bytes) -> None:
        fill(self.descriptor, offset, contents)
        self._cache.grown(len(contents))

    def refill(self) -> bool:
        first, size_bytes = self._front()
        os.ftruncate(self.descriptor, size_bytes)
        fill(self.descriptor, 0, first)
        return True


def fill(descriptor: int, offset: int, contents: bytes) -> None:
    """A full disk is none of a reader's business: what is not kept is fetched again."""
    with contextlib.suppress(OSError):
        os.pwrite(descriptor, contents, offset)
    use(descriptor)


def use(descriptor: int) -> None:
    os.utime(descriptor, ns=(time.time_ns(), _MARK_NS))


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """When last used or written, bytes on the disk, path."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(FileNotFoundError):
                state = path.stat()
                # In such blocks, whatever the file system has.
                yield max(state.st_atime, state.st_mtime), 512 * state.st_blocks, path
