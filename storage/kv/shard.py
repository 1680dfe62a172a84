"""One shard file: writing it so that it is whole or absent, and reading pieces of it, each checked on first touch.

- Written: temporary file, fsync, rename, fsync of the folder. A crash leaves a temporary file or a whole shard.
- Read with pread straight into the caller's buffer: one copy, and a file cut short is an error, not a SIGBUS.
- A piece that passed is remembered in a bitmap; when the file's size or times change, everything is checked again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
import weakref
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from storage.errors import CannotWrite, Damage, DamagedBlock, DamagedShard, ForeignShard, MissingShard, StoreFull
from storage.kv.format import PREFIX, Header, Section, decode_header, decode_prefix, shard_seed

_MOST_AT_ONCE = 256  # pieces
TEMPORARY = ".writing-"  # file names that begin so were never finished
SectionName: TypeAlias = Literal["lengths", "landmarks", "checksums"]


def write_durably(path: Path, contents: memoryview) -> None:
    """Put `contents` at `path` so that after a crash the file is there whole or not at all."""
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
            "Nothing of it was kept; free some space or choose another folder, then try again."
        ) from error
    for folder in {path.parent, *(folder.parent for folder in made)}:
        sync_folder(folder)


def _create(path: Path) -> int:
    """A descriptor of a new file in a folder made if need be. Whoever removed the folder's last file may take the empty
    folder away before the new one is in it: then make it again."""
    for _ in range(100):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    raise FileNotFoundError(errno.ENOENT, "its folder is removed again and again", str(path))


def sync_folder(folder: Path) -> None:
    """Make renames and removals inside `folder` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class OpenShard:
    """A shard file opened for reading; its front is checked when opened. Safe to share between threads.

    The descriptor is closed when the last user lets go, so deleting a shard never pulls it from under a reader.
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
        self._seed = shard_seed(self.header.fingerprint, self.name)
        if state[0] != self.header.file_bytes:
            reason = f"it has {state[0]} bytes and should have {self.header.file_bytes}"
            raise DamagedShard(Damage(self.name, "file", reason))
        self.checksums = np.frombuffer(self.section("checksums"), "<u4", self.header.num_pieces)
        self.landmarks_NYGD: Tensor | None = None  # kept by the store where it needs them often
        self.verified = np.zeros(self.header.num_pieces, dtype=bool)
        self._state = state  # last: a front found damaged once is looked at again by the next reader

    def _stat(self) -> tuple[int, int, int]:
        state = os.fstat(self._descriptor)
        return state.st_size, state.st_mtime_ns, state.st_ino

    def refresh(self) -> None:
        """Forget what was verified if the file was touched since. Costs one fstat."""
        if self._stat() != self._state:
            self._load()

    def require(self, field: str, stored: object, expected: object) -> None:
        if stored != expected:
            raise ForeignShard(self.name, field, stored, expected)

    def _read_header(self, file_bytes: int) -> Header:
        try:
            prefix = os.pread(self._descriptor, PREFIX.size, 0)
            header_bytes, _ = decode_prefix(prefix)
            if header_bytes > file_bytes:  # a damaged size must not become a huge allocation
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
        """Numbers of pieces in the order in which they lie in the file."""
        header = self.header
        assert ((heads_P >= 0) & (heads_P < header.layout.kv_heads)).all(), (self.name, heads_P)
        assert ((blocks_P >= 0) & (blocks_P < header.num_blocks)).all(), (self.name, blocks_P)
        return (layer_index * header.layout.kv_heads + heads_P) * header.num_blocks + blocks_P

    def read_pieces(
        self, into: NDArray[np.uint8], place_P: NDArray[np.int64], row_P: NDArray[np.int64], *, check: bool = False
    ) -> None:
        """Fill rows of `into` with the pieces at these places, or with as much of their beginning as a row takes.

        Pieces that lie behind each other come in one read. Raises `DamagedBlock` before the caller sees wrong bytes.
        `check` verifies pieces even if they were verified before.
        """
        order = np.argsort(place_P, kind="stable")
        place_P, row_P = place_P[order], row_P[order]
        check_P = ~self.verified[place_P] | check
        borders = [0, *(np.flatnonzero(np.diff(place_P) != 1) + 1).tolist(), len(place_P)]
        runs = [
            slice(first, min(first + _MOST_AT_ONCE, stop))
            for start, stop in pairwise(borders)
            for first in range(start, stop, _MOST_AT_ONCE)
        ]
        if check_P.any() and hasattr(os, "posix_fadvise"):
            for run in runs:  # so that the disk is asked for all of them at once
                offset, length = self._offset(int(place_P[run.start])), run.stop - run.start
                os.posix_fadvise(self._descriptor, offset, length * self._piece_bytes, os.POSIX_FADV_WILLNEED)
        for run in runs:
            self._read_run(into, place_P[run], row_P[run], check_P[run])

    def _read_run(
        self, into: NDArray[np.uint8], place_P: NDArray[np.int64], row_P: NDArray[np.int64], check_P: NDArray[np.bool_]
    ) -> None:
        """Pieces that lie behind each other."""
        alone = len(place_P) == 1 and not check_P.any()  # then nothing else is needed; checksums are of whole pieces
        whole_PB = np.empty((len(place_P), into.shape[1] if alone else self._piece_bytes), np.uint8)
        try:
            count, reason = (
                os.preadv(self._descriptor, [whole_PB.data], self._offset(int(place_P[0]))),
                "the file is cut short",
            )
        except OSError as error:
            count, reason = -1, str(error)
        if count != whole_PB.size:
            if len(place_P) > 1:  # one by one, to name the piece
                for n in range(len(place_P)):
                    self._read_run(into, place_P[n : n + 1], row_P[n : n + 1], check_P[n : n + 1])
                return
            raise DamagedBlock(self._piece_damage(reason, int(place_P[0])))
        named_P3 = np.ascontiguousarray(np.stack(self._named(place_P), 1), "<u4")
        for number in np.flatnonzero(check_P).tolist():
            place = int(place_P[number])
            if zlib.crc32(whole_PB[number], zlib.crc32(named_P3[number], self._seed)) != self.checksums[place]:
                raise DamagedBlock(self._piece_damage("its checksum does not match", place))
            self.verified[place] = True
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


def verify_file(
    path: Path,
    name: str,
    *,
    fingerprint: str | None = None,
    num_blocks: int | None = None,
    expected: str | None = None,
    checksum_of: Callable[[Path], str] | None = None,
) -> list[Damage]:
    """Every damaged part of a shard file, from a fresh reading of all of it.

    The rest is what the catalogue says about it: the model that made it, its blocks, its whole-file checksum.
    """
    try:
        shard = OpenShard(path, name)
    except DamagedShard as error:
        return [error.damage]
    damages: list[Damage] = []
    for field, said in (("fingerprint", fingerprint), ("num_blocks", num_blocks)):
        if said is not None and getattr(shard.header, field) != said:
            damages.append(Damage(name, "header", f"{field} is not that of the committed file"))
    for which in ("lengths", "landmarks"):
        try:
            shard.section(which)
        except DamagedShard as error:
            damages.append(error.damage)
    for first in range(0, shard.header.num_pieces, _MOST_AT_ONCE):
        places = np.arange(first, min(first + _MOST_AT_ONCE, shard.header.num_pieces))
        pieces = np.empty((len(places), shard.header.layout.piece_bytes), np.uint8)
        try:
            shard.read_pieces(pieces, places, np.arange(len(places)))
        except DamagedBlock:  # one by one, to name every damaged piece and not the first alone
            for n in range(len(places)):
                try:
                    shard.read_pieces(pieces, places[n : n + 1], np.zeros(1, np.int64), check=True)
                except DamagedBlock as error:
                    damages.append(error.damage)
    if not damages and expected is not None and checksum_of is not None and checksum_of(path) != expected:
        damages.append(Damage(name, "file", "it is whole, but not the file that was committed"))
    return damages
