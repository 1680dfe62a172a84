"""Positions: every key is stored before rotation and gets its place only when it is read.

Frame of a read (docs/landmark-attention.md, section 5), in blocks of L positions:

    paper:   slot 0, where all older blocks are scored | slots 1..k, the k newest at their true distance | local window
    library: slot 0, where every stored block is scored and read | one empty slot | local window

In the paper frame the i-th chosen block (in text order) is read in slot i if it is older than the k newest and in
slot i + 1 otherwise, so that an empty slot separates old from new. In the library frame documents have no order among
each other: all chosen blocks share the one far slot. The logit that chooses a block is then the very logit that gates
it, storage order cannot matter, and the number of blocks read is not limited by the context.

Axes: B batch, G KV heads, X voter groups, S slots, N stored blocks, L tokens in a block, K keys, D head dim.
"""

import torch
from torch import Tensor, nn

LIBRARY_LOCAL_SLOT = 2
"""Slot at which the local window starts in the library frame: the far slot and one empty slot come before."""


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in the half-split layout of Hugging Face's Llama family."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def rotary_tables(rotary: nn.Module, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin, shape positions.shape + (D,), for integer positions of any shape."""
    like = torch.empty(0, dtype=torch.float32, device=positions.device)
    cos, sin = rotary(like, positions.reshape(1, -1))
    shape = (*positions.shape, cos.shape[-1])
    return cos.view(shape).to(dtype), sin.view(shape).to(dtype)


def paper_landmark_slots(num_blocks: int, top_k: int, device: torch.device) -> Tensor:
    """Slot at which each stored block's landmark is scored: slot_N (same section, "Scoring")."""
    newest = min(top_k, num_blocks)
    return (torch.arange(num_blocks, device=device) - (num_blocks - newest) + 1).clamp_min(0)


def paper_read_slots(ids_BGXS: Tensor, num_blocks: int, top_k: int) -> Tensor:
    """Slot in which each chosen block is read; ids ascending (same section, "Slots")."""
    newest = min(top_k, num_blocks)
    order = torch.arange(ids_BGXS.shape[-1], device=ids_BGXS.device).expand_as(ids_BGXS)
    return order + (ids_BGXS >= num_blocks - newest)
