"""Turns blocks into passages that people can read: neighbours joined, ends moved to sentence borders.

Works on numbers and strings only; `retrieval.query.passage_builder` fetches them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# How far a passage may grow at either end to reach a sentence border, and how many blocks one passage may join.
REACH_CHARACTERS = 160
MAX_JOINED_BLOCKS = 3

_SENTENCE_START = re.compile(r"(?:[.!?…][\"'”’)\]]*\s+|\n\s*\n\s*)(?=\S)")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*(?=\s|$)|\n\s*\n")


@dataclass(frozen=True)
class Hit:
    """A block that a search or an answer found: its number in its document and its score."""

    block_id: int
    document_id: str
    ordinal: int
    score: float


def join_neighbours(
    hits: Sequence[Hit], count: int, joined: Callable[[Iterable[float]], float] = sum
) -> list[list[Hit]]:
    """The best `count` groups of neighbouring blocks, best first; inside a group in text order.

    `hits` come best first. Exactly `count` groups are returned unless there are fewer hits: then each hit is a group.
    `joined` makes a group's score of the scores of its hits.
    """
    groups: list[list[Hit]] = []
    for limit in range(MAX_JOINED_BLOCKS, 0, -1):
        groups = _grouped(hits, count, limit)
        if len(groups) >= count:
            break
    groups.sort(key=lambda group: -joined(hit.score for hit in group))
    return groups[:count]


def _grouped(hits: Sequence[Hit], count: int, limit: int) -> list[list[Hit]]:
    """Groups of at most `limit`, from hits taken best first until `count` groups stand and the next hit would open
    another."""
    groups: list[list[Hit]] = []
    for hit in hits:
        beside = [group for group in groups if _touches(group, hit)]
        if sum(len(group) for group in beside) + 1 > limit:
            beside = [group for group in beside if len(group) < limit][:1]
        if not beside and len(groups) == count:
            break
        for group in beside:
            groups.remove(group)
        groups.append(
            sorted([hit, *(member for group in beside for member in group)], key=lambda member: member.ordinal)
        )
    return groups


def _touches(group: Sequence[Hit], hit: Hit) -> bool:
    return group[0].document_id == hit.document_id and hit.ordinal in (group[0].ordinal - 1, group[-1].ordinal + 1)


def readable_span(text: str, start: int, end: int) -> tuple[int, int]:
    """(start, end) moved outward to sentence borders within `REACH_CHARACTERS`, else to word borders."""
    return _sentence_start(text, start), _sentence_end(text, end)


def _sentence_start(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    low = max(0, start - REACH_CHARACTERS)
    borders = [
        match.end() for match in _SENTENCE_START.finditer(text, max(0, low - 2), start + 1) if match.end() >= low
    ]
    if borders and borders[-1] <= start:
        return borders[-1]
    if low == 0:
        return 0
    while start > low and not text[start - 1].isspace():
        start -= 1
    return start


def _sentence_end(text: str, end: int) -> int:
    while end > 0 and text[end - 1].isspace():
        end -= 1
    high = min(len(text), end + REACH_CHARACTERS)
    match = _SENTENCE_END.search(text, max(0, end - 2), high)
    while match is not None and match.end() < end:
        match = _SENTENCE_END.search(text, match.end(), high)
    if match is not None:
        return match.end()
    if high == len(text):
        return len(text.rstrip())
    while end < high and not text[end].isspace():
        end += 1
    return end
