"""Landmark attention over one whole text (the training case), in memory linear in its length.

- The backward pass keeps q, k, v, out and log Z, and recomputes the weights: nothing of size queries x keys is kept.
- Every earlier block counts as one entry, its landmark logit, in the softmax over [own block | earlier blocks].
- The queries of one block at a time, against the keys up to the end of their block: so only the own block needs a mask.
- Plain torch: CPU and CUDA, eager and compiled. Scores and softmax in float32 (`exact_scores`); the other products
  take operands in the dtype of `value`.
- Short texts on a CPU under torch.compile use a form without a backward pass of its own (`_compiled`), which the
  compiler fuses, deciding what to keep: two fifths of the time (12 heads of 32, 6 blocks of 64, bf16 with AMX).

For query i in block c, scores s_j and landmark logits l_g:

    Z = sum over own exp(s_j) + sum over g < c exp(l_g)     G_g = exp(l_g) / Z
    p_j = exp(s_j) / Z in the own block                     a_j = softmax of s within an earlier block g

Backward, with dP_j = dout . v_j, D_g = sum over g of a_j dP_j and D = dout . out:

    own: ds_j = p_j (dP_j - D)      earlier: dl_g = G_g (D_g - D), ds_j = G_g a_j (dP_j - D_g)

Axes: B batch, H query heads, G KV heads, T tokens (landmarks included), N blocks, R query rows of a block (its L
positions times the query heads of a KV head), L tokens in a block (landmark last), J = L - 1 ordinary ones, F earlier
blocks, D head dim.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from model.attention.grouped_softmax import MASKED
from model.attention.rotary import exact_scores

COMPILED_BLOCKS = 8
"""Longest text for `_compiled`, in blocks: it is unrolled block by block and may keep all weights."""
LOG2_E = math.log2(math.e)


def blockwise_attention(
    query_BHTD: Tensor,
    key_BGTD: Tensor,
    value_BGTD: Tensor,
    *,
    block_size: int,
    scaling: float,
    valid_BT: Tensor | None = None,
) -> Tensor:
    """out_BHTD in the dtype of `value`, for rotated queries and keys that start at a block border.

    The last block may be unfinished: it has no landmark, so that no other block sees it. valid: False at padding, which
    nothing attends to; a query without any visible key gets finite but meaningless numbers.
    """
    short = query_BHTD.shape[2] <= COMPILED_BLOCKS * block_size
    if short and torch.compiler.is_compiling() and query_BHTD.device.type == "cpu":
        with torch.autocast(query_BHTD.device.type, enabled=False):
            return _compiled(query_BHTD, key_BGTD, value_BGTD, valid_BT, block_size, scaling)
    out_BHTD: Tensor = _Blockwise.apply(query_BHTD, key_BGTD, value_BGTD, valid_BT, block_size, scaling)  # type: ignore[no-untyped-call]
    return out_BHTD


class _Blockwise(torch.autograd.Function):
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
        with torch.autocast(query.device.type, enabled=False):
            out, log_z = _forward(query, key, value, valid, block_size, scaling, any(ctx.needs_input_grad))
        ctx.save_for_backward(query, key, value, valid, out, log_z)
        ctx.block_size, ctx.scaling = block_size, scaling
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, valid, out, log_z = ctx.saved_tensors
        with torch.autocast(query.device.type, enabled=False):
            dq, dk, dv = _backward(query, key, value, valid, out, log_z, grads[0], ctx.block_size, ctx.scaling)
        return dq, dk, dv, None, None, None


def _compiled(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    valid: Tensor | None,
    block_size: int,
    scaling: float,
) -> Tensor:
    """The softmax of every block in turn, differentiable as it stands."""
    q_BGNRD, k_BGTD, v_BGTD, own_RL, hidden_B11T = _operands(query, key, value, valid, block_size, scaling)
    outs = []
    for block, q_BGRD in enumerate(q_BGNRD.unbind(2)):
        before, seen = block * block_size, (block + 1) * block_size
        logits_BGRT = _scores(q_BGRD, k_BGTD[:, :, :seen], scaling)
        if hidden_B11T is not None:
            logits_BGRT = logits_BGRT + hidden_B11T[..., :seen]
        own_BGRL = logits_BGRT[..., before:] + own_RL
        if before:
            far_BGRFL = logits_BGRT[..., :before].unflatten(-1, (-1, block_size))
            tokens_BGRFJ, gates_BGRF = far_BGRFL[..., :-1], far_BGRFL[..., -1]
            within_BGRFJ = (tokens_BGRFJ - tokens_BGRFJ.detach().amax(-1, keepdim=True)).exp()
            shares = torch.cat((own_BGRL, gates_BGRF), -1).softmax(-1)
            ratio_BGRF = shares[..., block_size:] / within_BGRFJ.sum(-1)
            far = nn.functional.pad(within_BGRFJ * ratio_BGRF.unsqueeze(-1), (0, 1)).flatten(-2)
            weights = torch.cat((far, shares[..., :block_size]), -1)
        else:
            weights = own_BGRL.softmax(-1)
        outs.append(_weighted(weights, v_BGTD[:, :, :seen], value.dtype))
    return _unrows(torch.stack(outs, 2), query.shape[2], block_size)


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    valid: Tensor | None,
    block_size: int,
    scaling: float,
    trained: bool,
) -> tuple[Tensor, Tensor | None]:
    """One softmax a row: the logits of an earlier block's tokens become s_j + (l_g - logsumexp of s in that block)."""
    q_BGNRD, k_BGTD, v_BGTD, own_RL, hidden_B11T = _operands(query, key, value, valid, block_size, scaling)
    outs, log_zs = [], []
    for block, q_BGRD in enumerate(q_BGNRD.unbind(2)):
        before, seen = block * block_size, (block + 1) * block_size
        logits_BGRT = _scores(q_BGRD, k_BGTD[:, :, :seen], scaling)
        if hidden_B11T is not None:
            logits_BGRT += hidden_B11T[..., :seen]
        logits_BGRT[..., before:] += own_RL
        if before:
            far_BGRFL = logits_BGRT[..., :before].unflatten(-1, (-1, block_size))
            gates_BGRF = far_BGRFL[..., -1].clone()
            far_BGRFL[..., -1] = MASKED
            far_BGRFL += (gates_BGRF - far_BGRFL.logsumexp(-1)).unsqueeze(-1)
        if trained:
            log_zs.append(logits_BGRT.logsumexp(-1))
        outs.append(_weighted(logits_BGRT.softmax(-1), v_BGTD[:, :, :seen], value.dtype))
    out_BHTD = _unrows(torch.stack(outs, 2), query.shape[2], block_size)
    return out_BHTD, torch.stack(log_zs, 2) if trained else None


