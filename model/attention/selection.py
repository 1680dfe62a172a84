"""How a read chooses blocks: who votes, how many blocks are taken, and which of equal blocks wins.

Tie rule: of blocks with equal votes the newest (highest number) is taken. In the first layer all landmark keys are
equal before rotation, so there the rule alone decides.

Axes: B batch, H query heads, G KV heads, Q queries, X voter groups per KV head, R rows that vote together, N stored
blocks, S slots.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from model.errors import ModelError

Voters = Literal["token", "head", "group"]
Positions = Literal["paper", "library"]
LIBRARY_LOCAL_SLOT = 2
"""Slot at which the local window starts under library positions, behind the far slot and an empty one."""


@dataclass(frozen=True, kw_only=True)
class SelectionPolicy:
    """Choice of blocks in every layer that has a memory."""

    top_k: int = 8
    voters: Voters = "group"
    """token: every query token of every head chooses for itself, as in the paper; head: one set of blocks per head and
    forward pass; group: one per KV head and forward pass, so that each KV head is gathered once."""
    positions: Positions = "library"
    each_query: bool = False
    """Query tokens of one forward pass vote separately, so that each reads what it would read in a pass of its own."""

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise ModelError(f"top_k is {self.top_k}; it must be at least 1.")
        if self.voters not in ("token", "head", "group"):
            raise ModelError(f"voters is {self.voters!r}; choose 'token', 'head' or 'group'.")
        if self.positions not in ("paper", "library"):
            raise ModelError(f"positions is {self.positions!r}; choose 'paper' or 'library'.")

    def local_slot(self, num_blocks: int) -> int:
        """Slot at which the local window starts when `num_blocks` are stored (see `model.attention.positions`)."""
        return LIBRARY_LOCAL_SLOT if self.positions == "library" else min(self.top_k, num_blocks) + 1

    def voter_rows(self, x_BHQD: Tensor, groups: int) -> Tensor:
        """x_BGXRD: the rows of each KV head by the voter group they belong to."""
        x_BGHQD: Tensor = x_BHQD.unflatten(1, (groups, -1))
        heads_per_group, num_queries = x_BGHQD.shape[2:4]
        if self.each_query and self.voters == "group":
            return x_BGHQD.transpose(2, 3)
        if self.each_query or self.voters == "token":
            voters = heads_per_group * num_queries
        else:
            voters = heads_per_group if self.voters == "head" else 1
        x_BGXRD: Tensor = x_BGHQD.flatten(2, 3).unflatten(2, (voters, -1))
        return x_BGXRD

    def by_query(self, x_BGXRD: Tensor, num_queries: int) -> Tensor:
        """x_BHQD: the inverse of `voter_rows`, for any number of axes behind R."""
        if self.each_query and self.voters == "group":
            return x_BGXRD.transpose(2, 3).flatten(1, 2)
        x_BGHQD: Tensor = x_BGXRD.flatten(2, 3).unflatten(2, (-1, num_queries))
        return x_BGHQD.flatten(1, 2)


def select_blocks(logits_BGXRN: Tensor, k: int) -> Tensor:
    """ids_BGXS, ascending: the k blocks that each voter group chooses from its landmark logits.

    One row: its largest logits. Several rows: the largest softmax probabilities, each block at its maximum over the
    rows (docs/landmark-attention.md, section 5).
    """
    if logits_BGXRN.shape[-2] == 1:
        return top_blocks(logits_BGXRN.squeeze(-2), k)
    return top_blocks(logits_BGXRN.float().softmax(-1).amax(-2), k)


def top_blocks(votes: Tensor, k: int) -> Tensor:
    """The k largest of the last axis as ascending int64 indices; among equals the highest index.

    No host synchronisation.
    """
    count = votes.shape[-1]
    order = torch.arange(count, device=votes.device)
    if k >= count:
        return order.expand(*votes.shape[:-1], count)
    threshold = votes.topk(k).values[..., -1:]
    above, tied = votes > threshold, votes == threshold
    room = k - above.sum(-1, keepdim=True)
    newest_tied = tied & (tied.flip(-1).cumsum(-1).flip(-1) <= room)
    return torch.where(above | newest_tied, order, count).topk(k, largest=False, sorted=True).values
