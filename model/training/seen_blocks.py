"""Blocks of earlier batches, kept to be wrong answers: a question must tell its block from many, and a batch holds few.

Their keys are as old as the batch they came in and are not trained through; over a few batches the network hardly
moves. Axes: N blocks, L tokens in a block, E all heads' dimensions together, Q questions.
"""

import torch
from torch import Tensor


class SeenBlocks:
    """The newest `capacity` blocks. Not part of a checkpoint: after a resume it fills anew."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._kept: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return len(self._kept[0]) if self._kept else 0

    def push(self, keys_NLE: Tensor, raw_NL: Tensor, landmarks_NE: Tensor, owners_N: Tensor) -> None:
        """Blocks that hold tokens; the oldest go."""
        if not self.capacity:
            return
        held_N = raw_NL.any(-1)
        new = [part.detach()[held_N] for part in (keys_NLE, raw_NL, landmarks_NE, owners_N)]
        old = self._kept or [part[:0] for part in new]
        self._kept = tuple(torch.cat(pair)[-self.capacity :] for pair in zip(old, new, strict=True))

    @property
    def keys_NLE(self) -> Tensor:
        return self._kept[0]

    @property
    def raw_NL(self) -> Tensor:
        return self._kept[1]

    @property
    def landmarks_NE(self) -> Tensor:
        return self._kept[2]

    def ignored_QN(self, owners_Q: Tensor) -> Tensor:
        """Blocks of the question's own document (or of one with its title) may hold the answer: they do not count."""
        return owners_Q[:, None] == self._kept[3]