def _operands(
    query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None, block_size: int, scaling: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """q_BGNRD, k_BGTD and v_BGTD of whole blocks, and what is added to scores: own_RL, and hidden_B11T for padding."""
    query, key = _score_operands(query, key, value.dtype, scaling)
    q_BGNRD = _rows(query, key.shape[1], block_size)
    k_BGTD, v_BGTD = (_blocks(x, block_size).flatten(2, 3) for x in (key, _value_operand(value)))
    missing = (0, -query.shape[2] % block_size)
    hidden_B11T = None if valid is None else _added(~nn.functional.pad(valid, missing))[:, None, None]
    return q_BGNRD, k_BGTD, v_BGTD, _own_mask(q_BGNRD, block_size), hidden_B11T


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    valid: Tensor | None,
    out: Tensor,
    log_z_BGNR: Tensor,
    dout: Tensor,
    block_size: int,
    scaling: float,
) -> tuple[Tensor, Tensor, Tensor]:
    length, kind, groups = query.shape[2], value.dtype, key.shape[1]
    scored_BGNRD, scored_BGTD, v_BGTD, own_RL, hidden_B11T = _operands(query, key, value, valid, block_size, scaling)
    q_BGNRD, dout_BGNRD = (_rows(x.to(kind), groups, block_size) for x in (query, dout))
    k_BGTD = _blocks(key.to(kind), block_size).flatten(2, 3)
    dot_BGNR1 = _rows((dout.float() * out.float()).sum(-1, keepdim=True), groups, block_size)  # D
    dqs = []
    dk_BGTD, dv_BGTD = (torch.zeros_like(k_BGTD, dtype=torch.float32) for _ in range(2))
    for block in range(q_BGNRD.shape[2]):
        q_BGRD, dout_BGRD, dot_BGR1 = (x[:, :, block] for x in (q_BGNRD, dout_BGNRD, dot_BGNR1))
        before, seen, log_z_BGR1 = block * block_size, (block + 1) * block_size, log_z_BGNR[:, :, block, :, None]
        weights_BGRT = _scores(scored_BGNRD[:, :, block], scored_BGTD[:, :, :seen], scaling)
        if hidden_B11T is not None:
            weights_BGRT += hidden_B11T[..., :seen]
        ds_BGRT = exact_scores(
            dout_BGRD.to(v_BGTD.dtype), v_BGTD[:, :, :seen]
        )  # dP; from here on in place: it is large
        own_BGRL = weights_BGRT[..., before:].add_(own_RL).sub_(log_z_BGR1)
        own_BGRL.mul_(LOG2_E).exp2_()  # p; a CPU's exp is seven times slower where it underflows, its exp2 is not
        ds_BGRT[..., before:].sub_(dot_BGR1).mul_(own_BGRL)
        if before:
            far_BGRFL, dfar_BGRFL = (x[..., :before].unflatten(-1, (-1, block_size)) for x in (weights_BGRT, ds_BGRT))
            shares_BGRF1 = (far_BGRFL[..., -1:] - log_z_BGR1.unsqueeze(-1)).exp()  # G
            far_BGRFL[..., -1] = MASKED
            far_BGRFL.copy_(far_BGRFL.softmax(-1))  # a
            within_BGRF1 = (far_BGRFL * dfar_BGRFL).sum(-1, keepdim=True)  # D_g
            far_BGRFL.mul_(shares_BGRF1)
            dfar_BGRFL.sub_(within_BGRF1).mul_(far_BGRFL)
            dfar_BGRFL[..., -1:] = shares_BGRF1 * (within_BGRF1 - dot_BGR1.unsqueeze(-1))  # of the landmark's logit
        ds_BGRT, weights_BGRT = ds_BGRT.to(kind), weights_BGRT.to(kind)
        dqs.append(torch.matmul(ds_BGRT, k_BGTD[:, :, :seen]))
        dk_BGTD[:, :, :seen] += torch.matmul(ds_BGRT.mT, q_BGRD)
        dv_BGTD[:, :, :seen] += torch.matmul(weights_BGRT.mT, dout_BGRD)
    dq_BHTD = _unrows(torch.stack(dqs, 2), length, block_size).float() * scaling
    dk_BGTD, dv_BGTD = dk_BGTD[:, :, :length] * scaling, dv_BGTD[:, :, :length]
    return dq_BHTD.to(query.dtype), dk_BGTD.to(key.dtype), dv_BGTD.to(value.dtype)


