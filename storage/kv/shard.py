"""One shard file: reading its pieces, each verified on first read.

- `preadv`, not mmap, so a truncated file is an error and not a SIGBUS.
- A bitmap remembers the verified pieces. When the file's size or times change, everything is verified again.
- The file may be a cache with holes: what is not right in it is asked for once more, from what lies behind it, and kept
  there only after it was verified.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from storage.blobs.protocol import OpenBlob
from storage.errors import Damage, DamagedBlock, DamagedShard, ForeignShard, MissingShard
from storage.kv.format import PREFIX, Header, Section, decode_header, decode_prefix, shard_seed

MOST_AT_ONCE = 256  # pieces
BRIDGED_BYTES = 1 << 15
"""Pieces this far apart are read together, with what lies between: copying it takes less time than another call."""
SectionName: TypeAlias = Literal["lengths", "landmarks", "checksums"]
_Wrong: TypeAlias = tuple[int, int, str]  # place, row and reason of a piece that is not right
_MISMATCH = "its checksum does not match"


class PieceChecks:
    """The checksums of a file's pieces, and which pieces matched since the file was opened or changed."""

    def __init__(self, checksums: NDArray[np.uint32], seed: int):
        """`seed`: see `shard_seed`."""
        self._checksums, self._seed = checksums, seed
        self._matched = np.zeros(len(checksums), dtype=bool)

    def due(self, place_P: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the pieces were not checked yet."""
        return ~self._matched[place_P]

    def hold(
        self,
        place_P: NDArray[np.int64],
        named_P3: NDArray[np.uint32],
        pieces_SB: NDArray[np.uint8],
        at_P: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Which of the pieces are right: row `at_P` of `pieces_SB` has the bytes of the piece at `place_P`, with these
        numbers of layer, head and block."""
        # Plain loop over plain values: a question checks thousands of pieces, and numpy's scalars cost more than crc32.
        crc32, seed, size = zlib.crc32, self._seed, pieces_SB.shape[1]
        named, pieces = named_P3.data.cast("B"), pieces_SB.data.cast("B")
        expected = self._checksums[place_P].tolist()
        right_P = np.fromiter(
            (
                crc32(pieces[at * size : (at + 1) * size], crc32(named[12 * n : 12 * n + 12], seed)) == expected[n]
                for n, at in enumerate(at_P.tolist())
            ),
            bool,
            len(expected),
        )
        self._matched[place_P[right_P]] = True
        return right_P


class OpenShard:
    """A shard open for reading; all that precedes the pieces is verified on opening. Safe to share among threads."""

    def __init__(self, blob: OpenBlob, name: str):
        self.name, self._blob, self._descriptor = name, blob, blob.descriptor
        try:
            self._load()
        except FileNotFoundError:
            raise missing(name) from None

    def _load(self) -> None:
        try:
            self._load_what_is_here()
        except DamagedShard:
            if not self._blob.refill():
                raise
            self._load_what_is_here()

    def _load_what_is_here(self) -> None:
        state = self._blob.state()
        self.header = self._read_header(os.fstat(self._descriptor).st_size)
        self._piece_bytes = self.header.layout.piece_bytes
        file_bytes = os.fstat(self._descriptor).st_size
        if file_bytes != self.header.file_bytes:
            reason = f"it has {file_bytes} bytes and should have {self.header.file_bytes}"
            raise DamagedShard(Damage(self.name, "file", reason))
        self._checks = PieceChecks(
            np.frombuffer(self.section("checksums"), "<u4", self.header.num_pieces),
            shard_seed(self.header.fingerprint, self.name),
        )
        self.landmarks_NYGD: Tensor | None = None  # cached here by the store if it needs them often
        self._state = state  # set last: if any of the above raises, the next reader checks again

    def refresh(self) -> bool:
        """Start over if the file has changed since it was verified. False: open it anew. Costs one fstat."""
        if not (state := self._blob.state()):
            return False
        if state != self._state:
            self._load()
        return True

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
        reason = _wrong(body, place)
        if reason and (found := self._blob.again([(place.offset, place.size)])):
            body, reason = found[0], _wrong(found[0], place)
            if not reason:
                self._blob.keep(place.offset, body)
        if reason:
            raise DamagedShard(Damage(self.name, which, reason))
        return body

    def places(self, layer_index: int, heads_P: NDArray[np.int64], blocks_P: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of each piece: pieces are numbered as they stand in the file, [layer][head][block]."""
        header = self.header
        assert ((heads_P >= 0) & (heads_P < header.layout.kv_heads)).all(), (self.name, heads_P)
        assert ((blocks_P >= 0) & (blocks_P < header.num_blocks)).all(), (self.name, blocks_P)
        return (layer_index * header.layout.kv_heads + heads_P) * header.num_blocks + blocks_P

    def read_pieces(
        self, into: NDArray[np.uint8], place_P: NDArray[np.int64], row_P: NDArray[np.int64], *, check: bool = False
    ) -> None:
        """Copy piece number place_P[p] into row row_P[p] of `into`, or as much of it as fits a row.

        Pieces that lie close together are read together. Raises `DamagedBlock` before the caller sees wrong bytes.
        `check` verifies pieces even if they were verified before.
        """
        order = np.argsort(place_P, kind="stable")
        place_P, row_P = place_P[order], row_P[order]
        check_P = self._checks.due(place_P) | check
        any_check = bool(check_P.any())
        named_P3 = self._named_rows(place_P) if any_check else np.zeros((len(place_P), 3), "<u4")
        runs = self._runs(place_P)
        if any_check and hasattr(os, "posix_fadvise"):
            for run in runs:  # request all of them from the disk at once
                first, stop = int(place_P[run.start]), int(place_P[run.stop - 1]) + 1
                size = (stop - first) * self._piece_bytes
                os.posix_fadvise(self._descriptor, self._offset(first), size, os.POSIX_FADV_WILLNEED)
        wrong = [
            found
            for run in runs
            for found in self._read_run(into, place_P[run], row_P[run], check_P[run], named_P3[run])
        ]
        if wrong:
            self._read_behind(into, wrong)

    def _runs(self, place_P: NDArray[np.int64]) -> list[slice]:
        """What to read together, of ascending places."""
        apart = 1 + BRIDGED_BYTES // self._piece_bytes
        borders = [0, *(np.flatnonzero(np.diff(place_P) > apart) + 1).tolist(), len(place_P)]
        runs = []
        for start, stop in pairwise(borders):
            while start < stop:
                last = int(place_P[start]) + MOST_AT_ONCE
                end = min(stop, start + int(np.searchsorted(place_P[start:stop], last)))
                runs.append(slice(start, end))
                start = end
        return runs

    def _read_run(
        self,
        into: NDArray[np.uint8],
        place_P: NDArray[np.int64],
        row_P: NDArray[np.int64],
        check_P: NDArray[np.bool_],
        named_P3: NDArray[np.uint32],
    ) -> list[_Wrong]:
        """Read a run of pieces. Returns those that are not right, whose rows are not filled."""
        checked = bool(check_P.any())
        first, span = int(place_P[0]), int(place_P[-1] - place_P[0]) + 1
        alone = span == 1 and not checked  # only then is a part enough: a checksum covers a whole piece
        whole_SB = np.empty((span, into.shape[1] if alone else self._piece_bytes), np.uint8)
        try:
            reason = "the file is cut short"
            count = os.preadv(self._descriptor, [whole_SB.data], self._offset(first))
        except OSError as error:
            count, reason = -1, str(error)
        if count != whole_SB.size:
            if len(place_P) > 1:  # one at a time, to find out which piece it is
                ones = [slice(n, n + 1) for n in range(len(place_P))]
                return [
                    bad for n in ones for bad in self._read_run(into, place_P[n], row_P[n], check_P[n], named_P3[n])
                ]
            return [(first, int(row_P[0]), reason)]
        inside_P = place_P - first
        bad_P = np.zeros(len(place_P), dtype=bool)
        if checked:
            due = np.flatnonzero(check_P)
            bad_P[due] = ~self._checks.hold(place_P[due], named_P3[due], whole_SB, inside_P[due])
        right_P = ~bad_P
        into[row_P[right_P]] = whole_SB[inside_P[right_P], : into.shape[1]]
        return [(int(place_P[n]), int(row_P[n]), _MISMATCH) for n in np.flatnonzero(bad_P)]

    def _read_behind(self, into: NDArray[np.uint8], wrong: Sequence[_Wrong]) -> None:
        """Fill rows from behind the cache. Raises `DamagedBlock`."""
        found = self._blob.again([(self._offset(place), self._piece_bytes) for place, _, _ in wrong])
        if not found:
            place, _, reason = wrong[0]
            raise DamagedBlock(self._piece_damage(reason, place))
        named_P3 = self._named_rows(np.array([place for place, _, _ in wrong]))
        for (place, row, _), named_3, contents in zip(wrong, named_P3, found, strict=True):
            piece_B = np.frombuffer(contents, np.uint8)
            if len(piece_B) != self._piece_bytes:
                raise DamagedBlock(self._piece_damage("the file is cut short", place))
            if not self._checks.hold(np.array([place]), named_3[None], piece_B[None], np.zeros(1, np.int64))[0]:
                raise DamagedBlock(self._piece_damage(_MISMATCH, place))
            into[row] = piece_B[: into.shape[1]]
            self._blob.keep(self._offset(place), contents)

    def _offset(self, place: int) -> int:
        return self.header.pieces_offset + place * self._piece_bytes

    def _named(self, place_P: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Layer, head and block of pieces."""
        rest_P, block_P = np.divmod(place_P, self.header.num_blocks)
        layer_index_P, head_P = np.divmod(rest_P, self.header.layout.kv_heads)
        return np.array(self.header.layout.layers)[layer_index_P], head_P, block_P

    def _named_rows(self, place_P: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Layer, head and block of pieces as their checksums take them."""
        return np.ascontiguousarray(np.stack(self._named(place_P), 1), "<u4")

    def _piece_damage(self, reason: str, place: int) -> Damage:
        layer, head, block = (int(number[0]) for number in self._named(np.array([place])))
        return Damage(self.name, "piece", reason, layer=layer, head=head, block=block)


def missing(name: str) -> MissingShard:
    return MissingShard(Damage(name, "file", "the file is missing"))


def _wrong(body: bytes, place: Section) -> str:
    """What is not right about a section's bytes; empty if nothing."""
    if len(body) != place.size:
        return "the file is cut short"
    return "" if zlib.crc32(body) == place.crc32 else _MISMATCH
