"""Ways in which a shard file can go bad, for tests and benchmarks; changed in place, as a failing disk does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from storage.blobs.files import OpenFile
from storage.kv.format import Header
from storage.kv.shard import OpenShard

Damager = Callable[[Path, Random], None]


def header_of(path: Path) -> Header:
    return OpenShard(OpenFile(os.open(path, os.O_RDONLY)), f"{path.parent.name}/{path.name}").header


def flip(path: Path, rng: Random) -> None:
    """One bit somewhere in the file."""
    _flip_between(path, rng, 0, path.stat().st_size)


def flip_in_front(path: Path, rng: Random) -> None:
    """One bit of the header."""
    _flip_between(path, rng, 0, header_of(path).lengths.offset)


def flip_in_landmarks(path: Path, rng: Random) -> None:
    """One bit of the landmark rows, which are resident and rank the blocks."""
    place = header_of(path).landmarks
    _flip_between(path, rng, place.offset, place.offset + place.size)


def flip_in_tables(path: Path, rng: Random) -> None:
    """One bit of the blocks' lengths or of the checksums themselves."""
    header = header_of(path)
    place = rng.choice((header.lengths, header.checksums))
    _flip_between(path, rng, place.offset, place.offset + place.size)


def overwrite(path: Path, rng: Random) -> None:
    """A stretch of keys and values turned into noise."""
    start, size = header_of(path).pieces_offset, path.stat().st_size
    at = rng.randrange(start, size)
    data = bytearray(path.read_bytes())
    end = min(size, at + rng.randrange(1, 4096))
    data[at:end] = bytes(byte ^ rng.randrange(1, 256) for byte in data[at:end])
    path.write_bytes(data)


def cut(path: Path, rng: Random) -> None:
    """The file ends too early."""
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def swap_pieces(path: Path, rng: Random) -> None:
    """Two blocks' keys and values change places, each whole in itself."""
    header = header_of(path)
    size, data = header.layout.piece_bytes, bytearray(path.read_bytes())
    one, two = (header.pieces_offset + n * size for n in rng.sample(range(header.num_pieces), 2))
    data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]
    path.write_bytes(data)


def swap_files(path: Path, rng: Random) -> None:
    """Two shards of the store change places, each whole in itself."""
    other = rng.choice(sorted(each for each in path.parent.parent.rglob("*.kv") if each != path))
    mine, others = path.read_bytes(), other.read_bytes()
    path.write_bytes(others)
    other.write_bytes(mine)


def _flip_between(path: Path, rng: Random, start: int, end: int) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(start, end)] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


DAMAGERS: tuple[Damager, ...] = (
    flip,
    cut,
    swap_pieces,
    swap_files,
    flip_in_front,
    flip_in_landmarks,
    flip_in_tables,
    overwrite,
)
