"""The one attention function: training (no memory) and inference (selected blocks in slots) alike.

- Plugged into transformers through its public attention registry, with rotation deferred into this function: queries,
  keys and the cache hold tensors *before* rotation (after q/k-norm), and every key gets its position here (see
  `positions.py`).
- Keys = [selected blocks in slots | local window], both on one block grid; weights by grouped softmax (see
  `grouped_softmax.py`).
- The function knows nothing of where blocks live; the reader knows nothing of softmax or positions. Imports nothing
  of transformers.

Axes: B batch, H query heads, G KV heads, X voter groups per KV head, R rows that vote together, Q queries, K local
keys, S slots, L tokens in a block (landmark last), D head dim, N stored blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from model.attention.blockwise import blockwise_attention
from model.attention.grouped_softmax import fold_far_blocks, fold_slots
from model.attention.memory import InMemoryReader, MemoryReader, Selection
from model.attention.positions import paper_landmark_slots, paper_read_slots, rotary_tables, rotate
from model.attention.selection import SelectionPolicy, select_blocks
from model.errors import ModelError


class DeferredRotary(nn.Module):
    """Stands in for the backbone's rotary embedding: returns cos = 1, sin = 0, and keeps the real one for
    `landmark_attention`."""

    def __init__(self, rotary: nn.Module) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> tuple[Tensor, Tensor]:
        shape = (*position_ids.shape, 1)
        return x.new_ones(shape), x.new_zeros(shape)


class LastLayerReached(Exception):  # noqa: N818 - the regular end of a pass that only fills a cache
    """Ends a forward pass at `LandmarkContext.last_layer`."""


@dataclass
class LandmarkContext:
    """What attention must know of one forward pass; handed through the backbone as the keyword `landmark`."""

    block_size: int
    rotary: nn.Module
    valid_BK: Tensor | None = None
    """False at padding among the local keys. None: everything is valid."""
    reader: MemoryReader | None = None
    policy: SelectionPolicy | None = None
    selections: list[Selection] = field(default_factory=list)
    """Filled by every read, in layer order."""
    search_queries: dict[int, Tensor] | None = None
    """If given, filled with queries_BHQD in the frame of `MemoryReader.search`, by layer."""
    weights: list[Tensor] | None = None
    """If given, filled with the attention weights on the local window, by layer."""
    last_layer: int | None = None
    """If given, the pass ends at this layer once its keys and values are in the cache (see
    `LandmarkModel.fill_cache`)."""
    between_layers: Callable[[], None] | None = None
    """If given, called in every layer: a long pass may let others use the processor there."""
    _tables: dict[tuple[int, int, torch.dtype], tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def local_start(self) -> int:
        """Position at which the local window starts."""
        stored = 0 if self.reader is None else self.reader.num_blocks
        return 0 if self.policy is None else self.policy.local_slot(stored) * self.block_size

    def valid_keys(self, num_keys: int) -> Tensor | None:
        """valid_BK for a layer whose cache holds complete blocks in front of the window."""
        if self.valid_BK is None or self.valid_BK.shape[1] == num_keys:
            return self.valid_BK
        return nn.functional.pad(self.valid_BK, (num_keys - self.valid_BK.shape[1], 0), value=True)

    def table(self, start: int, stop: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of positions start..stop-1; the same for all layers of a forward pass, so computed once."""
        # Not kept while compiling: each layer would depend on what lies in the tables already, and be compiled anew.
        key, kept = (start, stop, like.dtype), {} if torch.compiler.is_compiling() else self._tables
        if key not in kept:
            kept[key] = rotary_tables(self.rotary, torch.arange(start, stop, device=like.device), like.dtype)
        return kept[key]


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
    if landmark is None:
        raise ModelError(
            "this backbone runs landmark attention: call it through LandmarkModel, which says where landmarks stand."
        )
    if attention_mask is not None:
        raise ModelError("landmark attention takes no attention mask: pad on the right and pass valid_BK.")
    num_queries, num_keys = query.shape[2], key.shape[2]
    if landmark.search_queries is not None:
        landmark.search_queries[module.layer_idx] = _search_frame(landmark, query, num_keys, scaling)
    if module.layer_idx == landmark.last_layer:
        raise LastLayerReached
    if landmark.between_layers is not None:
        landmark.between_layers()
    start, size = landmark.local_start, landmark.block_size
    rotated_query = rotate(query, *landmark.table(start + num_keys - num_queries, start + num_keys, query))
    rotated_key = rotate(key, *landmark.table(start, start + num_keys, key))
    reads = (
        landmark.reader is not None and module.layer_idx in landmark.reader.layers and landmark.reader.num_blocks > 0
    )
    before = num_keys - num_queries
    if not reads and landmark.weights is None and not dropout and num_queries > size and before % size == 0:
        # A whole text, or whole blocks behind whole blocks: the form linear in memory, with the code below as its twin.
        whole_query = nn.functional.pad(rotated_query, (0, 0, before, 0))
        valid = landmark.valid_keys(num_keys)
        out = blockwise_attention(whole_query, rotated_key, value, block_size=size, scaling=scaling, valid_BT=valid)
        return out[:, :, before:].transpose(1, 2).contiguous(), None
    scores_BHQK = _grouped(rotated_query, key.shape[1]) @ rotated_key.unsqueeze(2).transpose(-1, -2)
    logits_BHQK = fold_far_blocks(scores_BHQK.flatten(1, 2).float() * scaling, size, landmark.valid_keys(num_keys))
    if not reads:
        weights_BHQK = logits_BHQK.softmax(-1)
        out = _weighted(weights_BHQK, value, dropout)
    else:
        slots = _read(
            landmark, module.layer_idx, query, rotated_query, groups=key.shape[1], num_keys=num_keys, scaling=scaling
        )
        assert landmark.policy is not None
        logits_BHQSL = _slot_logits(slots, rotated_query, landmark.policy, scaling)
        both = torch.cat((logits_BHQSL.flatten(-2), logits_BHQK), -1).softmax(-1)
        slot_weights, weights_BHQK = both.split((logits_BHQSL.shape[-1] * logits_BHQSL.shape[-2], num_keys), -1)
        slot_weights = slot_weights.unflatten(-1, logits_BHQSL.shape[-2:])
        gate_BHQS = slot_weights.sum(-1)
        landmark.selections.append(
            Selection(
                module.layer_idx,
                slots.ids_BHQS(landmark.policy, gate_BHQS),
                gate_BHQS.detach(),
                1 - gate_BHQS.detach().sum(-1),
            )
        )
        out = _weighted(weights_BHQK, value, dropout) + _slot_values(slots, slot_weights, landmark.policy)
    if landmark.weights is not None:
        landmark.weights.append(weights_BHQK)
    return out.transpose(1, 2).contiguous(), None


