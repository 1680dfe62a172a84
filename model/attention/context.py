"""What attention must know of one forward pass.

Axes: B batch, H query heads, G KV heads, Q queries, K local keys, T tokens, D head dim.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from model.attention.memory import MemoryReader, Selection
from model.attention.rotary import rotary_tables, rotate
from model.attention.selection import SelectionPolicy


class LastLayerReached(Exception):  # noqa: N818 - the regular end of a pass that only fills a cache
    """Ends a forward pass at `LandmarkContext.last_layer`."""


@dataclass
class LandmarkContext:
    """One forward pass; handed through the backbone as the keyword `landmark`."""

    block_size: int
    rotary: nn.Module
    valid_BK: Tensor | None = None
    """False at padding among the local keys. None: everything is valid."""
    reader: MemoryReader | None = None
    policy: SelectionPolicy | None = None
    """Must be given with a reader."""
    selections: list[Selection] = field(default_factory=list)
    """Filled by every read, in layer order."""
    search_queries: dict[int, Tensor] | None = None
    """If given, filled with queries_BHQD as `MemoryReader.search` takes them, by layer."""
    weights: list[Tensor] | None = None
    """If given, filled with the attention weights on the local window, by layer."""
    last_layer: int | None = None
    """If given, the pass ends at this layer once its keys and values are in the cache (see
    `LandmarkModel.fill_cache`)."""
    rotated_keys: dict[int, tuple[int, Tensor]] | None = None
    """If given, holds by layer the position of the first local key and rotated_BGKD of the passes before, so that each
    key is rotated once. Of one window: a new one is needed when keys leave its front."""
    between_layers: Callable[[], None] | None = None
    """If given, called in every layer: a long pass may let others use the processor there."""
    _tables: dict[tuple[int, int, torch.dtype], tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def local_start(self) -> int:
        """Position at which the local window starts."""
        stored = 0 if self.reader is None else self.reader.num_blocks
        return 0 if self.policy is None else self.policy.local_slot(stored) * self.block_size

    @property
    def memory(self) -> tuple[MemoryReader, SelectionPolicy]:
        """The reader and how blocks are chosen from it, in a layer that `reads`."""
        assert self.reader is not None and self.policy is not None
        return self.reader, self.policy

    def reads(self, layer: int) -> bool:
        """Whether a layer has stored blocks to read."""
        return self.reader is not None and layer in self.reader.layers and self.reader.num_blocks > 0

    def enter_layer(self, layer: int, query_BHQD: Tensor, num_keys: int, scaling: float) -> None:
        """What is done in a layer before its attention. Raises `LastLayerReached` where the pass ends."""
        if self.search_queries is not None:
            self.search_queries[layer] = self.queries_for_search(query_BHQD, num_keys, scaling)
        if layer == self.last_layer:
            raise LastLayerReached
        if self.between_layers is not None:
            self.between_layers()

    def valid_keys(self, num_keys: int) -> Tensor | None:
        """valid_BK for a layer whose cache holds complete blocks in front of the window."""
        if self.valid_BK is None or self.valid_BK.shape[1] == num_keys:
            return self.valid_BK
        return nn.functional.pad(self.valid_BK, (num_keys - self.valid_BK.shape[1], 0), value=True)

    def rotate_local(self, layer: int, key_BGKD: Tensor, before: int) -> Tensor:
        """rotated_BGKD of the local window, whose first `before` keys are from earlier passes."""
        if self.rotated_keys is None:
            return rotate(key_BGKD, *self.local_table(0, key_BGKD.shape[2], key_BGKD))
        start, kept_BGKD = self.rotated_keys.get(layer, (self.local_start, key_BGKD[:, :, :0]))
        if start != self.local_start or kept_BGKD.shape[2] != before:
            kept_BGKD, before = key_BGKD[:, :, :0], 0
        new_BGKD = rotate(key_BGKD[:, :, before:], *self.local_table(before, key_BGKD.shape[2], key_BGKD))
        rotated_BGKD = torch.cat((kept_BGKD, new_BGKD), 2)
        self.rotated_keys[layer] = self.local_start, rotated_BGKD
        return rotated_BGKD

    def local_table(self, first: int, last: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of rows first..last-1 of the local window."""
        return self.table(self.local_start + first, self.local_start + last, like)

    def table(self, start: int, stop: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of positions start..stop-1; the same for all layers of a forward pass, so computed once."""
        # Not kept while compiling: each layer would depend on what lies in the tables already, and be compiled anew.
        key, kept = (start, stop, like.dtype), {} if torch.compiler.is_compiling() else self._tables
        if key not in kept:
            kept[key] = rotary_tables(self.rotary, start, stop, like)
        return kept[key]

    def queries_for_search(self, query_BHQD: Tensor, num_keys: int, scaling: float) -> Tensor:
        """Queries whose product with an un-rotated landmark key is the landmark's logit in slot 0.

        q at position p and a landmark at position m = L - 1 meet as R(p - m) q . k; YaRN scales both sides, hence the
        second factor.
        """
        first = self.local_start + num_keys - query_BHQD.shape[2] - (self.block_size - 1)
        cos, sin = self.table(first, first + query_BHQD.shape[2], query_BHQD)
        return rotate(query_BHQD, cos, sin) * (scaling * getattr(self.rotary, "attention_scaling", 1.0))
