"""How a read chooses blocks: who votes, how many blocks are taken, and which of equal blocks wins.

Tie rule: of blocks with equal votes the newest (highest number) is taken. In the first layer all landmark keys are
equal before rotation, so the rule alone decides among blocks scored in one slot. A matrix product does not give the
same sum for equal keys in different columns, so votes that differ by no more than rounding (`TIE`) count as equal.

Axes: B batch, H query heads, G KV heads, Q queries, X voter groups per KV head, R rows that vote together, N stored
blocks, S slots.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor

from model.attention.rotary import exact_scores
from model.errors import ModelError

Voters = Literal["token", "head", "group", "all_heads"]
VOTERS: tuple[Voters, ...] = get_args(Voters)
Positions = Literal["paper", "library"]
POSITIONS: tuple[Positions, ...] = get_args(Positions)
LIBRARY_LOCAL_SLOT = 2
"""Slot at which the local window starts under library positions, behind the far slot and an empty one."""
TIE = 2.0**-20
"""Logits that differ by less than this share of |query| |key| are equal: 8 times the precision of float32."""
NORMS_AT_MOST = 4096
"""Keys whose norm is taken for that, spread over all of them."""


@dataclass(frozen=True, kw_only=True)
class SelectionPolicy:
    """Choice of blocks in every layer that has a memory."""

    top_k: int = 8
    voters: Voters = "group"
    """The granularity of the choice. token: every query token of every head chooses for itself, as in the paper; head:
    one set of blocks per head and forward pass; group: one per KV head and forward pass, so that each KV head is
    gathered once; all_heads: one per query token, which all heads share (the published code's `max_over_heads`), under
    paper positions."""
    positions: Positions = "library"
    """Positions of chosen blocks (`model.attention.positions`)."""
    each_query: bool = False
    """Query tokens of one forward pass vote separately, so that each reads what it would read in a pass of its own."""
    left_out: tuple[tuple[int, ...], ...] = ()
    """For each row of the batch, blocks that may be chosen but are left out of the softmax, and nothing replaces them:
    the difference shows their effect."""

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise ModelError(f"top_k is {self.top_k}; it must be at least 1.")
        for name, value, known in (("voters", self.voters, VOTERS), ("positions", self.positions, POSITIONS)):
            if value not in known:
                raise ModelError(f"{name} is {value!r}; choose one of {', '.join(map(repr, known))}.")
        if self.voters == "all_heads" and not self.of_one_text:
            raise ModelError(
                "voters='all_heads' needs positions='paper': a library is searched for each KV head apart."
            )

    def local_slot(self, num_blocks: int) -> int:
        """Slot at which the local window starts when `num_blocks` are stored (see `model.attention.positions`)."""
        if self.positions == "library":
            return LIBRARY_LOCAL_SLOT
        return min(self.top_k, num_blocks) + 1 if num_blocks else 0

    def left_out_of(self, ids_BGXS: Tensor) -> Tensor | None:
        """Which of the chosen blocks are left out; None: none."""
        if not any(self.left_out):
            return None
        rows = zip(ids_BGXS, self.left_out, strict=True)
        return torch.stack([torch.isin(ids_GXS, _numbers_on(blocks, ids_GXS.device)) for ids_GXS, blocks in rows])

    @property
    def of_one_text(self) -> bool:
        """Whether the blocks stand in the order of one text, as paper positions need it. A memory that grows does."""
        return self.positions != "library"

    @property
    def _heads_of_a_query_together(self) -> bool:
        return self.voters == "all_heads" or (self.voters == "group" and self.each_query)

    def voter_rows(self, x_BHQD: Tensor, groups: int) -> Tensor:
        """x_BGXRD: rows by who votes together. X is the heads and queries of a KV head ("token", or `each_query`), its
        heads ("head"), 1 ("group"), or its queries ("all_heads", and "group" with `each_query`); R is the rest."""
        x_BGHQD: Tensor = x_BHQD.unflatten(1, (groups, -1))
        heads_per_group, num_queries = x_BGHQD.shape[2:4]
        if self._heads_of_a_query_together:
            return x_BGHQD.transpose(2, 3)
        if self.each_query or self.voters == "token":
            voters = heads_per_group * num_queries
        else:
            voters = heads_per_group if self.voters == "head" else 1
        x_BGXRD: Tensor = x_BGHQD.flatten(2, 3).unflatten(2, (voters, -1))
        return x_BGXRD

    def by_query(self, x_BGXRD: Tensor, num_queries: int) -> Tensor:
        """x_BHQD: the inverse of `voter_rows`, for any number of axes behind R."""
        if self._heads_of_a_query_together:
            return x_BGXRD.transpose(2, 3).flatten(1, 2)
        x_BGHQD: Tensor = x_BGXRD.flatten(2, 3).unflatten(2, (-1, num_queries))
        return x_BGHQD.flatten(1, 2)


@lru_cache(maxsize=64)
def _numbers_on(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    """int64 numbers on a device, sent there once: a forward pass that sends any waits for the device."""
    with torch.inference_mode(False):  # a training pass may use them later
        return torch.tensor(numbers, device=device)


def choose_blocks(
    queries_BGXRD: Tensor, landmarks_BGND: Tensor, k: int, *, scaling: float = 1.0, all_heads: bool = False
) -> Tensor:
    """ids_BGXS of `select_blocks`, from queries and landmark keys; the batch axis of the landmarks may be 1."""
    # Rows and voters in one product: with an axis of their own the landmarks would be copied for every voter.
    logits_BGPN = exact_scores(queries_BGXRD.flatten(2, 3), landmarks_BGND) * scaling
    logits_BGXRN = logits_BGPN.unflatten(2, queries_BGXRD.shape[2:4])
    size_BGX = logit_size(queries_BGXRD, landmarks_BGND) * scaling
    return select_blocks(logits_BGXRN, k, size_BGX, all_heads=all_heads)


def logit_size(queries_BGXRD: Tensor, landmarks_BGND: Tensor) -> Tensor:
    """size_BGX: how large the terms of a logit get, which bounds the rounding of their sum."""
    some_BGND = landmarks_BGND[:, :, :: max(1, landmarks_BGND.shape[2] // NORMS_AT_MOST)]
    longest_BGX: Tensor = queries_BGXRD.float().norm(dim=-1).amax(-1)
    longest_BG1: Tensor = some_BGND.float().norm(dim=-1).amax(-1, keepdim=True)
    return longest_BGX * longest_BG1


def select_blocks(logits_BGXRN: Tensor, k: int, size_BGX: Tensor | float = 0.0, *, all_heads: bool = False) -> Tensor:
    """ids_BGXS, ascending: the k blocks that each voter group chooses from its landmark logits.

    One row: its largest logits. Several rows: the largest softmax probabilities, each block at its maximum over the
    rows (docs/landmark-attention.md, section 5). all_heads: the maximum is over the KV heads as well. size: see
    `logit_size`; logits alone do not tell it where they cancel.
    """
    seen_BGX = logits_BGXRN.detach().float().abs().amax((-2, -1))
    tolerance_BGX1 = torch.maximum(seen_BGX, torch.as_tensor(size_BGX, device=seen_BGX.device)).unsqueeze(-1) * TIE
    if all_heads:
        votes_BGXN = logits_BGXRN.float().log_softmax(-1).amax((1, 3)).unsqueeze(1)
        ids_BGXS = top_blocks(votes_BGXN, k, tolerance=tolerance_BGX1.amax(1, keepdim=True))
        return ids_BGXS.expand(-1, logits_BGXRN.shape[1], -1, -1)
    if logits_BGXRN.shape[-2] == 1:
        return top_blocks(logits_BGXRN.squeeze(-2).float(), k, tolerance=tolerance_BGX1)
    # The logarithm keeps the order, and the size of the rounding.
    return top_blocks(logits_BGXRN.float().log_softmax(-1).amax(-2), k, tolerance=tolerance_BGX1)


def top_blocks(votes: Tensor, k: int, *, tolerance: Tensor | float = 0.0) -> Tensor:
    """The k largest of the last axis as ascending int64 indices; among equals the highest index.

    tolerance: votes that are no further from the k-th largest than this are its equals. No host synchronisation.
    """
    count = votes.shape[-1]
    if k >= count:
        return torch.arange(count, device=votes.device).expand(*votes.shape[:-1], count)
    order = torch.arange(count, dtype=torch.int32, device=votes.device)
    # One difference for both: a rounded sum could leave a vote neither above nor tied.
    over = votes - votes.topk(k).values[..., -1:]
    above, tied = over > tolerance, over.abs() <= tolerance
    ranked = torch.where(above, order + count, torch.where(tied, order, -1)).topk(k).values
    return (ranked % count).long().sort(-1).values
