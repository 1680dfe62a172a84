"""Search over the landmark keys of all stored blocks.

- `LandmarkIndex` is the interface; `ExactLandmarkIndex` is the reference and the default: one contiguous tensor per
  memory layer. Blocks are in the order of their ids, so a block index means the same before and after a restart.
- `snapshot()` is what a question works on: later additions and removals cannot be seen through it.
- `VisibleLandmarks`: the landmarks of some blocks, as if there were no others. Block indices count visible blocks, and
  so do `mean` and `spread` of a ranking, from which the confidence of a question is derived.

Axes: N stored blocks, M some of them (the visible ones), Y memory layers, G KV heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from model.attention.rotary import exact_scores
from model.attention.selection import top_blocks


@dataclass(frozen=True, eq=False)
class Ranking:
    """Best blocks of a search, best first.

    `logits`: weighted sum of landmark logits; `log_total`: log of the sum of their exponentials over everything in
    scope, so that exp(logit - log_total) is a distribution over the searched memory. `mean` and `spread` (standard
    deviation) of the logits of all blocks, in scope or not: what an unrelated block scores.
    """

    indices: Tensor
    logits: Tensor
    log_total: float
    mean: float = 0.0
    spread: float = 0.0

    @property
    def gates(self) -> Tensor:
        return (self.logits - self.log_total).exp()


class LandmarkSnapshot(Protocol):
    """The landmarks as they were at one moment. Block indices run from 0 to num_blocks - 1, in the order of block
    ids."""

    @property
    def num_blocks(self) -> int: ...

    def landmarks(self, layer: int, indices: Tensor | None = None) -> Tensor:
        """landmarks_GND of all blocks, or landmarks_GMD of some."""
        ...

    def rank(self, query_YGD: Tensor, count: int, within: Tensor | None = None) -> Ranking:
        """The `count` best blocks for one query over all layers and heads; `within`: ascending indices in scope."""
        ...


class LandmarkIndex(Protocol):
    """Landmarks of all blocks that questions may see."""

    kind: ClassVar[str]

    @property
    def ids(self) -> np.ndarray:
        """Block ids by block index, ascending."""
        ...

    @property
    def size_bytes(self) -> int: ...

    def add(self, ids_N: np.ndarray, landmarks_NYGD: Tensor) -> None:
        """Add blocks by id (int64, unique, not yet present)."""
        ...

    def remove(self, ids_N: np.ndarray) -> None:
        """Forget blocks; ids that are not present are ignored."""
        ...

    def snapshot(self) -> LandmarkSnapshot: ...


def rank_all(logits_N: Tensor, count: int, within: Tensor | None) -> Ranking:
    """Ranking from the logits of every block (float32). Of equal logits the newest block comes first."""
    if logits_N.numel() > 0:
        mean, spread = float(logits_N.mean()), float(logits_N.std(correction=0))
    if within is not None:
        logits_N = logits_N[within]
    if logits_N.numel() == 0 or count < 1:
        return Ranking(torch.zeros(0, dtype=torch.int64), torch.zeros(0), float("-inf"))
    best = top_blocks(logits_N, count).flip(0)  # newest first, so that the stable sort keeps the tie rule
    best = best[logits_N[best].argsort(descending=True, stable=True)]
    log_total = float(logits_N.logsumexp(0))
    indices = best if within is None else within[best]
    return Ranking(indices.cpu(), logits_N[best].cpu(), log_total, mean, spread)


def products(query_YGD: Tensor, landmarks_YGND: Iterable[Tensor]) -> Tensor:
    """logits_N, float32: one inner product of the query with each block's landmarks over all layers and heads."""
    of_layers = []
    for query_GD, layer_GND in zip(query_YGD, landmarks_YGND, strict=True):
        query_G1D = query_GD.to(layer_GND.device, layer_GND.dtype).unsqueeze(1)
        of_layers.append(exact_scores(layer_GND, query_G1D).sum(0).squeeze(-1))
    logits_N: Tensor = reduce(torch.add, of_layers)
    return logits_N


