"""Grouped softmax: the attention weights of the paper (arXiv 2305.16300, section 3.1, equations 1-3).

- A token of the query's own block, and the landmark of every earlier block, share one softmax (p).
- A token of an earlier block gets p(its landmark) * softmax over its own block: the landmark is the gate of its block.
- A landmark's own value is never read: its weight goes to its block. Rows sum to 1.
- An ordinary checkpoint has no landmarks: `ContextGate` gives its far blocks a gate made of their own scores.
- All forms compute in float32 and are differentiable by autograd. No I/O, no positions, no memory.

`fold_far_blocks` rewrites the scores so that one ordinary softmax gives these weights, for landmarks on the block grid:
s'_j = s_j + (landmark logit - logsumexp of the block). The form for landmarks anywhere is its oracle in the tests.

Axes: B batch, H heads, Q queries, K keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.attention.block_grid import numbers_on

MASKED = -1e30
"""Logit of a masked key. Finite, so that a row without any visible key stays finite; its weights are never used."""


View = tuple[int, ...]
"""For text read both ways: how many blocks, from the first one on, each block sees. It sees its own tokens before and
behind, and all those other blocks through their landmarks, later ones as well."""


def windows_view(num_blocks: int, window_blocks: int, first: int = 0) -> View:
    """The view of `num_blocks` blocks in windows of `window_blocks`, one of which starts at block `first`: a block sees
    its own window and everything before it."""
    ends = ((block - first) // window_blocks * window_blocks + window_blocks + first for block in range(num_blocks))
    return tuple(min(end, num_blocks) for end in ends)


def fold_far_blocks(
    scores_BHQK: Tensor, block_size: int, valid_BK: Tensor | None = None, view: View | None = None
) -> Tensor:
    """Logits whose ordinary softmax equals the grouped softmax, for landmarks on the block grid.

    scores: scaled logits of the last Q of K positions against all K; key j is a landmark iff j % block_size ==
    block_size - 1. valid: False at padding, which nothing attends to. Causality is applied here, or the `view` of text
    read both ways.
    Returns float32 logits_BHQK.
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
    near = scores.masked_fill(landmark_K if view else (key_K > query_Q1) | landmark_K, MASKED)
    if num_keys <= block_size:
        return near  # no other block
    blocks = torch.nn.functional.pad(scores, (0, -num_keys % block_size), value=MASKED).unflatten(-1, (-1, block_size))
    tokens, landmarks = blocks[..., :-1], blocks[..., -1:]
    far = torch.cat((tokens.log_softmax(-1) + landmarks, torch.full_like(landmarks, MASKED)), -1)
    far = far.flatten(-2)[..., :num_keys]
    if view:
        seen_QK = key_K // block_size < numbers_on(view, device)[query_Q1 // block_size]
    else:
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


@dataclass(frozen=True)
class ContextGate:
    """Gate of passages whose keys were computed apart from each other, for checkpoints without landmarks.

    Far block g has the gate l_g = LSE_g - (1 - scale * temperature) * LSE_all, where LSE_g is the logsumexp over g of
    s / temperature and LSE_all that over all far blocks; inside a block, weights are softmax(s / temperature). That is
    APE's (arXiv 2502.05431) reading of parallel passages, whose attention is too flat, and together too large. With
    scale = temperature = 1 it is one ordinary softmax.
    """

    start: int
    stop: int
    """Far rows; all others are read as they are."""
    temperature: float = 0.9
    scale: float = 0.9

    def fold(self, scores: Tensor) -> Tensor:
        """Logits whose ordinary softmax gives these weights, in the shape [..., K] of the masked scores.

        s'_j = l_g + log_softmax_g(s_j / temperature), in which LSE_g cancels: borders between blocks need not be known.
        """
        far = scores[..., self.start : self.stop] / self.temperature
        together = far.logsumexp(-1, keepdim=True) * (1 - self.scale * self.temperature)
        return torch.cat((scores[..., : self.start], far - together, scores[..., self.stop :]), -1)
