"""Rotary embedding, deferred: the backbone leaves queries and keys as they are, and attention rotates them.

Axes: D head dim.
"""

import torch
from torch import Tensor, nn


class DeferredRotary(nn.Module):
    """Stands in for the backbone's rotary embedding: returns cos = 1 and sin = 0, and keeps the real one for
    `landmark_attention`."""

    def __init__(self, rotary: nn.Module) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> tuple[Tensor, Tensor]:
        shape = (*position_ids.shape, 1)
        return x.new_ones(shape), x.new_zeros(shape)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in the half-split layout of Hugging Face's Llama family; of the first dimensions only, where cos
    and sin have fewer."""
    width = cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat((rotate(x[..., :width], cos, sin), x[..., width:]), -1)
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def rotary_tables(
    rotary: nn.Module, start: int, stop: int, like: Tensor, *, layer_type: str | None = None
) -> tuple[Tensor, Tensor]:
    """cos and sin of positions start..stop-1, one row of D each, in the dtype and on the device of `like`.

    layer_type: for networks whose kinds of layers rotate differently.
    """
    positions = torch.arange(start, stop, device=like.device)
    kind = {} if layer_type is None else {"layer_type": layer_type}
    cos, sin = rotary(torch.empty(0, dtype=torch.float32, device=like.device), positions[None], **kind)
    return cos[0].to(like.dtype), sin[0].to(like.dtype)
