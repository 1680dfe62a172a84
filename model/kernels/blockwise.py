"""Landmark attention over one whole text (the training case), in memory linear in its length.

- Nothing of size queries x keys is kept for the backward pass: it saves q, k, v, out and log Z per row, and computes
  weights anew.
- Every earlier block counts as one entry, its landmark logit, in the softmax over [own block | earlier blocks];
  causality between
  blocks is therefore a mask on the few landmark logits, and tokens of earlier blocks need none.
- Query blocks are worked off in tiles that stop at the last block they can see.
- Plain torch: runs on CPU and CUDA, eager and under torch.compile. Softmax in float32; products in the dtype of
  `value`.

For query i in block c, scores s_j, landmark logits l_g: Z = sum over own exp(s_j) + sum over g < c exp(l_g), G_g =
exp(l_g) / Z,
a_j = softmax of s within block g, p_j = exp(s_j) / Z. With dP_j = dout . v_j, D_g = sum over g of a_j dP_j and D = dout
. out:
dl_g = G_g (D_g - D), ds_j = G_g a_j (dP_j - D_g) in earlier blocks, ds_j = p_j (dP_j - D) in the own one.

Axes: B batch, H query heads, G KV heads, T tokens (landmarks included), N blocks, R query rows of a block (its L
positions times the
query heads of a KV head), L tokens in a block (landmark last), J = L - 1 ordinary ones, M rows of a tile, F earlier
blocks of a tile, D head dim.
"""

from typing import Any

import torch
from torch import Tensor, nn

MASKED = -1e30
TILE_ROWS = 256
"""Query rows per KV head worked off together."""


def blockwise_attention(
    query_BHTD: Tensor, key_BGTD: Tensor, value_BGTD: Tensor, *, block_size: int, scaling: float
) -> Tensor:
    """out_BHTD in the dtype of `value`, for rotated queries and keys that start at a block border; the last block may
    be unfinished.
    """
    return _Blockwise.apply(query_BHTD, key_BGTD, value_BGTD, block_size, scaling)


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, block_size: int, scaling: float) -> Tensor:
        with torch.autocast(query.device.type, enabled=False):
            out, log_z = _forward(query, key, value, block_size, scaling)
        ctx.save_for_backward(query, key, value, out, log_z)
        ctx.block_size, ctx.scaling = block_size, scaling
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, log_z = ctx.saved_tensors
        with torch.autocast(query.device.type, enabled=False):
            dq, dk, dv = _backward(query, key, value, out, log_z, grads[0], ctx.block_size, ctx.scaling)
        return dq, dk, dv, None, None


def _forward(query: Tensor, key: Tensor, value: Tensor, block_size: int, scaling: float) -> tuple[Tensor, Tensor]:
    heads, length = query.shape[1:3]
    q_BGNRD = _rows((query * scaling).to(value.dtype), key.shape[1], block_size)
    k_BGNLD, v_BGNLD = _blocks(key.to(value.dtype), block_size), _blocks(value, block_size)
    num_blocks = k_BGNLD.shape[2]
    own = _scores(q_BGNRD, k_BGNLD) + _own_mask(q_BGNRD, block_size)
    lse_BGNR = own.logsumexp(-1)
    own_out = torch.matmul(own.softmax(-1).to(value.dtype), v_BGNLD)
    if num_blocks == 1:
        return _unrows(own_out, heads, length, block_size), lse_BGNR
    far_k, far_v, landmarks = _far(k_BGNLD), _far(v_BGNLD), k_BGNLD[:, :, :-1, -1]
    outs, log_zs = [], []
    for first, last in _tiles(num_blocks, q_BGNRD.shape[3]):
        q_BGMD, seen = q_BGNRD[:, :, first:last].flatten(2, 3), last - 1
        weights_BGMFJ, gates_BGMF = _tile_logits(q_BGMD, far_k, landmarks, first, last, block_size)
        all_logits = torch.cat((lse_BGNR[:, :, first:last].flatten(2, 3).unsqueeze(-1), gates_BGMF), -1)
        log_z = all_logits.logsumexp(-1)
        shares = (all_logits - log_z.unsqueeze(-1)).exp()
        weights = (weights_BGMFJ * shares[..., 1:, None]).flatten(-2).to(value.dtype)
        far_out = torch.matmul(weights, far_v[:, :, : seen * (block_size - 1)])
        outs.append(far_out + own_out[:, :, first:last].flatten(2, 3) * shares[..., :1].to(value.dtype))
        log_zs.append(log_z)
    out_BGNRD = torch.cat(outs, 2).unflatten(2, (num_blocks, -1))
    return _unrows(out_BGNRD, heads, length, block_size), torch.cat(log_zs, 2).unflatten(2, (num_blocks, -1))