@dataclass
class _Slots:
    """Blocks chosen by one layer, keys rotated to the slots they are read in."""

    ids_BGXS: Tensor
    keys_BGXSLD: Tensor
    values_BGXSLD: Tensor
    lengths_BGXS: Tensor

    def ids_BHQS(self, policy: SelectionPolicy, like_BHQS: Tensor) -> Tensor:
        """The chosen blocks of every head and query."""
        heads, queries = like_BHQS.shape[1:3]
        groups, voters = self.ids_BGXS.shape[1:3]
        rows = heads * queries // (groups * voters)
        return policy.by_query(self.ids_BGXS.unsqueeze(3).expand(-1, -1, -1, rows, -1), queries)


def _grouped(x_BHQD: Tensor, groups: int) -> Tensor:
    """Split query heads by the KV head they share: B G H/G Q D."""
    return x_BHQD.unflatten(1, (groups, -1))


def _weighted(weights_BHQK: Tensor, value_BGKD: Tensor, dropout: float) -> Tensor:
    weights = nn.functional.dropout(weights_BHQK, dropout) if dropout else weights_BHQK
    grouped = weights.to(value_BGKD.dtype).unflatten(1, (value_BGKD.shape[1], -1))
    return (grouped @ value_BGKD.unsqueeze(2)).flatten(1, 2)


