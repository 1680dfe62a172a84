"""Rotary embedding, deferred: the backbone leaves queries and keys as they are, and attention rotates them; and the
exact products of rotated queries and keys.

Products of bfloat16 or float16 numbers are exact in float32; a product that returns its operands' dtype rounds every
score before the softmax, to 3 digits in bfloat16. Fused attention, which keeps scores in registers, does not.

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


def exact_scores(rows: Tensor, keys: Tensor) -> Tensor:
    """rows [..., M, D] times keys [..., N, D]: float32 [..., M, N]. Leading axes broadcast."""
    with torch.autocast(rows.device.type, enabled=False):  # which would round the operands again
        if rows.is_cuda and rows.dtype == keys.dtype and rows.dtype in (torch.bfloat16, torch.float16):
            lead = torch.broadcast_shapes(rows.shape[:-2], keys.shape[:-2])
            left, right = (x.expand(*lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (rows, keys))
            return _WideProduct.apply(left, right).unflatten(0, lead)  # type: ignore[no-any-return, no-untyped-call]
        return torch.matmul(rows.float(), keys.float().mT)


class _WideProduct(torch.autograd.Function):
    """Tensor cores accumulate in float32; this keeps what they have. CUDA only."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, rows: Tensor, keys: Tensor) -> Tensor:
        ctx.save_for_backward(rows, keys)
        return torch.bmm(rows, keys.mT, out_dtype=torch.float32)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, Tensor]:
        rows, keys = ctx.saved_tensors  # type: ignore[attr-defined]
        upstream = grads[0].to(rows.dtype)
        return torch.bmm(upstream, keys), torch.bmm(upstream.mT, rows)
