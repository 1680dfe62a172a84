"""Landmark attention over one whole text (the training case), in memory linear in its length.

- The backward pass keeps q, k, v, out and log Z, and recomputes the weights: nothing of size queries x keys is kept.
- Every earlier block counts as one entry, its landmark logit, in the softmax over [own block | earlier blocks]. So
  causality between blocks is a mask on the few landmark logits; tokens of earlier blocks need none.
- Query blocks are processed in tiles that stop at the last block they can see; forward on a CPU, one by one.
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
positions times the query heads of a KV head), L tokens in a block (landmark last), J = L - 1 ordinary ones, M rows of
a tile, F other blocks of a tile, K their ordinary tokens, D head dim.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from model.attention.grouped_softmax import MASKED
from model.attention.rotary import exact_scores

BY_BLOCK = ("cpu",)
"""Devices where the forward pass runs block by block: half the time on a CPU, but more launches on a GPU."""
COMPILED_BLOCKS = 8
"""Longest text for `_compiled`, in blocks: it is unrolled block by block and may keep all weights."""
LOG2_E = math.log2(math.e)
TILE_ROWS, TILE_ROWS_CPU = 256, 64
"""Query rows per KV head in a tile. On a CPU the backward pass is a seventh faster with small tiles (6 blocks of 64):
they compute less that is masked and stay in the cache. On a GPU every tile costs its launches."""


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
    if short and torch.compiler.is_compiling() and query_BHTD.device.type in BY_BLOCK:
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
        forward = _forward_by_block if query.device.type in BY_BLOCK else _forward_by_tile
        with torch.autocast(query.device.type, enabled=False):
            out, log_z = forward(query, key, value, valid, block_size, scaling, any(ctx.needs_input_grad))
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


def _forward_by_block(
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


def _forward_by_tile(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    valid: Tensor | None,
    block_size: int,
    scaling: float,
    trained: bool,
) -> tuple[Tensor, Tensor | None]:
    length = query.shape[2]
    query, key = _score_operands(query, key, value.dtype, scaling)
    q_BGNRD = _rows(query, key.shape[1], block_size)
    k_BGNLD, v_BGNLD = _blocks(key, block_size), _blocks(value, block_size)
    num_blocks, masks = k_BGNLD.shape[2], _masks(valid, q_BGNRD, block_size)
    own = _scores(q_BGNRD, k_BGNLD, scaling).add_(masks.own)
    lse_BGNR = own.logsumexp(-1)
    own_out = torch.matmul(own.softmax(-1).to(value.dtype), v_BGNLD)
    if num_blocks == 1:
        return _unrows(own_out, length, block_size), lse_BGNR
    far = _Far.of(k_BGNLD, v_BGNLD, masks, scaling)
    outs, log_zs = [], []
    for first, last in _tiles(num_blocks, q_BGNRD):
        q_BGMD = q_BGNRD[:, :, first:last].flatten(2, 3)
        weights_BGMFJ, gates_BGMF = far.logits(q_BGMD, first, last)
        all_logits = torch.cat((lse_BGNR[:, :, first:last].flatten(2, 3).unsqueeze(-1), gates_BGMF), -1)
        log_z = all_logits.logsumexp(-1)
        shares = (all_logits - log_z.unsqueeze(-1)).exp()
        weights = weights_BGMFJ.mul_(shares[..., 1:, None]).flatten(-2).to(value.dtype)
        far_out = torch.matmul(weights, far.values_BGKD[:, :, : weights.shape[-1]])
        outs.append(far_out + own_out[:, :, first:last].flatten(2, 3) * shares[..., :1].to(value.dtype))
        log_zs.append(log_z)
    out_BGNRD = torch.cat(outs, 2).unflatten(2, (num_blocks, -1))
    return _unrows(out_BGNRD, length, block_size), torch.cat(log_zs, 2).unflatten(2, (num_blocks, -1))


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
    scored_query, scored_key = _score_operands(query, key, kind, scaling)
    q_BGNRD, scored_BGNRD = (_rows(x, groups, block_size) for x in (query.to(kind), scored_query))
    k_BGNLD, scored_BGNLD, v_BGNLD = (_blocks(x, block_size) for x in (key.to(kind), scored_key, value))
    dout_BGNRD = _rows(dout.to(kind), groups, block_size)
    dot_BGNR = _rows((dout.float() * out.float()).sum(-1, keepdim=True), groups, block_size).squeeze(-1)  # D
    num_blocks, masks = k_BGNLD.shape[2], _masks(valid, q_BGNRD, block_size)

    p_BGNRL = _scores(scored_BGNRD, scored_BGNLD, scaling).add_(masks.own).sub_(log_z_BGNR.unsqueeze(-1))
    # A CPU's exp is seven times slower where it underflows, as at everything that is masked; its exp2 is not.
    p_BGNRL = p_BGNRL.mul_(LOG2_E).exp2_()
    ds = exact_scores(dout_BGNRD, v_BGNLD).sub_(dot_BGNR.unsqueeze(-1)).mul_(p_BGNRL).to(kind)
    dq_BGNRD = torch.matmul(ds, k_BGNLD).float()
    dk_BGNLD = torch.matmul(ds.mT, q_BGNRD).float()
    dv_BGNLD = torch.matmul(p_BGNRL.to(kind).mT, dout_BGNRD).float()
    if num_blocks > 1:
        far = _Far.of(scored_BGNLD, v_BGNLD, masks, scaling)
        keys_BGKD, landmarks_BGND = k_BGNLD[:, :, :-1, :-1].flatten(2, 3), k_BGNLD[:, :, :-1, -1]
        dkeys = torch.zeros_like(keys_BGKD, dtype=torch.float32)
        dvalues, dlandmarks = torch.zeros_like(dkeys), torch.zeros_like(landmarks_BGND, dtype=torch.float32)
        dqs = []
        for first, last in _tiles(num_blocks, q_BGNRD):
            q_BGMD, dout_BGMD = q_BGNRD[:, :, first:last].flatten(2, 3), dout_BGNRD[:, :, first:last].flatten(2, 3)
            log_z, dot = (x[:, :, first:last].flatten(2, 3).unsqueeze(-1) for x in (log_z_BGNR, dot_BGNR))
            a_BGMFJ, gates_BGMF = far.logits(scored_BGNRD[:, :, first:last].flatten(2, 3), first, last)
            seen = gates_BGMF.shape[-1]
            keys = slice(0, seen * (block_size - 1))
            share = (gates_BGMF - log_z).exp()  # G
            dp = exact_scores(dout_BGMD, far.values_BGKD[:, :, keys]).unflatten(-1, (seen, -1))
            ds = dp.mul_(a_BGMFJ)  # in place from here on: these are the large temporaries
            within = ds.sum(-1)  # D_g
            dgates = (share * (within - dot)).to(kind)
            weights = a_BGMFJ.mul_(share.unsqueeze(-1))  # G a
            ds = ds.mul_(share.unsqueeze(-1)).addcmul_(weights, within.unsqueeze(-1), value=-1).flatten(-2).to(kind)
            weights = weights.flatten(-2).to(kind)
            dqs.append(torch.matmul(ds, keys_BGKD[:, :, keys]) + torch.matmul(dgates, landmarks_BGND[:, :, :seen]))
            dkeys[:, :, keys] += torch.matmul(ds.mT, q_BGMD)
            dvalues[:, :, keys] += torch.matmul(weights.mT, dout_BGMD)
            dlandmarks[:, :, :seen] += torch.matmul(dgates.mT, q_BGMD)
        dq_BGNRD = dq_BGNRD + torch.cat(dqs, 2).unflatten(2, (num_blocks, -1))
        dk_BGNLD[:, :, :-1, :-1] += dkeys.unflatten(2, (num_blocks - 1, -1))
        dk_BGNLD[:, :, :-1, -1] += dlandmarks
        dv_BGNLD[:, :, :-1, :-1] += dvalues.unflatten(2, (num_blocks - 1, -1))
    dq = _unrows(dq_BGNRD, length, block_size) * scaling
    dk, dv = (x.flatten(2, 3)[:, :, :length] for x in (dk_BGNLD * scaling, dv_BGNLD))
    return dq.to(query.dtype), dk.to(key.dtype), dv.to(value.dtype)


@dataclass(frozen=True)
class _Masks:
    """Added to scores: 0 where something is seen, else MASKED. `far` and `landmarks` are None if nothing is padded."""

    own: Tensor  # broadcasts to B G N R L: causal, no landmark, no padding
    far_B1K: Tensor | None  # ordinary tokens of all blocks
    landmarks_B1N: Tensor | None


@dataclass(frozen=True)
class _Far:
    """What can be seen of earlier blocks, ordinary tokens in a row: all blocks but the last."""

    keys_BGKD: Tensor
    values_BGKD: Tensor
    landmarks_BGND: Tensor
    masks: _Masks
    scaling: float

    @classmethod
    def of(cls, k_BGNLD: Tensor, v_BGNLD: Tensor, masks: _Masks, scaling: float) -> "_Far":
        keys, values = (x[:, :, :-1, :-1].flatten(2, 3) for x in (k_BGNLD, v_BGNLD))
        return cls(keys, values, k_BGNLD[:, :, :-1, -1], masks, scaling)

    def logits(self, q_BGMD: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
        """For query blocks first..last-1: weights_BGMFJ within each block that one of them can see, and its landmark
        logits_BGMF, masked where the block is not seen or the own one. Both float32."""
        seen, rows = last - 1, q_BGMD.shape[2]
        tokens = seen * (self.keys_BGKD.shape[2] // self.landmarks_BGND.shape[2])
        scores = _scores(q_BGMD, self.keys_BGKD[:, :, :tokens], self.scaling)
        gates_BGMF = _scores(q_BGMD, self.landmarks_BGND[:, :, :seen], self.scaling)
        if self.masks.far_B1K is not None and self.masks.landmarks_B1N is not None:
            scores += self.masks.far_B1K[:, :, None, :tokens]
            gates_BGMF = gates_BGMF + self.masks.landmarks_B1N[:, :, None, :seen]
        row_block = torch.arange(rows, device=q_BGMD.device) // (rows // (last - first)) + first
        hidden = torch.arange(seen, device=q_BGMD.device) >= row_block[:, None]
        return scores.unflatten(-1, (seen, -1)).softmax(-1), gates_BGMF.masked_fill(hidden, MASKED)


def _own_mask(q_BGNRD: Tensor, block_size: int) -> Tensor:
    """mask_RL: no landmark, and causal."""
    position = torch.arange(block_size, device=q_BGNRD.device)
    hidden = (position == block_size - 1) | (position > position[:, None])
    return _added(hidden).repeat(q_BGNRD.shape[3] // block_size, 1)


def _masks(valid_BT: Tensor | None, q_BGNRD: Tensor, block_size: int) -> _Masks:
    own_RL = _own_mask(q_BGNRD, block_size)
    if valid_BT is None:
        return _Masks(own_RL, None, None)
    hidden_BNL = ~nn.functional.pad(valid_BT, (0, -valid_BT.shape[1] % block_size)).unflatten(1, (-1, block_size))
    own = torch.minimum(own_RL, _added(hidden_BNL)[:, None, :, None])
    far_B1K = _added(hidden_BNL[:, :, :-1]).flatten(1).unsqueeze(1)
    return _Masks(own, far_B1K, _added(hidden_BNL[:, :, -1]).unsqueeze(1))


def _added(hidden: Tensor) -> Tensor:
    return torch.zeros(hidden.shape, device=hidden.device).masked_fill(hidden, MASKED)


def _tiles(num_blocks: int, q_BGNRD: Tensor) -> list[tuple[int, int]]:
    """Tiles (first, last) of query blocks. The first block sees nothing earlier, so it never is a tile alone."""
    step = max(1, (TILE_ROWS_CPU if q_BGNRD.device.type == "cpu" else TILE_ROWS) // q_BGNRD.shape[3])
    borders = [0, *range(max(2, step), num_blocks, step), num_blocks]
    return list(zip(borders[:-1], borders[1:], strict=True))


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
