"""Batches of questions of like length, so that little is padded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

POOL = 16
"""Batches among which questions are sorted by length."""


def batches_by_length(lengths: NDArray[np.int64], batch: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """One pass through all questions as batches of their numbers: similar lengths together, in random order.

    Questions that fill no batch wait for another epoch; fewer than a batch are one.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(lengths))[: max(1, len(lengths) // batch) * batch]
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(order), POOL * batch):
        pool = order[start : start + POOL * batch]
        pool = pool[lengths[pool].argsort(kind="stable")]
        batches += np.split(pool, max(1, len(pool) // batch))
    random.shuffle(batches)
    return batches
