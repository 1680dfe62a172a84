"""Kernels are used only where they were seen to compute what their twin computes: compilers and devices differ."""

from __future__ import annotations

import logging
import math
from functools import cache

import torch
from torch import Tensor

from model.attention.blockwise import blockwise_attention
from model.attention.fused.attention import fused_attention, fused_fits

TOLERANCES = {torch.float32: 2e-3, torch.float16: 1e-2, torch.bfloat16: 4e-2}
"""Largest difference from the twin, in units of the largest value. float32 leaves room for reduced-precision products
in the twin, where the user switched them on."""

log = logging.getLogger(__name__)


def fused_is_right(query: Tensor, block_size: int) -> bool:
    """Whether the kernels take tensors like this one here, and were right when tried: once a device, type and size."""
    return fused_fits(query, block_size) and _tried(query.device, query.dtype, query.shape[-1], block_size)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a compiled model tries them as they are
def _tried(device: torch.device, dtype: torch.dtype, dim: int, block_size: int) -> bool:
    return agrees(device, dtype, dim, block_size)


@cache
def agrees(device: torch.device, dtype: torch.dtype, dim: int, block_size: int) -> bool:
    """Output and gradients of the kernels against those of the twin, on random numbers. A warning tells why not."""
    try:
        error = largest_error(device, dtype, dim, block_size)
    except Exception as problem:  # of whatever kind a compiler or a driver raises
        log.warning("The attention kernels do not run on %s (%s): computing without them.", device, problem)
        return False
    if error <= TOLERANCES[dtype]:
        return True
    log.warning(
        "The attention kernels are off by %.2g on %s in %s: computing without them.", error, device, str(dtype)[6:]
    )
    return False


def largest_error(device: torch.device, dtype: torch.dtype, dim: int, block_size: int) -> float:
    """Over output and the gradients of queries, keys and values, relative to the twin's largest; inf if not finite."""
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        random = torch.Generator().manual_seed(0)
        length = 3 * block_size + block_size // 2
        shapes = ((2, 2, length, dim), (2, 1, length, dim), (2, 1, length, dim), (2, 2, length, dim))
        query, key, value, grad = (torch.randn(shape, generator=random).to(device, dtype) for shape in shapes)
        valid_BT = torch.ones(2, length, dtype=torch.bool, device=device)
        valid_BT[1, :3] = False
        seen = valid_BT[:, None, :, None]  # what stands at padding is not used
        found = []
        for attention in (fused_attention, blockwise_attention):
            leaves = [each.clone().requires_grad_() for each in (query, key, value)]
            out = attention(*leaves, block_size=block_size, scaling=dim**-0.5, valid_BT=valid_BT) * seen
            found.append([out.detach(), *torch.autograd.grad((out.float() * grad.float()).sum(), leaves)])
        pairs = zip(*found, strict=True)
        errors = [float((one - other).float().abs().max() / other.abs().max().clamp_min(1e-6)) for one, other in pairs]
    return max(math.inf if math.isnan(error) else error for error in errors)
