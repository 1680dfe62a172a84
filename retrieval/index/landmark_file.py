"""All landmarks of a memory in one file that is mapped: opened in milliseconds whatever its size, and not held in RAM.

- A copy of what the shards and the catalogue hold, made again whenever it is missing, damaged or of another state.
- Written beside its place and renamed, never changed: there is no half-written file under its name, and whoever has
  mapped an older one keeps it.
- The header, the tables and the bounds are checked when it is opened; codes and keys when they are first read.
- Codes are int8 with one scale for each block; `error` is the distance of a block's keys from what its codes say, so
  that the true logit of a query lies within |query| * error of the one by codes (Cauchy-Schwarz).

The file: prefix (magic, version, size of the header, its crc32) | JSON header | sections, each at a multiple of 64.

Axes: N blocks by ascending id, K numbers of a block (memory layers, heads, head dim, flattened), M some blocks, S
shards.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retrieval.errors import CairnError

MAGIC, VERSION = b"CAIRN-LM", 1
PREFIX = struct.Struct("<8sIII")
ALIGNMENT = 64
CHUNK = 1024
"""Blocks that are scored at a time, and whose codes have one checksum."""
LARGEST = 127
_LEFT_OVER_SECONDS = 3600  # a file that is still being written after this long belongs to a process that was killed
_CHECKED_WHEN_READ = ("codes", "keys")
_TABLES = {
    "scale": "<f4",
    "error": "<f4",
    "code_checks": "<u4",
    "key_checks": "<u4",
    "ids": "<i8",
    "shard": "<i4",
    "row": "<i4",
    "length": "<i8",
    "document": "<i4",
    "ordinal": "<i4",
    "shard_ids": "<i8",
    "shard_first": "<i8",
    "shard_blocks": "<i8",
}


class DamagedLandmarkFile(CairnError):
    """What was mapped is not what was written. The file is removed, and made again from the stored memory."""

    def __init__(self, path: Path, reason: str):
        super().__init__(f"The copy of all landmarks in {path} is damaged ({reason}). It is made again: ask once more.")


@dataclass(frozen=True, eq=False)
class Contents:
    """What is written. `landmarks(start, stop)` gives rows [stop - start, K]; `tables`: arrays of `_TABLES` that say
    where blocks lie, from "ids" on; names in the order of the numbers that "shard" and "document" hold."""

    num_blocks: int
    numbers: int
    dtype: torch.dtype
    landmarks: Callable[[int, int], Tensor]
    tables: dict[str, np.ndarray]
    shard_names: Sequence[str]
    document_ids: Sequence[str]


def write_landmark_file(path: Path, contents: Contents, *, fingerprint: str, mark: str) -> None:
    """`mark`: the state of the catalogue (`memory_mark`) that it is of. Raises `OSError`; then nothing is left."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for leftover in path.parent.glob(f".{path.name}-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - leftover.stat().st_mtime > _LEFT_OVER_SECONDS:
                leftover.unlink()
    temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    names = {"shard_names": contents.shard_names, "document_ids": contents.document_ids}
    sections = _layout(contents, {name: _packed(texts) for name, texts in names.items()})
    try:
        with open(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b") as file:
            header_bytes = _write_sections(file, contents, sections, {"fingerprint": fingerprint, "mark": mark})
            assert header_bytes <= sections["codes"].offset
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@dataclass
class _Section:
    offset: int
    size: int
    body: bytes | None = None
    crc32: int = 0


def _packed(texts: Sequence[str]) -> bytes:
    return json.dumps(list(texts)).encode()


def _layout(contents: Contents, packed: dict[str, bytes]) -> dict[str, _Section]:
    """Places of all sections; the header has room for itself before the first."""
    count, width = contents.num_blocks, contents.numbers
    sizes = {"codes": count * width, "keys": count * width * contents.dtype.itemsize}
    per_block = {"scale": count, "error": count, "key_checks": count, "code_checks": -(-count // CHUNK)}
    for name, dtype in _TABLES.items():
        length = per_block[name] if name in per_block else len(contents.tables[name])
        sizes[name] = np.dtype(dtype).itemsize * length
    sizes |= {name: len(body) for name, body in packed.items()}
    at, found = 4096, {}
    for name, size in sizes.items():
        found[name] = _Section(at, size, packed.get(name))
        at += -(-size // ALIGNMENT) * ALIGNMENT
    return found


def _write_sections(file: Any, contents: Contents, sections: dict[str, _Section], state: dict[str, str]) -> int:
    """Returns how many bytes prefix and header take."""

    def put(name: str, body: bytes) -> None:
        section = sections[name]
        assert len(body) == section.size, name
        section.crc32 = zlib.crc32(body)
        file.seek(section.offset)
        file.write(body)

    made: dict[str, list[np.ndarray]] = {"scale": [], "error": [], "key_checks": []}
    code_checks = []
    width, item = contents.numbers, contents.dtype.itemsize
    for start in range(0, contents.num_blocks, CHUNK):
        rows_NK = contents.landmarks(start, min(start + CHUNK, contents.num_blocks)).to(contents.dtype).contiguous()
        codes_NK, scale_N, error_N = quantised(rows_NK)
        for name, body, size in (
            ("codes", codes_NK.numpy().tobytes(), width),
            ("keys", rows_NK.view(torch.uint8).numpy().tobytes(), width * item),
        ):
            file.seek(sections[name].offset + start * size)
            file.write(body)
        code_checks.append(zlib.crc32(codes_NK.numpy().data))
        raw_NB = rows_NK.view(torch.uint8).numpy()
        made["key_checks"].append(np.fromiter((zlib.crc32(row.data) for row in raw_NB), "<u4", len(raw_NB)))
        made["scale"].append(scale_N.numpy())
        made["error"].append(error_N.numpy())
    tables = {name: np.concatenate([np.zeros(0), *parts]) for name, parts in made.items()} | contents.tables
    tables["code_checks"] = np.array(code_checks, dtype="<u4")
    for name, dtype in _TABLES.items():
        put(name, tables[name].astype(dtype).tobytes())
    for name, section in sections.items():
        if section.body is not None:
            put(name, section.body)
    end = max(section.offset + section.size for section in sections.values())
    file.truncate(end)
    header = state | {
        "num_blocks": contents.num_blocks,
        "numbers": width,
        "dtype": str(contents.dtype).removeprefix("torch."),
        "file_bytes": end,
        "sections": {name: [section.offset, section.size, section.crc32] for name, section in sections.items()},
    }
    body = json.dumps(header).encode()
    file.seek(0)
    file.write(PREFIX.pack(MAGIC, VERSION, len(body), zlib.crc32(body)) + body)
    return PREFIX.size + len(body)


def quantised(rows_NK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """codes_NK (int8), scale_N and error_N (float32): see the module docstring."""
    exact_NK = rows_NK.float()
    largest_N = exact_NK.abs().amax(1)
    scale_N = torch.where(largest_N > 0, largest_N / LARGEST, 1.0)
    codes_NK = (exact_NK / scale_N[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8)
    distance_N = (exact_NK - codes_NK.float() * scale_N[:, None]).norm(dim=1)
    # Room for what float32 loses when it sums the products.
    return codes_NK, scale_N, distance_N * 1.0001 + 1e-5 * exact_NK.norm(dim=1)


class LandmarkFile:
    """A mapped file. Raises `FileNotFoundError`, `DamagedLandmarkFile`. Thread-safe."""

    def __init__(self, path: Path):
        self.path = path
        self._bytes = np.memmap(path, np.uint8, mode="c") if path.stat().st_size else np.zeros(0, np.uint8)
        header = self._header()
        self.fingerprint, self.mark = str(header["fingerprint"]), str(header["mark"])
        self.num_blocks, self.numbers = int(header["num_blocks"]), int(header["numbers"])
        self._sections: dict[str, list[int]] = header["sections"]
        self.tables = {name: self._section(name).view(dtype) for name, dtype in _TABLES.items()}
        self.shard_names: tuple[str, ...] = tuple(json.loads(self._section("shard_names").tobytes()))
        self.document_ids: tuple[str, ...] = tuple(json.loads(self._section("document_ids").tobytes()))
        self.scale_N, self.error_N = (torch.from_numpy(self.tables[name]) for name in ("scale", "error"))
        dtype: torch.dtype = getattr(torch, header["dtype"])
        self.codes_NK = torch.from_numpy(self._section("codes").view(np.int8)).view(-1, self.numbers)
        self._raw_NB = self._section("keys").reshape(-1, self.numbers * dtype.itemsize)
        self._keys_NK = torch.from_numpy(self._raw_NB).view(dtype)
        self._right_codes = np.zeros(len(self.tables["code_checks"]), dtype=bool)
        self._right_keys = np.zeros(self.num_blocks, dtype=bool)

    def _header(self) -> dict[str, Any]:
        raw = self._bytes[: PREFIX.size].tobytes()
        if len(raw) < PREFIX.size:
            raise DamagedLandmarkFile(self.path, "it is cut short")
        magic, version, size, crc32 = PREFIX.unpack(raw)
        body = self._bytes[PREFIX.size : PREFIX.size + size].tobytes()
        if (magic, version) != (MAGIC, VERSION) or zlib.crc32(body) != crc32:
            raise DamagedLandmarkFile(self.path, "its header is not right")
        header: dict[str, Any] = json.loads(body)
        if len(self._bytes) != header["file_bytes"]:
            raise DamagedLandmarkFile(self.path, "it is cut short")
        return header

    def _section(self, name: str) -> np.ndarray:
        offset, size, crc32 = self._sections[name]
        body = self._bytes[offset : offset + size]
        if name not in _CHECKED_WHEN_READ and zlib.crc32(body.data) != crc32:
            raise DamagedLandmarkFile(self.path, f"the checksum of {name!r} does not match")
        return np.asarray(body)

    def approximate(self, query_K: Tensor) -> Tensor:
        """logits_N by codes (float32). Raises `DamagedLandmarkFile`."""
        logits_N = torch.empty(self.num_blocks)
        numbers_CK = torch.empty(CHUNK, self.numbers)
        for chunk, start in enumerate(range(0, self.num_blocks, CHUNK)):
            codes_CK = self.codes_NK[start : start + CHUNK]
            if not self._right_codes[chunk]:
                self._check_codes(chunk, codes_CK)
            part_CK = numbers_CK[: len(codes_CK)]
            torch.mv(part_CK.copy_(codes_CK), query_K, out=logits_N[start : start + CHUNK])
        return logits_N.mul_(self.scale_N)

    def _check_codes(self, chunk: int, codes_CK: Tensor) -> None:
        if zlib.crc32(codes_CK.numpy().data) != self.tables["code_checks"][chunk]:
            raise DamagedLandmarkFile(self.path, "the checksum of codes does not match")
        self._right_codes[chunk] = True

    def keys(self, slots_M: Tensor) -> Tensor:
        """Exact keys_MK as stored. Raises `DamagedLandmarkFile`."""
        numbers = slots_M.numpy()
        for number in numbers[~self._right_keys[numbers]].tolist():
            if zlib.crc32(self._raw_NB[number].data) != self.tables["key_checks"][number]:
                raise DamagedLandmarkFile(self.path, "the checksum of a key does not match")
            self._right_keys[number] = True
        return self._keys_NK[slots_M]
