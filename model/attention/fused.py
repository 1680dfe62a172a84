"""Grouped softmax by kernels, where a GPU and Triton are there: the fast form of `model.attention.blockwise`.

Axes: B batch, H query heads, G KV heads, T tokens, D head dim, X voter groups per KV head, R rows, N slots
of chosen blocks, L tokens in a block (landmark last).
"""

import logging
import math
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from model.attention.blockwise import blockwise_attention
from model.attention.rotary import exact_scores
from model.errors import ModelError

log = logging.getLogger(__name__)

TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 4e-2}
"""Largest difference from the twin, in units of the largest value. float32 never takes the kernels: its tiles fit into
neither the registers nor the shared memory of a GPU."""
SLOWEST = 1.0
"""Time of the kernels, in units of the twin's, above which they are not used."""

LOG2_E = math.log2(math.e)
LARGEST_BLOCK, LARGEST_HEAD = 64, 128
"""Tokens of a block and dimensions of a head that fit into the registers of a tile: with blocks of 128 the gradients of
keys and values spill in every shape of tile (docs/decisions/0066-kernels-are-compiled-in-tests.md)."""
ROWS, COLUMNS = 64, 64
"""Of a tile: query rows, and key columns for blocks that are smaller."""
READING = {"num_warps": 8, "num_stages": 2}
KEY_VALUE_ROWS, KEY_VALUE = 32, {"num_warps": 8, "num_stages": 1}
"""How the kernels are compiled: of the shapes without spills for compute capabilities 8.0, 8.9 and 9.0, the largest."""


def fused_fits(query: Tensor, block_size: int) -> bool:
    """Whether `fused_attention` computes this here: a CUDA device, Triton, and sizes that fit into a tile."""
    if not query.is_cuda or block_size > LARGEST_BLOCK or query.shape[-1] > LARGEST_HEAD:
        return False
    return query.dtype in TOLERANCES and triton_is_there()


