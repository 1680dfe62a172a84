"""One shard file: writing it so that it is complete or absent, and reading its pieces, each verified on first read.

- Writing: temporary file, fsync, rename, fsync of the folder. A crash leaves a temporary file or a complete shard.
- Reading: `preadv`, not mmap, so a truncated file is an error and not a SIGBUS.
- A bitmap remembers the verified pieces. When the file's size or times change, everything is verified again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
import weakref
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from storage.errors import CannotWrite, Damage, DamagedBlock, DamagedShard, ForeignShard, MissingShard, StoreFull
from storage.kv.checksums import PieceChecks, shard_seed
from storage.kv.format import PREFIX, Header, Section, decode_header, decode_prefix

MOST_AT_ONCE = 256  # pieces
TEMPORARY = ".writing-"  # prefix of unfinished files
SectionName: TypeAlias = Literal["lengths", "landmarks", "checksums"]


def write_durably(path: Path, contents: memoryview) -> None:
    """Write `contents` to `path`; after a crash the file is complete or does not exist."""
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with open(_create(temporary), "wb", buffering=0) as file:
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


def _create(path: Path) -> int:
    """Create a file, and its folder if necessary. Another process that deletes the last file in the folder may remove
    the folder before the new file is in it, so both are tried again."""
    for _ in range(100):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    raise FileNotFoundError(errno.ENOENT, "its folder keeps being removed", str(path))


def sync_folder(folder: Path) -> None:
    """Make renames and removals inside `folder` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class OpenShard:
    """A shard file open for reading; all that precedes the pieces is verified on opening. Safe to share among threads.

    The descriptor is closed with the last reference, so deleting a shard does not affect a reader.
    """

    def __init__(self, path: Path, name: str):
        self.name = name
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise MissingShard(Damage(name, "file", "the file is missing")) from None
        weakref.finalize(self, os.close, self._descriptor)
        self._load()

    def _load(self) -> None:
        state = self._stat()
        self.header = self._read_header(state[0])
        if state[0] != self.header.file_bytes:
            reason = f"it has {state[0]} bytes and should have {self.header.file_bytes}"
            raise DamagedShard(Damage(self.name, "file", reason))
        self._checks = PieceChecks(
            np.frombuffer(self.section("checksums"), "<u4", self.header.num_pieces),
            shard_seed(self.header.fingerprint, self.name),
        )
        self.landmarks_NYGD: Tensor | None = None  # cached here by the store if it needs them often
        self._state = state  # set last: if any of the above raises, the next reader checks again

    def _stat(self) -> tuple[int, int, int]:
        state = os.fstat(self._descriptor)
        return state.st_size, state.st_mtime_ns, state.st_ino

    def refresh(self) -> None:
        """Start over if the file has changed since it was verified. Costs one fstat."""
        if self._stat() != self._state:
            self._load()

    def require(self, **expected: object) -> None:
        """Raises `ForeignShard` unless these fields of the header have these values."""
        for field, value in expected.items():
            if (stored := getattr(self.header, field)) != value:
                raise ForeignShard(self.name, field, stored, value)

    def _read_header(self, file_bytes: int) -> Header:
        try:
            prefix = os.pread(self._descriptor, PREFIX.size, 0)
            header_bytes, _ = decode_prefix(prefix)
            if header_bytes > file_bytes:  # a damaged size must not cause a huge allocation
                raise ValueError("the file is cut short")
            header = decode_header(prefix, os.pread(self._descriptor, header_bytes, PREFIX.size))
        except (ValueError, OSError) as error:
            raise DamagedShard(Damage(self.name, "header", str(error))) from error
        if header.name != self.name:
            raise DamagedShard(Damage(self.name, "header", f"this is the file of {header.name}"))
        return header

    def section(self, which: SectionName) -> bytes:
        """A section's bytes, padding included. Raises `DamagedShard`."""
        place: Section = getattr(self.header, which)
        try:
            body = os.pread(self._descriptor, place.size, place.offset)
        except OSError as error:
            raise DamagedShard(Damage(self.name, which, str(error))) from error
        if len(body) != place.size:
            raise DamagedShard(Damage(self.name, which, "the file is cut short"))
        if zlib.crc32(body) != place.crc32:
            raise DamagedShard(Damage(self.name, which, "its checksum does not match"))
        return body

    def places(self, layer_index: int, heads_P: NDArray[np.int64], blocks_P: NDArray[np.int64]) -> NDArray[np.int64]:
        """Piece numbers, in file order."""
        header = self.header
        assert ((heads_P >= 0) & (heads_P < header.layout.kv_heads)).all(), (self.name, heads_P)
        assert ((blocks_P >= 0) & (blocks_P < header.num_blocks)).all(), (self.name, blocks_P)
        return (layer_index * header.layout.kv_heads + heads_P) * header.num_blocks + blocks_P

    def read_pieces(
        self, into: NDArray[np.uint8], place_P: NDArray[np.int64], row_P: NDArray[np.int64], *, check: bool = False
    ) -> None:
        """Fill rows of `into` with the pieces at these places, or with the leading bytes of them that fit a row.

        Adjacent pieces are read together. Raises `DamagedBlock` before the caller sees wrong bytes. `check` verifies
        pieces even if they were verified before.
        """
        order = np.argsort(place_P, kind="stable")
        place_P, row_P = place_P[order], row_P[order]
        check_P = self._checks.due(place_P) | check
        borders = [0, *(np.flatnonzero(np.diff(place_P) != 1) + 1).tolist(), len(place_P)]
        runs = [
            slice(first, min(first + MOST_AT_ONCE, stop))
            for start, stop in pairwise(borders)
            for first in range(start, stop, MOST_AT_ONCE)
        ]
        if check_P.any() and hasattr(os, "posix_fadvise"):
            for run in runs:  # request all of them from the disk at once
                offset, length = self._offset(int(place_P[run.start])), run.stop - run.start
                os.posix_fadvise(self._descriptor, offset, length * self._piece_bytes, os.POSIX_FADV_WILLNEED)
        for run in runs:
            self._read_run(into, place_P[run], row_P[run], check_P[run])

    def _read_run(
        self, into: NDArray[np.uint8], place_P: NDArray[np.int64], row_P: NDArray[np.int64], check_P: NDArray[np.bool_]
    ) -> None:
        """Read adjacent pieces."""
        alone = len(place_P) == 1 and not check_P.any()  # only then is a part enough: a checksum covers a whole piece
        whole_PB = np.empty((len(place_P), into.shape[1] if alone else self._piece_bytes), np.uint8)
        try:
            reason = "the file is cut short"
            count = os.preadv(self._descriptor, [whole_PB.data], self._offset(int(place_P[0])))
        except OSError as error:
            count, reason = -1, str(error)
        if count != whole_PB.size:
            if len(place_P) > 1:  # one at a time, to find out which piece it is
                for n in range(len(place_P)):
                    self._read_run(into, place_P[n : n + 1], row_P[n : n + 1], check_P[n : n + 1])
                return
            raise DamagedBlock(self._piece_damage(reason, int(place_P[0])))
        named_P3 = np.ascontiguousarray(np.stack(self._named(place_P), 1), "<u4")
        for number in np.flatnonzero(check_P).tolist():
            place = int(place_P[number])
            if not self._checks.holds(place, named_P3[number], whole_PB[number]):
                raise DamagedBlock(self._piece_damage("its checksum does not match", place))
        into[row_P] = whole_PB[:, : into.shape[1]]

    def _offset(self, place: int) -> int:
        return self.header.pieces_offset + place * self._piece_bytes

    @property
    def _piece_bytes(self) -> int:
        return self.header.layout.piece_bytes

    def _named(self, place_P: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Layer, head and block of pieces."""
        rest_P, block_P = np.divmod(place_P, self.header.num_blocks)
        layer_index_P, head_P = np.divmod(rest_P, self.header.layout.kv_heads)
        return np.array(self.header.layout.layers)[layer_index_P], head_P, block_P

    def _piece_damage(self, reason: str, place: int) -> Damage:
        layer, head, block = (int(number[0]) for number in self._named(np.array([place])))
        return Damage(self.name, "piece", reason, layer=layer, head=head, block=block)
