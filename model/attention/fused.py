"""Grouped softmax by kernels, where a GPU and Triton are there: the fast form of `model.attention.blockwise`.

Axes: B batch, H query heads, G KV heads, T tokens, D head dim, S sequences, X voter groups per KV head, R rows, N slots
of chosen blocks, L tokens in a block (landmark last).
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from model.attention.blockwise import blockwise_attention
from model.errors import ModelError

log = logging.getLogger(__name__)

Listed = tuple[tuple[int, int, int], ...]
"""(row, start, length) of each sequence."""

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
    sequences: Sequence[tuple[int, int, int]] | None = None,
    rows: int = ROWS,
    columns: int = COLUMNS,
) -> Tensor:
    """out_BHTD in the dtype of `value`, for rotated queries and keys; memory linear in T, also backward.

    sequences: (row, start, length) of texts that know nothing of each other, each on a block grid of its own, for rows
    packed with several; None: every row is one. What no sequence covers gets 0. valid: False at padding. rows and
    columns: of a tile, powers of two from 16 on. Raises `ModelError` for sizes that no tile holds.
    """
    dim = query_BHTD.shape[-1]
    if not 2 <= block_size <= LARGEST_BLOCK or dim > LARGEST_HEAD:
        raise ModelError(
            f"the kernels take blocks of 2 to {LARGEST_BLOCK} tokens and heads of up to {LARGEST_HEAD} dimensions, not "
            f"{block_size} and {dim}: use model.attention.blockwise."
        )
    batch, length = query_BHTD.shape[0], query_BHTD.shape[2]
    listed = [(row, 0, length) for row in range(batch)] if sequences is None else list(sequences)
    for row, start, count in listed:
        if not (0 <= row < batch and start >= 0 and 0 < count <= length - start):
            raise ModelError(
                f"sequence {(row, start, count)} is not inside a batch of {batch} rows of {length} tokens."
            )
    kind = value_BGTD.dtype
    operands, tile = (query_BHTD.to(kind), key_BGTD.to(kind), value_BGTD), (rows, columns)
    out: Tensor = _Fused.apply(*operands, valid_BT, tuple(listed), block_size, scaling, tile)  # type: ignore[no-untyped-call]
    return out


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        valid: Tensor | None,
        listed: Listed,
        block_size: int,
        scaling: float,
        tile: tuple[int, int],
    ) -> Tensor:
        plan = _Plan(query, key, valid, listed, block_size, tile)
        query, key, value = (_dense(x) for x in (query, key, value))
        out = torch.zeros_like(query)
        log_z = torch.zeros(query.shape[:3], dtype=torch.float32, device=query.device)
        programs = _kernels()
        with torch.cuda.device_of(query):
            programs.forward_kernel[plan.query_tiles](
                query, key, value, out, log_z, plan.valid, plan.sequences, scaling * LOG2_E,
                *query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *out.stride()[:3], *log_z.stride()[:2],
                plan.valid_stride, **plan.sizes, **READING,
            )  # fmt: skip
        ctx.save_for_backward(query, key, value, out, log_z)
        ctx.plan, ctx.scaling = plan, scaling
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, log_z = ctx.saved_tensors
        plan, scaling, dout = ctx.plan, ctx.scaling, _dense(grads[0])
        dot = (dout.float() * out.float()).sum(-1)
        dq, dk, dv = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
        programs = _kernels()
        read = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *dout.stride()[:3], *log_z.stride()[:2])
        given = (query, key, value, dout, log_z, dot)
        numbers = (plan.valid, plan.sequences, scaling * LOG2_E, scaling, *read)
        with torch.cuda.device_of(query):
            programs.query_gradient_kernel[plan.query_tiles](
                *given, dq, *numbers, *dq.stride()[:3], plan.valid_stride, **plan.sizes, **READING
            )
            sizes = plan.sizes | {"M": min(KEY_VALUE_ROWS, plan.sizes["M"])}
            programs.key_value_gradient_kernel[plan.key_tiles](
                *given, dk, dv, *numbers, *dk.stride()[:3], plan.valid_stride, **sizes, **KEY_VALUE
            )
        return dq, dk, dv, None, None, None, None, None


class _Plan:
    """How the kernels are started for tensors of one shape."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        valid: Tensor | None,
        listed: Listed,
        block_size: int,
        tile: tuple[int, int],
    ) -> None:
        heads, groups, dim = query.shape[1], key.shape[1], query.shape[-1]
        self.sizes = tile_sizes(block_size, dim, heads // groups, tile) | {"HAS_VALID": valid is not None}
        longest = max(count for _, _, count in listed)
        self.sequences = _sequences(listed, query.device)
        self.valid = self.sequences if valid is None else valid.to(torch.uint8).contiguous()
        self.valid_stride = 0 if valid is None else self.valid.stride(0)
        self.query_tiles = (-(-longest // tile[0]), heads, len(listed))
        self.key_tiles = (-(-longest // (self.sizes["NG"] * block_size)), groups, len(listed))


def tile_sizes(block_size: int, dim: int, shared: int = 1, tile: tuple[int, int] = (ROWS, COLUMNS)) -> dict[str, int]:
    """What the kernels of a whole text are compiled with; shared: query heads of a KV head."""
    padded = max(2, _power_of_two(block_size))
    return {
        "SHARED": shared, "L": block_size, "P": padded, "NG": max(1, tile[1] // padded), "M": tile[0],
        "D": dim, "DP": max(16, _power_of_two(dim)),
    }  # fmt: skip


@lru_cache(maxsize=64)
def _sequences(listed: Listed, device: torch.device) -> Tensor:
    """On the device, once for all layers and passes of the same shape."""
    with torch.inference_mode(False):
        return torch.tensor(listed, dtype=torch.int32, device=device)


def read_chosen_blocks(
    rows_BGXRD: Tensor,
    keys_BGXNLD: Tensor,
    values_BGXNLD: Tensor,
    lengths_BGXN: Tensor,
    *,
    scaling: float,
    has_landmarks: bool,
) -> tuple[Tensor, Tensor]:
    """outs_BGXRND and gates_BGXRN (float32): what each chosen block alone gives, and the logit it competes with.

    With landmarks (in the last row of a block, `lengths` ordinary tokens before) the gate is the landmark's logit; of
    an ordinary checkpoint it is the logsumexp of the block, with which `merge` gives ordinary attention. Each (query
    rows, block) is one program, so a few rows keep a whole GPU busy. Inference only.
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
        _kernels().chosen_blocks_kernel[(slots, -(-num_rows // sizes["M"]), len(outs))](
            rows, keys, values, lengths, outs, gates, scaling, num_rows, slots, **sizes, HAS_LANDMARKS=has_landmarks
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


def _dense(x: Tensor) -> Tensor:
    """Numbers of a head side by side, as the kernels read them."""
    return x if x.stride(-1) == 1 else x.contiguous()


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
