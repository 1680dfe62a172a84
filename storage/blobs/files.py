"""Blobs as files in the home folder, which is what there is without CAIRN_STORE_URL."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path

from storage.blobs.durable import TEMPORARY, sync_folder, write_durably
from storage.blobs.protocol import BlobFacts, Range
from storage.errors import NameInUse
from storage.trash import Trash


class OpenFile:
    """A file open for reading. The descriptor is closed with the last reference: a deletion does not affect a reader.

    Raises `FileNotFoundError`.
    """

    def __init__(self, path: Path):
        self.descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.descriptor)

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
        """Nothing: it lies beside its place already."""

    def settle(self, staged: Path, name: str) -> None:
        os.rename(staged, self._path(name))
        sync_folder(self._path(name).parent)

    def replace(self, name: str, contents: bytes) -> None:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(contents)
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)

    def open(self, name: str) -> OpenFile:
        return OpenFile(self._path(name))

    def expect(self, names: Sequence[str]) -> None:
        """Nothing: they are here."""

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
            sync_folder(folder)
            if depth:
                with contextlib.suppress(OSError):  # not empty, or another process removed it
                    folder.rmdir()
        return freed_bytes

    def sweep(self, names: Sequence[str]) -> None:
        Trash(self._home).take(map(self._path, names))

    def empty_trash(self, older_than_seconds: float) -> int:
        return Trash(self._home).empty(older_than_seconds)

    def now(self) -> float:
        return time.time()

    def free_bytes(self) -> int | None:
        return shutil.disk_usage(self._home).free

    def _path(self, name: str) -> Path:
        assert ".." not in name and not name.startswith("/"), name
        return self.folder / name
