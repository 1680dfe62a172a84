"""Headers, footers and page numbers: lines that recur from page to page and are not part of the text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby, takewhile

import numpy as np

from retrieval.extraction.pdf.text_boxes import TextLine

_SHORTEST_DOCUMENT = 3  # pages; with fewer, repetition proves nothing
_OUTERMOST = 4  # lines from the top and from the bottom of a page that may be headers and footers
_ZONE = 0.14  # fraction of the page's height that headers and footers may occupy
_NEARBY = 6  # pages; a header may change with the chapter
_NUMBER = re.compile(
    r"(?:page\s*|p\.\s*|[-–—\[(|]\s*)?(\d{1,5}|[ivxlc]{1,8})(?:\s*(?:of|/)\s*\d{1,5})?\s*[-–—\])|.]?", re.I
)
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b", re.I)


def find_headers_footers(pages: Sequence[Sequence[TextLine]], heights: Sequence[float]) -> list[set[int]]:
    """For each page, the indices of its lines that are headers, footers or page numbers."""
    dropped: list[set[int]] = [set() for _ in pages]
    if len(pages) < _SHORTEST_DOCUMENT:
        return dropped
    usual = body_size(pages)
    repeated: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    numbers: dict[tuple[bool, int], list[tuple[int, int, float]]] = defaultdict(list)
    for page, lines in enumerate(pages):
        for index in _outer_lines(lines, heights[page]):
            line = lines[index]
            place = line.y0 / max(heights[page], 1.0)
            # A page number may share its line with a header set too large to be counted in `repeated`.
            cells = line.text.strip().split("\t")
            for number in {found[1] for cell in (cells[0], cells[-1]) if (found := _NUMBER.fullmatch(cell.strip()))}:
                numbers[number.isdigit(), _value(number) - page].append((page, index, place))
            if line.size <= 1.2 * usual:
                repeated[_DIGITS.sub("#", line.text.strip().lower())].append((page, index, place))
    for group in (*repeated.values(), *numbers.values()):
        for page, index, place in group:
            neighbours = {p for p, _, y in group if abs(p - page) <= _NEARBY and abs(y - place) < 0.02}
            if len(neighbours) >= _SHORTEST_DOCUMENT:
                dropped[page].add(index)
    filled = [page for page, lines in enumerate(pages) if lines]
    emptied = [page for page in filled if len(dropped[page]) == len(pages[page])]
    if 2 * len(emptied) > len(filled):  # the repeated lines are the content itself
        return [set() for _ in pages]
    return dropped


def _outer_lines(lines: Sequence[TextLine], height: float) -> list[int]:
    upright = [i for i, line in enumerate(lines) if line.turn == 0]
    by_height = sorted(upright, key=lambda i: lines[i].y0)
    top = [i for i in by_height[:_OUTERMOST] if lines[i].y1 < _ZONE * height]
    bottom = [i for i in by_height[-_OUTERMOST:] if lines[i].y0 > (1 - _ZONE) * height]
    turned = [i for i, line in enumerate(lines) if line.turn % 2 and _in_side_margin(line)]
    return sorted({*top, *bottom, *turned})


def _in_side_margin(line: TextLine) -> bool:
    """Whether the line is at the left or right edge of the page, like a printer's mark set sideways."""
    box = line.box_C4[line.placed_C]
    return bool(box[:, 2].max() < 0.1 or box[:, 0].min() > 0.9)


def notes_last(lines: Sequence[TextLine], body_size: float) -> list[TextLine]:
    """A page's lines with the footnotes of all columns moved to the end, so that the text is not interrupted."""
    columns = [list(group) for _, group in groupby(lines, key=lambda line: line.column)]
    notes: list[TextLine] = []
    for column in columns[:-1]:
        count = len(list(takewhile(lambda line: _is_note(line, body_size), reversed(column))))
        if 0 < count <= 0.6 * len(column) and column[-1].turn == 0:
            notes += column[len(column) - count :]
            del column[len(column) - count :]
    return [line for column in columns for line in column] + notes


def _is_note(line: TextLine, body_size: float) -> bool:
    return line.size < 0.93 * body_size and line.cells == 1 and not line.table


def body_size(pages: Sequence[Sequence[TextLine]]) -> float:
    """The median font size, weighted by characters, in points."""
    sizes = np.array([line.size for lines in pages for line in lines])
    weights = np.array([len(line.text) for lines in pages for line in lines])
    if not len(sizes):
        return 0.0
    order = np.argsort(sizes)
    return float(sizes[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])


def _value(text: str) -> int:
    """An Arabic or Roman number."""
    if text.isdigit():
        return int(text)
    values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}[letter] for letter in text.lower()]
    total = 0
    for value, following in zip(values, [*values[1:], 0], strict=True):
        total += -value if value < following else value
    return total
