# mypy: ignore-errors
# The functions below are programs for a GPU: only their syntax is Python's.
"""Forward and backward of grouped softmax as Triton kernels. `model.attention.fused` calls them.

- Flash attention (arXiv 2205.14135) with a second softmax inside: a tile of keys holds whole blocks of the landmark
  grid, and the tokens of an earlier block share out what its landmark gets. Nothing of size queries x keys is kept.
- Kept for the backward pass: the output and log2 Z of every row. Within-block maxima and sums are computed again.
- A block of L tokens takes P >= L columns, P a power of two; NG blocks make a tile. Columns beyond L are never seen.
- Tiles of blocks that are earlier than all query rows of a program (FAR) need no comparison of rows and columns.
- Scores are float32 whatever the inputs; weights and their gradients are rounded to the inputs' dtype for products.
- Logits are in base 2: `scale2` is the scaling times log2(e).

Equations: `model.attention.blockwise`. With e_j = exp(s_j - max of the block), z_g = sum of e_j, and the mass G_g of a
block, exp(l_g) / Z for an earlier one and its share of Z for the own one, both kinds have weights e_j G_g / z_g and
ds_j = weight (dP_j - centre), the centre being D_g for earlier blocks and D for the own one.

Tensors are contiguous: Q, OUT, DOUT and DQ [batch x heads, length, D], LOG_Z and DOT [batch x heads, length], K, V, DK
and DV [batch x heads / SHARED, length, D], VALID [batch, length].
"""

import triton
import triton.language as tl

UNSEEN = tl.constexpr(-1.0e30)


