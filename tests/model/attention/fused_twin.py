"""The twin of the kernels: the same functions, a line for each idea, in plain torch, differentiable by autograd.

Axes: B batch, H query heads, G KV heads, T tokens, D head dim, X voter groups per KV head, R rows, N slots
of chosen blocks, L tokens in a block (landmark last).
"""

import torch
from torch import Tensor

from model.attention.grouped_softmax import MASKED, fold_far_blocks
from model.attention.rotary import exact_scores


def grouped_attention_twin(
    query_BHTD: Tensor,
    key_BGTD: Tensor,
    value_BGTD: Tensor,
    *,
    block_size: int,
    scaling: float,
    valid_BT: Tensor | None = None,
) -> Tensor:
    """out_BHTD of `fused_attention`, with every weight in memory."""
    shared = (key_BGTD.shape[1], -1)
    scores = exact_scores(query_BHTD.unflatten(1, shared), key_BGTD.unsqueeze(2)).flatten(1, 2) * scaling
    weights = fold_far_blocks(scores, block_size, valid_BT).softmax(-1).to(value_BGTD.dtype)
    return (weights.unflatten(1, shared) @ value_BGTD.unsqueeze(2)).flatten(1, 2)


def chosen_blocks_twin(
    rows_BGXRD: Tensor,
    keys_BGXNLD: Tensor,
    values_BGXNLD: Tensor,
    lengths_BGXN: Tensor,
    *,
    scaling: float,
) -> tuple[Tensor, Tensor]:
    """outs_BGXRND and gates_BGXRN of `read_chosen_blocks`."""
    scores = exact_scores(rows_BGXRD, keys_BGXNLD.flatten(3, 4)).unflatten(-1, keys_BGXNLD.shape[3:5]) * scaling
    tokens = scores[..., :-1]
    row = torch.arange(tokens.shape[-1], device=scores.device)
    tokens = tokens.masked_fill(row >= lengths_BGXN[:, :, :, None, :, None], MASKED)
    outs = torch.einsum("bgxrnl,bgxnld->bgxrnd", tokens.softmax(-1), values_BGXNLD[..., :-1, :].float())
    return outs, scores[..., -1]
