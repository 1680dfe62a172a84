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


class GrowingAxis:
    """A tensor that grows along one axis; its room doubles, so that n appends copy O(n) rather than O(n^2)."""

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._room: Tensor | None = None
        self.length = 0

    def view(self) -> Tensor:
        assert self._room is not None, "nothing stored yet"
        return self._room.narrow(self._axis, 0, self.length)

    def append(self, new: Tensor, capacity: int | None) -> None:
        """Put `new` behind what is stored. `capacity`: keep only that many, the last ones."""
        axis, added = self._axis, new.shape[self._axis]
        if capacity is not None:
            both = new if self._room is None else torch.cat((self.view(), new), axis)
            self._room = both.narrow(axis, max(0, both.shape[axis] - capacity), min(capacity, both.shape[axis])).clone()
            self.length = self._room.shape[axis]
            return
        if self._room is None:
            self._room = new.clone()
        elif self.length + added > self._room.shape[axis]:
            shape = list(self._room.shape)
            shape[axis] = 2 * (self.length + added)
            room = self._room.new_empty(shape)
            room.narrow(axis, 0, self.length).copy_(self.view())
            self._room = room
        self._room.narrow(axis, self.length, added).copy_(new)
        self.length += added


class InMemoryReader:
    """Blocks kept as tensors: for texts read in windows, and as the oracle for every other reader.

    All rows of the batch hold the same number of blocks. `capacity` keeps only that many, dropping the oldest.
    """

    def __init__(self, layers: Sequence[int], *, capacity: int | None = None) -> None:
        self._layers = tuple(layers)
        self._capacity = capacity
        self._keys: dict[int, GrowingAxis] = {}  # layer -> keys_BGNLD
        self._values: dict[int, GrowingAxis] = {}
        self._lengths_BN = GrowingAxis(1)

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
    def layers(self) -> Sequence[int]:
        return self._layers

    @property
    def num_blocks(self) -> int:
        return self._lengths_BN.length

    def append(self, layers: dict[int, tuple[Tensor, Tensor]], lengths_BN: Tensor) -> None:
        assert set(layers) == set(self._layers)
        for layer, (keys_BGNLD, values_BGNLD) in layers.items():
            for rows, new in ((self._keys, keys_BGNLD), (self._values, values_BGNLD)):
                rows.setdefault(layer, GrowingAxis(2)).append(new, self._capacity)
        self._lengths_BN.append(lengths_BN, self._capacity)

    def landmarks(self, layer: int) -> Tensor:
        return self._keys[layer].view()[..., -1, :]

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        return choose_blocks(queries_BGXRD, self.landmarks(layer), k)

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, groups = ids_BGXS.shape[:2]
        row = torch.arange(batch, device=ids_BGXS.device).view(-1, 1, 1, 1)
        if self._lengths_BN.view().shape[0] == 1:  # several continuations of one text read the same memory
            row = torch.zeros_like(row)
        head = torch.arange(groups, device=ids_BGXS.device).view(1, -1, 1, 1)
        keys, values = self._keys[layer].view(), self._values[layer].view()
        return keys[row, head, ids_BGXS], values[row, head, ids_BGXS], self._lengths_BN.view()[row, ids_BGXS]
