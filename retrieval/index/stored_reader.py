"""What attention reads at question time: blocks of the store, through a cache of recently used blocks.

- `StoredMemoryReader` implements `model.attention.memory.MemoryReader` over some blocks of a snapshot (the candidates
  of a question), or all.
- Bytes come from the store checked: a damaged block raises before attention sees it.
- Of few enough blocks all keys and values of a layer are taken to the device at the first read, so that a GPU waits for
  no later one; of more, each read asks the cache for what was chosen, and the host waits for the choice.

Axes: B batch, G KV heads, X voter groups, R rows that vote together, S slots, N blocks of the snapshot, C candidates, U
distinct blocks of one read, L tokens in a block (landmark last), D head dim.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.attention.selection import choose_blocks
from retrieval.index.block_cache import BlockCache
from retrieval.index.exact import LandmarkSnapshot


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
        self, snapshot: LandmarkSnapshot, blocks: StoredBlocks, cache: BlockCache, positions_C: Tensor | None = None
    ) -> None:
        self._snapshot, self._blocks, self._cache = snapshot, blocks, cache
        self._positions = None if positions_C is None else positions_C.cpu().numpy()
        self._landmarks: dict[int, Tensor] = {}  # layer -> landmarks_1GCD of the candidates
        self._room = cache.room_for(self.num_blocks)
        if self._room:
            weakref.finalize(self, cache.give_back, self._room)
        self._held: dict[int, tuple[Tensor, Tensor]] = {}  # layer -> keys_GCLD, values_GCLD of all
        self._lengths_C: Tensor | None = None  # where they are held

    @property
    def layers(self) -> Sequence[int]:
        return self._cache.shape.layers

    @property
    def num_blocks(self) -> int:
        return self._snapshot.num_blocks if self._positions is None else len(self._positions)

    def block_ids(self) -> np.ndarray:
        """Catalogue id of each of the reader's blocks."""
        return self._blocks.ids_N if self._positions is None else self._blocks.ids_N[self._positions]

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        if self._positions is None:
            return self._snapshot.choose(layer, queries_BGXRD, k)
        return choose_blocks(queries_BGXRD, self.landmarks(layer).to(queries_BGXRD.dtype), k)

    def landmarks(self, layer: int) -> Tensor:
        """landmarks_1GCD in the order of the blocks, as paper positions need."""
        if layer not in self._landmarks:
            positions = None if self._positions is None else torch.from_numpy(self._positions)
            shape = self._cache.shape
            landmarks_GCD = self._snapshot.landmarks(layer, positions)
            self._landmarks[layer] = landmarks_GCD[None].to(shape.device, shape.dtype)
        return self._landmarks[layer]

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if not self._room:
            return self._through_cache(layer, ids_BGXS)
        shape = self._cache.shape
        if layer not in self._held:
            everything_1G1C = torch.arange(self.num_blocks).expand(1, shape.kv_heads, 1, -1)
            keys, values, lengths = self._through_cache(layer, everything_1G1C)
            self._held[layer] = keys[0, :, 0], values[0, :, 0]
            self._lengths_C = lengths[0, 0, 0].to(shape.device)
        assert self._lengths_C is not None
        ids_BGXS = ids_BGXS.to(shape.device)
        head_G11 = torch.arange(shape.kv_heads, device=shape.device)[:, None, None]
        keys_GCLD, values_GCLD = self._held[layer]
        return keys_GCLD[head_G11, ids_BGXS], values_GCLD[head_G11, ids_BGXS], self._lengths_C[ids_BGXS]

    def _through_cache(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        distinct_U, pick = np.unique(ids_BGXS.cpu().numpy(), return_inverse=True)
        positions_U = distinct_U if self._positions is None else self._positions[distinct_U]
        pick_BGXS = torch.from_numpy(pick.reshape(ids_BGXS.shape))
        lengths_BGXS = self._blocks.length_N[positions_U][pick_BGXS].to(ids_BGXS.device)
        ids_U, refs_U = self._blocks.ids_N[positions_U], self._blocks.refs(positions_U)
        keys_BGXSLD, values_BGXSLD = self._cache.read(layer, ids_U, refs_U, pick_BGXS)
        return keys_BGXSLD, values_BGXSLD, lengths_BGXS
