"""Landmarks in a mapped file, what came since in RAM: the index of large libraries.

- Finds exactly what the exact index finds. int8 codes of all blocks are scored; how far a score by codes can be from
  the true one is known for each block, so every block that may be among the best is scored again by its exact keys.
- Blocks that came after the file was written are an exact index of their own; those that left are skipped. From time
  to time a new file is written (`retrieval.index.kept_landmarks`).

Axes: N blocks, M some of them, P blocks of the file, T blocks in RAM, Y memory layers, G KV heads, D head dim, K = Y *
G * D, X voter groups, R rows that vote together, S slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from model.attention.selection import choose_blocks
from retrieval.index.exact import ExactLandmarkIndex, ExactSnapshot, Ranking, rank_all
from retrieval.index.landmark_file import LandmarkFile

# Rescored at a time.
_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class MappedSnapshot:
    """`places_N`: where the block of each position lies: below P in the file, the others in `tail`; None: in order."""

    layers: tuple[int, ...]
    shape_GD: tuple[int, int]
    dtype: torch.dtype
    file: LandmarkFile | None
    tail: ExactSnapshot
    places_N: Tensor | None

    @property
    def in_file(self) -> int:
        return 0 if self.file is None else self.file.num_blocks

    @property
    def num_blocks(self) -> int:
        return self.in_file + self.tail.num_blocks if self.places_N is None else len(self.places_N)

    def landmarks(self, layer: int, positions: Tensor | None = None) -> Tensor:
        chosen_M = torch.arange(self.num_blocks) if positions is None else positions.cpu()
        places_M = chosen_M if self.places_N is None else self.places_N[chosen_M]
        found_GMD = torch.empty(self.shape_GD[0], len(places_M), self.shape_GD[1], dtype=self.dtype)
        kept_M = places_M < self.in_file
        if self.file is not None and bool(kept_M.any()):
            keys_MYGD = self.file.keys(places_M[kept_M]).view(-1, len(self.layers), *self.shape_GD)
            found_GMD[:, kept_M] = keys_MYGD[:, self.layers.index(layer)].transpose(0, 1).to(self.dtype)
        if not bool(kept_M.all()):
            found_GMD[:, ~kept_M] = self.tail.landmarks(layer, places_M[~kept_M] - self.in_file).cpu()
        return found_GMD

    def choose(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        landmarks_GND = self.landmarks(layer).to(queries_BGXRD.device)
        return choose_blocks(queries_BGXRD.to(landmarks_GND.dtype), landmarks_GND[None], k)

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
            positions=near_M[found.positions],
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
        return (logits_N, slack_N) if self.places_N is None else (logits_N[self.places_N], slack_N[self.places_N])

    def _exact(self, query_K: Tensor, positions_M: Tensor, logits_N: Tensor) -> Tensor:
        """logits_M of blocks, by exact keys; those in RAM are exact already."""
        exact_M = logits_N[positions_M]
        places_M = positions_M if self.places_N is None else self.places_N[positions_M]
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
        self._ids, self._places = self._file_ids, cast("Tensor | None", None)
        self._arrange()

    @property
    def num_blocks(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> np.ndarray:
        return self._ids

    @property
    def size_bytes(self) -> int:
        """What is in RAM for good; pages of the file come and go."""
        return self._tail.size_bytes

    @property
    def not_in_file(self) -> int:
        """How many blocks came or went since the file was written."""
        return self._tail.num_blocks + int(len(self._kept) - self._kept.sum())

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
        in_order = not len(tail_ids) or not len(kept_P) or tail_ids[0] > self._file_ids[kept_P[-1]]
        self._places = None
        if in_order and len(kept_P) == len(self._file_ids):
            self._ids = ids
            return
        order = np.argsort(ids, kind="stable")
        self._ids = ids[order]
        places = np.concatenate((kept_P, len(self._file_ids) + np.arange(len(tail_ids))))
        self._places = torch.from_numpy(places[order])

    def snapshot(self) -> MappedSnapshot:
        return MappedSnapshot(self._layers, self._shape, self._dtype, self._file, self._tail.snapshot(), self._places)
