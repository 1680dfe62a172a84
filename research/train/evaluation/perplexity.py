"""Perplexity with a memory (docs/landmark-attention.md, section 7): held-out tokens in segments, each read in windows
from an empty memory.

Axes: T tokens with landmarks, E hidden width, M predicted tokens.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.attention.selection import SelectionPolicy, Voters
from model.checkpoint.landmark_model import LandmarkModel
from model.inference.session import LandmarkSession
from research.train.evaluation.one_text import text_memory
from research.train.losses.next_token import HEAD_POSITIONS


@dataclass(frozen=True)
class PerplexityScore:
    """One row of the table. `blocks` None: nothing is dropped from the memory. `top_k` 0: the windows know nothing of
    each other.
    """

    length: int  # raw tokens of a segment
    window_blocks: int
    top_k: int
    blocks: int | None
    segments: int
    loss: float  # mean over all predicted tokens, nats

    @property
    def perplexity(self) -> float:
        return perplexity_of(self.loss)


def perplexity_of(loss: float) -> float:
    """loss: in nats; beyond 50, what 50 gives."""
    return math.exp(min(50.0, loss))


def perplexity_scores(
    model: LandmarkModel,
    tokens: NDArray[np.integer],
    *,
    lengths: Sequence[int],
    windows: Sequence[int],
    top_ks: Sequence[int],
    blocks: Sequence[int | None] = (None,),
    voters: Voters = "token",
    segments: int | None = None,
    offload: Path | None = None,
) -> Iterator[PerplexityScore]:
    """One score for every combination, in that order. `tokens` are raw; at most `segments` segments of each length are
    read. offload: see `text_memory`.

    A combination that differs from an earlier one only in the memory size while nothing is read (top_k 0) is left out.
    """
    for length, window, top_k, stored in product(lengths, windows, top_ks, blocks):
        if top_k == 0 and stored != blocks[0]:
            continue
        if stored is not None and 0 < stored <= top_k:
            raise ValueError(f"A memory of {stored} blocks cannot be searched for {top_k}: store more than k blocks.")
        count = len(tokens) // length if segments is None else min(segments, len(tokens) // length)
        if count == 0:
            raise ValueError(f"{len(tokens)} held-out tokens do not fill a segment of {length}; give more text.")
        total = predicted = 0.0
        for number in range(count):
            segment = [int(token) for token in tokens[number * length : (number + 1) * length]]
            losses_M = segment_losses(
                model, segment, window_blocks=window, top_k=top_k, blocks=stored, voters=voters, offload=offload,
            )  # fmt: skip
            total, predicted = total + float(losses_M.double().sum()), predicted + len(losses_M)
        yield PerplexityScore(length, window, top_k, stored, count, total / predicted)


@torch.no_grad()
def segment_losses(
    model: LandmarkModel,
    segment: Sequence[int],
    *,
    window_blocks: int,
    top_k: int,
    blocks: int | None = None,
    voters: Voters = "token",
    offload: Path | None = None,
) -> Tensor:
    """Losses in nats of all raw tokens of a segment but the first (and, without memory, the first of each window)."""
    pieces = [list(segment)]
    if top_k == 0:
        per_window = window_blocks * model.config.tokens_per_block
        pieces = [pieces[0][at : at + per_window] for at in range(0, len(segment), per_window)]
    policy = SelectionPolicy(top_k=max(1, top_k), voters=voters, positions="paper")
    losses = []
    for piece in (piece for piece in pieces if len(piece) > 1):
        with text_memory(model, offload, blocks) as memory:
            losses.append(
                _read_losses(LandmarkSession(model, memory=memory, policy=policy, window_blocks=window_blocks), piece)
            )
    return torch.cat(losses)


def _read_losses(stream: LandmarkSession, raw_ids: Sequence[int]) -> Tensor:
    """losses_M of all raw tokens but the first."""
    model, fed = stream.model, stream.feed(raw_ids[:-1])
    hidden_ME = fed.hidden_BTE[0][fed.predicting_rows(model.config.landmark_in_loss)]
    targets_M = torch.tensor(raw_ids[1:], device=hidden_ME.device)
    parts = zip(hidden_ME.split(HEAD_POSITIONS), targets_M.split(HEAD_POSITIONS), strict=True)
    losses_M = torch.cat(
        [
            nn.functional.cross_entropy(model.logits(hidden).float(), target, reduction="none")
            for hidden, target in parts
        ]
    )
    return losses_M.cpu()
