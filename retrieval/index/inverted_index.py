"""The inverted index: which blocks hold terms of a question, or stand under them, whatever their landmarks say.

A landmark is what a block is about. Among millions of blocks it does not always propose the one with a name, a number
or a code. So blocks that hold rare terms of the question are proposed as well, and every proposed block gains by the
terms that it holds, weighed by inverse document frequency, also where only its heading or the caption of its table
holds them: of 268 questions about documents that nothing was made for, 0.696 are answered then, 0.683 without. A
block's terms are indexed when it is stored (`storage.catalogue.search`).

Axes: C blocks.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retrieval.engine.workspace import Workspace
from retrieval.index.blocks import MemorySnapshot
from retrieval.index.headings import Headings
from retrieval.index.terms import SMALL_WORDS, crossing_terms, term_id, terms_of
from storage.errors import NotFound as NoRow

TERM_INDEX_VERSION = 8
"""Version of what is indexed: `terms.terms_of`, `terms.term_id`, `headings.Headings`. Another one indexes everything
again."""
PROPOSED = 64
RARE_SHARE = 0.01
"""A term proposes blocks if at most this share of them holds it, or at most ALWAYS_RARE."""
ALWAYS_RARE = 16
MOST_SHARDS = 2000
"""Terms that more shards hold are not looked up."""
_SHARDS_AT_ONCE = 64
_ABOVE = "^"
"""Before a term that stands above a block. No term begins so."""


def index_terms(
    workspace: Workspace, document_id: str | None = None, *, go_on: Callable[[], bool] = lambda: True
) -> int:
    """Index the terms of all shards that are not indexed yet, or of one document's, as long as `go_on`. Returns the
    number of shards indexed. Questions go first."""
    indexed = 0

    @lru_cache(maxsize=1)  # shards come document by document
    def headings_of(one: str) -> Headings:
        try:
            extracted = workspace.catalogue.extracted_text(one)
        except NoRow:  # it was deleted meanwhile
            return Headings("", ())
        return Headings(extracted.text, extracted.extras.get("outline", ()))

    while shard_ids := workspace.catalogue.shards_without_terms(
        rule=TERM_INDEX_VERSION, document_id=document_id, most=_SHARDS_AT_ONCE
    ):
        for shard_id in shard_ids:
            if not go_on():
                return indexed
            workspace.scheduler.wait_for_queries()
            _index_shard(workspace, shard_id, headings_of)
            indexed += 1
    return indexed


def _index_shard(workspace: Workspace, shard_id: int, headings_of: Callable[[str], Headings]) -> None:
    model, indices_of = workspace.loaded(any_memory=True).model, defaultdict(list)
    rows = workspace.catalogue.blocks_of_shard(shard_id)
    texts = [model.decode(row.tokens) for row in rows]
    crossing = [crossing_terms(left, right) for left, right in pairwise(texts)]
    for index, (row, text, before, behind) in enumerate(
        zip(rows, texts, [set(), *crossing], [*crossing, set()], strict=False)
    ):
        above = terms_of(headings_of(row.document_id).above(row.start, row.end)) - SMALL_WORDS
        terms = (terms_of(text) | before | behind) - SMALL_WORDS | {_ABOVE + term for term in above}
        for number in sorted(map(term_id, terms)):
            indices_of[number].append(index)
    workspace.catalogue.put_terms(shard_id, indices_of, rule=TERM_INDEX_VERSION)


@dataclass(frozen=True, eq=False)
class Postings:
    """The postings of a question's terms within a scope. `indices_of`: the blocks of each term that is looked up,
    ascending; `above_of`: those that stand under it; `common`: terms that are not, because too many shards hold them;
    `count`: blocks in scope."""

    asked: Set[str]
    indices_of: Mapping[str, NDArray[np.int64]]
    above_of: Mapping[str, NDArray[np.int64]]
    common: Set[str]
    count: int

    def proposed(self) -> NDArray[np.int64]:
        """The PROPOSED best indices by the rare terms that they hold, weighed by idf; of equals the newest."""
        return np.array(most_rare([held.tolist() for held in self.indices_of.values()], self.count), dtype=np.int64)

    def shares(self, indices_C: NDArray[np.int64]) -> Tensor:
        """shares_C, 0 to 1: how many of the terms that were looked up each block holds or stands under, weighed by idf
        (inverse document frequency, over the blocks that hold them)."""
        shares_C = np.zeros(len(indices_C), dtype=np.float32)
        total = 0.0
        for term, held in self.indices_of.items():
            rarity = math.log(1 + (self.count - len(held) + 0.5) / (len(held) + 0.5)) if len(held) else 0.0
            shares_C[np.isin(indices_C, held) | np.isin(indices_C, self.above_of[term])] += rarity
            total += rarity
        return torch.from_numpy(shares_C / (total or 1.0))

    def missing(self, indices_C: NDArray[np.int64]) -> set[str]:
        """Terms that none of these blocks holds."""
        held = {term for term, indices in self.indices_of.items() if np.isin(indices, indices_C).any()}
        return set(self.asked) - held - self.common


def postings_of(workspace: Workspace, snapshot: MemorySnapshot, asked: Set[str], within: Tensor | None) -> Postings:
    """Looks up the terms. `within`: ascending indices in scope; None for all."""
    number = {term: term_id(term) for term in [*asked, *(_ABOVE + term for term in asked)]}
    shards = workspace.catalogue.count_terms(set(number.values()))
    looked_up = {term for term in number if shards.get(number[term], 0) <= MOST_SHARDS}
    found = workspace.catalogue.blocks_with_terms({number[term] for term in looked_up})

    def indices(term: str) -> NDArray[np.int64]:
        ids = found.get(number[term]) if term in looked_up else None
        held = np.zeros(0, np.int64) if ids is None else snapshot.indices_of_blocks(ids.tolist()).numpy()
        return held if within is None else held[np.isin(held, within.numpy())]

    rare = sorted(asked & looked_up)
    return Postings(
        asked,
        {term: indices(term) for term in rare},
        {term: indices(_ABOVE + term) for term in rare},
        asked - looked_up,
        snapshot.num_blocks if within is None else len(within),
    )


def most_rare(held: Sequence[Sequence[int]], count: int) -> list[int]:
    """The PROPOSED best of `count` blocks by the terms that they hold, weighed by idf; of equals the newest. `held`:
    the blocks of each term."""
    rarities: Counter[int] = Counter()
    for indices in held:
        if 0 < len(indices) <= max(ALWAYS_RARE, RARE_SHARE * count):
            rarities.update(dict.fromkeys(indices, math.log(count / len(indices))))
    return sorted(rarities, key=lambda index: (rarities[index], index), reverse=True)[:PROPOSED]
