"""How well stored tokens answer a question: their keys against the queries of the question's tokens.

    share of question token q      w_q = |q| / sum of |q| over the question
    match of token t for q         sqrt(w_q) * cos(q, k_t)
    match of some tokens for q     the best among them, at least 0
    score of some tokens           Euclidean norm of their matches over q; between 0 and 1

- A sentence's score is that of its tokens: `quoting` chooses by it.
- A block's score also counts the blocks beside it, because what a sentence is about often stands in the one before:
  the squares of its own matches and of the best of itself and its neighbours are averaged. `search` ranks by it where
  the model says so. Both squares and neighbours were chosen on held-out training documents (docs/experiments.md).
- A document's title counts as if it stood in every block and sentence of it (`titles`).
- Queries and keys are those of the memory layers that search weighs, laid end to end.
- A model may also point at an answer: see `points`.

Axes: Q question tokens, Y memory layers, W weighed memory layers, H query heads, G KV heads, D head dim, C blocks, L
tokens in a block (landmark last).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from model.checkpoint.landmark_model import LandmarkModel
    from model.scoring.span_head import SpanHead

BESIDE = 0.5
"""Share of the neighbours in the score of a block."""


def token_queries(model: LandmarkModel, queries_YHQD: Tensor) -> Tensor:
    """queries_QWGD: weighted as in search, summed over the heads that share keys; layers without weight left out."""
    weighed = [model.memory_layers.index(layer) for layer in model.searched_layers]
    weighted_YHQD = queries_YHQD * model.search_weights_YH[..., None, None].to(queries_YHQD.device)
    return weighted_YHQD[weighed].unflatten(1, (model.num_kv_heads, -1)).sum(2).permute(2, 0, 1, 3)


def token_matches(queries_QWGD: Tensor, keys_WCGLD: Sequence[Tensor], lengths_C: Tensor) -> Tensor:
    """matches_QCL (float32, on the device of the keys): of every token of every block for every question token.

    `keys_WCGLD`: one tensor a weighed layer, before rotation. Rows that are no ordinary tokens (landmark, padding) are
    -inf.
    """
    products_QCL = _products(queries_QWGD, keys_WCGLD)
    _, count, length = products_QCL.shape
    squares_CL = torch.zeros(count, length, device=products_QCL.device)
    for keys_CGLD in keys_WCGLD:
        for keys_CLD in keys_CGLD.unbind(1):
            squares_CL += keys_CLD.float().square().sum(-1)
    sizes_Q = queries_QWGD.float().flatten(1).norm(dim=-1).to(products_QCL.device)
    tiny = torch.finfo(torch.float32).tiny
    # sqrt(w) * cos = product / (|q| |k|) * sqrt(|q| / sum) = product / |k| / sqrt(|q| * sum)
    scale_Q = (sizes_Q * sizes_Q.sum()).sqrt().clamp_min(tiny)
    matches_QCL = products_QCL / squares_CL.sqrt().clamp_min(tiny) / scale_Q[:, None, None]
    return matches_QCL.masked_fill(~_ordinary(lengths_C, length, products_QCL.device), -torch.inf)


def score(matches_QST: Tensor) -> Tensor:
    """scores_S of the tokens on the last axis; -inf where there is none."""
    return best_matches(matches_QST).square().sum(0).sqrt()


def best_matches(matches_QCL: Tensor) -> Tensor:
    """best_QC of every block, each of which has at least one token."""
    return matches_QCL.amax(-1).clamp_min(0)


def block_scores(best_QC: Tensor, place_C: Tensor) -> Tensor:
    """scores_C of blocks with their neighbours. `place_C` (int64): blocks that follow each other in a text differ by
    1, all others by more."""
    place_C, order = place_C.sort()
    own_QC = best_QC[:, order]
    follows = place_C[1:] - place_C[:-1] == 1
    around_QC = own_QC.clone()
    around_QC[:, 1:][:, follows] = torch.maximum(around_QC[:, 1:], own_QC[:, :-1])[:, follows]
    around_QC[:, :-1][:, follows] = torch.maximum(around_QC[:, :-1], own_QC[:, 1:])[:, follows]
    scores_C = ((1 - BESIDE) * own_QC.square() + BESIDE * around_QC.square()).sum(0).sqrt()
    return torch.empty_like(scores_C).index_copy_(0, order, scores_C)


def points(pointers_2WGD: Tensor, keys_WCGLD: Sequence[Tensor], lengths_C: Tensor) -> Tensor:
    """points_2CL: logits of every token for being the first and the last of the answer, that is pointer . key.

    `pointers_2WGD`: the queries of the prompt's last token and of the end token behind it
    (`LandmarkConfig.points_at_answers`). Rows that are no ordinary tokens are -inf.
    """
    products_2CL = _products(pointers_2WGD, keys_WCGLD)
    return products_2CL.masked_fill(~_ordinary(lengths_C, products_2CL.shape[2], products_2CL.device), -torch.inf)


def span_head_logits(
    head: SpanHead,
    queries_QWGD: Tensor,
    pointers_2WGD: Tensor,
    keys_WCGLD: Sequence[Tensor],
    lengths_C: Tensor,
) -> Tensor:
    """points_2CL as `points` gives them, from the model's pointing head."""
    device = head.key.weight.device
    keys_CLE = torch.stack([keys_CGLD.float() for keys_CGLD in keys_WCGLD], 1).permute(0, 3, 1, 2, 4).flatten(2)
    there_CL = _ordinary(lengths_C, keys_CLE.shape[1], device)
    queries_QE, pointers_2E = queries_QWGD.float().flatten(1).to(device), pointers_2WGD.float().flatten(1).to(device)
    asked_Q = torch.ones(len(queries_QE), dtype=torch.bool, device=device)
    with torch.no_grad():
        points_12CL, _ = head(
            keys_CLE.to(device)[None], there_CL[None], queries_QE[None], asked_Q[None], pointers_2E[None]
        )
    return points_12CL[0]


def best_spans(points_2ST: Tensor, longest: int = 24) -> tuple[Tensor, Tensor, Tensor]:
    """sums_S of both logits, first_S and last_S of the best span of at most `longest` tokens in every row; -inf where
    there is no token."""
    starts_ST, ends_ST = points_2ST
    reachable_STW = torch.nn.functional.pad(starts_ST, (longest - 1, 0), value=-torch.inf).unfold(-1, longest, 1)
    best_start_ST, offset_ST = reachable_STW.max(-1)
    sums_S, last_S = (best_start_ST + ends_ST).max(-1)
    first_S = last_S - (longest - 1) + offset_ST.gather(1, last_S[:, None])[:, 0]
    return sums_S, first_S, last_S


def _products(queries_QWGD: Tensor, keys_WCGLD: Sequence[Tensor]) -> Tensor:
    """products_QCL over all weighed layers and heads, in float32."""
    count, groups, length, _ = keys_WCGLD[0].shape
    device = keys_WCGLD[0].device
    queries_QWGD = queries_QWGD.float().to(device)
    products_QN = torch.zeros(len(queries_QWGD), count * length, device=device)
    for w, keys_CGLD in enumerate(keys_WCGLD):
        for group in range(groups):  # head by head: no copy of all keys in float32
            keys_ND = keys_CGLD[:, group].float().reshape(count * length, -1)
            products_QN.addmm_(queries_QWGD[:, w, group], keys_ND.T)
    return products_QN.view(-1, count, length)


def _ordinary(lengths_C: Tensor, length: int, device: torch.device) -> Tensor:
    return torch.arange(length, device=device) < lengths_C.to(device)[:, None]
