"""What attention reads a memory through, and the memory that lives in RAM.

A reader knows where blocks are and how to search their landmarks; it knows nothing of softmax, positions or text.
Keys are always *before* rotation.

Axes: B batch, H query heads, G KV heads, X voter groups per KV head, R rows that vote together, Q queries, N stored
blocks, S slots, L tokens in a block (landmark last), D head dim, Y memory layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from model.attention.selection import choose_blocks
from model.errors import ModelError


@dataclass(frozen=True, eq=False)
class KVBlock:
    """One finished block of one text: all memory layers, no batch axis."""

    keys_YGLD: Tensor
    values_YGLD: Tensor
    num_tokens: int
    """Ordinary tokens, in rows 0..num_tokens-1; row L-1 is the landmark. Rows between are padding, which only a text's
    last block has."""


@dataclass(frozen=True, eq=False)
class Selection:
    """What one layer read in one forward pass. Tensors stay on the device until they are used."""

    layer: int
    ids_BHQS: Tensor
    """Chosen blocks by their number in the reader, ascending."""
    gate_BHQS: Tensor
    """Attention mass on each chosen block; the rest of 1 is on the local window."""

    def one_query(self, row: int) -> "Selection":
        """The part of one query; negative rows count from the end."""
        at = slice(row, row + 1 or None)
        return Selection(self.layer, self.ids_BHQS[:, :, at], self.gate_BHQS[:, :, at])


class MemoryReader(Protocol):
    """Where attention finds stored blocks."""

    @property
    def layers(self) -> Sequence[int]:
        """Absolute numbers of the layers that can be read."""

    @property
    def num_blocks(self) -> int:
        """Stored blocks N; with 0 nothing is read."""

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        """ids_BGXS (int64, ascending, S = min(k, N)): blocks that each voter group chooses (`choose_blocks`).

        Queries are scaled and rotated such that their product with an *un-rotated* landmark key is the landmark logit.
        """

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """keys_BGXSLD and values_BGXSLD (before rotation, in the dtype and on the device of the model), lengths_BGXS
        (int64)."""


@runtime_checkable
class OrderedMemory(MemoryReader, Protocol):
    """A memory whose blocks are numbered in an order, the newest last, as paper positions need."""

    def landmarks(self, layer: int) -> Tensor:
        """landmarks_BGND of a layer, before rotation."""


@runtime_checkable
class TextMemory(OrderedMemory, Protocol):
    """The memory of one growing text, into which its finished blocks move."""

    def append(self, layers: dict[int, tuple[Tensor, Tensor]], lengths_BN: Tensor) -> None:
        """Store new blocks behind the old ones: keys_BGNLD and values_BGNLD by layer, ordinary tokens per block."""


def in_text_order(memory: MemoryReader) -> OrderedMemory:
    """`memory` itself, where its blocks stand in text order. Raises `ModelError` for one without an order, such as an
    index that only searches."""
    if not isinstance(memory, OrderedMemory):
        raise ModelError(
            "positions='paper' needs a memory whose blocks stand in order, such as an InMemoryReader: only there some "
            "blocks are newest; choose positions='library'."
        )
    return memory


class InMemoryReader:
    """Blocks kept as tensors: for texts read in windows, and as the reference that other readers are tested against.

    All rows of the batch hold the same number of blocks. `capacity` keeps only that many, dropping the oldest.
    """

    def __init__(self, layers: Sequence[int], *, capacity: int | None = None) -> None:
        self.layers = tuple(layers)
        self._capacity = capacity
        self._keys: dict[int, Tensor] = {}  # layer -> keys_BGNLD
        self._values: dict[int, Tensor] = {}
        self._lengths_BN: Tensor | None = None

    @classmethod
    def from_blocks(
        cls,
        layers: Sequence[int],
        blocks: Sequence[KVBlock],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> "InMemoryReader":
        """A memory of one row from finished blocks; the Y axis of the blocks belongs to `layers`, in order."""
        memory = cls(layers)
        if blocks:
            keys = torch.stack([block.keys_YGLD for block in blocks], 2).to(device=device, dtype=dtype)  # YGNLD
            values = torch.stack([block.values_YGLD for block in blocks], 2).to(device=device, dtype=dtype)
            lengths = torch.tensor([[block.num_tokens for block in blocks]], device=keys.device)
            memory.append({layer: (keys[None, y], values[None, y]) for y, layer in enumerate(layers)}, lengths)
        return memory

    @property
    def num_blocks(self) -> int:
        return 0 if self._lengths_BN is None else self._lengths_BN.shape[1]

    def append(self, layers: dict[int, tuple[Tensor, Tensor]], lengths_BN: Tensor) -> None:
        assert set(layers) == set(self.layers)
        for layer, (keys_BGNLD, values_BGNLD) in layers.items():
            self._keys[layer] = self._joined(self._keys.get(layer), keys_BGNLD, 2)
            self._values[layer] = self._joined(self._values.get(layer), values_BGNLD, 2)
        self._lengths_BN = self._joined(self._lengths_BN, lengths_BN, 1)

    def _joined(self, old: Tensor | None, new: Tensor, axis: int) -> Tensor:
        """Both, or the last `capacity` of them."""
        both = new.clone() if old is None else torch.cat((old, new), axis)
        kept = both.shape[axis] if self._capacity is None else min(self._capacity, both.shape[axis])
        return both.narrow(axis, both.shape[axis] - kept, kept)

    def landmarks(self, layer: int) -> Tensor:
        return self._keys[layer][..., -1, :]

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        return choose_blocks(queries_BGXRD, self.landmarks(layer), k)

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert self._lengths_BN is not None, "nothing stored yet"
        batch, groups = ids_BGXS.shape[:2]
        row = torch.arange(batch, device=ids_BGXS.device).view(-1, 1, 1, 1)
        if len(self._lengths_BN) == 1:  # several continuations of one text read the same memory
            row = torch.zeros_like(row)
        head = torch.arange(groups, device=ids_BGXS.device).view(1, -1, 1, 1)
        keys_BGXSLD, values_BGXSLD = (held[layer][row, head, ids_BGXS] for held in (self._keys, self._values))
        return keys_BGXSLD, values_BGXSLD, self._lengths_BN[row, ids_BGXS]
