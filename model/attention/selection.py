"""How a read chooses blocks: who votes, how many blocks are taken, which positions they get, and which of equal
blocks wins.

Tie rule: of blocks with equal votes the newest (highest number) is taken. In the first layer all landmark keys are
equal before rotation, so there the rule alone decides.

Axes: B batch, G KV heads, X voter groups per KV head, R rows that vote together, N stored blocks, S slots.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from model.attention.positions import LIBRARY_LOCAL_SLOT
from model.errors import ModelError

Voters = Literal["token", "head", "group"]
Positions = Literal["paper", "library"]


@dataclass(frozen=True, kw_only=True)
class SelectionPolicy:
    """Choice of blocks in every layer that has a memory."""

    top_k: int = 8
    voters: Voters = "group"
    """token: every query token of every head chooses for itself, as in the paper; head: one set per head and forward
    pass; group: one set per KV head and forward pass, so that each KV head is gathered once."""
    positions: Positions = "library"

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise ModelError(f"top_k is {self.top_k}; it must be at least 1.")
        if self.voters not in ("token", "head", "group"):
            raise ModelError(f"voters is {self.voters!r}; choose 'token', 'head' or 'group'.")
        if self.positions not in ("paper", "library"):
            raise ModelError(f"positions is {self.positions!r}; choose 'paper' or 'library'.")

    def local_slot(self, num_blocks: int) -> int:
        """Slot at which the local window starts when so many blocks are stored (see `model.attention.positions`)."""
        return LIBRARY_LOCAL_SLOT if self.positions == "library" else min(self.top_k, num_blocks) + 1

    def num_groups(self, heads_per_group: int, num_queries: int) -> int:
        """Voter groups (X) per KV head."""
        return {"token": heads_per_group * num_queries, "head": heads_per_group, "group": 1}[self.voters]


def select_blocks(logits_BGXRN: Tensor, k: int) -> Tensor:
    """ids_BGXS, ascending: the k blocks that each voter group chooses from its landmark logits.

    One row: its largest logits. Several rows: the largest of softmax probabilities, each block at its maximum over
    the rows (docs/landmark-attention.md, section 5).
    """
    if logits_BGXRN.shape[-2] == 1:
        return top_blocks(logits_BGXRN.squeeze(-2), k)
    return top_blocks(logits_BGXRN.float().softmax(-1).amax(-2), k)


def top_blocks(votes: Tensor, k: int) -> Tensor:
    """The k largest of the last axis as ascending int64 indices; among equals the highest index. No host
    synchronisation."""
    count = votes.shape[-1]
    order = torch.arange(count, device=votes.device)
    if k >= count:
        return order.expand(*votes.shape[:-1], count)
    threshold = votes.topk(k).values[..., -1:]
    above, tied = votes > threshold, votes == threshold
    room = k - above.sum(-1, keepdim=True)
    newest_tied = tied & (tied.flip(-1).cumsum(-1).flip(-1) <= room)
    return torch.where(above | newest_tied, order, count).topk(k, largest=False, sorted=True).values
