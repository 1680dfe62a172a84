"""The layout of a shard file's bytes, and the encoding of keys and values in few bits. No I/O here; see also
docs/kv-file-format.md.

prefix | JSON header | lengths | landmarks | checksums | pieces

- A *piece* is the keys and values of one block of one head in one layer: contiguous, so that one read fetches it.
- Pieces are ordered [layer][kv head][block]; inside a piece, numbers are ordered [key|value][token][dim].
- Everything is little-endian, and a checksum covers every byte of the file.
- A piece's checksum is seeded with its place, so a misplaced piece is detected like a modified one.

int8, one scale for a block of a head:
- value = integer * scale and scale = largest magnitude / 127, so the error is at most scale / 2.

4 and 2 bits, a scale in 16 bit for each channel (a place on the axis D) of a block of a head:
- value = (code - (2^bits - 1) / 2) * scale and scale = largest magnitude of the channel / 2^(bits - 1): the levels are
  in the middle of equal steps, none of them on zero, so the error is at most scale / 2.
- A channel of zeros has the scale 0.
- Codes are packed plane by plane: of n bytes, number i of a piece is in byte i mod n, from its bit bits * (i div n) on.
  So unpacking is a mask and a copy for each plane.

Scales are computed over the rows that are read: padding rows are stored as zero bits, and so is the landmark's row in
few bits (in int8 it does not count and saturates): its key is stored separately in 16 bit, its value never attended to.

Axes: N stored blocks, P any number of leading axes, Y memory layers, G KV heads, L tokens in a block (landmark last), D
head dim, B bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGEST = 127


def quantise(rows_PLD: Tensor, valid_PL: Tensor) -> tuple[Tensor, Tensor]:
    """int8 rows and float32 scales `[P]`. Invalid rows become zeros; the landmark's row saturates."""
    rows_PLD = rows_PLD.float()
    ordinary_PLD = rows_PLD[..., :-1, :] * valid_PL[..., :-1, None]
    largest_P = ordinary_PLD.abs().amax(dim=(-2, -1))
    scales_P = torch.where(largest_P > 0, largest_P / LARGEST, 1.0)
    scaled_PLD = torch.cat([ordinary_PLD, rows_PLD[..., -1:, :]], dim=-2) / scales_P[..., None, None]
    return scaled_PLD.round().clamp(-LARGEST, LARGEST).to(torch.int8), scales_P


def dequantise(rows_PLD: Tensor, scales_P: Tensor) -> Tensor:
    """float32 rows."""
    return rows_PLD.float() * scales_P[..., None, None]


