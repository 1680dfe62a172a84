"""What a block stands under: the headings of its section, and the caption of its table.

A row of a table seldom says what the table is about, and a paragraph seldom repeats its heading; who asks names both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from model.scoring.sentences import is_row

_LONGEST_HEADING, _LONGEST_CAPTION = 120, 160  # characters
_SHORTEST_CAPTION = 40
"""Characters; a shorter line above a table is joined by the one above it."""
_PRINTED_BELOW = 20_000
"""Characters below the place that a table of contents gives, often the top of the page, within which a heading is
looked for."""

Outline = Sequence[tuple[str, int, int | None, int | None]]
"""(title, level, page, start) of each heading, as it is stored; see `retrieval.extraction.document.OutlineEntry`."""


class Headings:
    """The headings and table captions of one document. `text`: its whole text."""

    def __init__(self, text: str, outline: Outline) -> None:
        self._sections = _sections(text, outline)
        self._tables = _tables(text)

    def above(self, start: int, end: int) -> str:
        """What stands above the characters `start` .. `end` of the document; "" where nothing does."""
        at = bisect_right(self._sections, start, key=lambda section: section[0]) - 1
        over = [self._sections[at][1]] if at >= 0 else []
        at = bisect_right(self._tables, end, key=lambda table: table[0]) - 1
        if at >= 0 and start < self._tables[at][1]:
            over.append(self._tables[at][2])
        return " ".join(over)


def _sections(text: str, outline: Outline) -> list[tuple[int, str]]:
    """(start, headings from the highest level on) of each section, from top to bottom."""
    placed, last = [], 0
    for title, level, _, start in outline:
        if start is None:
            continue
        begin = max(start, last)
        found = text.find(title, begin, begin + _PRINTED_BELOW)
        last = max(last, start if found < 0 else found)
        placed.append((last, level, title[:_LONGEST_HEADING]))
    sections: list[tuple[int, str]] = []
    path: list[tuple[int, str]] = []
    for start, level, title in placed:
        path = [*(one for one in path if one[0] < level), (level, title)]
        sections.append((start, " ".join(heading for _, heading in path)))
    return sections


def _tables(text: str) -> list[tuple[int, int, str]]:
    """(start, end, caption) of each run of rows, from top to bottom. The caption is the line or two above it."""
    tables: list[tuple[int, int, str]] = []
    above: list[str] = []
    begins: int | None = None
    breaks = [-1, *(at for at, letter in enumerate(text) if letter == "\n"), len(text)]
    for start, end in ((left + 1, right) for left, right in pairwise(breaks)):
        line = text[start:end].strip()
        if "\t" in line or is_row(line):
            begins = start if begins is None else begins
            continue
        if begins is not None and line:
            tables.append((begins, start, _caption(above)))
            begins, above = None, []
        if line:
            above = [*above[-1:], line]
    if begins is not None:
        tables.append((begins, len(text), _caption(above)))
    return tables


def _caption(above: Sequence[str]) -> str:
    kept = above[-1:] if above and len(above[-1]) > _SHORTEST_CAPTION else above
    return " ".join(kept)[:_LONGEST_CAPTION]
