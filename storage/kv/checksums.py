"""Checksums of stored blocks: no byte of a block is used before its checksum was verified.

A piece is a block of one head in one layer. Its crc32 starts from the model, the file and the piece's place, so the
right bytes in the wrong place are damage, too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from storage.kv.format import KVLayout


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


def piece_seeds(fingerprint: str, name: str, layout: KVLayout, num_blocks: int) -> Iterator[int]:
    """Initial values of the crc32 of all pieces of a file, in order: each binds a piece's bytes to the model, the file
    and their place in it."""
    seed = shard_seed(fingerprint, name)
    for layer in layout.layers:
        for head in range(layout.kv_heads):
            for block in range(num_blocks):
                yield zlib.crc32(struct.pack("<III", layer, head, block), seed)


def shard_seed(fingerprint: str, name: str) -> int:
    return zlib.crc32(f"{fingerprint} {name}".encode())