@dataclass(frozen=True, eq=False)
class ExactSnapshot:
    """The exact index's tensors at one moment."""

    layers: tuple[int, ...]
    landmarks_YGND: tuple[Tensor, ...]

    @property
    def num_blocks(self) -> int:
        return self.landmarks_YGND[0].shape[1]

    def landmarks(self, layer: int, indices: Tensor | None = None) -> Tensor:
        landmarks_GND = self.landmarks_YGND[self.layers.index(layer)]
        return landmarks_GND if indices is None else landmarks_GND[:, indices.to(landmarks_GND.device)]

    def logits(self, query_YGD: Tensor, every: int = 1) -> Tensor:
        """logits_N of `products`; `every` > 1: of each so many blocks only the first."""
        return products(query_YGD, (layer_GND[:, ::every] for layer_GND in self.landmarks_YGND))

    def rank(self, query_YGD: Tensor, count: int, within: Tensor | None = None) -> Ranking:
        logits_N = self.logits(query_YGD)
        return rank_all(logits_N, count, None if within is None else within.to(logits_N.device))


class ExactLandmarkIndex:
    """Every landmark in one tensor [G, N, D] per layer; search is a matrix product. Not synchronised: one writer at a
    time. Each change makes new tensors, so that snapshots keep theirs."""

    kind: ClassVar[str] = "exact"

    def __init__(
        self,
        layers: Sequence[int],
        num_groups: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        empty_GND = torch.empty(num_groups, 0, head_dim, dtype=dtype, device=device)
        self.layers = tuple(layers)
        self.ids = np.zeros(0, dtype=np.int64)
        self._landmarks_YGND = [empty_GND for _ in self.layers]

    @property
    def size_bytes(self) -> int:
        return sum(landmarks.numel() * landmarks.element_size() for landmarks in self._landmarks_YGND)

    def add(self, ids_N: np.ndarray, landmarks_NYGD: Tensor) -> None:
        ids = np.concatenate((self.ids, ids_N))
        assert len(np.unique(ids)) == len(ids), "block ids are unique"
        joined_YGND = [
            torch.cat((old_GND, new_NGD.transpose(0, 1).to(old_GND)), 1)
            for old_GND, new_NGD in zip(self._landmarks_YGND, landmarks_NYGD.unbind(1), strict=True)
        ]
        order = np.argsort(ids, kind="stable")
        if np.any(np.diff(order) < 0):
            joined_YGND = [_some(landmarks_GND, order) for landmarks_GND in joined_YGND]
        self.ids, self._landmarks_YGND = ids[order], joined_YGND

    def remove(self, ids_N: np.ndarray) -> None:
        kept = np.flatnonzero(~np.isin(self.ids, ids_N))
        if len(kept) < len(self.ids):
            self._landmarks_YGND = [_some(landmarks_GND, kept) for landmarks_GND in self._landmarks_YGND]
            self.ids = self.ids[kept]

    def snapshot(self) -> ExactSnapshot:
        return ExactSnapshot(self.layers, tuple(self._landmarks_YGND))


def _some(landmarks_GND: Tensor, indices: np.ndarray) -> Tensor:
    return landmarks_GND[:, torch.from_numpy(indices).to(landmarks_GND.device)]


# What an unrelated block scores is estimated from about this many.
SAMPLED_BLOCKS = 4096


class VisibleLandmarks:
    """A `LandmarkSnapshot` of the blocks at `indices_M` (ascending) of another one."""

    def __init__(self, whole: LandmarkSnapshot, indices_M: Tensor, layers: Sequence[int]):
        self._whole, self._indices, self._layers = whole, indices_M, tuple(layers)

    @property
    def num_blocks(self) -> int:
        return len(self._indices)

    def landmarks(self, layer: int, indices: Tensor | None = None) -> Tensor:
        return self._whole.landmarks(layer, self._indices if indices is None else self._indices[indices.cpu()])

    def rank(self, query_YGD: Tensor, count: int, within: Tensor | None = None) -> Ranking:
        allowed = self._indices if within is None else self._indices[within.cpu()]
        found = self._whole.rank(query_YGD, count, allowed)
        if not self.num_blocks:
            return found
        indices = torch.searchsorted(self._indices, found.indices)
        sample = self._indices[:: max(1, self.num_blocks // SAMPLED_BLOCKS)]
        logits = products(query_YGD, (self._whole.landmarks(layer, sample) for layer in self._layers))
        return replace(found, indices=indices, mean=float(logits.mean()), spread=float(logits.std(correction=0)))
