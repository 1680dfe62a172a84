"""Grouped softmax by kernels, where a GPU and Triton are there: the fast form of `model.attention.blockwise`.

Axes: B batch, H query heads, G KV heads, T tokens, D head dim, S sequences, X voter groups per KV head, R rows, N slots
of chosen blocks, L tokens in a block (landmark last).
"""

import logging
import math
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from model.attention.blockwise import blockwise_attention
from model.errors import ModelError

log = logging.getLogger(__name__)

TOLERANCES = {torch.float32: 2e-3, torch.float16: 1e-2, torch.bfloat16: 4e-2}
"""Largest difference from the twin, in units of the largest value. float32 leaves room for reduced-precision products
in the twin, where the user switched them on."""

LOG2_E = math.log2(math.e)
LARGEST_BLOCK, LARGEST_HEAD = 128, 128
"""Tokens of a block and dimensions of a head that fit into the registers of a tile."""
ROWS, COLUMNS = 64, 64
"""Of a tile: query rows, and key columns for blocks that are smaller."""


def fused_fits(query: Tensor, block_size: int) -> bool:
    """Whether `fused_attention` computes this here: a CUDA device, Triton, and sizes that fit into a tile."""
    if not query.is_cuda or block_size > LARGEST_BLOCK or query.shape[-1] > LARGEST_HEAD:
        return False
    return query.dtype in (torch.float32, torch.float16, torch.bfloat16) and triton_is_there()


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
    rows: int | None = None,
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
    rows = rows or (ROWS // 2 if kind == torch.float32 else ROWS)  # twice the bytes a number in shared memory
    out: Tensor = _Fused.apply(  # type: ignore[no-untyped-call]
        query_BHTD.to(kind), key_BGTD.to(kind), value_BGTD, valid_BT, listed, block_size, scaling, (rows, columns)
    )
    return out


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        valid: Tensor | None,
        listed: list[tuple[int, int, int]],
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
                plan.valid_stride, **plan.sizes,
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
                *given, dq, *numbers, *dq.stride()[:3], plan.valid_stride, **plan.sizes
            )
            programs.key_value_gradient_kernel[plan.key_tiles](
                *given, dk, dv, *numbers, *dk.stride()[:3], plan.valid_stride, **plan.sizes
            )
        return dq, dk, dv, None, None, None, None, None


class _Plan:
    """How the kernels are started for tensors of one shape."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        valid: Tensor | None,
        listed: list[tuple[int, int, int]],
        block_size: int,
        tile: tuple[int, int],
    ) -> None:
        heads, groups, dim = query.shape[1], key.shape[1], query.shape[-1]
        padded = max(2, _power_of_two(block_size))
        blocks = max(1, tile[1] // padded)
        longest = max(count for _, _, count in listed)
        self.sequences = torch.tensor(listed, dtype=torch.int32, device=query.device)
        self.valid = self.sequences if valid is None else valid.to(torch.uint8).contiguous()
        self.valid_stride = 0 if valid is None else self.valid.stride(0)
        self.query_tiles = (-(-longest // tile[0]), heads, len(listed))
        self.key_tiles = (-(-longest // (blocks * block_size)), groups, len(listed))
        self.sizes = {
            "SHARED": heads // groups, "L": block_size, "P": padded, "NG": blocks, "M": tile[0],
            "D": dim, "DP": max(16, _power_of_two(dim)), "HAS_VALID": valid is not None,
        }  # fmt: skip


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
    tile = min(ROWS, max(16, _power_of_two(num_rows)))
    with torch.cuda.device_of(rows):
        _kernels().chosen_blocks_kernel[(slots, -(-num_rows // tile), len(outs))](
            rows, keys, values, lengths, outs, gates, scaling, num_rows, slots,
            L=size, P=max(16, _power_of_two(size)), M=tile, D=dim, DP=max(16, _power_of_two(dim)),
            HAS_LANDMARKS=has_landmarks,
        )  # fmt: skip
    shape = (batch, groups, voters)
    return outs.unflatten(0, shape), gates.unflatten(0, shape)


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
