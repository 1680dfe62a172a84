"""How well stored tokens answer a question: their keys against the queries of the question's tokens.

    weight of question token q     w_q = |q| / sum of |q| over the question
    match of token t for q         sqrt(w_q) * cos(q, k_t)
    match of some tokens for q     the best among them, at least 0
    score of some tokens           Euclidean norm of their matches over q; between 0 and 1

- A sentence's score is that of its tokens, one of the features by which one is chosen to be quoted.
- A block's score also counts its neighbours, because what a sentence is about is often named in the one before: the
  squares of its own matches and of the best of itself and its neighbours are averaged. Search ranks by it where the
  model is trained for it. Squares and neighbours were chosen on held-out training documents (docs/experiments.md).
- A document's title counts as if it were part of every block and sentence.
- Queries and keys are those of the memory layers that search weighs, concatenated.

Axes: Q question tokens (or questions, of T tokens each), N keys, W weighed memory layers, G KV heads, D head dim, E all
weighed layers and heads concatenated, C blocks, L tokens in a block (landmark last).
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

NEIGHBOUR_SHARE = 0.5
"""Share of the neighbours in the score of a block."""
_TINY = torch.finfo(torch.float32).tiny


def projections(parts: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """projections_..TN: length of every query along every key, |q| cos(q, k), in float32 and differentiable.

    `parts`: queries_..TE and keys_..NE, which may come in pieces of E (layers, heads), so that no float32 copy of all
    keys is made. A key of length 0 gives 0.
    """
    products: Tensor | None = None
    squares: Tensor | None = None
    for queries, keys in parts:
        keys = keys.float()
        product, square = queries.float() @ keys.mT, keys.square().sum(-1)
        products = product if products is None else products.add_(product)
        squares = square if squares is None else squares.add_(square)
    assert products is not None and squares is not None
    along: Tensor = products / squares.clamp_min(_TINY).sqrt().unsqueeze(-2)
    return along


def token_matches(queries_QWGD: Tensor, keys_WCGLD: Sequence[Tensor], lengths_C: Tensor) -> Tensor:
    """matches_QCL (float32, on the device of the keys) of every token of every block for every question token.

    `keys_WCGLD`: one tensor per weighed layer, before rotation. Landmarks and padding get -inf.
    """
    count, _, length, _ = keys_WCGLD[0].shape
    device = keys_WCGLD[0].device
    queries_QWGD = queries_QWGD.float().to(device)
    projections_QN = projections(
        (queries_QWGD[:, w, group], keys_CLD.flatten(0, 1))
        for w, keys_CGLD in enumerate(keys_WCGLD)
        for group, keys_CLD in enumerate(keys_CGLD.unbind(1))
    )
    sizes_Q = queries_QWGD.flatten(1).norm(dim=-1)
    # sqrt(w) cos = |q| cos / sqrt(|q| * sum)
    scale_Q1 = (sizes_Q * sizes_Q.sum()).sqrt().clamp_min(_TINY)[:, None]
    matches_QCL: Tensor = (projections_QN / scale_Q1).view(-1, count, length)
    ordinary_CL = torch.arange(length, device=device) < lengths_C.to(device)[:, None]
    return matches_QCL.masked_fill(~ordinary_CL, -torch.inf)


def score(matches_QST: Tensor) -> Tensor:
    """scores_S of the tokens on the last axis; -inf where there is none."""
    return best_matches(matches_QST).square().sum(0).sqrt()


def best_matches(matches_QCL: Tensor) -> Tensor:
    """best_QC of every block, each of which has at least one token."""
    return matches_QCL.amax(-1).clamp_min(0)


def block_scores(best_QC: Tensor, place_C: Tensor) -> Tensor:
    """scores_C of blocks with their neighbours.

    `place_C` (int64): differs by 1 between blocks that follow each other in a text, by more between all others.
    """
    place_C, order = place_C.sort()
    own_QC = best_QC[:, order]
    follows = place_C[1:] - place_C[:-1] == 1
    around_QC = own_QC.clone()
    around_QC[:, 1:][:, follows] = torch.maximum(around_QC[:, 1:], own_QC[:, :-1])[:, follows]
    around_QC[:, :-1][:, follows] = torch.maximum(around_QC[:, :-1], own_QC[:, 1:])[:, follows]
    scores_C = ((1 - NEIGHBOUR_SHARE) * own_QC.square() + NEIGHBOUR_SHARE * around_QC.square()).sum(0).sqrt()
    return torch.empty_like(scores_C).index_copy_(0, order, scores_C)
