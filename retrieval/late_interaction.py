"""How well stored tokens answer a question: their keys against the queries of the question's tokens.

    match of token t for question token q = |q| * cos(q, k_t) / sum of |q| over the question
    score of some tokens = sum over q of the best match among them; between -1 and 1

- A block's score is that of all its ordinary tokens: `search` ranks by it where the model says so. A sentence's score
  is that of its tokens: `quoting` chooses by it.
- Queries and keys are those of the memory layers that search weighs, laid end to end.

Axes: Q question tokens, Y memory layers, W weighed memory layers, H query heads, G KV heads, D head dim, C blocks, L
tokens in a block (landmark last).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from retrieval.errors import InvalidRequest

if TYPE_CHECKING:
    from model.backbone import LandmarkModel


def search_weights(model: LandmarkModel) -> Tensor:
    """weights_YH of the checkpoint, or all 1. Raises `InvalidRequest` if they are of another shape than the model."""
    shape = (len(model.memory_layers), model.num_heads)
    if model.config.search_weights is None:
        return torch.ones(shape)
    weights_YH = torch.tensor(model.config.search_weights)
    if weights_YH.shape != shape:
        raise InvalidRequest(
            f"The checkpoint's search_weights have shape {tuple(weights_YH.shape)}; the model has {shape[0]} memory "
            f"layers of {shape[1]} heads: calibrate it again."
        )
    return weights_YH


def weighed_layers(model: LandmarkModel) -> tuple[int, ...]:
    """Absolute numbers of the memory layers of which any head has a weight in search."""
    weighed_Y = search_weights(model).any(1).tolist()
    return tuple(layer for layer, weighed in zip(model.memory_layers, weighed_Y, strict=True) if weighed)


def token_queries(model: LandmarkModel, queries_YHQD: Tensor) -> Tensor:
    """queries_QWGD: weighted as in search, summed over the heads that share keys; layers without weight left out."""
    weighed = [model.memory_layers.index(layer) for layer in weighed_layers(model)]
    weighted_YHQD = queries_YHQD * search_weights(model)[..., None, None].to(queries_YHQD.device)
    return weighted_YHQD[weighed].unflatten(1, (model.num_kv_heads, -1)).sum(2).permute(2, 0, 1, 3)


def token_matches(queries_QWGD: Tensor, keys_WCGLD: Sequence[Tensor], lengths_C: Tensor) -> Tensor:
    """matches_QCL (float32, on the device of the keys): of every token of every block for every question token.

    `keys_WCGLD`: one tensor a weighed layer, before rotation. Rows that are no ordinary tokens (landmark, padding) are
    -inf.
    """
    first = keys_WCGLD[0]
    count, groups, length, _ = first.shape
    queries_QWGD = queries_QWGD.float().to(first.device)
    products_QCL = torch.zeros(len(queries_QWGD), count * length, device=first.device)
    squares_CL = torch.zeros(count, length, device=first.device)
    for w, keys_CGLD in enumerate(keys_WCGLD):
        for group in range(groups):  # head by head: no copy of all keys in float32
            keys_CLD = keys_CGLD[:, group].float()
            products_QCL.addmm_(queries_QWGD[:, w, group], keys_CLD.reshape(count * length, -1).T)
            squares_CL += keys_CLD.square().sum(-1)
    sizes_Q = queries_QWGD.flatten(1).norm(dim=-1)
    tiny = torch.finfo(torch.float32).tiny
    matches_QCL = products_QCL.view(-1, count, length) / squares_CL.sqrt().clamp_min(tiny)
    ordinary_CL = torch.arange(length, device=first.device) < lengths_C.to(first.device)[:, None]
    return (matches_QCL / sizes_Q.sum().clamp_min(tiny)).masked_fill(~ordinary_CL, -torch.inf)


def block_scores(matches_QCL: Tensor) -> Tensor:
    """scores_C of whole blocks, each of which has at least one token."""
    return matches_QCL.amax(-1).sum(0)
