"""The words of the best blocks, also those that a border cuts in two.

Blocks are cut by numbers of tokens, and a border may stand in a word or a code: "(Ctrl+" | "G)". Neither block would
have what is asked for; the blocks beside are looked at where that may be so.

Axes: C blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

import torch
from torch import Tensor

from retrieval.engine.workspace import Workspace
from retrieval.index.memory_snapshot import MemorySnapshot
from retrieval.index.terms import crossing_terms, may_be_cut, terms_of
from storage.records import Block

RowsOf = Callable[[Sequence[int]], Mapping[int, Block]]


def block_terms(
    workspace: Workspace, snapshot: MemorySnapshot, positions_C: Tensor, asked: Set[str], rows: RowsOf
) -> list[set[str]]:
    """Terms of each block, and those of the question that it shares with the block before or behind; none for a block
    whose document was deleted meanwhile. `rows`: the catalogue's, by id; those beside each block are read with it."""
    around = {position + step for position in positions_C.tolist() for step in (-1, 0, 1)}
    rows(snapshot.blocks.ids_N[sorted(at for at in around if 0 <= at < snapshot.num_blocks)].tolist())
    texts = _texts(workspace, snapshot, positions_C, rows)
    terms_C = [terms_of(text) for text in texts]
    beside: list[tuple[int, int, int]] = []  # number of a block, position of the one beside it, and on which side
    for number, (position, text) in enumerate(zip(positions_C.tolist(), texts, strict=True)):
        for step, may in zip((-1, 1), may_be_cut(text, asked - terms_C[number]), strict=True):
            if may and _continues(snapshot, position, step):
                beside.append((number, position + step, step))
    others = _texts(workspace, snapshot, torch.tensor([at for _, at, _ in beside], dtype=torch.long), rows)
    for (number, _, step), other in zip(beside, others, strict=True):
        left, right = (other, texts[number]) if step < 0 else (texts[number], other)
        terms_C[number] |= crossing_terms(left, right)
    return terms_C


def _continues(snapshot: MemorySnapshot, position: int, step: int) -> bool:
    """Whether the next position is the next block of the same document."""
    other = position + step
    return (
        0 <= other < snapshot.num_blocks
        and bool(snapshot.document_N[other] == snapshot.document_N[position])
        and int(snapshot.ordinal_N[other]) == int(snapshot.ordinal_N[position]) + step
    )


def _texts(workspace: Workspace, snapshot: MemorySnapshot, positions_C: Tensor, rows: RowsOf) -> list[str]:
    """Of each block; a block whose document was deleted meanwhile has none."""
    if not len(positions_C):
        return []
    model, ids = workspace.opened.model, snapshot.blocks.ids_N[positions_C.numpy()].tolist()
    found = rows(ids)
    return [model.decode(found[id_].tokens) if id_ in found else "" for id_ in ids]