def _search_frame(context: LandmarkContext, query_BHQD: Tensor, num_keys: int, scaling: float) -> Tensor:
    """Queries such that the product with an un-rotated landmark key is its logit in slot 0.

    q at position p and a landmark at position m = L - 1 meet as R(p - m) q . k; YaRN scales both sides, hence the
    second factor.
    """
    first = context.local_start + num_keys - query_BHQD.shape[2] - (context.block_size - 1)
    cos, sin = context.table(first, first + query_BHQD.shape[2], query_BHQD)
    return rotate(query_BHQD, cos, sin) * (scaling * getattr(context.rotary, "attention_scaling", 1.0))


def _read(
    context: LandmarkContext,
    layer: int,
    query: Tensor,
    rotated_query: Tensor,
    *,
    groups: int,
    num_keys: int,
    scaling: float,
) -> _Slots:
    """Choose blocks by their landmarks, fetch them and rotate their keys to their slots."""
    reader, policy, size = context.reader, context.policy, context.block_size
    assert reader is not None and policy is not None
    if policy.positions == "library":
        queries_BGXRD = policy.voter_rows(_search_frame(context, query, num_keys, scaling), groups)
        ids = reader.search(layer, queries_BGXRD, policy.top_k)
        keys, values, lengths = reader.read(layer, ids)
        cos, sin = context.table(0, size, keys)
    else:
        if not isinstance(reader, InMemoryReader):
            raise ModelError(
                "positions='paper' needs an InMemoryReader: only one text read in windows has newest blocks;"
                " use 'library'."
            )
        stored = reader.num_blocks
        table = context.table(0, context.local_start, query)
        places = paper_landmark_slots(stored, policy.top_k, query.device) * size + size - 1
        landmarks_BGND = rotate(reader.landmarks(layer), table[0][places], table[1][places])
        queries_BGXRD = policy.voter_rows(rotated_query * scaling, groups)
        ids = select_blocks(queries_BGXRD @ landmarks_BGND.unsqueeze(2).transpose(-1, -2), policy.top_k)
        keys, values, lengths = reader.read(layer, ids)
        token = torch.arange(size, device=query.device)
        places = paper_read_slots(ids, stored, policy.top_k)[..., None] * size + token
        cos, sin = table[0][places], table[1][places]
    return _Slots(ids, rotate(keys, cos, sin), values, lengths)


def _slot_logits(slots: _Slots, rotated_query_BHQD: Tensor, policy: SelectionPolicy, scaling: float) -> Tensor:
    rows_BGXRD = policy.voter_rows(rotated_query_BHQD, slots.ids_BGXS.shape[1])
    scores = torch.einsum("bgxrd,bgxsld->bgxrsl", rows_BGXRD, slots.keys_BGXSLD).float() * scaling
    logits_BGXRSL = fold_slots(scores, slots.lengths_BGXS.unsqueeze(3))
    return policy.by_query(logits_BGXRSL, rotated_query_BHQD.shape[2])


def _slot_values(slots: _Slots, weights_BHQSL: Tensor, policy: SelectionPolicy) -> Tensor:
    weights_BGXRSL = policy.voter_rows(weights_BHQSL.to(slots.values_BGXSLD.dtype), slots.ids_BGXS.shape[1])
    out_BGXRD = torch.einsum("bgxrsl,bgxsld->bgxrd", weights_BGXRSL, slots.values_BGXSLD)
    return policy.by_query(out_BGXRD, weights_BHQSL.shape[2])
