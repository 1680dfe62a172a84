"""Stored blocks at question time: the cache of recently read ones, the reader for attention, the snapshot.

- `BlockCache`: least recently used out first, on the model's device, bounded in bytes, shared by all questions. It
  holds keys and values in the model's dtype for attention, and keys alone as stored (16 bit) for matching the tokens of
  many candidates.
- `StoredMemoryReader`: a `model.attention.memory.MemoryReader` over the candidates of a question, or over all blocks.
  The store checks bytes: a damaged block raises before attention sees it. If all keys and values of a layer fit, they
  go to the device at the first read, so that a GPU does not wait again; else each read asks the cache for the blocks
  chosen, and the host waits for the choice.
- `MemorySnapshot`: all ready documents at one moment: where their blocks are, and how they are searched and read.

Axes: B batch, G KV heads, X voter groups, R rows that vote together, S slots, U distinct blocks of one read, W places
in the cache, N blocks of ready documents (ascending by block id), C candidates, L tokens in a block (landmark last), D
head dim.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.attention.selection import choose_blocks
from retrieval.index.exact import LandmarkSnapshot, VisibleLandmarks
from retrieval.index.vectors import BlockVectors
from storage.kv.store import KVBlockStore

_FIRST_PLACES = 32
# Keys alone are several times smaller than keys and values of all layers in the model's dtype.
_SHARE_OF_KEYS = 0.25
_SHARE_OF_WHOLE = 0.25

Refs: TypeAlias = Sequence[tuple[str, int]]
"""Where blocks are stored: (shard, row) of each."""


@dataclass(frozen=True)
class BlockShape:
    """One block of one layer in the reader's dtype."""

    layers: tuple[int, ...]
    kv_heads: int
    block_size: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def keys_bytes(self) -> int:
        """Keys of one block in one layer."""
        return self.kv_heads * self.block_size * self.head_dim * self.dtype.itemsize


class _LayerCache:
    """Blocks of one layer, least recently used out first: block id -> place in one tensor (keys) or two (keys, values).
    Thread-safe.

    `fetch(refs)` gets what is missing, one tensor each for keys and perhaps values. A read of more than `max_places`
    blocks is served without the tensors.
    """

    def __init__(self, shape: BlockShape, max_places: int, fetch: Callable[[Refs], Sequence[Tensor]], num_tensors: int):
        self._shape, self.max_places, self._fetch_stored = shape, max_places, fetch
        self._places: OrderedDict[int, int] = OrderedDict()
        self._tensors_WGLD = [self._tensor(0) for _ in range(num_tensors)]
        self._lock = threading.Lock()

    def _tensor(self, places: int) -> Tensor:
        shape = self._shape
        size = (places, shape.kv_heads, shape.block_size, shape.head_dim)
        return torch.empty(size, dtype=shape.dtype, device=shape.device)

    @property
    def size_bytes(self) -> int:
        return sum(len(tensor) for tensor in self._tensors_WGLD) * self._shape.keys_bytes

    def read(
        self, ids_U: np.ndarray, refs_U: Refs, gather: Callable[[Sequence[Tensor], Tensor], Sequence[Tensor]]
    ) -> Sequence[Tensor]:
        """What `gather` copies out of the cached tensors, given the places of the blocks in them."""
        device = self._shape.device
        if len(ids_U) > self.max_places:
            return gather(self._fetch(refs_U), torch.arange(len(ids_U), device=device))
        ids = ids_U.tolist()
        with self._lock:
            absent = [index for index, block_id in enumerate(ids) if block_id not in self._places]
            for block_id in ids:
                if block_id in self._places:
                    self._places.move_to_end(block_id)
            if absent:
                self._put([ids[index] for index in absent], self._fetch([refs_U[index] for index in absent]))
            return gather(self._tensors_WGLD, torch.tensor([self._places[block_id] for block_id in ids], device=device))

    def _fetch(self, refs: Refs) -> Sequence[Tensor]:
        return [tensor_UGLD.to(self._shape.device, self._shape.dtype) for tensor_UGLD in self._fetch_stored(refs)]

    def _put(self, ids: Sequence[int], blocks_UGLD: Sequence[Tensor]) -> None:
        self._make_room(len(self._places) + len(ids))
        places = torch.tensor([self._place(block_id) for block_id in ids], device=self._shape.device)
        for tensor_WGLD, new_UGLD in zip(self._tensors_WGLD, blocks_UGLD, strict=True):
            tensor_WGLD[places] = new_UGLD

    def _place(self, block_id: int) -> int:
        place = len(self._places)
        if place == self.max_places:
            _, place = self._places.popitem(last=False)
        self._places[block_id] = place
        return place

    def _make_room(self, wanted: int) -> None:
        held = len(self._tensors_WGLD[0])
        if held >= min(wanted, self.max_places):
            return
        grown = min(self.max_places, max(_FIRST_PLACES, 2 * held, wanted))
        for index, old in enumerate(self._tensors_WGLD):
            self._tensors_WGLD[index] = self._tensor(grown)
            self._tensors_WGLD[index][:held] = old

    def forget(self, ids: Sequence[int]) -> None:
        with self._lock:
            if any(block_id in self._places for block_id in ids):
                self._places.clear()  # rare: after a deletion or repair; freeing single places is not worth a free list


