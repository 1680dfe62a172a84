"""A whole shard file against its checksums: what `cairn verify` does with each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from storage.blobs.files import FileBlobs, OpenFile
from storage.blobs.protocol import Blobs
from storage.errors import Damage, DamagedBlock, DamagedShard
from storage.kv.shard import MOST_AT_ONCE, OpenShard, missing


def verify_file(path: Path, name: str, *, checksum: str | None = None, **expected: object) -> list[Damage]:
    """`verify_shard` of a file under any path."""
    return verify_shard(FileBlobs(path.parent), path.name, name, checksum=checksum, **expected)


def verify_shard(
    blobs: Blobs, blob: str, name: str, *, checksum: str | None = None, **expected: object
) -> list[Damage]:
    """Every damaged part of the shard `name`, which lies in `blobs` as `blob` and is read completely, past all caches.

    The rest is what the catalogue knows of it: `checksum` of the whole file, `expected` fields of the header. Raises
    `StoreUnavailable`.
    """
    try:
        with blobs.copy(blob) as file:
            return _damages(file, name, checksum, expected)
    except FileNotFoundError:
        return [missing(name).damage]


def _damages(file: BufferedIOBase, name: str, checksum: str | None, expected: Mapping[str, object]) -> list[Damage]:
    try:
        shard = OpenShard(_Copy(file.fileno()), name)
    except DamagedShard as error:
        return [error.damage]
    damages = [
        Damage(name, "header", f"{field} is not that of the committed file")
        for field, value in expected.items()
        if getattr(shard.header, field) != value
    ]
    for which in ("lengths", "landmarks"):
        try:
            shard.section(which)
        except DamagedShard as error:
            damages.append(error.damage)
    places = np.arange(shard.header.num_pieces)
    for first in range(0, len(places), MOST_AT_ONCE):
        damages += _damaged_pieces(shard, places[first : first + MOST_AT_ONCE])
    if not damages and checksum is not None and "sha256:" + hashlib.file_digest(file, "sha256").hexdigest() != checksum:
        damages.append(Damage(name, "file", "it is intact, but not the file that was committed"))
    return damages


def _damaged_pieces(shard: OpenShard, place_P: NDArray[np.int64]) -> list[Damage]:
    pieces_PB = np.empty((len(place_P), shard.header.layout.piece_bytes), np.uint8)
    try:
        shard.read_pieces(pieces_PB, place_P, np.arange(len(place_P)), check=True)
    except DamagedBlock as error:
        if len(place_P) == 1:
            return [error.damage]
        return [damage for n in range(len(place_P)) for damage in _damaged_pieces(shard, place_P[n : n + 1])]
    return []


class _Copy(OpenFile):
    """An open file of somebody else's."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
