"""Checksums of stored blocks: no byte of a block is used before it was compared with its checksum.

A piece is a block of one head in one layer. Its crc32 starts from the model, the file and the piece's place, so the
right bytes in the wrong place are damage, too.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray


class PieceChecks:
    """The checksums of a file's pieces, and which pieces matched since the file was opened or changed."""

    def __init__(self, checksums: NDArray[np.uint32], seed: int):
        """`seed`: see `shard_seed`."""
        self._checksums, self._seed = checksums, seed
        self._matched = np.zeros(len(checksums), dtype=bool)

    def due(self, place_P: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the pieces were not checked yet."""
        return ~self._matched[place_P]

    def holds(self, place: int, named_3: NDArray[np.uint32], piece_B: NDArray[np.uint8]) -> bool:
        """Whether the bytes are those of the piece with these numbers of layer, head and block."""
        if zlib.crc32(piece_B.data, zlib.crc32(named_3.data, self._seed)) != self._checksums[place]:
            return False
        self._matched[place] = True
        return True


def piece_seed(fingerprint: str, name: str, layer: int, head: int, block: int) -> int:
    """Initial value of a piece's crc32, which binds its bytes to the model, the file and their place in it."""
    return zlib.crc32(struct.pack("<III", layer, head, block), shard_seed(fingerprint, name))


def shard_seed(fingerprint: str, name: str) -> int:
    return zlib.crc32(f"{fingerprint} {name}".encode())