def _layer_caches(
    shape: BlockShape, limit_bytes: int, fetch: Callable[..., Sequence[Tensor]], num_tensors: int
) -> dict[int, _LayerCache]:
    """By layer; `limit_bytes` bounds them together."""
    places = max(1, limit_bytes // max(1, num_tensors * shape.keys_bytes * len(shape.layers)))
    return {layer: _LayerCache(shape, places, partial(fetch, layer=layer), num_tensors) for layer in shape.layers}


class BlockCache:
    """The cache of a library. `limit_bytes` bounds all of it.

    `key_layers`: layers of which keys can be read alone; they are kept in `key_dtype`. `whole_share`: part of the limit
    for questions that hold all their blocks on the device (`room_for`).
    """

    def __init__(
        self,
        store: KVBlockStore,
        shape: BlockShape,
        limit_bytes: int,
        *,
        key_layers: tuple[int, ...] = (),
        key_dtype: torch.dtype = torch.bfloat16,
        whole_share: float | None = None,
    ):
        self.shape, self.key_layers = shape, key_layers
        keys_bytes = int(limit_bytes * _SHARE_OF_KEYS) if key_layers else 0
        if whole_share is None:
            whole_share = 0.0 if shape.device.type == "cpu" else _SHARE_OF_WHOLE
        self._room, self._room_lock = int(limit_bytes * whole_share), threading.Lock()
        of_keys = replace(shape, layers=key_layers, dtype=key_dtype)
        read_blocks = partial(store.read_many, device=shape.device)
        self._blocks = _layer_caches(shape, limit_bytes - keys_bytes - self._room, read_blocks, 2)
        self._keys = _layer_caches(of_keys, keys_bytes, lambda refs, layer: (store.read_keys(refs, layer),), 1)

    def room_for(self, num_blocks: int) -> int:
        """Reserves bytes for a question that holds so many blocks of all layers on the device, until they are given
        back; 0: there is no room. On a CPU there is none, since nothing there waits for a copy."""
        needed = 2 * num_blocks * self.shape.keys_bytes * len(self.shape.layers)
        with self._room_lock:
            if needed > self._room:
                return 0
            self._room -= needed
        return needed

    def give_back(self, room: int) -> None:
        with self._room_lock:
            self._room += room

    @property
    def size_bytes(self) -> int:
        return sum(layer.size_bytes for layer in (*self._blocks.values(), *self._keys.values()))

    def read(self, layer: int, ids_U: np.ndarray, refs_U: Refs, pick_BGXS: Tensor) -> tuple[Tensor, Tensor]:
        """keys_BGXSLD, values_BGXSLD: for each KV head its part of the blocks `pick_BGXS`, indices into `ids_U`.

        `refs_U` says where each block is stored: (shard, row). Raises `storage.errors.DamagedMemory`.
        """
        heads = torch.arange(self.shape.kv_heads, device=self.shape.device).view(1, -1, 1, 1)
        pick_BGXS = pick_BGXS.to(self.shape.device)

        def gather(tensors_WGLD: Sequence[Tensor], places_U: Tensor) -> Sequence[Tensor]:
            places_BGXS = places_U[pick_BGXS]
            return [tensor_WGLD[places_BGXS, heads] for tensor_WGLD in tensors_WGLD]

        keys_BGXSLD, values_BGXSLD = self._blocks[layer].read(ids_U, refs_U, gather)
        return keys_BGXSLD, values_BGXSLD

    def read_keys(self, layer: int, ids_U: np.ndarray, refs_U: Refs) -> Tensor:
        """keys_UGLD of distinct blocks, in the order asked for. Raises `storage.errors.DamagedMemory`."""
        return self._keys[layer].read(ids_U, refs_U, lambda tensors, places_U: [tensors[0][places_U]])[0]

    def forget(self, block_ids: Sequence[int]) -> None:
        """Drop blocks that were deleted or rewritten."""
        for layer in (*self._blocks.values(), *self._keys.values()):
            layer.forget(block_ids)


@dataclass(frozen=True, eq=False)
class StoredBlocks:
    """Where the blocks of a snapshot are, by index: block id, shard name, row in the shard, ordinary tokens."""

    ids_N: np.ndarray
    shard_names: tuple[str, ...]
    shard_N: np.ndarray
    row_N: np.ndarray
    length_N: Tensor

    def refs(self, indices: np.ndarray) -> list[tuple[str, int]]:
        names = self.shard_names
        shards, rows = self.shard_N[indices].tolist(), self.row_N[indices].tolist()
        return [(names[shard], row) for shard, row in zip(shards, rows, strict=True)]


class StoredMemoryReader:
    """Blocks of one snapshot as a memory; its ids are 0..C-1, the ranks of `indices_C` (ascending), or all
    indices."""

    def __init__(
        self, snapshot: LandmarkSnapshot, blocks: StoredBlocks, cache: BlockCache, indices_C: Tensor | None = None
    ) -> None:
        self._snapshot, self._blocks, self._cache = snapshot, blocks, cache
        self._indices = None if indices_C is None else indices_C.cpu().numpy()
        self._landmarks: dict[int, Tensor] = {}  # layer -> landmarks_1GCD of the candidates
        self._room = cache.room_for(self.num_blocks)
        if self._room:
            weakref.finalize(self, cache.give_back, self._room)
        self._held: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # layer -> keys_GCLD, values_GCLD, lengths_C of all

    @property
    def layers(self) -> Sequence[int]:
        return self._cache.shape.layers

    @property
    def num_blocks(self) -> int:
        return self._snapshot.num_blocks if self._indices is None else len(self._indices)

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        # All landmarks of a large memory are not kept for the whole question.
        whole = self._indices is None
        landmarks_1GCD = self._snapshot.landmarks(layer)[None] if whole else self.landmarks(layer)
        return choose_blocks(queries_BGXRD, landmarks_1GCD.to(queries_BGXRD.device, queries_BGXRD.dtype), k)

    def landmarks(self, layer: int) -> Tensor:
        """landmarks_1GCD in the order of the blocks, as paper positions need."""
        if layer not in self._landmarks:
            indices = None if self._indices is None else torch.from_numpy(self._indices)
            shape = self._cache.shape
            landmarks_GCD = self._snapshot.landmarks(layer, indices)
            self._landmarks[layer] = landmarks_GCD[None].to(shape.device, shape.dtype)
        return self._landmarks[layer]

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if not self._room:
            return self._through_cache(layer, ids_BGXS)
        shape = self._cache.shape
        if layer not in self._held:
            everything_1G1C = torch.arange(self.num_blocks).expand(1, shape.kv_heads, 1, -1)
            keys, values, lengths = self._through_cache(layer, everything_1G1C)
            self._held[layer] = keys[0, :, 0], values[0, :, 0], lengths[0, 0, 0].to(shape.device)
        ids_BGXS = ids_BGXS.to(shape.device)
        head_G11 = torch.arange(shape.kv_heads, device=shape.device)[:, None, None]
        keys_GCLD, values_GCLD, lengths_C = self._held[layer]
        return keys_GCLD[head_G11, ids_BGXS], values_GCLD[head_G11, ids_BGXS], lengths_C[ids_BGXS]

    def _through_cache(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        distinct_U, pick = np.unique(ids_BGXS.cpu().numpy(), return_inverse=True)
        indices_U = distinct_U if self._indices is None else self._indices[distinct_U]
        pick_BGXS = torch.from_numpy(pick.reshape(ids_BGXS.shape))
        lengths_BGXS = self._blocks.length_N[indices_U][pick_BGXS].to(ids_BGXS.device)
        ids_U, refs_U = self._blocks.ids_N[indices_U], self._blocks.refs(indices_U)
        keys_BGXSLD, values_BGXSLD = self._cache.read(layer, ids_U, refs_U, pick_BGXS)
        return keys_BGXSLD, values_BGXSLD, lengths_BGXS


MOST_HAVE_VECTORS = 0.9
"""Share of the blocks that a question may see, from which on vectors count."""


@dataclass(frozen=True, eq=False)
class MemorySnapshot:
    """All ready documents at one moment."""

    landmarks: LandmarkSnapshot
    blocks: StoredBlocks
    document_ids: tuple[str, ...]
    document_N: np.ndarray
    ordinal_N: np.ndarray
    cache: BlockCache
    vectors: BlockVectors | None = None
    """Where there is a passage encoder: also of blocks that are not of this snapshot."""

    @property
    def num_blocks(self) -> int:
        return len(self.blocks.ids_N)

    def indices_of(self, document_ids: Sequence[str]) -> Tensor:
        """Indices of all blocks of some documents, ascending."""
        wanted = set(document_ids)
        numbers = [number for number, document_id in enumerate(self.document_ids) if document_id in wanted]
        return torch.from_numpy(np.flatnonzero(np.isin(self.document_N, numbers)))

    def indices_of_blocks(self, block_ids: Sequence[int]) -> Tensor:
        """Indices of blocks by id, ascending; ids that are gone are left out."""
        return torch.from_numpy(np.flatnonzero(np.isin(self.blocks.ids_N, np.asarray(block_ids, dtype=np.int64))))

    def documents_of(self, indices_C: Tensor) -> list[str]:
        """The document of each block."""
        return [self.document_ids[number] for number in self.document_N[indices_C.numpy()].tolist()]

    def restricted_to(self, document_ids: Collection[str]) -> MemorySnapshot:
        """The snapshot as if there were no other documents than these; indices count the remaining blocks.

        Nothing of another document can be read, ranked or counted, or shift a threshold.
        """
        kept = [number for number, document_id in enumerate(self.document_ids) if document_id in document_ids]
        new_number = np.full(len(self.document_ids), -1, dtype=np.int64)
        new_number[kept] = np.arange(len(kept))
        document_N = new_number[self.document_N]
        visible_M = np.flatnonzero(document_N >= 0)
        return MemorySnapshot(
            landmarks=VisibleLandmarks(self.landmarks, torch.from_numpy(visible_M), self.cache.shape.layers),
            blocks=StoredBlocks(
                ids_N=self.blocks.ids_N[visible_M],
                shard_names=self.blocks.shard_names,
                shard_N=self.blocks.shard_N[visible_M],
                row_N=self.blocks.row_N[visible_M],
                length_N=self.blocks.length_N[torch.from_numpy(visible_M)],
            ),
            document_ids=tuple(self.document_ids[number] for number in kept),
            document_N=document_N[visible_M],
            ordinal_N=self.ordinal_N[visible_M],
            cache=self.cache,
            vectors=self.vectors,
        )

    @cached_property
    def _vector_rows_N(self) -> NDArray[np.int64] | None:
        """Of each block in `vectors`. None where many have none: they would fall behind, whatever they say."""
        if self.vectors is None:
            return None
        rows_N = self.vectors.rows(self.blocks.ids_N)
        return rows_N if len(rows_N) and (rows_N >= 0).mean() >= MOST_HAVE_VECTORS else None

    def nearest(self, question_E: Tensor | None, count: int, within: Tensor | None) -> Tensor:
        """Indices of the blocks in scope whose vectors are nearest to a question's, ascending; at most `count`, none
        without its vector."""
        if question_E is None or (rows_N := self._vector_rows_N) is None:
            return torch.zeros(0, dtype=torch.long)
        assert self.vectors is not None
        rows = rows_N if within is None else rows_N[within.numpy()]
        found = self.vectors.nearest(question_E, rows[rows >= 0], count)
        return torch.from_numpy(np.flatnonzero(np.isin(rows_N, found)))

    def lead(self, question_E: Tensor | None, indices_C: Tensor) -> Tensor:
        """lead_C: cosines of the vectors of blocks with a question's, less their mean; all 0 where many blocks have
        none, and without its vector."""
        if question_E is None or (rows_N := self._vector_rows_N) is None:
            return torch.zeros(len(indices_C))
        assert self.vectors is not None
        cosines_C = self.vectors.cosines(question_E, rows_N[indices_C.numpy()])
        return cosines_C - cosines_C.mean()

    def reader(self, indices: Tensor | None = None) -> StoredMemoryReader:
        return StoredMemoryReader(self.landmarks, self.blocks, self.cache, indices)

    def token_keys(self, indices_C: Tensor) -> tuple[list[Tensor], Tensor]:
        """keys_CGLD of each layer that search weighs, and lengths_C (ordinary tokens), of distinct blocks.

        Raises `storage.errors.DamagedMemory`.
        """
        numbers = indices_C.numpy()
        ids, refs = self.blocks.ids_N[numbers], self.blocks.refs(numbers)
        keys_WCGLD = [self.cache.read_keys(layer, ids, refs) for layer in self.cache.key_layers]
        return keys_WCGLD, self.blocks.length_N[indices_C]
