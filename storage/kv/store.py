"""Keys and values of blocks in immutable shard files; the catalogue says which of them exist.

    store = KVBlockStore(home / "kv", layout, fingerprint.digest)
    shard = store.write(keys_NYGLD, values_NYGLD, lengths_N)           # durable, but not yet part of a document
    catalogue.commit_shard(document_id, shard, blocks)                 # now it is
    keys_NGLD, values_NGLD = store.read_many([(shard.name, 7)], 3)     # block 7 in layer 3

- `layer` is always an absolute layer number, one of `layout.layers`.
- A piece is verified when this store first reads it; `DamagedMemory` is raised instead of returning wrong numbers.
- A store may be used by many threads, and several stores (in several processes) may share a folder.

Axes: N stored blocks, P pieces (a block of one head), Y memory layers, G KV heads, L tokens in a block (landmark last),
D head dim.
"""

from __future__ import annotations

import hashlib
import math
import resource
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from storage.blobs.files import FileBlobs
from storage.blobs.protocol import Blobs, all_at_once
from storage.errors import NameInUse
from storage.kv.codec import decode_keys, decode_pieces, encode_shard
from storage.kv.format import KVLayout
from storage.kv.shard import OpenShard, missing
from storage.records import ShardFile

SUFFIX = ".kv"
Rows: TypeAlias = dict[str, NDArray[np.int64]]
"""Shard name -> the rows of the result that it fills. Arrays, because one question reads thousands of pieces."""


