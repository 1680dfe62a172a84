"""Follows lists: where the best candidates end inside a list, the blocks behind them are read too."""

from __future__ import annotations

from dataclasses import replace

from retrieval.query.extend import goes_on
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.retrieve import Candidates, Retrieved

BEST = 3
"""Lists near so many of the best blocks are followed,"""
MORE = 3
"""each for at most so many blocks."""


def with_whole_lists(passages: PassageBuilder, retrieved: Retrieved) -> Retrieved:
    """Adds the blocks in which lists near the best candidates go on, if sentences may be quoted from them."""
    if not (retrieved.quote and retrieved.answerable):
        return retrieved
    candidates = retrieved.candidates
    behind = [_behind(candidates, index) for index in _ends_of_best(candidates)]
    ids_N = candidates.snapshot.blocks.ids_N
    blocks = passages.blocks(int(ids_N[index]) for run in behind for index in run)
    added = []
    for end, *following in behind:
        for before, index in zip([end, *following], following, strict=False):
            block = blocks.get(int(ids_N[before]))
            if block is None or not goes_on(passages.text(block.document_id), block.end):
                break
            added.append(index)
    return replace(retrieved, candidates=candidates.with_more(added)) if added else retrieved


def _ends_of_best(candidates: Candidates) -> list[int]:
    """Indices of the last block of each run of candidates that holds one of the best."""
    indices, known = candidates.indices_C.tolist(), set(candidates.indices_C.tolist())
    ends = set()
    for index, rank in zip(indices, candidates.rank_C, strict=True):
        if rank < BEST:
            while index + 1 in known and _same_document(candidates, index, index + 1):
                index += 1
            ends.add(index)
    return sorted(ends)


def _behind(candidates: Candidates, end: int) -> list[int]:
    """`end` and the indices behind it in its document, at most MORE."""
    stop = end + 1
    while stop <= end + MORE and stop < candidates.snapshot.num_blocks and _same_document(candidates, end, stop):
        stop += 1
    return list(range(end, stop))


def _same_document(candidates: Candidates, first: int, second: int) -> bool:
    """Whether two indices stand in one document, as far apart as their places in it."""
    document_N, ordinal_N = candidates.snapshot.document_N, candidates.snapshot.ordinal_N
    return bool(document_N[first] == document_N[second] and ordinal_N[second] - ordinal_N[first] == second - first)
