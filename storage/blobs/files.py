"""Blobs as files in the home folder, the default without CAIRN_STORE_URL.

Files are complete or absent, whatever interrupts their writing: temporary file, fsync, rename, fsync of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path

from storage.blobs.protocol import BlobFacts, Range
from storage.errors import CannotWrite, NameInUse, StoreFull
from storage.trash import Trash

TEMPORARY = ".writing-"  # prefix of unfinished files


def write_durably(path: Path, contents: memoryview) -> None:
    """Write `contents` to `path`; after a crash the file is complete or does not exist."""
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with open(create_file(temporary), "wb", buffering=0) as file:
            written = 0
            while written < len(contents):
                written += file.write(contents[written:])
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else CannotWrite
        raise kind(
            f"{path.name} ({len(contents) / 1e6:.1f} MB) could not be written to {path.parent}: {error.strerror}. "
            "Nothing of it was kept. Free some disk space or choose another folder, then try again."
        ) from error
    for folder in {path.parent, *(folder.parent for folder in made)}:
        sync_folder(folder)


def create_file(path: Path) -> int:
    """Create a file, and its folder if necessary; returns a descriptor for reading and writing. Another process that
    deletes the last file in the folder may remove the folder before the new file is in it, so both are tried again."""
    for _ in range(100):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    raise FileNotFoundError(errno.ENOENT, "its folder keeps being removed", str(path))


def sync_folder(folder: Path) -> None:
    """Make renames and removals inside `folder` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class OpenFile:
    """A file open for reading. Closes the descriptor with the last reference: a deletion does not affect a reader."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    def state(self) -> tuple[int, ...]:
        state = os.fstat(self.descriptor)
        return state.st_size, state.st_mtime_ns, state.st_ino

    def again(self, ranges: Sequence[Range]) -> list[bytes]:
        return []

    def keep(self, offset: int, contents: bytes) -> None:
        raise AssertionError("nothing lies behind a file")

    def refill(self) -> bool:
        return False


class FileBlobs:
    """Files below `folder`, a part of the home folder `home`, which has the trash."""

    settle_seconds = 0.0
    on_this_disk = True
    at_once = 1

    def __init__(self, folder: Path, home: Path | None = None):
        self.folder, self._home = folder, home or folder
        self.place = str(folder)

    def inside(self, folder: str) -> FileBlobs:
        return FileBlobs(self.folder / folder, self._home)

    def create(self, name: str, contents: memoryview) -> None:
        path = self._path(name)
        if path.exists():
            if path.read_bytes() != contents:
                raise NameInUse(name, self.place)
            return
        write_durably(path, contents)

    def bring(self, staged: Path, name: str) -> None:
        """Nothing to do: the file is next to its place already."""

    def settle(self, staged: Path, name: str) -> None:
        try:
            os.rename(staged, self._path(name))
        except FileNotFoundError:
            if not self._path(name).exists():
                raise
        sync_folder(self._path(name).parent)

    def replace(self, name: str, contents: bytes) -> None:
        path = self._path(name)
        temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
        try:
            with open(create_file(temporary), "wb") as file:
                file.write(contents)
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)

    def open(self, name: str) -> OpenFile:
        return OpenFile(os.open(self._path(name), os.O_RDONLY))

    def prefetch(self, names: Sequence[str]) -> None:
        """Nothing to do: the files are here."""

    def copy(self, name: str) -> BufferedIOBase:
        return open(self._path(name), "rb")

    def read(self, name: str) -> bytes:
        return self._path(name).read_bytes()

    def local(self, name: str, sha256: str) -> Path:
        path = self._path(name)
        path.stat()  # FileNotFoundError
        return path

    def listing(self, folder: str = "") -> Iterator[BlobFacts]:
        for parent, _, names in os.walk(self.folder / folder):
            for name in sorted(names):
                path = Path(parent, name)
                with contextlib.suppress(FileNotFoundError):
                    state = path.stat()
                    yield BlobFacts(path.relative_to(self.folder).as_posix(), state.st_size, state.st_mtime)

    def size(self, names: Iterable[str]) -> int:
        total = 0
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += self._path(name).stat().st_size
        return total

    def delete(self, names: Iterable[str]) -> int:
        """Folders left empty are removed, too."""
        freed_bytes, folders = 0, set()
        for name in names:
            path = self._path(name)
            with contextlib.suppress(FileNotFoundError):
                size_bytes = path.stat().st_size
                path.unlink()
                freed_bytes += size_bytes
                folders.add((path.parent, name.count("/")))
        for folder, depth in folders:
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                sync_folder(folder)
            if depth:
                with contextlib.suppress(OSError):  # not empty, or gone
                    folder.rmdir()
        return freed_bytes

    def sweep(self, names: Sequence[str]) -> None:
        Trash(self._home).take(map(self._path, names))

    def empty_trash(self, older_than_seconds: float) -> int:
        return Trash(self._home).empty(older_than_seconds)

    def now(self) -> float:
        return time.time()

    def _path(self, name: str) -> Path:
        assert ".." not in name and not name.startswith("/"), name
        return self.folder / name