@triton.jit
def _columns(tile, length, VALID, L: tl.constexpr, P: tl.constexpr, NG: tl.constexpr, HAS_VALID: tl.constexpr):
    """Of a tile of keys: token of each column, whether it exists and may be seen, whether it is a landmark."""
    column = tl.arange(0, NG * P)
    offset = column % P
    token = (tile * NG + column // P) * L + offset
    there = (offset < L) & (token < length)
    usable = there
    if HAS_VALID:
        usable = there & (tl.load(VALID + token, mask=there, other=0) != 0)
    return token, there, usable, offset == L - 1


@triton.jit
def _rows(BASE, token, there, D: tl.constexpr, DP: tl.constexpr):
    """[tokens, DP] of one head, zeros where nothing is."""
    d = tl.arange(0, DP)
    return tl.load(BASE + token[:, None] * D + d[None, :], mask=there[:, None] & (d < D)[None, :], other=0.0)


@triton.jit
def _store_rows(BASE, values, token, there, D: tl.constexpr, DP: tl.constexpr):
    """Puts [tokens, DP] of one head in their places."""
    d = tl.arange(0, DP)
    place, mask = token[:, None] * D + d[None, :], there[:, None] & (d < D)[None, :]
    tl.store(BASE + place, values.to(BASE.dtype.element_ty), mask=mask)


@triton.jit
def _blocks_of_tile(
    q, k, row, tile, token, usable, landmark, scale2,
    L: tl.constexpr, P: tl.constexpr, NG: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """Within each block: e [M, NG, P], z [M, NG], max [M, NG]; landmark logits [M, NG]; which blocks are earlier ones
    that can be seen, and which one is the own one [M, NG]."""
    M: tl.constexpr = q.shape[0]
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale2
    seen = (usable & (landmark == 0))[None, :]
    if not FAR:
        own_row = (row // L)[:, None]
        column_block = (tile * NG + tl.arange(0, NG * P) // P)[None, :]
        own_column = (column_block == own_row) & (token[None, :] <= row[:, None])
        seen = seen & ((column_block < own_row) | own_column)
    tokens = tl.reshape(tl.where(seen, scores, UNSEEN), [M, NG, P])
    peak = tl.max(tokens, axis=2)
    e = tl.where(tokens > UNSEEN, tl.exp2(tokens - peak[:, :, None]), 0.0)
    z = tl.sum(e, axis=2)
    gate = tl.sum(tl.reshape(tl.where((usable & landmark)[None, :], scores, 0.0), [M, NG, P]), axis=2)
    gated = tl.sum(tl.reshape(tl.where(usable & landmark, 1, 0), [NG, P]), axis=1) > 0
    earlier, own = gated[None, :] & (z > 0), tl.zeros([M, NG], tl.int1)
    if not FAR:
        block = (tile * NG + tl.arange(0, NG))[None, :]
        earlier, own = earlier & (block < own_row), (block == own_row) & (z > 0)
    return e, z, peak, gate, earlier, own


@triton.jit
def _read_tile(
    q, peak, norm, out, row, tile, length, K, V, VALID, scale2,
    L: tl.constexpr, P: tl.constexpr, NG: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    HAS_VALID: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """peak [M], norm [M] and out [M, DP] with one more tile of keys."""
    M: tl.constexpr = q.shape[0]
    token, there, usable, landmark = _columns(tile, length, VALID, L, P, NG, HAS_VALID)
    k = _rows(K, token, there, D, DP)
    e, z, within, gate, earlier, own = _blocks_of_tile(q, k, row, tile, token, usable, landmark, scale2, L, P, NG, FAR)
    largest = tl.where(earlier, gate, tl.where(own, within, UNSEEN))
    new_peak = tl.maximum(peak, tl.max(largest, axis=1))
    mass = tl.where(earlier, tl.exp2(gate - new_peak[:, None]), 0.0)
    if not FAR:
        mass = tl.where(own, z * tl.exp2(within - new_peak[:, None]), mass)
    weights = tl.reshape(e * (mass / tl.where(z > 0, z, 1.0))[:, :, None], [M, NG * P])
    v = _rows(V, token, there, D, DP)
    shrink = tl.exp2(peak - new_peak)
    out = out * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return new_peak, norm * shrink + tl.sum(mass, axis=1), out


@triton.jit
def forward_kernel(
    Q, K, V, OUT, LOG_Z, VALID, scale2, length, heads,
    SHARED: tl.constexpr, L: tl.constexpr, P: tl.constexpr, NG: tl.constexpr, M: tl.constexpr,
    D: tl.constexpr, DP: tl.constexpr, HAS_VALID: tl.constexpr,
):  # fmt: skip
    head, first = tl.program_id(1).to(tl.int64), tl.program_id(0) * M
    row = first + tl.arange(0, M)
    inside = row < length
    K += head // SHARED * length * D
    V += head // SHARED * length * D
    VALID += head // heads * length
    q = _rows(Q + head * length * D, row, inside, D, DP)
    peak = tl.full([M], UNSEEN, tl.float32)
    norm = tl.zeros([M], tl.float32)
    out = tl.zeros([M, DP], tl.float32)
    far = first // L // NG
    for tile in range(0, far):
        peak, norm, out = _read_tile(
            q, peak, norm, out, row, tile, length, K, V, VALID, scale2, L, P, NG, D, DP, HAS_VALID, True
        )  # fmt: skip
    for tile in range(far, (tl.minimum(first + M, length) - 1) // (NG * L) + 1):
        peak, norm, out = _read_tile(
            q, peak, norm, out, row, tile, length, K, V, VALID, scale2, L, P, NG, D, DP, HAS_VALID, False
        )  # fmt: skip
    some = norm > 0
    _store_rows(OUT + head * length * D, out / tl.where(some, norm, 1.0)[:, None], row, inside, D, DP)
    log_z = tl.where(some, peak + tl.log2(tl.where(some, norm, 1.0)), 0.0)
    tl.store(LOG_Z + head * length + row, log_z, mask=inside)


@triton.jit
def _gradient_of_tile(
    q, k, v, dout, log_z, dot, row, tile, token, usable, landmark, scale2,
    L: tl.constexpr, P: tl.constexpr, NG: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """weights [M, columns] and the gradient of the scores [M, columns], float32."""
    M: tl.constexpr = q.shape[0]
    e, z, within, gate, earlier, own = _blocks_of_tile(q, k, row, tile, token, usable, landmark, scale2, L, P, NG, FAR)
    mass = tl.where(earlier, tl.exp2(gate - log_z[:, None]), 0.0)
    if not FAR:
        mass = tl.where(own, z * tl.exp2(within - log_z[:, None]), mass)
    safe = tl.where(z > 0, z, 1.0)
    weights = e * (mass / safe)[:, :, None]
    dp = tl.reshape(tl.dot(dout, tl.trans(v), input_precision="ieee"), [M, NG, P])
    centre = tl.sum(e * dp, axis=2) / safe
    dgate = tl.where(earlier, mass * (centre - dot[:, None]), 0.0)
    if not FAR:
        centre = tl.where(own, dot[:, None], centre)
    dscores = weights * (dp - centre[:, :, None])
    is_landmark = (tl.arange(0, P) == L - 1)[None, None, :]
    dscores = tl.where(is_landmark, dgate[:, :, None], dscores)
    return tl.reshape(weights, [M, NG * P]), tl.reshape(dscores, [M, NG * P])


@triton.jit
def _query_gradient_of_tile(
    q, dout, log_z, dot, row, tile, length, K, V, VALID, scale2,
    L: tl.constexpr, P: tl.constexpr, NG: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    HAS_VALID: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """[M, DP], by a tile of keys."""
    token, there, usable, landmark = _columns(tile, length, VALID, L, P, NG, HAS_VALID)
    k = _rows(K, token, there, D, DP)
    v = _rows(V, token, there, D, DP)
    _, dscores = _gradient_of_tile(
        q, k, v, dout, log_z, dot, row, tile, token, usable, landmark, scale2, L, P, NG, FAR
    )  # fmt: skip
    return tl.dot(dscores.to(k.dtype), k, input_precision="ieee")


@triton.jit
def query_gradient_kernel(
    Q, K, V, DOUT, LOG_Z, DOT, VALID, DQ, scale2, scale, length, heads,
    SHARED: tl.constexpr, L: tl.constexpr, P: tl.constexpr, NG: tl.constexpr, M: tl.constexpr,
    D: tl.constexpr, DP: tl.constexpr, HAS_VALID: tl.constexpr,
):  # fmt: skip
    head, first = tl.program_id(1).to(tl.int64), tl.program_id(0) * M
    row = first + tl.arange(0, M)
    inside = row < length
    K += head // SHARED * length * D
    V += head // SHARED * length * D
    VALID += head // heads * length
    q = _rows(Q + head * length * D, row, inside, D, DP)
    dout = _rows(DOUT + head * length * D, row, inside, D, DP)
    log_z = tl.load(LOG_Z + head * length + row, mask=inside, other=0.0)
    dot = tl.load(DOT + head * length + row, mask=inside, other=0.0)
    dq = tl.zeros([M, DP], tl.float32)
    far = first // L // NG
    for tile in range(0, far):
        dq += _query_gradient_of_tile(
            q, dout, log_z, dot, row, tile, length, K, V, VALID, scale2, L, P, NG, D, DP, HAS_VALID, True
        )  # fmt: skip
    for tile in range(far, (tl.minimum(first + M, length) - 1) // (NG * L) + 1):
        dq += _query_gradient_of_tile(
            q, dout, log_z, dot, row, tile, length, K, V, VALID, scale2, L, P, NG, D, DP, HAS_VALID, False
        )  # fmt: skip
    _store_rows(DQ + head * length * D, dq * scale, row, inside, D, DP)


@triton.jit
def _key_value_gradients_of_rows(
    dk, dv, k, v, row, tile, length, token, usable, landmark, Q, DOUT, LOG_Z, DOT, scale2,
    L: tl.constexpr, P: tl.constexpr, NG: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """dk and dv [columns, DP] with some more query rows of one head."""
    inside = row < length
    q = _rows(Q, row, inside, D, DP)
    dout = _rows(DOUT, row, inside, D, DP)
    log_z = tl.load(LOG_Z + row, mask=inside, other=0.0)
    dot = tl.load(DOT + row, mask=inside, other=0.0)
    weights, dscores = _gradient_of_tile(
        q, k, v, dout, log_z, dot, row, tile, token, usable, landmark, scale2, L, P, NG, FAR
    )  # fmt: skip
    weights = tl.where(inside[:, None], weights, 0.0)
    dscores = tl.where(inside[:, None], dscores, 0.0)
    dv += tl.dot(tl.trans(weights.to(dout.dtype)), dout, input_precision="ieee")
    dk += tl.dot(tl.trans(dscores.to(q.dtype)), q, input_precision="ieee")
    return dk, dv


@triton.jit
def key_value_gradient_kernel(
    Q, K, V, DOUT, LOG_Z, DOT, VALID, DK, DV, scale2, scale, length, heads,
    SHARED: tl.constexpr, L: tl.constexpr, P: tl.constexpr, NG: tl.constexpr, M: tl.constexpr,
    D: tl.constexpr, DP: tl.constexpr, HAS_VALID: tl.constexpr,
):  # fmt: skip
    group, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    VALID += group * SHARED // heads * length
    token, there, usable, landmark = _columns(tile, length, VALID, L, P, NG, HAS_VALID)
    k = _rows(K + group * length * D, token, there, D, DP)
    v = _rows(V + group * length * D, token, there, D, DP)
    dk = tl.zeros([NG * P, DP], tl.float32)
    dv = tl.zeros([NG * P, DP], tl.float32)
    some_rows = (length - 1) // M + 1
    far = tl.minimum(tl.cdiv((tile + 1) * NG * L, M), some_rows)
    for one in range(0, SHARED):
        at = (group * SHARED + one) * length
        for rows in range(tile * NG * L // M, far):
            dk, dv = _key_value_gradients_of_rows(
                dk, dv, k, v, rows * M + tl.arange(0, M), tile, length, token, usable, landmark,
                Q + at * D, DOUT + at * D, LOG_Z + at, DOT + at, scale2, L, P, NG, D, DP, False,
            )  # fmt: skip
        for rows in range(far, some_rows):
            dk, dv = _key_value_gradients_of_rows(
                dk, dv, k, v, rows * M + tl.arange(0, M), tile, length, token, usable, landmark,
                Q + at * D, DOUT + at * D, LOG_Z + at, DOT + at, scale2, L, P, NG, D, DP, True,
            )  # fmt: skip
    _store_rows(DK + group * length * D, dk * scale, token, there, D, DP)
    _store_rows(DV + group * length * D, dv, token, there, D, DP)


@triton.jit
def chosen_blocks_kernel(
    ROWS, KEYS, VALUES, LENGTHS, OUTS, GATES, scale, num_rows, slots,
    L: tl.constexpr, P: tl.constexpr, M: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
):  # fmt: skip
    """One chosen block and some of the query rows that chose it: rows [_, num_rows, D], keys, values [_, slots, L, D],
    outs [_, num_rows, slots, D], gates [_, num_rows, slots], all contiguous."""
    voter, slot = tl.program_id(0).to(tl.int64), tl.program_id(2)
    row = tl.program_id(1) * M + tl.arange(0, M)
    inside = row < num_rows
    token = tl.arange(0, P)
    length = tl.load(LENGTHS + voter * slots + slot)
    block = (voter * slots + slot) * L * D
    q = _rows(ROWS + voter * num_rows * D, row, inside, D, DP)
    k = _rows(KEYS + block, token, token < L, D, DP)
    v = _rows(VALUES + block, token, token < L, D, DP)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    ordinary = (token < length) & (token < L - 1)
    seen = tl.where(ordinary[None, :], scores, UNSEEN)
    peak = tl.max(seen, axis=1)
    e = tl.where(ordinary[None, :], tl.exp2((seen - peak[:, None]) * 1.4426950408889634), 0.0)
    out = tl.dot(e.to(v.dtype), v, input_precision="ieee") / tl.sum(e, axis=1)[:, None]
    gate = tl.sum(tl.where((token == L - 1)[None, :], scores, 0.0), axis=1)
    place = (voter * num_rows + row) * slots + slot
    _store_rows(OUTS, out, place, inside, D, DP)
    tl.store(GATES + place, gate, mask=inside)