def packed_bytes(length: int, head_dim: int, bits: int) -> int:
    """Bytes of the codes of one piece's keys, or of its values."""
    return -(-length * head_dim * bits // 8)


def quantise_channels(rows_PLD: Tensor, valid_PL: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes uint8 `[P, B]` and float16 scales `[P, D]`, which are infinite where float16 cannot hold them."""
    steps = 2 ** (bits - 1)
    ordinary_PL1 = (valid_PL & (torch.arange(valid_PL.shape[-1]) < valid_PL.shape[-1] - 1))[..., None]
    ordinary_PLD = rows_PLD.float().masked_fill(~ordinary_PL1, 0.0)
    scales_PD = (ordinary_PLD.abs().amax(-2) / steps).half()
    scaled_PLD = ordinary_PLD / scales_PD.float().clamp_min(torch.finfo(torch.float32).tiny)[..., None, :]
    codes_PLD = (scaled_PLD.floor() + steps).clamp(0, 2 * steps - 1).masked_fill(~ordinary_PL1, 0.0)
    return _packed(codes_PLD.to(torch.uint8).flatten(-2), bits), scales_PD


def dequantise_channels(packed_PB: Tensor, scales_PD: Tensor, length: int, bits: int) -> Tensor:
    """float32 rows_PLD from codes `[P, B]`, P one axis."""
    count, size = packed_PB.shape
    width = scales_PD.shape[1]
    mask = 2**bits - 1
    numbers_PNB = torch.empty((count, 8 // bits, size), dtype=torch.float32, device=packed_PB.device)
    for plane in range(8 // bits):
        numbers_PNB[:, plane] = (packed_PB >> (bits * plane)) & mask
    rows_PLD: Tensor = numbers_PNB.flatten(1)[:, : length * width].unflatten(1, (length, width))
    return rows_PLD.sub_(mask / 2).mul_(scales_PD.float()[:, None])


def _packed(codes_PN: Tensor, bits: int) -> Tensor:
    """uint8 `[P, B]`."""
    planes = 8 // bits
    size = -(-codes_PN.shape[-1] // planes)
    padded_PN = torch.nn.functional.pad(codes_PN, (0, size * planes - codes_PN.shape[-1]))
    packed_PB = padded_PN[..., :size].clone()
    for plane in range(1, planes):
        packed_PB |= padded_PN[..., plane * size : (plane + 1) * size] << (bits * plane)
    return packed_PB


MAGIC = b"CAIRN-KV"
FORMAT_VERSIONS = (1, 2)
"""What is read. 2: number formats of few bits; all others are still written as 1, so that their files stay the same."""
PREFIX = struct.Struct("<8sIII")  # magic, format version, size of the JSON header, crc32 of (first 16 bytes + JSON)
ALIGNMENT = 64  # sections start at multiples of a cache line
SECTIONS = ("lengths", "landmarks", "checksums")
SCALES_BYTES = 8  # an int8 piece starts with two float32: the scale of its keys and that of its values

_EXACT = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_FEW_BITS = {"int4": (4, 4), "k4v2": (4, 2), "k4": (4, 0)}
KV_DTYPES = (*_EXACT, "int8", *_FEW_BITS)


@dataclass(frozen=True)
class KVLayout:
    """Shape and number format of stored memory.

    `layers` are absolute layer numbers; `block_size` counts the landmark; `dtype` is one of `KV_DTYPES`.
    """

    layers: tuple[int, ...]
    kv_heads: int
    block_size: int
    head_dim: int
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in KV_DTYPES:
            raise ValueError(f"kv dtype {self.dtype!r} is not one of {', '.join(KV_DTYPES)}")
        if not self.layers or len(set(self.layers)) != len(self.layers):
            raise ValueError(f"layers must be distinct layer numbers, at least one: {self.layers}")
        if min(self.kv_heads, self.head_dim) < 1 or self.block_size < 2:
            raise ValueError(f"kv_heads and head_dim must be at least 1 and block_size at least 2: {self}")

    @property
    def exact_dtype(self) -> torch.dtype | None:
        """The dtype of the numbers in a piece, if they are stored as they are; None if they are rounded to fewer
        bits."""
        return _EXACT.get(self.dtype)

    @property
    def bits(self) -> tuple[int, int] | None:
        """Bits of a key's number and of a value's (0: values are not stored), where every channel of a block has a
        scale; None otherwise."""
        return _FEW_BITS.get(self.dtype)

    @property
    def format_version(self) -> int:
        return 1 if self.bits is None else 2

    @property
    def landmark_dtype(self) -> torch.dtype:
        """Always 16 bit, except that fp32 memory has float32 landmarks. Rounded memory may come from a model of any
        dtype; float16 keeps three more bits of a landmark than bfloat16."""
        return self.exact_dtype or torch.float16

    @property
    def scales_bytes(self) -> int:
        """What a piece begins with: the scales of its keys, then those of its values."""
        if self.bits is not None:
            return sum(map(bool, self.bits)) * self.head_dim * torch.float16.itemsize
        return SCALES_BYTES if self.exact_dtype is None else 0

    @property
    def piece_bytes(self) -> int:
        return self.keys_bytes + self._numbers_bytes(1)

    @property
    def keys_bytes(self) -> int:
        """The leading part of a piece that holds all its scales and the keys."""
        return self.scales_bytes + self._numbers_bytes(0)

    def _numbers_bytes(self, which: int) -> int:
        """Of the keys (0) or the values (1) of a piece."""
        if self.bits is not None:
            return packed_bytes(self.block_size, self.head_dim, self.bits[which])
        return self.block_size * self.head_dim * (self.exact_dtype or torch.int8).itemsize

    @property
    def block_bytes(self) -> int:
        """Size of one block on disk, without its share of the shard's header."""
        return len(self.layers) * self.kv_heads * self.piece_bytes + sum(self.section_bytes(1).values())

    def section_bytes(self, num_blocks: int) -> dict[str, int]:
        """Size of each of the `SECTIONS` of a shard, without padding."""
        heads = len(self.layers) * self.kv_heads
        landmarks = heads * self.head_dim * self.landmark_dtype.itemsize
        return {"lengths": 4 * num_blocks, "landmarks": landmarks * num_blocks, "checksums": 4 * heads * num_blocks}

    def blocks_per_shard(self, shard_bytes: int) -> int:
        """How many blocks fit a shard of about `shard_bytes`; at least one."""
        return max(1, shard_bytes // self.block_bytes)


@dataclass(frozen=True)
class Section:
    offset: int
    size: int  # padding to ALIGNMENT included
    crc32: int


@dataclass(frozen=True)
class Header:
    """The JSON header. The first piece starts at `pieces_offset`; the file ends with the last one."""

    name: str
    fingerprint: str
    layout: KVLayout
    num_blocks: int
    lengths: Section
    landmarks: Section
    checksums: Section
    pieces_offset: int

    @property
    def num_pieces(self) -> int:
        return len(self.layout.layers) * self.layout.kv_heads * self.num_blocks

    @property
    def file_bytes(self) -> int:
        return self.pieces_offset + self.num_pieces * self.layout.piece_bytes

    @property
    def shape_NYGD(self) -> tuple[int, int, int, int]:
        return self.num_blocks, len(self.layout.layers), self.layout.kv_heads, self.layout.head_dim


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def front_bytes(name: str, fingerprint: str, layout: KVLayout, num_blocks: int) -> int:
    """Size of everything before the pieces."""
    return _header(name, fingerprint, layout, num_blocks, dict.fromkeys(SECTIONS, b"")).pieces_offset


def encode_front(
    name: str, fingerprint: str, layout: KVLayout, num_blocks: int, sections: Mapping[str, bytes]
) -> bytes:
    """Everything before the pieces, from the raw bytes of its `SECTIONS`."""
    header = _header(name, fingerprint, layout, num_blocks, sections)
    header_bytes = header.lengths.offset - PREFIX.size
    fields = asdict(header) | {"landmark_dtype": str(layout.landmark_dtype).removeprefix("torch.")}
    text = json.dumps(fields).encode().ljust(header_bytes)
    assert len(text) == header_bytes, "the header outgrew its space"
    crc = zlib.crc32(text, zlib.crc32(PREFIX.pack(MAGIC, layout.format_version, header_bytes, 0)[:16]))
    bodies = [sections[which].ljust(getattr(header, which).size, b"\0") for which in SECTIONS]
    return PREFIX.pack(MAGIC, layout.format_version, header_bytes, crc) + text + b"".join(bodies)


def _header(name: str, fingerprint: str, layout: KVLayout, num_blocks: int, sections: Mapping[str, bytes]) -> Header:
    sizes = layout.section_bytes(num_blocks)
    offset = _padded(PREFIX.size + 1024 + 8 * len(layout.layers) + len(name) + len(fingerprint))
    places: dict[str, Any] = {}
    for which in SECTIONS:
        size = _padded(sizes[which])
        places[which] = Section(offset, size, zlib.crc32(sections[which].ljust(size, b"\0")))
        offset += size
    return Header(name, fingerprint, layout, num_blocks, **places, pieces_offset=offset)


def decode_prefix(prefix: bytes) -> tuple[int, int]:
    """Size and crc32 of the JSON header. Raises `ValueError` (without the file's name) if this is not a shard."""
    if len(prefix) < PREFIX.size:
        raise ValueError("the file is cut short")
    magic, version, header_bytes, crc = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise ValueError("it is not a Cairn memory file")
    if version not in FORMAT_VERSIONS:
        known = " and ".join(f"version {known}" for known in FORMAT_VERSIONS)
        raise ValueError(f"it has format version {version}; this release reads {known}")
    return header_bytes, crc


def decode_header(prefix: bytes, text: bytes) -> Header:
    """The header from its prefix and JSON text. Raises `ValueError` if either has changed since it was written."""
    header_bytes, crc = decode_prefix(prefix)
    if len(text) < header_bytes:
        raise ValueError("the file is cut short")
    if zlib.crc32(text, zlib.crc32(prefix[:16])) != crc:
        raise ValueError("its checksum does not match")
    fields = json.loads(text)
    fields.pop("landmark_dtype")
    fields["layout"]["layers"] = tuple(fields["layout"]["layers"])
    fields["layout"] = KVLayout(**fields["layout"])
    version = PREFIX.unpack(prefix)[1]
    if version != fields["layout"].format_version:
        raise ValueError(f"format version {version} has no number format {fields['layout'].dtype}")
    for which in SECTIONS:
        fields[which] = Section(**fields[which])
    return Header(**fields)


def piece_checksums(
    pieces_PB: NDArray[np.uint8], fingerprint: str, name: str, layout: KVLayout, num_blocks: int
) -> NDArray[np.uint32]:
    """The crc32 of all pieces of a file, in order. Their initial values bind a piece's bytes to the model, the file and
    their place in it."""
    seed = shard_seed(fingerprint, name)
    places = product(layout.layers, range(layout.kv_heads), range(num_blocks))
    seeds = (zlib.crc32(struct.pack("<III", *place), seed) for place in places)
    return np.fromiter(map(zlib.crc32, pieces_PB, seeds), "<u4", len(pieces_PB))


def shard_seed(fingerprint: str, name: str) -> int:
    return zlib.crc32(f"{fingerprint} {name}".encode())
