"""The twin of the kernels: the same functions, a line for each idea, in plain torch, differentiable by autograd.

Axes: B batch, H query heads, G KV heads, T tokens, D head dim, S sequences, X voter groups per KV head, R rows, N slots
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
    sequences: list[tuple[int, int, int]],
) -> Tensor:
    """out_BHTD of `fused_attention`, with every weight in memory. sequences: (row, start, length) each."""
    out_BHTD = torch.zeros_like(query_BHTD, dtype=value_BGTD.dtype)
    for row, start, length in sequences:
        part = slice(start, start + length)
        query, key, value = (x[row : row + 1, :, part] for x in (query_BHTD, key_BGTD, value_BGTD))
        scores = exact_scores(query.unflatten(1, (key.shape[1], -1)), key.unsqueeze(2)).flatten(1, 2) * scaling
        valid = None if valid_BT is None else valid_BT[row : row + 1, part]
        weights = fold_far_blocks(scores, block_size, valid).softmax(-1).to(value.dtype)
        out_BHTD[row, :, part] = (weights.unflatten(1, (key.shape[1], -1)) @ value.unsqueeze(2)).flatten(1, 2)[0]
    return out_BHTD


def chosen_blocks_twin(
    rows_BGXRD: Tensor,
    keys_BGXNLD: Tensor,
    values_BGXNLD: Tensor,
    lengths_BGXN: Tensor,
    *,
    scaling: float,
    has_landmarks: bool,
) -> tuple[Tensor, Tensor]:
    """outs_BGXRND and gates_BGXRN of `read_chosen_blocks`."""
    scores = exact_scores(rows_BGXRD, keys_BGXNLD.flatten(3, 4)).unflatten(-1, keys_BGXNLD.shape[3:5]) * scaling
    tokens = scores[..., :-1] if has_landmarks else scores
    row = torch.arange(tokens.shape[-1], device=scores.device)
    tokens = tokens.masked_fill(row >= lengths_BGXN[:, :, :, None, :, None], MASKED)
    values = values_BGXNLD[..., :-1, :] if has_landmarks else values_BGXNLD
    outs = torch.einsum("bgxrnl,bgxnld->bgxrnd", tokens.softmax(-1), values.float())
    return outs, scores[..., -1] if has_landmarks else tokens.logsumexp(-1)
