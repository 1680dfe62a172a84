"""Whole shard files: verifying one against its checksums (`cairn verify`), and copying one under another name.

The checksums of pieces are seeded with the file's name, which holds the document's id, and a document from another home
gets a new id. So a copy has the same keys and values, each piece checked, and new checksums. Nothing is decoded and
encoded again: not a bit of the memory changes.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Mapping
from dataclasses import astuple
from io import BufferedIOBase

import numpy as np
import torch
from numpy.typing import NDArray

from storage.blobs.files import OpenFile
from storage.blobs.protocol import Blobs
from storage.errors import Damage, DamagedBlock, DamagedShard, ForeignShard
from storage.kv.codec import decode_pieces
from storage.kv.format import (
    PREFIX,
    SECTIONS,
    Header,
    KVLayout,
    decode_header,
    decode_prefix,
    encode_front,
    piece_checksums,
)
from storage.kv.shard import MOST_AT_ONCE, OpenShard, missing


def renamed(contents: bytes, name: str, *, fingerprint: str, layout: KVLayout) -> tuple[bytes, bytes, list[int]]:
    """(front, pieces, tokens in each block): the file `name` is the first two, one after the other.

    Raises `ForeignShard` for the memory of another model, `DamagedShard` for anything that the model could not have
    made: wrong checksums, numbers that are not finite.
    """
    header = _header(contents)
    for field, expected in (("fingerprint", fingerprint), ("layout", layout)):
        if getattr(header, field) != expected:
            raise ForeignShard(header.name, field, getattr(header, field), expected)
    if header.num_blocks < 1 or header.pieces_offset < PREFIX.size or len(contents) != header.file_bytes:
        raise _damaged(header.name, "file", "it has another size than it should have")
    sections = {which: _section(contents, header, which) for which in SECTIONS}
    lengths = np.frombuffer(sections["lengths"], "<u4").tolist()
    if not all(1 <= length < layout.block_size for length in lengths):
        raise _damaged(header.name, "lengths", "a block holds too many tokens, or none")
    _require_finite(header, torch.frombuffer(bytearray(sections["landmarks"]), dtype=layout.landmark_dtype))
    pieces = np.frombuffer(contents, np.uint8, offset=header.pieces_offset).reshape(-1, layout.piece_bytes)
    for first in range(0, len(pieces), MOST_AT_ONCE):
        raw_P = torch.from_numpy(pieces[first : first + MOST_AT_ONCE].copy())
        for numbers_PLD in decode_pieces(raw_P, layout):
            _require_finite(header, numbers_PLD)
    sections["checksums"] = _checksums(header, sections["checksums"], pieces, name)
    front = encode_front(name, fingerprint, layout, header.num_blocks, sections)
    return front, contents[header.pieces_offset :], lengths


def _header(contents: bytes) -> Header:
    try:
        header_bytes, _ = decode_prefix(contents[: PREFIX.size])
        header = decode_header(contents[: PREFIX.size], contents[PREFIX.size : PREFIX.size + header_bytes])
        numbers = [header.num_blocks, header.pieces_offset]
        numbers += [number for which in SECTIONS for number in astuple(getattr(header, which))]
        if not isinstance(header.name, str) or any(type(number) is not int for number in numbers):
            raise ValueError("it holds something else than a name and numbers")
        return header
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged("a memory file", "header", str(error)) from error


def _section(contents: bytes, header: Header, which: str) -> bytes:
    """Its bytes, without padding."""
    place, size = getattr(header, which), header.layout.section_bytes(header.num_blocks)[which]
    inside = 0 <= place.offset <= place.offset + place.size <= header.pieces_offset
    body = contents[place.offset : place.offset + place.size] if inside else b""
    if len(body) < size or zlib.crc32(body) != place.crc32:
        raise _damaged(header.name, which, "its checksum does not match")
    return body[:size]


def _checksums(header: Header, old: bytes, pieces: np.ndarray, name: str) -> bytes:
    """Of all pieces for the new name, after those for the old one were found right."""
    found, new = (
        piece_checksums(pieces, header.fingerprint, each, header.layout, header.num_blocks)
        for each in (header.name, name)
    )
    if found.tobytes() != old:
        raise _damaged(header.name, "piece", "its checksum does not match")
    return new.tobytes()


def _require_finite(header: Header, numbers: torch.Tensor) -> None:
    least, most = torch.aminmax(numbers)
    if not (torch.isfinite(least) and torch.isfinite(most)):
        raise _damaged(header.name, "pieces", "it holds numbers that are not finite")


def _damaged(name: str, section: str, reason: str) -> DamagedShard:
    return DamagedShard(Damage(name[:200], section, reason))


def verify_shard(blobs: Blobs, name: str, *, checksum: str | None = None, **expected: object) -> list[Damage]:
    """Every damaged part of the shard `name`, which is read completely, past all caches.

    The catalogue gives `checksum` of the whole file and `expected` fields of the header. Raises `StoreUnavailable`.
    """
    try:
        with blobs.copy(name) as file:
            return _damages(file, name, checksum, expected)
    except FileNotFoundError:
        return [missing(name).damage]


def _damages(file: BufferedIOBase, name: str, checksum: str | None, expected: Mapping[str, object]) -> list[Damage]:
    try:
        shard = OpenShard(OpenFile(os.dup(file.fileno())), name)
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
