"""The memory of one long text, of which only landmarks stay with the model.

Its blocks are written into a folder window by window, as those of documents are, and read through a cache of limited
size. What attention reads is bit for bit what `InMemoryReader` would give it.

Axes: B batch (1 here), G KV heads, X voter groups, R rows that vote together, S slots, U distinct blocks of one read, N
stored blocks, L tokens in a block (landmark last), D head dim, Y layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from model.attention.selection import choose_blocks
from model.checkpoint.landmark_model import LandmarkModel
from retrieval.index.blocks import BlockCache, BlockShape
from storage.kv.format import KVLayout
from storage.kv.store import KVBlockStore

CACHE_BYTES = 1 << 30
_KINDS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


@contextmanager
def offloaded_text(model: LandmarkModel, folder: Path, *, cache_bytes: int = CACHE_BYTES) -> Iterator[OffloadedText]:
    """A memory in a new folder inside `folder`, which is removed at the end. `cache_bytes` bounds the blocks that stay
    on the model's device. Raises `StoreFull` and `CannotWrite` of `storage.errors` while a text is read."""
    layers = tuple(range(model.num_layers))
    size = model.num_kv_heads, model.config.block_size, model.head_dim
    shape = BlockShape(layers, *size, model.dtype, model.device)
    with TemporaryDirectory(dir=folder) as own:
        store = KVBlockStore(Path(own), KVLayout(layers, *size, _KINDS[model.dtype]), "one text")
        yield OffloadedText(store, BlockCache(store, shape, cache_bytes, whole_share=0.0))


class OffloadedText:
    """A `model.attention.memory.TextMemory` of one row over a store."""

    def __init__(self, store: KVBlockStore, cache: BlockCache) -> None:
        self._store, self._cache = store, cache
        self._refs: list[tuple[str, int]] = []
        self._lengths_N = GrowingAxis(0)
        self._landmarks = {layer: GrowingAxis(2) for layer in self.layers}

    @property
    def layers(self) -> Sequence[int]:
        return self._cache.shape.layers

    @property
    def num_blocks(self) -> int:
        return len(self._refs)

    def append(self, layers: dict[int, tuple[Tensor, Tensor]], lengths_BN: Tensor) -> None:
        assert set(layers) == set(self.layers) and len(lengths_BN) == 1
        keys_NYGLD, values_NYGLD = (
            torch.stack([layers[layer][part][0] for layer in self.layers]).movedim(2, 0) for part in (0, 1)
        )
        shard = self._store.write(keys_NYGLD, values_NYGLD, lengths_BN[0])
        self._refs += [(shard.name, row) for row in range(len(keys_NYGLD))]
        self._lengths_N.append(lengths_BN[0].cpu())
        for layer, landmarks in self._landmarks.items():
            landmarks.append(layers[layer][0][..., -1, :])

    def landmarks(self, layer: int) -> Tensor:
        return self._landmarks[layer].view()

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        return choose_blocks(queries_BGXRD, self.landmarks(layer), k)

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        distinct_U, pick = np.unique(ids_BGXS.cpu().numpy(), return_inverse=True)
        pick_BGXS = torch.from_numpy(pick.reshape(ids_BGXS.shape))
        refs_U = [self._refs[number] for number in distinct_U.tolist()]
        keys_BGXSLD, values_BGXSLD = self._cache.read(layer, distinct_U, refs_U, pick_BGXS)
        lengths_BGXS = self._lengths_N.view()[torch.from_numpy(distinct_U)][pick_BGXS]
        return keys_BGXSLD, values_BGXSLD, lengths_BGXS.to(ids_BGXS.device)


class GrowingAxis:
    """A tensor that grows along one axis; its room doubles, so that n appends copy O(n) rather than O(n^2)."""

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._room: Tensor | None = None
        self.length = 0

    def view(self) -> Tensor:
        assert self._room is not None, "nothing stored yet"
        return self._room.narrow(self._axis, 0, self.length)

    def append(self, new: Tensor) -> None:
        """Put `new` behind what is stored."""
        axis, added = self._axis, new.shape[self._axis]
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
