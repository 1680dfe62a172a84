"""The weights of the paper as they are written, for landmarks at arbitrary places: the oracle of the fast forms.

Axes: B batch, H heads, Q queries, K keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.attention.grouped_softmax import MASKED


def grouped_softmax(
    scores_BHQK: Tensor, visible_BQK: Tensor, is_landmark_BK: Tensor, own_BQ: Tensor | None = None
) -> Tensor:
    """Weights for landmarks at arbitrary places (docs/landmark-attention.md, section 4): the oracle of the fast forms.

    scores: scaled logits; visible: causal and not padding, before a block's own landmark is hidden; is_landmark: True
    where a landmark stands. own: the block of each query, needed where later blocks are visible; without it the last
    visible block. Returns weights_BHQK in the dtype of `scores`, 0 for landmarks and for everything
    invisible. Two adjacent landmarks make an empty block, whose gate's weight is lost; a query that sees nothing gets
    a row of zeros.
    """
    scores = scores_BHQK.float()
    block_BK = is_landmark_BK.long().cumsum(-1) - is_landmark_BK.long()  # landmarks strictly before
    num_blocks = int(block_BK.max()) + 1
    if own_BQ is None:
        own_BQ = torch.where(visible_BQK, block_BK[:, None, :], -1).amax(-1)
    own_BQ1 = own_BQ[..., None]
    landmark, block = is_landmark_BK[:, None, :], block_BK[:, None, :]
    local_BQK = visible_BQK & (block == own_BQ1) & ~landmark
    gate_BQK = visible_BQK & (block != own_BQ1) & landmark
    far_BQK = visible_BQK & (block != own_BQ1) & ~landmark

    first = (local_BQK | gate_BQK)[:, None]
    p = scores.masked_fill(~first, MASKED).softmax(-1) * first
    index = block_BK[:, None, None, :].expand_as(scores)
    far = scores.masked_fill(~far_BQK[:, None], MASKED)
    # Per block maximum, then exponentials and their sum: a softmax inside each block.
    shape = (*scores.shape[:-1], num_blocks)
    peak = torch.full(shape, MASKED, device=scores.device).scatter_reduce(
        -1, index, far.detach(), "amax", include_self=True
    )
    expd = (far - peak.gather(-1, index)).exp() * far_BQK[:, None]
    total = torch.zeros(shape, device=scores.device).scatter_add(-1, index, expd)
    within = expd / total.gather(-1, index).clamp_min(torch.finfo(torch.float32).tiny)
    gates = torch.zeros(shape, device=scores.device).scatter_add(-1, index, p * gate_BQK[:, None])
    weights = p * local_BQK[:, None] + gates.gather(-1, index) * within
    return weights.to(scores_BHQK.dtype)
