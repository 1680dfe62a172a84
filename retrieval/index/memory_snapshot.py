"""All ready documents at one moment: where their blocks lie, and how they are searched and read.

Axes: N blocks of ready documents, ascending by block id, M visible ones, C some of them, G KV heads, L tokens in a
block, D head dim.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from retrieval.index.block_cache import BlockCache
from retrieval.index.exact import LandmarkSnapshot
from retrieval.index.stored_reader import StoredBlocks, StoredMemoryReader
from retrieval.index.visible_landmarks import VisibleLandmarks


@dataclass(frozen=True, eq=False)
class MemorySnapshot:
    """All ready documents at one moment."""

    landmarks: LandmarkSnapshot
    blocks: StoredBlocks
    document_ids: tuple[str, ...]
    document_N: np.ndarray
    ordinal_N: np.ndarray
    cache: BlockCache

    @property
    def num_blocks(self) -> int:
        return len(self.blocks.ids_N)

    def positions_of(self, document_ids: Sequence[str]) -> Tensor:
        """Positions of all blocks of some documents, ascending."""
        wanted = set(document_ids)
        numbers = [number for number, document_id in enumerate(self.document_ids) if document_id in wanted]
        return torch.from_numpy(np.flatnonzero(np.isin(self.document_N, numbers)))

    def positions_of_blocks(self, block_ids: Sequence[int]) -> Tensor:
        """Positions of blocks by id, ascending; ids that are gone are left out."""
        return torch.from_numpy(np.flatnonzero(np.isin(self.blocks.ids_N, np.asarray(block_ids, dtype=np.int64))))

    def documents_of(self, positions_C: Tensor) -> list[str]:
        """The document of each block."""
        return [self.document_ids[number] for number in self.document_N[positions_C.numpy()].tolist()]

    def restricted_to(self, document_ids: Collection[str]) -> MemorySnapshot:
        """The snapshot as if there were no other documents than these; positions count the remaining blocks.

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
        )

    def reader(self, positions: Tensor | None = None) -> StoredMemoryReader:
        return StoredMemoryReader(self.landmarks, self.blocks, self.cache, positions)

    def token_keys(self, positions_C: Tensor) -> tuple[list[Tensor], Tensor]:
        """keys_CGLD of each layer that search weighs, and lengths_C (ordinary tokens), of distinct blocks.

        Raises `storage.errors.DamagedMemory`.
        """
        numbers = positions_C.numpy()
        ids, refs = self.blocks.ids_N[numbers], self.blocks.refs(numbers)
        keys_WCGLD = [self.cache.read_keys(layer, ids, refs) for layer in self.cache.key_layers]
        return keys_WCGLD, self.blocks.length_N[positions_C]