def _backward(
    query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_z_BGNR: Tensor, dout: Tensor, block_size: int, scaling:
    float
) -> tuple[Tensor, Tensor, Tensor]:
    heads, length = query.shape[1:3]
    kind, groups, per_block = value.dtype, key.shape[1], block_size - 1
    q_BGNRD = _rows((query * scaling).to(kind), groups, block_size)
    k_BGNLD, v_BGNLD = _blocks(key.to(kind), block_size), _blocks(value, block_size)
    dout_BGNRD = _rows(dout.to(kind), groups, block_size)
    dot_BGNR = _rows((dout.float() * out.float()).sum(-1, keepdim=True), groups, block_size).squeeze(-1)  # D
    num_blocks = k_BGNLD.shape[2]

    own = _scores(q_BGNRD, k_BGNLD) + _own_mask(q_BGNRD, block_size)
    p_BGNRL = (own - log_z_BGNR.unsqueeze(-1)).exp()
    ds = (p_BGNRL * (_scores(dout_BGNRD, v_BGNLD) - dot_BGNR.unsqueeze(-1))).to(kind)
    dq_BGNRD = torch.matmul(ds, k_BGNLD).float()
    dk_BGNLD = torch.matmul(ds.mT, q_BGNRD).float()
    dv_BGNLD = torch.matmul(p_BGNRL.to(kind).mT, dout_BGNRD).float()
    if num_blocks > 1:
        far_k, far_v, landmarks = _far(k_BGNLD), _far(v_BGNLD), k_BGNLD[:, :, :-1, -1]
        dfar_k = far_k.new_zeros(far_k.shape, dtype=torch.float32)
        dfar_v, dlandmarks = torch.zeros_like(dfar_k), landmarks.new_zeros(landmarks.shape, dtype=torch.float32)
        dqs = []
        for first, last in _tiles(num_blocks, q_BGNRD.shape[3]):
            q_BGMD, dout_BGMD = q_BGNRD[:, :, first:last].flatten(2, 3), dout_BGNRD[:, :, first:last].flatten(2, 3)
            log_z, dot = (x[:, :, first:last].flatten(2, 3).unsqueeze(-1) for x in (log_z_BGNR, dot_BGNR))
            seen = last - 1
            keys = slice(0, seen * per_block)
            a_BGMFJ, gates_BGMF = _tile_logits(q_BGMD, far_k, landmarks, first, last, block_size)
            share = (gates_BGMF - log_z).exp()
            dp = _scores(dout_BGMD, far_v[:, :, keys]).unflatten(-1, (seen, per_block))
            product = a_BGMFJ * dp
            within = product.sum(-1)  # D_g
            dgates = (share * (within - dot)).to(kind)
            ds = ((product - a_BGMFJ * within.unsqueeze(-1)) * share.unsqueeze(-1)).flatten(-2).to(kind)
            weights = (a_BGMFJ * share.unsqueeze(-1)).flatten(-2).to(kind)
            dqs.append(torch.matmul(ds, far_k[:, :, keys]) + torch.matmul(dgates, landmarks[:, :, :seen]))
            dfar_k[:, :, keys] += torch.matmul(ds.mT, q_BGMD)
            dfar_v[:, :, keys] += torch.matmul(weights.mT, dout_BGMD)
            dlandmarks[:, :, :seen] += torch.matmul(dgates.mT, q_BGMD)
        dq_BGNRD = dq_BGNRD + torch.cat(dqs, 2).unflatten(2, (num_blocks, -1))
        dk_BGNLD[:, :, :-1, :-1] += dfar_k.unflatten(2, (num_blocks - 1, per_block))
        dk_BGNLD[:, :, :-1, -1] += dlandmarks
        dv_BGNLD[:, :, :-1, :-1] += dfar_v.unflatten(2, (num_blocks - 1, per_block))
    dq = _unrows(dq_BGNRD, heads, length, block_size) * scaling
    dk, dv = (x.flatten(2, 3)[:, :, :length] for x in (dk_BGNLD, dv_BGNLD))
    return dq.to(query.dtype), dk.to(key.dtype), dv.to(value.dtype)