class KVBlockStore:
    """See the module docstring. `fingerprint` is the digest of the memory's `MemoryFingerprint`.

    `blobs`: where the shards lie, if not in `folder`.
    """

    def __init__(self, folder: Path, layout: KVLayout, fingerprint: str, *, blobs: Blobs | None = None):
        self.folder = Path(folder)
        self.blobs: Blobs = FileBlobs(self.folder) if blobs is None else blobs
        self.layout = layout
        self.fingerprint = fingerprint
        self._max_open_files = _most_open_files()
        self._open: OrderedDict[str, OpenShard] = OrderedDict()
        self._deletions = 0
        self._lock = threading.Lock()
        self._layer_index = {layer: index for index, layer in enumerate(layout.layers)}
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    # Writing

    def write(
        self,
        keys_NYGLD: Tensor,
        values_NYGLD: Tensor,
        lengths_N: Tensor,
        *,
        group: str = "",
        fixed_name: str | None = None,
    ) -> ShardFile:
        """Store N blocks as one durable shard file, which belongs to no document until the catalogue commits it.

        `lengths_N` counts each block's tokens without the landmark. `group` is a folder inside the store, normally the
        document's id. `fixed_name` tells what the contents were made of, for a store without a catalogue; other names
        are random. Raises `ValueError` for wrong shapes and for numbers that the dtype cannot hold, `StoreFull` and
        `CannotWrite`.
        """
        name = fixed_name or self.new_name(group)
        contents = encode_shard(name, self.fingerprint, self.layout, keys_NYGLD, values_NYGLD, lengths_N)
        try:
            self.blobs.create(name, contents)
        except NameInUse:
            if fixed_name is None:
                raise
            self.blobs.delete([name])  # named by what it was made of, but not as it is made now
            self.blobs.create(name, contents)
        return _written(name, contents, len(lengths_N))

    def new_name(self, group: str) -> str:
        """A name for a shard that nothing ever had."""
        name = f"{uuid.uuid4().hex}{SUFFIX}"
        return f"{group}/{name}" if group else name

    def write_encoded(self, name: str, front: bytes, pieces: bytes, num_blocks: int) -> ShardFile:
        """Store a shard from bytes that `kv.whole_shards.renamed` made. Raises `StoreFull` and `CannotWrite`."""
        contents = memoryview(front + pieces)
        self.blobs.create(name, contents)
        return _written(name, contents, num_blocks)

    # Reading

    def read_many(
        self, refs: Sequence[tuple[str, int]], layer: int, device: torch.device | None = None
    ) -> tuple[Tensor, Tensor]:
        """keys_NGLD, values_NGLD of `(shard, block)` pairs, in the order asked for.

        In the stored dtype, or float32 if they were rounded. device: bytes are sent there as they are stored. Raises
        `DamagedMemory`.
        """
        rows, heads_P, blocks_P = self._of_all_heads(refs)
        shards = {name: self._shard(name) for name in rows}
        raw = self._raw(layer, shards, rows, heads_P, blocks_P, self.layout.piece_bytes)
        keys_PLD, values_PLD = decode_pieces(_sent(raw, device), self.layout)
        if self.layout.exact_dtype is None:
            landmarks_PD = torch.empty((len(raw), self.layout.head_dim), dtype=self.layout.landmark_dtype)
            for name, rows_P in rows.items():
                kept_NGD = self._landmarks_of(shards[name])[:, self._layer_index[layer]]
                places = torch.from_numpy(np.stack((blocks_P[rows_P], heads_P[rows_P])))
                landmarks_PD[torch.from_numpy(rows_P)] = kept_NGD[places[0], places[1]]
            keys_PLD[:, -1] = _sent(landmarks_PD, device).to(keys_PLD.dtype)
        shape = (len(refs), self.layout.kv_heads, self.layout.block_size, self.layout.head_dim)
        return keys_PLD.view(shape), values_PLD.view(shape)

    def read_keys(self, refs: Sequence[tuple[str, int]], layer: int) -> Tensor:
        """keys_NGLD of `(shard, block)` pairs, in the order asked for, in `layout.landmark_dtype`.

        For rounded memory the landmark's row is not its key, which `landmarks` has. Reads half as much as `read_many`,
        except on a block's first read: a checksum covers keys and values. Raises `DamagedMemory`.
        """
        layout = self.layout
        rows, heads_P, blocks_P = self._of_all_heads(refs)
        shards = {name: self._shard(name) for name in rows}
        raw = self._raw(layer, shards, rows, heads_P, blocks_P, layout.keys_bytes)
        return decode_keys(raw, layout).view(len(refs), layout.kv_heads, layout.block_size, layout.head_dim)

    def _of_all_heads(self, refs: Sequence[tuple[str, int]]) -> tuple[Rows, NDArray[np.int64], NDArray[np.int64]]:
        """Rows by shard, head and block of every piece, block by block."""
        heads = self.layout.kv_heads
        places: dict[str, list[int]] = {}
        for row, (name, _) in enumerate(refs):
            places.setdefault(name, []).append(row)
        rows = {
            name: (np.array(rows_N)[:, None] * heads + np.arange(heads)).reshape(-1) for name, rows_N in places.items()
        }
        blocks_N = np.fromiter((block for _, block in refs), np.int64, len(refs))
        return rows, np.tile(np.arange(heads), len(refs)), blocks_N.repeat(heads)

    def _raw(
        self,
        layer: int,
        shards: Mapping[str, OpenShard],
        rows: Rows,
        heads_P: NDArray[np.int64],
        blocks_P: NDArray[np.int64],
        size: int,
    ) -> Tensor:
        """uint8 `[P, size]`: the first `size` bytes of each piece."""
        raw = torch.empty((len(heads_P), size), dtype=torch.uint8)

        def read(name: str) -> None:
            rows_P = rows[name]
            places_P = shards[name].places(self._layer_index[layer], heads_P[rows_P], blocks_P[rows_P])
            shards[name].read_pieces(raw.numpy(), places_P, rows_P)

        all_at_once(read, list(rows), self.blobs.at_once)
        return raw

    def landmarks(self, shard: str) -> Tensor:
        """landmarks_NYGD, the key of every block's landmark, in `layout.landmark_dtype`."""
        return self._landmarks_of(self._shard(shard)).clone()

    def lengths(self, shard: str) -> Tensor:
        """lengths_N (int64): ordinary tokens of each block."""
        opened = self._shard(shard)
        lengths = np.frombuffer(opened.section("lengths"), "<u4", opened.header.num_blocks)
        return torch.from_numpy(lengths.astype(np.int64))

    def _landmarks_of(self, shard: OpenShard) -> Tensor:
        landmarks_NYGD = shard.landmarks_NYGD  # read once: another thread may begin the shard anew
        if landmarks_NYGD is None:
            numbers = torch.frombuffer(bytearray(shard.section("landmarks")), dtype=self.layout.landmark_dtype)
            shape = shard.header.shape_NYGD
            landmarks_NYGD = numbers[: math.prod(shape)].view(shape)
            if self.layout.exact_dtype is not None:  # only rounded memory needs them for each read
                return landmarks_NYGD
            shard.landmarks_NYGD = landmarks_NYGD
        return landmarks_NYGD

    def _shard(self, name: str) -> OpenShard:
        with self._lock:
            shard, deletions = self._open.get(name), self._deletions
            if shard is not None:
                self._open.move_to_end(name)
        if shard is not None and shard.refresh():
            return shard
        try:
            opened = self.blobs.open(name)
        except FileNotFoundError:
            raise missing(name) from None
        shard = OpenShard(opened, name)
        shard.require(fingerprint=self.fingerprint, layout=self.layout)
        with self._lock:
            if self._deletions != deletions:
                return shard  # for this time: it may be a deleted one, which nobody would close
            self._open[name] = shard
            while len(self._open) > self._max_open_files:
                self._open.popitem(last=False)
        return shard

    # Maintenance

    def delete(self, shards: Iterable[str]) -> int:
        """Remove shards, ignoring those already gone. Returns the bytes freed."""
        names = list(shards)
        try:
            return self.blobs.delete(names)
        finally:
            with self._lock:  # from now on none can be opened
                self._deletions += 1
                for name in names:
                    self._open.pop(name, None)

    def files(self, group: str = "") -> set[str]:
        """Names of all files in the store or in a group, unfinished ones included."""
        return {found.name for found in self.blobs.listing(group)}

    def close(self) -> None:
        """Close all files. The store can still be used."""
        with self._lock:
            self._open.clear()


def _written(name: str, contents: memoryview, num_blocks: int) -> ShardFile:
    return ShardFile(name, len(contents), "sha256:" + hashlib.sha256(contents).hexdigest(), num_blocks)


def _sent(numbers: Tensor, device: torch.device | None) -> Tensor:
    """On the device; from pinned memory, so that the copy runs while the next layer's work is being queued."""
    if device is None or device.type != "cuda":
        return numbers if device is None else numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)


def _most_open_files() -> int:
    """A question about a large library reads some hundred shards; one that is opened again is checked again. At most a
    quarter of what the process may open, which need be no more than 256."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(4096, most // 4) if most > 0 else 4096
