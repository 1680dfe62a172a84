"""Grouped softmax: the attention weights of the paper (arXiv 2305.16300, section 3.1, equations 1-3).

- A token of the query's own block, and the landmark of every earlier block, share one softmax (p).
- A token of an earlier block gets p(its landmark) * softmax over its own block: the landmark is the gate of its block.
- A landmark's own value is never read: its weight goes to its block. Rows sum to 1.
- All forms compute in float32 and are differentiable by autograd. No I/O, no positions, no memory.

`fold_far_blocks` rewrites the scores so that one ordinary softmax gives these weights, for landmarks on the block grid:
s'_j = s_j + (landmark logit - logsumexp of the block). The form for landmarks anywhere is its oracle in the tests.

Axes: B batch, H heads, Q queries, K keys.
"""

import torch
from torch import Tensor, nn

MASKED = -1e30
"""Logit of a masked key. Finite, so that a row without any visible key stays finite; its weights are never used."""


def fold_far_blocks(scores_BHQK: Tensor, block_size: int, valid_BK: Tensor | None = None) -> Tensor:
    """Logits whose ordinary softmax equals the grouped softmax, for landmarks on the block grid.

    scores: scaled logits of the last Q of K positions against all K; key j is a landmark iff j % block_size ==
    block_size - 1. valid: False at padding, which nothing attends to. Causality is applied here. Returns logits_BHQK
    (float32).
    """
    num_queries, num_keys = scores_BHQK.shape[-2:]
    device = scores_BHQK.device
    key_K = torch.arange(num_keys, device=device)
    query_Q1 = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]
    own_QK = key_K // block_size == query_Q1 // block_size
    landmark_K = key_K % block_size == block_size - 1
    scores = scores_BHQK.float()
    if valid_BK is not None:
        scores = scores.masked_fill(~valid_BK[:, None, None, :], MASKED)
    near = scores.masked_fill((key_K > query_Q1) | landmark_K, MASKED)
    if num_keys <= block_size:
        return near  # no earlier block
    blocks = torch.nn.functional.pad(scores, (0, -num_keys % block_size), value=MASKED).unflatten(-1, (-1, block_size))
    tokens, landmarks = blocks[..., :-1], blocks[..., -1:]
    far = torch.cat((tokens.log_softmax(-1) + landmarks, torch.full_like(landmarks, MASKED)), -1)
    far = far.flatten(-2)[..., :num_keys]
    seen_QK = key_K // block_size < query_Q1 // block_size
    return torch.where(own_QK, near, far.masked_fill(~seen_QK, MASKED))


def fold_slots(scores_BHQSL: Tensor, lengths_BHQS: Tensor) -> Tensor:
    """The same folding for selected blocks: each slot is one far block, its landmark in the last row.

    lengths: ordinary tokens in each slot (rows beyond them, but for the landmark, are padding); broadcastable.
    Returns float32 logits_BHQSL; a landmark's own column is masked, its logit has moved to its tokens.
    """
    scores = scores_BHQSL.float()
    tokens, gates = scores[..., :-1], scores[..., -1:]
    row = torch.arange(tokens.shape[-1], device=scores.device)
    tokens = tokens.masked_fill(row >= lengths_BHQS[..., None], MASKED)
    return nn.functional.pad(tokens.log_softmax(-1) + gates, (0, 1), value=MASKED)