def _tile_logits(
    q_BGMD: Tensor, far_k: Tensor, landmarks_BGND: Tensor, first: int, last: int, block_size: int
) -> tuple[Tensor, Tensor]:
    """Weights within each block that the tile can see (float32), and its landmark logits, masked where the block is not
    earlier.
    """
    seen, per_block = last - 1, block_size - 1
    within = _scores(q_BGMD, far_k[:, :, : seen * per_block]).unflatten(-1, (seen, per_block)).softmax(-1)
    gates_BGMF = _scores(q_BGMD, landmarks_BGND[:, :, :seen])
    rows_per_block = q_BGMD.shape[2] // (last - first)
    row_block = torch.arange(q_BGMD.shape[2], device=q_BGMD.device) // rows_per_block + first
    later = torch.arange(seen, device=q_BGMD.device) >= row_block[:, None]
    return within, gates_BGMF.masked_fill(later, MASKED)


def _tiles(num_blocks: int, rows_per_block: int) -> list[tuple[int, int]]:
    """Tiles (first, last) of query blocks. The first block alone sees nothing earlier, so it never is a tile of its
    own.
    """
    step = max(1, TILE_ROWS // rows_per_block)
    borders = [0, *range(max(2, step), num_blocks, step), num_blocks]
    return list(zip(borders[:-1], borders[1:], strict=True))


def _scores(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b.mT).float()


def _blocks(x_BGTD: Tensor, block_size: int) -> Tensor:
    """Cut into blocks; an unfinished last one is filled with zeros, which nobody sees."""
    return nn.functional.pad(x_BGTD, (0, 0, 0, -x_BGTD.shape[2] % block_size)).unflatten(2, (-1, block_size))


def _rows(x_BHTD: Tensor, groups: int, block_size: int) -> Tensor:
    """Rows that share keys side by side: B G N R D, R = (query head of the KV head, position in the block)."""
    blocks = _blocks(x_BHTD, block_size).unflatten(1, (groups, -1))
    return blocks.transpose(2, 3).flatten(3, 4)


def _unrows(x_BGNRD: Tensor, heads: int, length: int, block_size: int) -> Tensor:
    blocks = x_BGNRD.unflatten(3, (-1, block_size)).transpose(2, 3)
    return blocks.flatten(1, 2).flatten(2, 3)[:, :heads, :length]


def _far(x_BGNLD: Tensor) -> Tensor:
    """Ordinary tokens of all blocks but the last, in a row."""
    return x_BGNLD[:, :, :-1, :-1].flatten(2, 3)


def _own_mask(q_BGNRD: Tensor, block_size: int) -> Tensor:
    """0 where a row sees a position of its own block, else MASKED: causal, and the landmark is hidden from everybody.
    """
    position = torch.arange(block_size, device=q_BGNRD.device)
    hidden = (position > position[:, None]) | (position == block_size - 1)
    mask = torch.zeros(hidden.shape, device=q_BGNRD.device).masked_fill(hidden, MASKED)
    return mask.repeat(q_BGNRD.shape[3] // block_size, 1)
