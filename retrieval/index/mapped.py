"""Landmarks in a memory-mapped file, and newer ones in RAM: the index of large libraries.

- It finds exactly what the exact index finds. int8 codes of all blocks are scored. The error bound of each block is
  known, so every block that may be among the best is scored again by its exact keys.
- Blocks that are newer than the file have an exact index of their own; removed ones are skipped.
- The file is `index/landmarks.map` in the home folder, even if memory is in a bucket: it is a copy of what shards and
  catalogue hold, each machine has its own, and it may be deleted at any time. Opening takes milliseconds whatever its
  size.
- A file of the catalogue's present state is used as it is, and no shard is opened. One of an earlier state is completed
  with the differences. A damaged one, or one of another model, is removed and made again. A thread rewrites the file
  from a snapshot once an eighth of the blocks were added or removed.
- A new file is written next to its place and renamed, never changed. So there is no unfinished file under its name, and
  a process that has mapped an older one keeps it.
- Header, tables and error bounds are checked when the file is opened; codes and keys when they are first read.
- Codes are int8 with one scale for each block; `error` is the distance of a block's keys from what its codes say. The
  true logit of a query lies within |query| * error of the one by codes (Cauchy-Schwarz).

Layout: prefix (magic, version, size of the header, its crc32) | JSON header | sections, each at a multiple of 64.

Axes: N blocks by ascending id, M some of them, P blocks of the file, T blocks in RAM, S shards, Y memory layers, G KV
heads, D head dim, K = Y * G * D.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import struct
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from retrieval.engine.workspace import Workspace
from retrieval.errors import CairnError
from retrieval.index.blocks import BlockCache, MemorySnapshot, StoredBlocks
from retrieval.index.exact import ExactLandmarkIndex, ExactSnapshot, Ranking, rank_all
from storage.records import BlockRefs

MAGIC, VERSION = b"CAIRN-LM", 1
PREFIX = struct.Struct("<8sIII")
ALIGNMENT = 64
_HEADER_BYTES = 4096  # room for prefix and header
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
    """The file does not hold what was written. It is removed, and made again from the stored memory."""

    def __init__(self, path: Path, reason: str):
        super().__init__(f"The copy of all landmarks in {path} is damaged ({reason}). It is made again: ask once more.")


@dataclass(frozen=True, eq=False)
class Contents:
    """What is written. `landmarks(start, stop)` gives rows [stop - start, K], `numbers` is K; `tables`: arrays of
    `_TABLES` that say where blocks lie, from "ids" on; names in the order of the numbers that "shard" and "document"
    hold."""

    numbers: int
    dtype: torch.dtype
    landmarks: Callable[[int, int], Tensor]
    tables: dict[str, np.ndarray]
    shard_names: Sequence[str]
    document_ids: Sequence[str]


def write_landmark_file(path: Path, contents: Contents, *, fingerprint: str, mark: str) -> None:
    """Write a file of landmarks. `mark`: the state of the catalogue (`memory_mark`) that it holds. Raises `OSError`;
    then nothing is left."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for leftover in path.parent.glob(f".{path.name}-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - leftover.stat().st_mtime > _LEFT_OVER_SECONDS:
                leftover.unlink()
    temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        with open(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b") as file:
            _write(file, contents, {"fingerprint": fingerprint, "mark": mark})
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _write(file: BinaryIO, contents: Contents, state: dict[str, str]) -> None:
    count, width, row_bytes = len(contents.tables["ids"]), contents.numbers, contents.numbers * contents.dtype.itemsize
    codes_at, keys_at = _HEADER_BYTES, _aligned(_HEADER_BYTES + count * width)
    parts: dict[str, list[Any]] = {"scale": [], "error": [], "key_checks": [], "code_checks": []}
    for start in range(0, count, CHUNK):
        rows_NK = contents.landmarks(start, min(start + CHUNK, count)).to(contents.dtype).contiguous()
        codes_NK, scale_N, error_N = quantised(rows_NK)
        raw_NB = rows_NK.view(torch.uint8).numpy()
        file.seek(codes_at + start * width)
        file.write(codes_NK.numpy().data)
        file.seek(keys_at + start * row_bytes)
        file.write(raw_NB.data)
        parts["scale"].append(scale_N.numpy())
        parts["error"].append(error_N.numpy())
        parts["key_checks"].append(np.fromiter((zlib.crc32(row.data) for row in raw_NB), "<u4", len(raw_NB)))
        parts["code_checks"].append([zlib.crc32(codes_NK.numpy().data)])
    tables = {name: np.concatenate([np.zeros(0), *arrays]) for name, arrays in parts.items()} | contents.tables
    bodies = {name: tables[name].astype(dtype).tobytes() for name, dtype in _TABLES.items()}
    bodies["shard_names"] = json.dumps(list(contents.shard_names)).encode()
    bodies["document_ids"] = json.dumps(list(contents.document_ids)).encode()
    # Codes and keys have checksums of their own.
    sections = {"codes": (codes_at, count * width, 0), "keys": (keys_at, count * row_bytes, 0)}
    end = keys_at + count * row_bytes
    for name, body in bodies.items():
        sections[name] = (_aligned(end), len(body), zlib.crc32(body))
        file.seek(_aligned(end))
        file.write(body)
        end = file.tell()
    file.truncate(end)
    header = state | {
        "num_blocks": count,
        "numbers": width,
        "dtype": str(contents.dtype).removeprefix("torch."),
        "file_bytes": end,
        "sections": sections,
    }
    packed = json.dumps(header).encode()
    assert PREFIX.size + len(packed) <= _HEADER_BYTES
    file.seek(0)
    file.write(PREFIX.pack(MAGIC, VERSION, len(packed), zlib.crc32(packed)) + packed)


def _aligned(at: int) -> int:
    return -(-at // ALIGNMENT) * ALIGNMENT


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
                if zlib.crc32(codes_CK.numpy().data) != self.tables["code_checks"][chunk]:
                    raise DamagedLandmarkFile(self.path, "the checksum of codes does not match")
                self._right_codes[chunk] = True
            part_CK = numbers_CK[: len(codes_CK)]
            torch.mv(part_CK.copy_(codes_CK), query_K, out=logits_N[start : start + CHUNK])
        return logits_N.mul_(self.scale_N)

    def keys(self, slots_M: Tensor) -> Tensor:
        """Exact keys_MK as stored. Raises `DamagedLandmarkFile`."""
        numbers = slots_M.numpy()
        for number in numbers[~self._right_keys[numbers]].tolist():
            if zlib.crc32(self._raw_NB[number].data) != self.tables["key_checks"][number]:
                raise DamagedLandmarkFile(self.path, "the checksum of a key does not match")
            self._right_keys[number] = True
        return self._keys_NK[slots_M]


# Rescored at a time.
_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class MappedSnapshot:
    """`places_N`: where the block of each index lies: below P in the file, the others in `tail`."""

    layers: tuple[int, ...]
    shape_GD: tuple[int, int]
    dtype: torch.dtype
    file: LandmarkFile | None
    tail: ExactSnapshot
    places_N: Tensor

    @property
    def in_file(self) -> int:
        return 0 if self.file is None else self.file.num_blocks

    @property
    def num_blocks(self) -> int:
        return len(self.places_N)

    def landmarks(self, layer: int, indices: Tensor | None = None) -> Tensor:
        places_M = self.places_N if indices is None else self.places_N[indices.cpu()]
        found_GMD = torch.empty(self.shape_GD[0], len(places_M), self.shape_GD[1], dtype=self.dtype)
        kept_M = places_M < self.in_file
        if self.file is not None and bool(kept_M.any()):
            keys_MYGD = self.file.keys(places_M[kept_M]).view(-1, len(self.layers), *self.shape_GD)
            found_GMD[:, kept_M] = keys_MYGD[:, self.layers.index(layer)].transpose(0, 1).to(self.dtype)
        if not bool(kept_M.all()):
            found_GMD[:, ~kept_M] = self.tail.landmarks(layer, places_M[~kept_M] - self.in_file).cpu()
        return found_GMD

    def rank(self, query_YGD: Tensor, count: int, within: Tensor | None = None) -> Ranking:
        """The blocks and logits of an exact search. `log_total`, `mean` and `spread` take blocks that are far from the
        best by their codes."""
        query_K = query_YGD.float().cpu().flatten()
        logits_N, slack_N = self._approximate(query_K, query_YGD)
        scope = slice(None) if within is None else within.cpu()
        low_N, high_N = (logits_N - slack_N)[scope], (logits_N + slack_N)[scope]
        if not len(low_N) or count < 1:
            return rank_all(logits_N, 0, None)
        # That many blocks score at least this; whoever cannot reach it is not among them.
        reached = low_N.topk(min(count, len(low_N))).values[-1]
        near_M = torch.nonzero(high_N >= reached).squeeze(1)
        near_M = near_M if within is None else within.cpu()[near_M]
        exact_M = self._exact(query_K, near_M, logits_N)
        found = rank_all(exact_M, count, None)
        logits_N[near_M] = exact_M
        return replace(
            found,
            indices=near_M[found.indices],
            log_total=float(logits_N[scope].logsumexp(0)),
            mean=float(logits_N.mean()),
            spread=float(logits_N.std(correction=0)),
        )

    def _approximate(self, query_K: Tensor, query_YGD: Tensor) -> tuple[Tensor, Tensor]:
        """logits_N, and how far each may be from the true one."""
        parts, slacks = [self.tail.logits(query_YGD).cpu()], [torch.zeros(self.tail.num_blocks)]
        if self.file is not None:
            parts.insert(0, self.file.approximate(query_K))
            slacks.insert(0, self.file.error_N * query_K.norm())
        logits_N, slack_N = torch.cat(parts), torch.cat(slacks)
        return logits_N[self.places_N], slack_N[self.places_N]

    def _exact(self, query_K: Tensor, indices_M: Tensor, logits_N: Tensor) -> Tensor:
        """logits_M of blocks, by exact keys; those in RAM are exact already."""
        exact_M = logits_N[indices_M]
        places_M = self.places_N[indices_M]
        kept = torch.nonzero(places_M < self.in_file).squeeze(1)
        for start in range(0, len(kept), _AT_ONCE):
            assert self.file is not None
            some = kept[start : start + _AT_ONCE]
            exact_M[some] = self.file.keys(places_M[some]).float() @ query_K
        return exact_M


class MappedLandmarkIndex:
    """`file`: what was written last; None: nothing yet, all is in RAM. Not synchronised: one writer at a time."""

    kind: ClassVar[str] = "mapped"

    def __init__(
        self,
        layers: Sequence[int],
        num_groups: int,
        head_dim: int,
        *,
        file: LandmarkFile | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        self._layers, self._shape, self._dtype = tuple(layers), (num_groups, head_dim), dtype
        self._file = file
        self._file_ids = np.zeros(0, dtype=np.int64) if file is None else file.tables["ids"]
        self._kept = np.ones(len(self._file_ids), dtype=bool)
        self._tail = ExactLandmarkIndex(layers, num_groups, head_dim, dtype=dtype, device=device)
        self._arrange()

    @property
    def size_bytes(self) -> int:
        """What is in RAM for good; pages of the file come and go."""
        return self._tail.size_bytes

    @property
    def not_in_file(self) -> int:
        """How many blocks came or went since the file was written."""
        return len(self._tail.ids) + int(len(self._kept) - self._kept.sum())

    @property
    def in_file(self) -> int:
        return len(self._file_ids)

    def add(self, ids_N: np.ndarray, landmarks_NYGD: Tensor) -> None:
        self._tail.add(ids_N, landmarks_NYGD)
        self._arrange()

    def remove(self, ids_N: np.ndarray) -> None:
        self._kept &= ~np.isin(self._file_ids, ids_N)
        self._tail.remove(ids_N)
        self._arrange()

    def _arrange(self) -> None:
        kept_P, tail_ids = np.flatnonzero(self._kept), self._tail.ids
        ids = np.concatenate((self._file_ids[kept_P], tail_ids))
        order = np.argsort(ids, kind="stable")
        self.ids = ids[order]
        places = np.concatenate((kept_P, len(self._file_ids) + np.arange(len(tail_ids))))
        self._places = torch.from_numpy(places[order])

    def snapshot(self) -> MappedSnapshot:
        return MappedSnapshot(self._layers, self._shape, self._dtype, self._file, self._tail.snapshot(), self._places)


logger = logging.getLogger(__name__)

FEWEST_NEW = 4096
"""A file is written again when this many blocks came or went, or the share below of those in it, if that is more."""
SHARE_NEW = 1 / 8


class HeldShard(NamedTuple):
    """A shard whose landmarks the index holds."""

    name: str
    block_ids: range
    length_N: Tensor


def held_shards(file: LandmarkFile) -> dict[int, HeldShard]:
    """The shards in a file, by id."""
    columns = (file.tables[name].tolist() for name in ("shard_ids", "shard_first", "shard_blocks"))
    length_N = torch.from_numpy(file.tables["length"])
    starts = np.searchsorted(file.tables["ids"], file.tables["shard_first"]).tolist()
    return {
        id_: HeldShard(name, range(first, first + count), length_N[start : start + count])
        for name, start, id_, first, count in zip(file.shard_names, starts, *columns, strict=True)
    }


def snapshot_of(file: LandmarkFile, landmarks: MappedSnapshot, cache: BlockCache) -> MemorySnapshot:
    """The memory as the file has it."""
    tables = file.tables
    blocks = StoredBlocks(
        tables["ids"], file.shard_names, tables["shard"], tables["row"], torch.from_numpy(tables["length"])
    )
    return MemorySnapshot(landmarks, blocks, file.document_ids, tables["document"], tables["ordinal"], cache)


class LandmarkCache:
    """The memory-mapped file of a library's landmarks. Call it with the index's lock held; its writing thread takes no
    lock."""

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._path = workspace.home / "index" / "landmarks.map"
        self._thread: threading.Thread | None = None
        self._written = threading.Event()
        self._failed = False

    @property
    def is_new(self) -> bool:
        """Whether a file was written that is not open yet."""
        return self._written.is_set()

    def open(self) -> LandmarkFile | None:
        """The file, if there is one of this model's memory that is right."""
        self._written.clear()
        try:
            file = LandmarkFile(self._path)
        except FileNotFoundError:
            return None
        except DamagedLandmarkFile as error:
            logger.warning("%s", error)
            self.discard()
            return None
        return file if file.fingerprint == self._workspace.loaded().fingerprint.digest else None

    def discard(self) -> None:
        """Remove a damaged file."""
        self._path.unlink(missing_ok=True)

    def keep(self, index: MappedLandmarkIndex, snapshot: MemorySnapshot, refs: BlockRefs, mark: str) -> None:
        """Write the file anew in a thread, if enough blocks were added or removed since it was written."""
        enough = max(FEWEST_NEW, int(SHARE_NEW * index.in_file)) if index.in_file else 1
        if self._failed or index.not_in_file < enough or (self._thread is not None and self._thread.is_alive()):
            return
        contents = self._contents(snapshot, refs)
        self._thread = threading.Thread(target=self._write, args=(contents, mark), name="cairn-landmarks")
        self._thread.start()

    def _contents(self, snapshot: MemorySnapshot, refs: BlockRefs) -> Contents:
        loaded = self._workspace.loaded()
        layers, landmarks, blocks = loaded.layout.layers, snapshot.landmarks, snapshot.blocks

        def rows(start: int, stop: int) -> Tensor:
            indices = torch.arange(start, stop)
            of_layers = [landmarks.landmarks(layer, indices).transpose(0, 1).cpu() for layer in layers]
            return torch.stack(of_layers, 1).flatten(1)

        shards = list(refs.shards.values())
        tables = {
            "ids": blocks.ids_N,
            "shard": blocks.shard_N,
            "row": blocks.row_N,
            "length": blocks.length_N.numpy(),
            "document": snapshot.document_N,
            "ordinal": snapshot.ordinal_N,
            "shard_ids": np.array([shard.id for shard in shards], dtype=np.int64),
            "shard_first": np.array([shard.first_block_id for shard in shards], dtype=np.int64),
            "shard_blocks": np.array([shard.num_blocks for shard in shards], dtype=np.int64),
        }
        numbers = len(layers) * loaded.layout.kv_heads * loaded.layout.head_dim
        dtype = loaded.layout.landmark_dtype
        return Contents(numbers, dtype, rows, tables, blocks.shard_names, snapshot.document_ids)

    def _write(self, contents: Contents, mark: str) -> None:
        try:
            fingerprint = self._workspace.loaded().fingerprint.digest
            write_landmark_file(self._path, contents, fingerprint=fingerprint, mark=mark)
        except (OSError, DamagedLandmarkFile) as error:
            self._failed = True
            logger.warning("landmarks stay in RAM, because %s could not be written: %s", self._path, error)
        else:
            self._written.set()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
