"""The landmarks of some blocks, as if there were no others.

- Positions count the visible blocks; those of the whole memory stay inside.
- `mean` and `spread` of a ranking, from which a question's confidence is derived, are of visible blocks only.

Axes: N blocks of the memory, M visible ones, Y memory layers, G KV heads, D head dim, X voter groups, R rows that vote
together, S slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from model.attention.selection import choose_blocks
from retrieval.index.exact import LandmarkSnapshot, Ranking

# What an unrelated block scores is estimated from about this many.
_SAMPLED_BLOCKS = 4096


class VisibleLandmarks:
    """A `LandmarkSnapshot` of the blocks at `positions_M` (ascending) of another one."""

    def __init__(self, whole: LandmarkSnapshot, positions_M: Tensor, layers: Sequence[int]):
        self._whole, self._positions, self._layers = whole, positions_M, tuple(layers)

    @property
    def num_blocks(self) -> int:
        return len(self._positions)

    def landmarks(self, layer: int, positions: Tensor | None = None) -> Tensor:
        return self._whole.landmarks(layer, self._positions if positions is None else self._positions[positions.cpu()])

    def choose(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        landmarks_GMD = self.landmarks(layer)
        queries = queries_BGXRD.to(landmarks_GMD.device, landmarks_GMD.dtype)
        return choose_blocks(queries, landmarks_GMD[None], k)

    def rank(self, query_YGD: Tensor, count: int, within: Tensor | None = None) -> Ranking:
        allowed = self._positions if within is None else self._positions[within.cpu()]
        found = self._whole.rank(query_YGD, count, allowed)
        positions = torch.searchsorted(self._positions, found.positions)
        mean, spread = self._usual(query_YGD)
        return replace(found, positions=positions, mean=mean, spread=spread)

    def _usual(self, query_YGD: Tensor) -> tuple[float, float]:
        """Mean and standard deviation of the logits of visible blocks."""
        if not self.num_blocks:
            return 0.0, 0.0
        sample = self._positions[:: max(1, self.num_blocks // _SAMPLED_BLOCKS)]
        logits = torch.zeros(len(sample))
        for query_GD, layer in zip(query_YGD, self._layers, strict=True):
            landmarks_GMD = self._whole.landmarks(layer, sample)
            query_GD1 = query_GD.to(landmarks_GMD.device, landmarks_GMD.dtype).unsqueeze(-1)
            logits += (landmarks_GMD @ query_GD1).float().sum(0).squeeze(-1).cpu()
        return float(logits.mean()), float(logits.std(correction=0))
