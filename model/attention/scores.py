"""Inner products of queries and keys, in float32 whatever the dtype of both.

Products of bfloat16 or float16 numbers are exact in float32; a product that returns its operands' dtype rounds every
score before the softmax, to 3 digits in bfloat16. Fused attention, which keeps scores in registers, does not.
"""

import torch
from torch import Tensor


def exact_scores(rows: Tensor, keys: Tensor) -> Tensor:
    """rows [..., M, D] times keys [..., N, D]: float32 [..., M, N]. Leading axes broadcast."""
    if rows.dtype == keys.dtype == torch.float32:
        return torch.matmul(rows, keys.mT)
    with torch.autocast(rows.device.type, enabled=False):  # which would round the operands again
        if rows.is_cuda and rows.dtype == keys.dtype != torch.float64:
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
