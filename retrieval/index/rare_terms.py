"""Blocks that hold rare words of a question, whatever their landmarks say.

A landmark is what a block is about. Among millions of blocks it does not always propose the one that holds a name, a
number or a code, so blocks with such words are proposed as well; the keys of their tokens decide, as of all others.
Words of a block are noted when it is stored (`storage.catalogue.terms`).

Axes: P proposed blocks.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Set
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from retrieval.engine.workspace import Workspace
from retrieval.index.blocks import MemorySnapshot
from retrieval.index.terms import SMALL_WORDS, crossing_terms, number_of, terms_of

RULE = 3
"""Of `terms.terms_of` and `terms.number_of`: another rule notes all words anew."""
PROPOSED = 64
RARE_SHARE = 0.01
"""A word proposes blocks if at most this share of them holds it, or at most ALWAYS_RARE."""
ALWAYS_RARE = 16
MOST_SHARDS = 2000
"""Words that more shards hold are not looked up."""
_SHARDS_AT_ONCE = 64


def note_terms(
    workspace: Workspace, document_id: str | None = None, *, go_on: Callable[[], bool] = lambda: True
) -> int:
    """Note the words of all shards for which this was not done, or of one document's, as long as `go_on`. Returns of
    how many shards. Questions go first."""
    noted = 0
    while shard_ids := workspace.catalogue.shards_without_terms(
        rule=RULE, document_id=document_id, most=_SHARDS_AT_ONCE
    ):
        for shard_id in shard_ids:
            if not go_on():
                return noted
            workspace.scheduler.wait_for_queries()
            _note_terms(workspace, shard_id)
            noted += 1
    return noted


def _note_terms(workspace: Workspace, shard_id: int) -> None:
    model, indices_of = workspace.loaded(any_memory=True).model, defaultdict(list)
    texts = [model.decode(tokens) for tokens in workspace.catalogue.tokens_of_shard(shard_id)]
    crossing = [crossing_terms(left, right) for left, right in pairwise(texts)]
    for index, (text, before, behind) in enumerate(zip(texts, [set(), *crossing], [*crossing, set()], strict=False)):
        for number in sorted({number_of(term) for term in (terms_of(text) | before | behind) - SMALL_WORDS}):
            indices_of[number].append(index)
    workspace.catalogue.put_terms(shard_id, indices_of, rule=RULE)


def with_rare_terms(
    workspace: Workspace, snapshot: MemorySnapshot, asked: Set[str], positions_P: Tensor, within: Tensor | None
) -> Tensor:
    """Proposed positions and those of the blocks that hold most of the rare ones among the terms of a question,
    ascending."""
    numbers = {number_of(term) for term in asked}
    found = workspace.catalogue.blocks_with_terms(numbers, most_shards=MOST_SHARDS)
    held = [snapshot.positions_of_blocks(block_ids.tolist()) for block_ids in found.values()]
    if within is not None:
        held = [positions[torch.isin(positions, within)] for positions in held]
    best = most_rare([positions.tolist() for positions in held], snapshot.num_blocks if within is None else len(within))
    return torch.from_numpy(np.union1d(positions_P.numpy(), np.array(best, dtype=np.int64)))


def most_rare(held: Sequence[Sequence[int]], count: int) -> list[int]:
    """The PROPOSED best of `count` blocks by the words that they hold, weighed by rarity; of equals the newest. `held`:
    of each word, the blocks that hold it."""
    rarities: Counter[int] = Counter()
    for positions in held:
        if 0 < len(positions) <= max(ALWAYS_RARE, RARE_SHARE * count):
            rarities.update(dict.fromkeys(positions, math.log(count / len(positions))))
    return sorted(rarities, key=lambda position: (rarities[position], position), reverse=True)[:PROPOSED]
