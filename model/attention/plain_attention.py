"""Attention of an ordinary causal checkpoint over keys and values put together from stored pieces.

- Plugged into transformers like `landmark_attention`: rotation is deferred into this function. Stored keys are
  un-rotated; the rows of a text under way (`KeyRows`) are rotated once, to where each token stands in it.
- Queries may stand anywhere among the rows: at the end of the text, or at the tokens that are computed again. A query
  sees its own row and those before it (within the layer's window, if it has one).

Axes: B batch (1), H query heads, G KV heads, Q queries, K rows, D head dim, S segments.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from model.attention.grouped_softmax import MASKED
from model.attention.rotary import rotate
from model.errors import ModelError

QUERIES_AT_ONCE = 64
"""Of tokens that stand anywhere among the rows: rows behind the last of them are not looked at."""


class KeyRows(NamedTuple):
    """Rotated keys and values of one text in all layers Y, one row a token, whose number is its position."""

    keys_YBGKD: Tensor
    values_YBGKD: Tensor


@dataclass
class PlainContext:
    """One forward pass; handed through the backbone as the keyword `plain`."""

    rows: KeyRows
    row_Q: Tensor
    """The rows of this pass's tokens, whose keys and values are written there."""
    num_rows: int
    """Rows that can be seen; those behind them belong to nothing yet."""
    table: Callable[[int], tuple[Tensor, Tensor]]
    """cos and sin of all positions, by layer."""
    written: list[tuple[Tensor, Tensor]] | None = None
    """If given, filled with keys_BGQD and values_BGQD before rotation, in layer order."""
    mass_QK: Tensor | None = None
    """If given, attention weights are added to it, summed over layers and heads."""
    from_start: bool = False
    """Whether the tokens are all rows of the text, in sequence."""
    _visible: dict[int | None, Tensor | None] = field(default_factory=dict)
    _parts: dict[int | None, list[tuple[slice, int]]] = field(default_factory=dict)

    def visible_QK(self, window: int | None) -> Tensor | None:
        """Which rows each query sees; None: all of them. The same for all layers of a window."""
        if window not in self._visible:
            behind_QK = self.row_Q[:, None] - torch.arange(self.num_rows, device=self.row_Q.device)
            seen_QK = behind_QK >= 0 if window is None else (behind_QK >= 0) & (behind_QK < window)
            self._visible[window] = None if bool(seen_QK.all()) else seen_QK
        return self._visible[window]

    def parts(self, window: int | None) -> list[tuple[slice, int]]:
        """Queries in groups, and how many rows from the first on each group needs to look at."""
        if window not in self._parts:
            visible_QK = self.visible_QK(window)
            if visible_QK is None:
                return [(slice(None), self.num_rows)]
            groups = [slice(at, at + QUERIES_AT_ONCE) for at in range(0, len(visible_QK), QUERIES_AT_ONCE)]
            last = [int(visible_QK[group].any(0).nonzero()[-1]) + 1 for group in groups]
            self._parts[window] = list(zip(groups, last, strict=True))
        return self._parts[window]


def plain_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    *,
    plain: PlainContext | None = None,
    sliding_window: int | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention of query_BHQD, whose key_BGQD and value_BGQD are put into their rows first, over all rows they see.

    The signature is that of transformers' attention registry. Returns out_BQHD.
    """
    if plain is None or attention_mask is not None:
        raise ModelError("this backbone reads stored keys and values: call it through ChatModel.")
    layer = module.layer_idx
    if plain.written is not None:
        plain.written.append((key, value))
    if getattr(module, "use_rope", True):  # SmolLM3 has layers without positions
        cos, sin = (table[plain.row_Q] for table in plain.table(layer))
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
    keys, values = plain.rows.keys_YBGKD[layer], plain.rows.values_YBGKD[layer]
    keys[:, :, plain.row_Q] = key
    values[:, :, plain.row_Q] = value
    keys, values = keys[:, :, : plain.num_rows], values[:, :, : plain.num_rows]
    visible_QK = plain.visible_QK(sliding_window)
    if plain.mass_QK is None:
        # Reading from the first row on needs no mask, which makes it faster.
        causal = visible_QK is not None and plain.from_start and (sliding_window or plain.num_rows) >= plain.num_rows
        parts = [(slice(None), plain.num_rows)] if causal else plain.parts(sliding_window)
        outs = [
            nn.functional.scaled_dot_product_attention(
                query[:, :, group],
                keys[:, :, :last],
                values[:, :, :last],
                attn_mask=None if causal or visible_QK is None else visible_QK[group, :last],
                is_causal=causal,
                scale=scaling,
                enable_gqa=query.shape[1] != keys.shape[1],
            )
            for group, last in parts
        ]
        out = torch.cat(outs, dim=2) if len(outs) > 1 else outs[0]
    else:
        out = _observed(plain, query, keys, values, visible_QK, scaling)
    return out.transpose(1, 2).contiguous(), None


def _observed(
    plain: PlainContext, query: Tensor, keys: Tensor, values: Tensor, visible_QK: Tensor | None, scaling: float
) -> Tensor:
    """out_BHQD by explicit weights, which are counted."""
    query_BGRQD = query.unflatten(1, (keys.shape[1], -1))
    scores_BGRQK = (query_BGRQD @ keys.unsqueeze(2).transpose(-1, -2)).float() * scaling
    if visible_QK is not None:
        scores_BGRQK = scores_BGRQK.masked_fill(~visible_QK, MASKED)
    weights_BGRQK = scores_BGRQK.softmax(-1)
    assert plain.mass_QK is not None
    plain.mass_QK += weights_BGRQK.sum((0, 1, 2))
    out_BGRQD: Tensor = weights_BGRQK.to(values.dtype) @ values.unsqueeze(2)
    return out_BGRQD.flatten(1, 2)