@cache
def triton_is_there() -> bool:
    return find_spec("triton") is not None


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the compiler takes it as one operation
def fused_attention(
    query_BHTD: Tensor,
    key_BGTD: Tensor,
    value_BGTD: Tensor,
    *,
    block_size: int,
    scaling: float,
    valid_BT: Tensor | None = None,
) -> Tensor:
    """out_BHTD in the dtype of `value`, for rotated queries and keys; memory linear in T, also backward.

    valid: False at padding. Raises `ModelError` for sizes that no tile holds.
    """
    dim = query_BHTD.shape[-1]
    if not 2 <= block_size <= LARGEST_BLOCK or dim > LARGEST_HEAD:
        raise ModelError(
            f"the kernels take blocks of 2 to {LARGEST_BLOCK} tokens and heads of up to {LARGEST_HEAD} dimensions, not "
            f"{block_size} and {dim}: use model.attention.blockwise."
        )
    kind = value_BGTD.dtype
    operands = (x.to(kind).contiguous() for x in (query_BHTD, key_BGTD, value_BGTD))
    out: Tensor = _Fused.apply(*operands, valid_BT, block_size, scaling)  # type: ignore[no-untyped-call]
    return out


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        valid: Tensor | None,
        block_size: int,
        scaling: float,
    ) -> Tensor:
        heads, length, dim = query.shape[1:]
        sizes = tile_sizes(block_size, dim, heads // key.shape[1]) | {"HAS_VALID": valid is not None}
        seen = query if valid is None else valid.to(torch.uint8).contiguous()
        out = torch.empty_like(query)
        log_z = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        with torch.cuda.device_of(query):
            _kernels().forward_kernel[(-(-length // sizes["M"]), len(query) * heads)](
                query, key, value, out, log_z, seen, scaling * LOG2_E, length, heads, **sizes, **READING
            )
        ctx.save_for_backward(query, key, value, out, log_z, seen)
        ctx.sizes, ctx.scaling = sizes, scaling
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, log_z, seen = ctx.saved_tensors
        sizes, scaling, dout = ctx.sizes, ctx.scaling, grads[0].contiguous()
        batch, heads, length = log_z.shape
        dot = (dout.float() * out.float()).sum(-1)
        dq, dk, dv = (torch.empty_like(x) for x in (query, key, value))
        given, numbers = (query, key, value, dout, log_z, dot, seen), (scaling * LOG2_E, scaling, length, heads)
        with torch.cuda.device_of(query):
            _kernels().query_gradient_kernel[(-(-length // sizes["M"]), batch * heads)](
                *given, dq, *numbers, **sizes, **READING
            )
            columns, sizes = sizes["NG"] * sizes["L"], sizes | {"M": min(KEY_VALUE_ROWS, sizes["M"])}
            _kernels().key_value_gradient_kernel[(-(-length // columns), batch * key.shape[1])](
                *given, dk, dv, *numbers, **sizes, **KEY_VALUE
            )
        return dq, dk, dv, None, None, None


def tile_sizes(block_size: int, dim: int, shared: int = 1) -> dict[str, int]:
    """What the kernels of a whole text are compiled with; shared: query heads of a KV head."""
    padded = max(2, _power_of_two(block_size))
    return {
        "SHARED": shared, "L": block_size, "P": padded, "NG": max(1, COLUMNS // padded), "M": ROWS,
        "D": dim, "DP": max(16, _power_of_two(dim)),
    }  # fmt: skip


def read_chosen_blocks(
    rows_BGXRD: Tensor,
    keys_BGXNLD: Tensor,
    values_BGXNLD: Tensor,
    lengths_BGXN: Tensor,
    *,
    scaling: float,
) -> tuple[Tensor, Tensor]:
    """outs_BGXRND and gates_BGXRN (float32): what each chosen block alone gives, and its landmark's logit.

    lengths: ordinary tokens of each block, whose landmark stands in the last row. Each (query rows, block) is one
    program, so a few rows keep a whole GPU busy. Inference only.
    """
    batch, groups, voters, num_rows, dim = rows_BGXRD.shape
    slots, size = keys_BGXNLD.shape[3:5]
    if size > LARGEST_BLOCK or dim > LARGEST_HEAD:
        raise ModelError(f"the kernels take blocks of up to {LARGEST_BLOCK} tokens and heads of up to {LARGEST_HEAD}.")
    rows, keys, values = (x.reshape(-1, *x.shape[-2:]).contiguous() for x in (rows_BGXRD, keys_BGXNLD, values_BGXNLD))
    lengths = lengths_BGXN.expand(batch, groups, voters, slots).reshape(-1).to(torch.int32)
    outs = torch.empty(batch * groups * voters, num_rows, slots, dim, dtype=torch.float32, device=rows.device)
    gates = torch.empty(outs.shape[:3], dtype=torch.float32, device=rows.device)
    sizes = chosen_sizes(size, dim, num_rows)
    with torch.cuda.device_of(rows):
        _kernels().chosen_blocks_kernel[(len(outs), -(-num_rows // sizes["M"]), slots)](
            rows, keys, values, lengths, outs, gates, scaling, num_rows, slots, **sizes
        )
    shape = (batch, groups, voters)
    return outs.unflatten(0, shape), gates.unflatten(0, shape)


def chosen_sizes(block_size: int, dim: int, rows: int) -> dict[str, int]:
    """What the kernel of chosen blocks is compiled with, for so many query rows that choose together."""
    return {
        "L": block_size, "P": max(16, _power_of_two(block_size)), "M": min(ROWS, max(16, _power_of_two(rows))),
        "D": dim, "DP": max(16, _power_of_two(dim)),
    }  # fmt: skip


def merge(outs: Tensor, gates: Tensor, local_out: Tensor, local_lse: Tensor) -> tuple[Tensor, Tensor]:
    """out [..., D] and shares [..., N] of the blocks, from outs [..., N, D], gates [..., N] and what the local window
    gives alone [..., D] with the logsumexp of its logits [...]: the last step of a split softmax."""
    shares = torch.cat((gates, local_lse.unsqueeze(-1)), -1).softmax(-1)
    far = (outs * shares[..., :-1, None]).sum(-2)
    return far + local_out * shares[..., -1:], shares[..., :-1]


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


@cache
def _kernels() -> ModuleType:
    """Imported when first needed: Triton is optional, and takes a second to import."""
    if not triton_is_there():
        raise ModelError(
            "the fused kernels need Triton: pip install 'cairn[kernels]', or use model.attention.blockwise."
        )
    from model.attention import kernels

    return kernels


def fused_is_right(query: Tensor, block_size: int) -> bool:
    """Whether the kernels take tensors like this one here, and were right when tried: once a device, type and size."""
    return fused_fits(query, block_size) and _tried(query.device, query.dtype, query.shape[-1], block_size)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a compiled model tries them as they are
def _tried(device: torch.device, dtype: torch.dtype, dim: int, block_size: int) -> bool:
    return agrees(device, dtype, dim, block_size)


@cache
def agrees(device: torch.device, dtype: torch.dtype, dim: int, block_size: int) -> bool:
    """Output and gradients of the kernels against those of the twin, on random numbers, and their time against its. A
    warning tells why not."""
    try:
        error = largest_error(device, dtype, dim, block_size)
        slower = relative_time(device, dtype, dim, block_size) if error <= TOLERANCES[dtype] else 0.0
    except Exception as problem:  # of whatever kind a compiler or a driver raises
        log.warning("The attention kernels do not run on %s (%s): computing without them.", device, problem)
        return False
    kind = str(dtype)[6:]
    if error > TOLERANCES[dtype]:
        log.warning("The attention kernels are off by %.2g on %s in %s: computing without them.", error, device, kind)
    elif slower > SLOWEST:
        log.warning(
            "The attention kernels take %.2g times as long on %s in %s: computing without them.", slower, device, kind
        )
    return error <= TOLERANCES[dtype] and slower <= SLOWEST


def relative_time(device: torch.device, dtype: torch.dtype, dim: int, block_size: int) -> float:
    """Time of the kernels' forward pass over 32 blocks of 8 heads, in units of the twin's: the best of three each."""
    shapes = ((1, 8, 32 * block_size, dim), *((1, 2, 32 * block_size, dim),) * 2)
    with torch.inference_mode(), torch.autocast(device.type, enabled=False):
        tensors = [torch.ones(shape, device=device, dtype=dtype) for shape in shapes]
        kernels, twin = (
            min(_seconds(attention, tensors, block_size) for _ in range(3))
            for attention in (fused_attention, blockwise_attention)
        )
    return kernels / twin


def _seconds(attention: Callable[..., Tensor], tensors: list[Tensor], block_size: int) -> float:
    _wait(tensors[0].device)
    began = time.perf_counter()
    attention(*tensors, block_size=block_size, scaling=1.0)
    _wait(tensors[0].device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def largest_error(device: torch.device, dtype: torch.dtype, dim: int, block_size: int) -> float:
    """Over output and the gradients of queries, keys and values, and over the output of the last query where it reads
    the finished blocks as chosen ones; relative to the twin's largest; inf if not finite."""
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
        found[0].append(_last_by_choice(query, key, value, block_size))
        found[1].append(found[1][0][:1, :, -1])
        pairs = zip(*found, strict=True)
        errors = [float((one - other).float().abs().max() / other.abs().max().clamp_min(1e-6)) for one, other in pairs]
    return max(math.inf if math.isnan(error) else error for error in errors)


def _last_by_choice(query: Tensor, key: Tensor, value: Tensor, block_size: int) -> Tensor:
    """out_BHD of the first text's last query, its finished blocks read as chosen ones."""
    rows_BGXRD = query[:1, None, None, :, -1].contiguous()
    num_blocks = key.shape[2] // block_size
    near = slice(num_blocks * block_size, None)
    keys_BGXNLD, values_BGXNLD = (
        x[:1, :, : near.start].unflatten(2, (num_blocks, block_size)).unsqueeze(2) for x in (key, value)
    )
    lengths_BGXN = torch.full((1, 1, 1, num_blocks), block_size - 1, device=query.device)
    scaling = query.shape[-1] ** -0.5
    outs, gates = read_chosen_blocks(rows_BGXRD, keys_BGXNLD, values_BGXNLD, lengths_BGXN, scaling=scaling)
    logits_BGXRK = exact_scores(rows_BGXRD, key[:1, :, None, near]) * scaling
    local_BGXRD = logits_BGXRK.softmax(-1) @ value[:1, :, None, near].float()
    out_BGXRD, _ = merge(outs, gates, local_BGXRD, logits_BGXRK.logsumexp(-1))
    return out_BGXRD[:, 0, 0]
