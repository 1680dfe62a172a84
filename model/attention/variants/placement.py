"""Where the landmarks of a block stand in the text: at its end, as in the paper, or elsewhere (its open question 1).

- In every tensor the ordinary tokens of a block come first and its landmarks last, wherever they stand in the text:
  attention knows of an order only through positions and the mask. So a place is the position of a landmark, and what it
  may see; blocks are stored, chosen and read alike.
- A landmark behind r ordinary tokens of its block sees these r and earlier blocks, and has position r in its block; the
  tokens behind it move on by one. At the beginning it knows only what stands before its block.
- Two landmarks gate a block by the sum of their shares: the gate's logit is the logsumexp of both.
- "random" places are drawn for each block from its number, so that reading stored blocks repeats those of the text.

Axes: B batch, H query heads, Q queries, K keys, N blocks, M landmarks of a block, L tokens in a block, S slots.
"""

from functools import cache
from typing import Literal, get_args

import torch
from torch import Tensor

from model.attention.grouped_softmax import MASKED
from model.attention.variants.context_miss import MissGate

LandmarkPlace = Literal["end", "beginning", "middle", "two", "random"]
PLACES: tuple[LandmarkPlace, ...] = get_args(LandmarkPlace)
_DRAWN = 4099
"""Random places before they repeat."""


def landmarks_of_block(place: LandmarkPlace) -> int:
    """M: landmarks that each block has."""
    return 2 if place == "two" else 1


def tokens_before(place: LandmarkPlace, block_size: int, first: int, count: int) -> Tensor:
    """before_NM of blocks first..first+count-1: ordinary tokens of the block in front of each landmark, ascending."""
    raw = block_size - landmarks_of_block(place)
    if place == "random":
        return _drawn(raw)[(first + torch.arange(count)) % _DRAWN].unsqueeze(1)
    fixed = {"end": (raw,), "beginning": (0,), "middle": (raw // 2,), "two": (raw // 2, raw)}[place]
    return torch.tensor(fixed).expand(count, -1)


def offsets_in_block(before_NM: Tensor, block_size: int) -> Tensor:
    """offset_NL: the position in its block of each column, ordinary tokens first and landmarks last."""
    landmarks = before_NM.shape[1]
    raw_J = torch.arange(block_size - landmarks, device=before_NM.device)
    raw_NJ = raw_J + (before_NM[:, :, None] <= raw_J).sum(1)
    return torch.cat((raw_NJ, before_NM + torch.arange(landmarks, device=before_NM.device)), 1)


def fold_placed_blocks(
    scores_BHQK: Tensor,
    block_size: int,
    before_NM: Tensor,
    valid_BK: Tensor | None = None,
    miss: MissGate | None = None,
) -> Tensor:
    """`fold_far_blocks` for landmarks anywhere in their blocks, and with a context-miss token; the whole matrix.

    before: `tokens_before` of the blocks that the K keys begin. A query that sees nothing has a row of MASKED.
    """
    num_queries, num_keys = scores_BHQK.shape[-2:]
    landmarks, device = before_NM.shape[1], scores_BHQK.device
    key_K = torch.arange(num_keys, device=device)
    query_Q = torch.arange(num_keys - num_queries, num_keys, device=device)
    column_K, raw = key_K % block_size, block_size - landmarks
    seen_NL = torch.cat((torch.full((len(before_NM), raw), raw, device=device), before_NM.to(device)), 1)
    seen_Q1 = seen_NL[query_Q // block_size, query_Q % block_size].unsqueeze(1)
    own_QK = key_K // block_size == (query_Q // block_size).unsqueeze(1)
    scores = scores_BHQK.float()
    if valid_BK is not None:
        scores = scores.masked_fill(~valid_BK[:, None, None, :], MASKED)
    hidden_QK = (key_K > query_Q.unsqueeze(1)) | (column_K >= seen_Q1) | (column_K >= raw)
    near = scores.masked_fill(hidden_QK, MASKED)
    blocks = torch.nn.functional.pad(scores, (0, -num_keys % block_size), value=MASKED).unflatten(-1, (-1, block_size))
    earlier_QN = torch.arange(blocks.shape[-2], device=device) < (query_Q // block_size).unsqueeze(1)
    gates_BHQN = blocks[..., raw:].logsumexp(-1).masked_fill(~earlier_QN, MASKED)
    if miss is not None:
        gates_BHQN = miss.over_blocks(gates_BHQN)
    tokens = blocks[..., :raw].log_softmax(-1) + gates_BHQN.unsqueeze(-1)
    far = torch.nn.functional.pad(tokens, (0, landmarks), value=MASKED).flatten(-2)[..., :num_keys]
    return torch.where(own_QK, near, far.clamp_min(MASKED))


@cache
def _drawn(raw: int) -> Tensor:
    return torch.randint(0, raw + 1, (_DRAWN,), generator=torch.Generator().manual_seed(raw))
