"""A passage read once, behind the prefix that every passage shares.

What is stored is its keys and values of all layers before rotation, without the prefix. The prefix gives attention the
beginning that it rests on in every text (its sink), so that no passage needs one of its own.

Axes: Y layers, G KV heads, T tokens, D head dim.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.plain_attention import PlainContext
from model.attention.rotary import rotate
from model.checkpoint.chat.chat_model import ChatModel


@dataclass(frozen=True, eq=False)
class Segment:
    """Tokens and what the checkpoint made of them behind the prefix, before rotation."""

    ids: tuple[int, ...]
    keys_YGTD: Tensor
    values_YGTD: Tensor


def read_prefix(model: ChatModel) -> Segment:
    """The shared beginning of every prompt."""
    return _read(model, None, model.prefix_ids, None)


def read_segment(
    model: ChatModel, prefix: Segment, ids: Sequence[int], *, between_layers: Callable[[], None] | None = None
) -> Segment:
    """A passage of at least one token. Raises `ContextTooLong`.

    between_layers: called in every layer, so that others may use the processor.
    """
    return _read(model, prefix, ids, between_layers)


def rotated(model: ChatModel, layer: int, keys_GTD: Tensor, position_T: Tensor) -> Tensor:
    """Stored keys of a layer at these positions."""
    if not model.rotates(layer):
        return keys_GTD
    cos, sin = model.table(layer)
    return rotate(keys_GTD, cos[position_T], sin[position_T])


def _read(
    model: ChatModel, prefix: Segment | None, ids: Sequence[int], between_layers: Callable[[], None] | None
) -> Segment:
    before = 0 if prefix is None else len(prefix.ids)
    rows = model.key_rows(before + len(ids))
    rows.position_K[:] = torch.arange(rows.room, device=model.device)
    if prefix is not None:
        for layer in range(model.num_layers):
            keys = rotated(model, layer, prefix.keys_YGTD[layer], rows.position_K[:before])
            rows.keys_YBGKD[layer, 0, :, :before] = keys
            rows.values_YBGKD[layer, 0, :, :before] = prefix.values_YGTD[layer]
    written: list[tuple[Tensor, Tensor]] = []
    row_Q = torch.arange(before, rows.room, device=model.device)
    model.run(
        ids,
        PlainContext(rows, row_Q, rows.room, model.table, written=written, between_layers=between_layers),
    )
    keys_YGTD, values_YGTD = (torch.stack([pair[which][0] for pair in written]) for which in (0, 1))
    return Segment(tuple(ids), keys_YGTD, values_YGTD)
