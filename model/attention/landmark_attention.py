"""The one attention function, for training (no memory) and inference (chosen blocks in slots) alike.

- Plugged into transformers through its public attention registry, with rotation deferred into this function: queries,
  keys and the cache hold tensors *before* rotation (after q/k-norm), and every key gets its position here.
- Keys are [chosen blocks in slots | local window], both on one block grid; weights come from the grouped softmax.
- The function knows nothing of where blocks live; the reader knows nothing of softmax or positions.

Read on: `grouped_softmax` (weights), `positions` (how a block gets its position), `selection` (who chooses blocks),
`memory` (where they come from), `blockwise` (the same for a whole text, linear in memory), `fused` (on a GPU).

Axes: B batch, H query heads, G KV heads, X voter groups per KV head, R rows that vote together, Q queries, K local
keys, S slots, L tokens in a block (landmark last), D head dim.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from model.attention.blockwise import blockwise_attention
from model.attention.context import LandmarkContext
from model.attention.fused import fused_attention, fused_is_right, merge, read_chosen_blocks
from model.attention.grouped_softmax import MASKED, fold_far_blocks, fold_slots
from model.attention.memory import Selection
from model.attention.positions import ReadBlocks, SlottedBlocks, read_blocks
from model.attention.rotary import exact_scores, rotate
from model.attention.selection import SelectionPolicy
from model.errors import ModelError


def landmark_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    *,
    landmark: LandmarkContext | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention of query_BHQD over the local key_BGKD, value_BGKD (K >= Q, the queries being the last) and over the
    chosen blocks.

    The signature is that of transformers' attention registry. Returns out_BQHD.
    """
    context, layer = _checked(landmark, attention_mask), module.layer_idx
    num_keys, before = key.shape[2], key.shape[2] - query.shape[2]
    context.enter_layer(layer, query, num_keys, scaling)

    rotated_query = rotate(query, *context.local_table(before, num_keys, query))
    rotated_key = context.rotate_local(layer, key, before)
    reads = context.reads(layer)
    if not reads and not dropout and _blockwise_fits(context, query, before):
        return _blockwise(context, rotated_query, rotated_key, value, scaling), None

    logits_BHQK = _local_logits(context, rotated_query, rotated_key, scaling)
    if not reads:
        weights_BHQK = logits_BHQK.softmax(-1)
        out_BHQD = _local_values(weights_BHQK, value, dropout)
    else:
        policy = context.memory[1]
        blocks = read_blocks(context, layer, query, rotated_query, key, scaling)
        if _kernel_reads(context, blocks, rotated_query):
            out_BHQD, gate_BHQS = _read_by_kernel(blocks, rotated_query, policy, scaling, logits_BHQK, value)
            context.selections.append(_selection(layer, blocks, gate_BHQS, policy))
            return out_BHQD.transpose(1, 2).contiguous(), None
        logits_BHQSL = _slot_logits(blocks, rotated_query, policy, scaling)
        if (without_BGXS := policy.left_out_of(blocks.ids_BGXS)) is not None:
            without_BHQS = _each_query(without_BGXS, logits_BHQSL.shape[1:3], policy)
            logits_BHQSL = logits_BHQSL.masked_fill(without_BHQS[..., None], MASKED)
        weights_BHQSL, weights_BHQK = _joint_softmax(logits_BHQSL, logits_BHQK)
        context.selections.append(_selection(layer, blocks, weights_BHQSL.detach().sum(-1), policy))
        out_BHQD = _local_values(weights_BHQK, value, dropout) + _slot_values(blocks, weights_BHQSL, policy)
    if context.weights is not None:
        context.weights.append(weights_BHQK)
    return out_BHQD.transpose(1, 2).contiguous(), None


def _checked(context: LandmarkContext | None, attention_mask: Tensor | None) -> LandmarkContext:
    if context is None:
        raise ModelError(
            "this backbone runs landmark attention: call it through LandmarkModel, which says where landmarks stand."
        )
    if attention_mask is not None:
        raise ModelError("landmark attention takes no attention mask: pad on the right and pass valid_BK.")
    return context


def _blockwise_fits(context: LandmarkContext, query: Tensor, before: int) -> bool:
    """A whole text, or whole blocks behind whole blocks, whose weights nobody wants to see."""
    size = context.block_size
    return context.weights is None and query.shape[2] > size and before % size == 0


def _blockwise(
    context: LandmarkContext, rotated_query: Tensor, rotated_key: Tensor, value: Tensor, scaling: float
) -> Tensor:
    """out_BQHD in memory linear in the text, by kernels where there are any; the code around it is its twin."""
    num_keys, before = rotated_key.shape[2], rotated_key.shape[2] - rotated_query.shape[2]
    padded_query, valid = nn.functional.pad(rotated_query, (0, 0, before, 0)), context.valid_keys(num_keys)
    attention = fused_attention if fused_is_right(rotated_query, context.block_size) else blockwise_attention
    out_BHKD = attention(
        padded_query, rotated_key, value, block_size=context.block_size, scaling=scaling, valid_BT=valid
    )
    return out_BHKD[:, :, before:].transpose(1, 2).contiguous()


def _local_logits(context: LandmarkContext, rotated_query: Tensor, rotated_key: Tensor, scaling: float) -> Tensor:
    """logits_BHQK whose softmax is the grouped softmax over the local window."""
    scores_BGPK = exact_scores(_of_kv_heads(rotated_query, rotated_key.shape[1]), rotated_key)
    scores_BHQK = _of_heads(scores_BGPK, rotated_query) * scaling
    return fold_far_blocks(scores_BHQK, context.block_size, context.valid_keys(rotated_key.shape[2]))