def _own_mask(q_BGNRD: Tensor, block_size: int) -> Tensor:
    """mask_RL: no landmark, and causal."""
    position = torch.arange(block_size, device=q_BGNRD.device)
    hidden = (position == block_size - 1) | (position > position[:, None])
    return _added(hidden).repeat(q_BGNRD.shape[3] // block_size, 1)


def _added(hidden: Tensor) -> Tensor:
    return torch.zeros(hidden.shape, device=hidden.device).masked_fill(hidden, MASKED)


def _score_operands(query: Tensor, key: Tensor, kind: torch.dtype, scaling: float) -> tuple[Tensor, Tensor]:
    """What `_scores` multiplies. On a CPU in float32, converted once and scaled before; elsewhere in `kind`, since the
    units that multiply fast take no other, and scaled after, since a scaled query would be rounded."""
    if query.device.type == "cpu" or kind == torch.float32:
        return query.to(kind).float() * scaling, key.to(kind).float()
    return query.to(kind), key.to(kind)


def _scores(q: Tensor, k: Tensor, scaling: float) -> Tensor:
    return torch.matmul(q, k.mT) if q.dtype == torch.float32 else exact_scores(q, k) * scaling


def _value_operand(value: Tensor) -> Tensor:
    """What `_weighted` multiplies: on a CPU in float32, where a product of bfloat16 would round weights and sums."""
    return value.float() if value.device.type == "cpu" else value


def _weighted(weights: Tensor, value: Tensor, kind: torch.dtype) -> Tensor:
    return torch.matmul(weights.to(value.dtype), value).to(kind)


def _blocks(x_BGTD: Tensor, block_size: int) -> Tensor:
    """x_BGNLD; an unfinished last block is filled with zeros, which nothing attends to."""
    padded_BGTD = nn.functional.pad(x_BGTD, (0, 0, 0, -x_BGTD.shape[2] % block_size))
    x_BGNLD: Tensor = padded_BGTD.unflatten(2, (-1, block_size))
    return x_BGNLD


def _rows(x_BHTD: Tensor, groups: int, block_size: int) -> Tensor:
    """x_BGNRD: rows that share keys side by side, R = (query head of the KV head, position in the block)."""
    blocks: Tensor = _blocks(x_BHTD, block_size).unflatten(1, (groups, -1))
    return blocks.transpose(2, 3).flatten(3, 4)


def _unrows(x_BGNRD: Tensor, length: int, block_size: int) -> Tensor:
    """x_BHTD: the inverse of `_rows`."""
    blocks: Tensor = x_BGNRD.unflatten(3, (-1, block_size)).transpose(2, 3)
    return blocks.flatten(1, 2).flatten(2, 3)[:, :, :length]
