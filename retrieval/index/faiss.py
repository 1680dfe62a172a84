"""The landmark index on FAISS, for memories so large that scanning every landmark per question is too slow.

- One FAISS index over whole blocks: a block's vector is all its landmarks, [Y * G * D], and the query is laid out
  alike, so that the inner product is the same weighted mean landmark logit that `ExactLandmarkIndex` computes.
- "Flat" gives what the exact index gives. Approximate kinds ("IVF1024,SQ8", "HNSW32") lose recall on attention keys,
  because queries are not distributed like keys: measure with benchmarks/speed/landmark_search.py before choosing one.
- The landmarks themselves stay in the exact tensors: attention votes on the candidates' landmarks, whoever found the
  candidates.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import faiss
import numpy as np
import torch
from torch import Tensor

from retrieval.errors import InvalidRequest
from retrieval.index.exact import SAMPLED_BLOCKS, ExactLandmarkIndex, ExactSnapshot, Ranking


@dataclass(frozen=True, eq=False)
class FaissSnapshot(ExactSnapshot):
    """The exact tensors for attention, and the FAISS index, restricted to the snapshot's blocks, for ranking."""

    ids: np.ndarray
    index: FaissLandmarkIndex

    def rank(self, query_YGD: Tensor, count: int, within: Tensor | None = None) -> Ranking:
        """As the exact snapshot; `log_total` is summed over the blocks that FAISS returned (at least 1,024), the rest
        of an approximate search being unknown."""
        allowed = self.ids if within is None else self.ids[within.cpu().numpy()]
        wanted = min(max(count + 1, 1024), len(allowed))
        if wanted == 0 or count < 1:
            return Ranking(torch.zeros(0, dtype=torch.int64), torch.zeros(0), float("-inf"))
        logits, ids = self.index.search(query_YGD.reshape(1, -1).float().cpu().numpy(), wanted, allowed)
        order = np.lexsort((-ids, -logits))  # of equal logits the newest block first
        logits, ids = logits[order], ids[order]
        log_total = float(np.logaddexp.reduce(logits.astype(np.float64))) if len(logits) else float("-inf")
        indices = torch.from_numpy(np.searchsorted(self.ids, ids[:count]))
        sample = self.logits(query_YGD, every=max(1, self.num_blocks // SAMPLED_BLOCKS))
        mean, spread = float(sample.mean()), float(sample.std(correction=0))
        return Ranking(indices, torch.from_numpy(logits[:count].copy()), log_total, mean, spread)


class FaissLandmarkIndex(ExactLandmarkIndex):
    """`factory` is a FAISS index factory string for inner products. Vectors are added under their block ids."""

    kind: ClassVar[str] = "faiss"

    def __init__(
        self,
        layers: Sequence[int],
        num_groups: int,
        head_dim: int,
        *,
        factory: str = "Flat",
        probes: int = 32,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        super().__init__(layers, num_groups, head_dim, dtype=dtype, device=device)
        self._width = len(self.layers) * num_groups * head_dim
        self._factory, self._probes = factory, probes
        self._lock = threading.Lock()  # a FAISS index must not be searched while it grows
        self._faiss: faiss.Index | None = None
        self._new_index()  # a bad factory string is refused here, not at the first question

    def _new_index(self) -> faiss.Index:
        try:
            return faiss.index_factory(self._width, self._factory, faiss.METRIC_INNER_PRODUCT)
        except RuntimeError as error:
            raise InvalidRequest(
                f"FAISS does not know the index {self._factory!r}; use for example Flat, SQ8, HNSW32 or IVF1024,SQ8."
            ) from error

    @property
    def size_bytes(self) -> int:
        """Of the landmark tensors and, roughly (at full precision), of the FAISS copy."""
        return super().size_bytes + len(self.ids) * self._width * 4

    def add(self, ids_N: np.ndarray, landmarks_NYGD: Tensor) -> None:
        with self._lock:
            super().add(ids_N, landmarks_NYGD)
            if self._faiss is not None and len(ids_N):
                self._faiss.add_with_ids(_vectors(landmarks_NYGD), ids_N.astype(np.int64))

    def remove(self, ids_N: np.ndarray) -> None:
        with self._lock:
            super().remove(ids_N)
            self._faiss = None  # not every kind can forget; the next question builds it again from the landmarks

    def snapshot(self) -> FaissSnapshot:
        with self._lock:
            return FaissSnapshot(self.layers, tuple(self._landmarks_YGND), self.ids, self)

    def search(self, query: np.ndarray, count: int, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits and ids of the best of the allowed blocks, by id; at most `count`."""
        with self._lock:
            index, selector = self._built(), faiss.IDSelectorBatch(allowed.astype(np.int64))
            parameters = faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
            if isinstance(index, faiss.IndexIVF):
                parameters = faiss.SearchParametersIVF(sel=selector, nprobe=self._probes)  # type: ignore[call-arg]
            logits, ids = index.search(query, count, params=parameters)
        found = ids[0] >= 0
        return logits[0][found], ids[0][found]

    def _built(self) -> faiss.Index:
        if self._faiss is None:
            vectors = _vectors(torch.stack([block.transpose(0, 1) for block in self._landmarks_YGND], dim=1))
            index = self._new_index()
            if not index.is_trained:
                self._check_training_size(index, len(vectors))
                index.train(vectors)
            self._faiss = index if isinstance(index, faiss.IndexIVF) else faiss.IndexIDMap2(index)
            self._faiss.add_with_ids(vectors, self.ids.astype(np.int64))
        return self._faiss

    def _check_training_size(self, index: faiss.Index, count: int) -> None:
        lists = getattr(index, "nlist", 1)
        if count < lists:
            raise InvalidRequest(
                f"The index {self._factory!r} needs at least {lists} blocks for training and the memory has {count}; "
                "choose the exact index until it is larger."
            )


def _vectors(landmarks_NYGD: Tensor) -> np.ndarray:
    return landmarks_NYGD.flatten(1).float().cpu().contiguous().numpy()