def _slot_logits(blocks: ReadBlocks, rotated_query: Tensor, policy: SelectionPolicy, scaling: float) -> Tensor:
    """logits_BHQSL of the tokens of chosen blocks, in the same softmax as the local ones."""
    scores_BGXRSL = blocks.scores(policy.voter_rows(rotated_query, blocks.ids_BGXS.shape[1])) * scaling
    return policy.by_query(fold_slots(scores_BGXRSL, blocks.lengths_BGXS.unsqueeze(3)), rotated_query.shape[2])


def _joint_softmax(logits_BHQSL: Tensor, logits_BHQK: Tensor) -> tuple[Tensor, Tensor]:
    """weights_BHQSL and weights_BHQK: one softmax over chosen blocks and local window."""
    num_slotted = logits_BHQSL.shape[-2] * logits_BHQSL.shape[-1]
    weights = torch.cat((logits_BHQSL.flatten(-2), logits_BHQK), -1).softmax(-1)
    return weights[..., :num_slotted].view_as(logits_BHQSL), weights[..., num_slotted:]


def _local_values(weights_BHQK: Tensor, value_BGKD: Tensor, dropout: float) -> Tensor:
    """out_BHQD: values of the local window, weighted."""
    weights = nn.functional.dropout(weights_BHQK, dropout) if dropout else weights_BHQK
    return _of_heads(_of_kv_heads(weights.to(value_BGKD.dtype), value_BGKD.shape[1]) @ value_BGKD, weights)


def _of_kv_heads(x_BHQC: Tensor, groups: int) -> Tensor:
    """x_BGPC: the rows of all query heads of a KV head in a row, so that a product reads its keys once."""
    x_BGHQC: Tensor = x_BHQC.unflatten(1, (groups, -1))
    return x_BGHQC.flatten(2, 3)


def _of_heads(x_BGPC: Tensor, like_BHQC: Tensor) -> Tensor:
    """The inverse of `_of_kv_heads`."""
    x_BGHQC: Tensor = x_BGPC.unflatten(2, (-1, like_BHQC.shape[2]))
    return x_BGHQC.flatten(1, 2)


def _slot_values(blocks: ReadBlocks, weights_BHQSL: Tensor, policy: SelectionPolicy) -> Tensor:
    """out_BHQD: values of chosen blocks, weighted."""
    weights_BGXRSL = policy.voter_rows(weights_BHQSL, blocks.ids_BGXS.shape[1])
    return policy.by_query(blocks.weighted(weights_BGXRSL), weights_BHQSL.shape[2])


def _kernel_reads(context: LandmarkContext, blocks: ReadBlocks, rotated_query: Tensor) -> bool:
    """Whether a kernel reads the chosen blocks: it has no gradients and shows no weights of tokens."""
    wanted = context.weights is not None or torch.is_grad_enabled()
    return not wanted and isinstance(blocks, SlottedBlocks) and fused_is_right(rotated_query, context.block_size)


def _read_by_kernel(
    blocks: ReadBlocks,
    rotated_query: Tensor,
    policy: SelectionPolicy,
    scaling: float,
    logits_BHQK: Tensor,
    value: Tensor,
) -> tuple[Tensor, Tensor]:
    """out_BHQD and gate_BHQS: each chosen block alone, merged with the local window; the code below is its twin."""
    assert isinstance(blocks, SlottedBlocks)
    groups, num_queries = blocks.ids_BGXS.shape[1], logits_BHQK.shape[2]
    rows_BGXRD = policy.voter_rows(rotated_query, groups)
    outs_BGXRND, gates_BGXRN = read_chosen_blocks(
        rows_BGXRD, blocks.keys_BGXSLD, blocks.values_BGXSLD, blocks.lengths_BGXS, scaling=scaling
    )
    if (without_BGXS := policy.left_out_of(blocks.ids_BGXS)) is not None:
        gates_BGXRN = gates_BGXRN.masked_fill(without_BGXS.unsqueeze(3), MASKED)
    local_BHQD = _local_values(logits_BHQK.softmax(-1), value, 0.0).float()
    local_lse = policy.voter_rows(logits_BHQK.logsumexp(-1, keepdim=True), groups).squeeze(-1)
    out_BGXRD, shares_BGXRN = merge(outs_BGXRND, gates_BGXRN, policy.voter_rows(local_BHQD, groups), local_lse)
    return policy.by_query(out_BGXRD, num_queries).to(value.dtype), policy.by_query(shares_BGXRN, num_queries)


def _selection(layer: int, blocks: ReadBlocks, gate_BHQS: Tensor, policy: SelectionPolicy) -> Selection:
    """What every head and query read, with the attention mass on each block: its gate."""
    ids_BHQS = _each_query(blocks.ids_BGXS, gate_BHQS.shape[1:3], policy)
    return Selection(layer, ids_BHQS, gate_BHQS)


def _each_query(x_BGXS: Tensor, heads_and_queries: Sequence[int], policy: SelectionPolicy) -> Tensor:
    """x_BHQS: for every head and query that of its voters."""
    heads, queries = heads_and_queries
    groups, voters = x_BGXS.shape[1:3]
    x_BGXRS = x_BGXS.unsqueeze(3).expand(-1, -1, -1, heads * queries // (groups * voters), -1)
    return policy.by_query(x_BGXRS, queries)
