"""Memories for the checks: one that keeps attention from what it wants, and what landmarks vote for.

Axes: N blocks, H query heads, G KV heads, X voter groups, R rows, T tokens, D head dim.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.memory import InMemoryReader
from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel
from research.prefill_batch import prefill_batch


@dataclass(frozen=True)
class Library:
    """Passages read alone, as a store would hold them."""

    memory: InMemoryReader
    first_block: list[int]
    """Number of the first block of each passage; one more entry for the end."""

    def blocks_of(self, passage: int) -> range:
        return range(self.first_block[passage], self.first_block[passage + 1])


def read_passages(model: LandmarkModel, passages: Sequence[Sequence[int]], *, batch: int = 8) -> Library:
    """Read raw tokens of passages through the product's prefill."""
    held, first = [], [0]
    for start in range(0, len(passages), batch):
        blocks = sorted(prefill_batch(model, passages[start : start + batch]), key=lambda pair: pair[0])
        held += [block for _, block in blocks]
        for number in range(len(passages[start : start + batch])):
            first.append(first[-1] + sum(1 for which, _ in blocks if which == number))
    memory = InMemoryReader.from_blocks(model.memory_layers, held, device=model.device, dtype=model.dtype)
    return Library(memory, first)


class PartOfMemory:
    """A `MemoryReader` that shows some blocks of another; or zeros in place of what they hold; or that gives attention
    the blocks it wants least."""

    def __init__(
        self, memory: InMemoryReader, *, blocks: Sequence[int] | None = None, zeroed: bool = False, worst: bool = False
    ) -> None:
        self._memory, self._zeroed, self._sign = memory, zeroed, -1 if worst else 1
        self._only = None if blocks is None else torch.tensor(list(blocks))

    @property
    def layers(self) -> Sequence[int]:
        return self._memory.layers

    @property
    def num_blocks(self) -> int:
        return self._memory.num_blocks if self._only is None else len(self._only)

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        if self._only is None:
            return self._memory.search(layer, self._sign * queries_BGXRD, k)
        assert len(self._only) <= k, "few blocks are all read"
        return torch.arange(len(self._only), device=queries_BGXRD.device).expand(*queries_BGXRD.shape[:3], -1)

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ids = ids_BGXS if self._only is None else self._only.to(ids_BGXS.device)[ids_BGXS]
        keys, values, lengths = self._memory.read(layer, ids)
        return (keys * 0, values * 0, lengths) if self._zeroed else (keys, values, lengths)


@torch.no_grad()
def landmark_votes(
    model: LandmarkModel, memory: InMemoryReader, prompt: Sequence[int], policy: SelectionPolicy
) -> Tensor:
    """votes_N at the prompt's last token: the mean, over memory layers and heads, of the softmax over all landmarks;
    the queries have read the memory in the layers below."""
    context = model.context(reader=memory, policy=policy)
    context.search_queries = {}
    ids = model.with_landmarks(prompt)
    model.encode(torch.tensor([ids], device=model.device), context)
    votes_N = torch.zeros(memory.num_blocks, device=model.device)
    for layer in memory.layers:
        landmarks_GND = memory.landmarks(layer)[0]
        queries_GRD = context.search_queries[layer][0, :, -1].unflatten(0, (len(landmarks_GND), -1))
        logits_GRN = queries_GRD.float() @ landmarks_GND.float().mT
        votes_N += logits_GRN.softmax(-1).mean((0, 1))
    return votes_N / len(memory.layers)
