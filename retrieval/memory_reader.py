"""What attention reads at question time: blocks of the store, through a cache of hot blocks.

- `StoredMemoryReader` implements `model.memory.MemoryReader` over some blocks of a snapshot (the candidates of a
  question), or all.
- `HotBlocks` keeps recently read blocks in the model's dtype on the model's device; bounded in bytes, shared by all
  questions.
- Bytes come from the store checked: a damaged block raises before attention sees it.

Axes: B batch, G KV heads, X voter groups, R rows that vote together, S slots, C candidates, U distinct blocks of one
read, W places in the cache, L tokens in a block (landmark last), D head dim.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from model.reading import vote
from retrieval.landmark_index import LandmarkSnapshot

_FIRST_PLACES = 32


class BlockSource(Protocol):
    """The part of `storage.kv_store.KVBlockStore` that reading needs."""

    def read_many(self, refs: Sequence[tuple[str, int]], layer: int) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class BlockShape:
    """One block of one layer as the model wants it."""

    layers: tuple[int, ...]
    kv_heads: int
    block_size: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def layer_bytes(self) -> int:
        """Keys and values of one block in one layer."""
        return 2 * self.kv_heads * self.block_size * self.head_dim * self.dtype.itemsize


class _HotLayer:
    """Cached blocks of one layer: block id -> place in two tensors."""

    def __init__(self, shape: BlockShape, places: int):
        self._shape, self._max_places = shape, places
        self._places: OrderedDict[int, int] = OrderedDict()
        self.keys_WGLD, self.values_WGLD = self._tensor(0), self._tensor(0)

    def _tensor(self, places: int) -> Tensor:
        shape = self._shape
        size = (places, shape.kv_heads, shape.block_size, shape.head_dim)
        return torch.empty(size, dtype=shape.dtype, device=shape.device)

    @property
    def size_bytes(self) -> int:
        return len(self.keys_WGLD) * self._shape.layer_bytes

    def missing(self, ids_U: np.ndarray) -> list[int]:
        """Indices into `ids_U` of blocks not cached; the others become the most recently used."""
        absent = []
        for index, block_id in enumerate(ids_U.tolist()):
            if block_id in self._places:
                self._places.move_to_end(block_id)
            else:
                absent.append(index)
        return absent

    def put(self, ids: Sequence[int], keys_UGLD: Tensor, values_UGLD: Tensor) -> None:
        places = torch.tensor([self._place(block_id) for block_id in ids], device=self._shape.device)
        self.keys_WGLD[places] = keys_UGLD
        self.values_WGLD[places] = values_UGLD

    def _place(self, block_id: int) -> int:
        used = len(self._places)
        if used < self._max_places:
            place = used
            if used == len(self.keys_WGLD):
                grown = min(self._max_places, max(_FIRST_PLACES, 2 * used))
                for name in ("keys_WGLD", "values_WGLD"):
                    larger = self._tensor(grown)
                    larger[:used] = getattr(self, name)
                    setattr(self, name, larger)
        else:
            _, place = self._places.popitem(last=False)
        self._places[block_id] = place
        return place

    def places(self, ids_U: np.ndarray) -> Tensor:
        return torch.tensor([self._places[block_id] for block_id in ids_U.tolist()], device=self._shape.device)

    def forget(self, ids: Sequence[int]) -> None:
        if any(block_id in self._places for block_id in ids):
            self._places.clear()  # rare: after a deletion or repair; freeing single places is not worth a free list


class HotBlocks:
    """Cache of stored blocks, least recently used out first. Thread-safe. `limit_bytes` bounds its tensors over all
    layers."""

    def __init__(self, store: BlockSource, shape: BlockShape, limit_bytes: int):
        self.shape = shape
        self._store = store
        self.places_per_layer = max(1, limit_bytes // (shape.layer_bytes * len(shape.layers)))
        self._layers = {layer: _HotLayer(shape, self.places_per_layer) for layer in shape.layers}
        self._lock = threading.Lock()
        self.hits = self.misses = 0

    @property
    def size_bytes(self) -> int:
        return sum(layer.size_bytes for layer in self._layers.values())

    def read(
        self, layer: int, ids_U: np.ndarray, refs_U: Sequence[tuple[str, int]], pick_BGXS: Tensor
    ) -> tuple[Tensor, Tensor]:
        """keys_BGXSLD, values_BGXSLD: for each KV head its part of the blocks `pick_BGXS`, indices into `ids_U`.

        `refs_U` says where each block is stored: (shard, row). Raises `storage.errors.DamagedMemory`.
        """
        heads = torch.arange(self.shape.kv_heads, device=self.shape.device).view(1, -1, 1, 1)
        pick_BGXS = pick_BGXS.to(self.shape.device)
        if len(ids_U) > self.places_per_layer:
            keys_UGLD, values_UGLD = self._fetch(layer, refs_U)
            return keys_UGLD[pick_BGXS, heads], values_UGLD[pick_BGXS, heads]
        with self._lock:
            hot = self._layers[layer]
            absent = hot.missing(ids_U)
            self.hits, self.misses = self.hits + len(ids_U) - len(absent), self.misses + len(absent)
            if absent:
                keys_UGLD, values_UGLD = self._fetch(layer, [refs_U[index] for index in absent])
                hot.put([int(ids_U[index]) for index in absent], keys_UGLD, values_UGLD)
            places_BGXS = hot.places(ids_U)[pick_BGXS]
            return hot.keys_WGLD[places_BGXS, heads], hot.values_WGLD[places_BGXS, heads]

    def _fetch(self, layer: int, refs: Sequence[tuple[str, int]]) -> tuple[Tensor, Tensor]:
        keys_UGLD, values_UGLD = self._store.read_many(refs, layer)
        if self.shape.device.type != "cuda":
            return keys_UGLD.to(self.shape.device, self.shape.dtype), values_UGLD.to(
                self.shape.device, self.shape.dtype
            )
        # Pinned memory lets the copy run while the next layer's work is being queued; casting happens on the device.
        pinned = (tensor.contiguous().pin_memory() for tensor in (keys_UGLD, values_UGLD))
        keys, values = (tensor.to(self.shape.device, non_blocking=True).to(self.shape.dtype) for tensor in pinned)
        return keys, values

    def forget(self, block_ids: Sequence[int]) -> None:
        """Drop blocks that were deleted or rewritten."""
        with self._lock:
            for layer in self._layers.values():
                layer.forget(block_ids)


@dataclass(frozen=True, eq=False)
class StoredBlocks:
    """Where the blocks of a snapshot are, by position: block id, shard name, row in the shard, ordinary tokens."""

    ids_N: np.ndarray
    shard_names: tuple[str, ...]
    shard_N: np.ndarray
    row_N: np.ndarray
    length_N: Tensor

    def refs(self, positions: np.ndarray) -> list[tuple[str, int]]:
        names = self.shard_names
        shards, rows = self.shard_N[positions].tolist(), self.row_N[positions].tolist()
        return [(names[shard], row) for shard, row in zip(shards, rows, strict=True)]


class StoredMemoryReader:
    """Blocks of one snapshot as a memory; its ids are 0..C-1, the ranks of `positions_C` (ascending), or all
    positions."""

    def __init__(
        self, snapshot: LandmarkSnapshot, blocks: StoredBlocks, hot: HotBlocks, positions_C: Tensor | None = None
    ) -> None:
        self._snapshot, self._blocks, self._hot = snapshot, blocks, hot
        self._positions = None if positions_C is None else positions_C.cpu().numpy()
        self._landmarks: dict[int, Tensor] = {}  # layer -> landmarks_1G1CD of the candidates

    @property
    def layers(self) -> Sequence[int]:
        return self._hot.shape.layers

    @property
    def num_blocks(self) -> int:
        return self._snapshot.num_blocks if self._positions is None else len(self._positions)

    def block_ids(self) -> np.ndarray:
        """Catalogue id of each of the reader's blocks."""
        return self._blocks.ids_N if self._positions is None else self._blocks.ids_N[self._positions]

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        if self._positions is None:
            return self._snapshot.choose(layer, queries_BGXRD, k)
        return vote(queries_BGXRD @ self._landmarks_of(layer, queries_BGXRD).transpose(-1, -2), k)

    def _landmarks_of(self, layer: int, like: Tensor) -> Tensor:
        if layer not in self._landmarks:
            landmarks_GCD = self._snapshot.landmarks(layer, torch.from_numpy(self._positions))
            self._landmarks[layer] = landmarks_GCD[None, :, None].to(like.device, like.dtype)
        return self._landmarks[layer]

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        distinct_U, pick = np.unique(ids_BGXS.cpu().numpy(), return_inverse=True)
        positions_U = distinct_U if self._positions is None else self._positions[distinct_U]
        pick_BGXS = torch.from_numpy(pick.reshape(ids_BGXS.shape))
        lengths_BGXS = self._blocks.length_N[positions_U][pick_BGXS].to(ids_BGXS.device)
        ids_U, refs_U = self._blocks.ids_N[positions_U], self._blocks.refs(positions_U)
        keys_BGXSLD, values_BGXSLD = self._hot.read(layer, ids_U, refs_U, pick_BGXS)
        return keys_BGXSLD, values_BGXSLD, lengths_BGXS
