"""Headers, footers and page numbers: lines that recur from page to page and interrupt the text.

Only what says nothing new is left out: a page number, a line that stood on an earlier page in the same words, and
numbers that a producer hid before headings.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise, takewhile

import numpy as np

from retrieval.extraction.pdf.text_boxes import APART, TextLine

_SHORTEST_DOCUMENT = 3  # pages; with fewer, repetition proves nothing
_OUTERMOST = 4  # lines from the top and from the bottom of a page that may be headers and footers
_ZONE = 0.14  # fraction of the page's height that headers and footers may occupy
_NEARBY = 6  # pages; a header may change with the chapter
_PAGE_NUMBER = re.compile(
    r"(?:(?:^|\t|\s[|•·–—-]\s)(?:page\b|p\.)?|\b(?:page|seite|p\.))[\s\[(–—-]*(\d{1,5}|(?a:[ivxlc]{1,8}))"
    r"(?:\s*(?:of|von|/)\s*\d{1,5})?[\s\])–—.-]*(?=$|\t|\s?[|•·])",
    re.I,
)
_HIDDEN_NUMBER = re.compile(r"(\d{1,4})B(?=[A-Z]\w)")  # "311BExcept where noted"
_FEWEST_HIDDEN = 3  # with fewer, "4BAll" may be a name
_SENTENCE_END = re.compile(r"[.!?:][\"'”’)\]]*\d{0,2}$")


def find_headers_footers(pages: Sequence[Sequence[TextLine]], heights: Sequence[float]) -> list[set[int]]:
    """For each page, the indices of its lines that are headers, footers or page numbers."""
    recurring: list[set[int]] = [set() for _ in pages]
    if len(pages) < _SHORTEST_DOCUMENT:
        return recurring
    usual = body_size(pages)
    groups: dict[str | tuple[bool, int], list[tuple[int, int, float]]] = defaultdict(list)
    for page, lines in enumerate(pages):
        for index in _outer_lines(lines, heights[page]):
            line = lines[index]
            at = (page, index, line.y0 / max(heights[page], 1.0))
            for found in _PAGE_NUMBER.finditer(line.text):
                groups[found[1].isdigit(), _value(found[1]) - page].append(at)
            if line.size <= 1.2 * usual:
                groups[line.text.strip().lower()].append(at)
    for group in groups.values():
        for page, index, place in group:
            neighbours = {p for p, _, y in group if abs(p - page) <= _NEARBY and abs(y - place) < 0.02}
            if len(neighbours) >= _SHORTEST_DOCUMENT:
                recurring[page].add(index)
    for lines, found_here in zip(pages, recurring, strict=True):
        _keep_whole(lines, found_here)
    filled = [page for page, lines in enumerate(pages) if lines]
    emptied = [page for page in filled if len(recurring[page]) == len(pages[page])]
    if 2 * len(emptied) > len(filled):  # the repeated lines are the content itself
        return [set() for _ in pages]
    return recurring


def _keep_whole(lines: Sequence[TextLine], recurring: set[int]) -> None:
    """Without lines that a sentence of the text runs through, and without rows of tables that have others."""
    wholes = [{n, n + 1} for n, (a, b) in enumerate(pairwise(lines)) if _runs_on(a, b)]
    tables = {line.table for line in lines if line.table}
    wholes += [{n for n, line in enumerate(lines) if line.table == table} for table in tables]
    for whole in (*wholes, *reversed(wholes)):
        if whole & recurring and whole - recurring:
            recurring -= whole


def _runs_on(a: TextLine, b: TextLine) -> bool:
    near = a.x0 < b.x1 and b.x0 < a.x1 and 0 < b.base - a.base < 2 * a.size and abs(a.size - b.size) < 0.1 * a.size
    return near and b.text[:1].islower() and not _SENTENCE_END.search(a.text)


def said_once(
    pages: Sequence[Sequence[TextLine]], recurring: Sequence[set[int]]
) -> tuple[list[list[TextLine]], list[list[TextLine]]]:
    """The lines of the text, among them each header and footer where it stands first, but at no place where it would
    interrupt a sentence; and the lines of each page that are left out, because they say nothing new."""
    usual = body_size(pages)
    seen: set[str] = set()
    kept: list[list[TextLine]] = []
    left_out: list[list[TextLine]] = []
    is_between = True  # sentences
    for lines, found in zip(pages, recurring, strict=True):
        body = _notes_last([line for i, line in enumerate(lines) if i not in found], usual)
        middle = float(np.mean([line.y0 for line in lines])) if lines else 0.0
        breaks = [0] * is_between + [n for n, line in enumerate(body, 1) if _SENTENCE_END.search(line.text)]
        top, bottom, again = list[TextLine](), list[TextLine](), list[TextLine]()
        for line in (lines[i] for i in sorted(found)):
            words = "".join(_PAGE_NUMBER.sub("", line.text).lower().split())
            where = top if line.y0 < middle else bottom
            (again if not words or words in seen else where).append(replace(line, table=APART))
            seen.add(words)
        is_between = _SENTENCE_END.search(body[-1].text) is not None if body else is_between
        first, last = (breaks[0], breaks[-1]) if breaks else (0, len(body))
        kept.append([*body[:first], *top, *body[first:last], *bottom, *body[last:]])
        left_out.append(again)
    return kept, left_out


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
    return len(box) > 0 and bool(box[:, 2].max() < 0.1 or box[:, 0].min() > 0.9)


def _notes_last(lines: Sequence[TextLine], body_size: float) -> list[TextLine]:
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
    return float(np.quantile(sizes, 0.5, weights=weights, method="inverted_cdf"))


def _value(text: str) -> int:
    """An Arabic or Roman number."""
    if text.isdigit():
        return int(text)
    values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}[letter] for letter in text.lower()]
    total = 0
    for value, following in zip(values, [*values[1:], 0], strict=True):
        total += -value if value < following else value
    return total


def without_hidden_numbers(pages: Sequence[Sequence[TextLine]]) -> list[list[TextLine]]:
    """The lines without counters "0B", "1B", "2B" ... at their beginning, if these only ever rise."""
    numbers = [int(found[1]) for lines in pages for line in lines if (found := _HIDDEN_NUMBER.match(line.text))]
    if len(numbers) < _FEWEST_HIDDEN or any(following <= number for number, following in pairwise(numbers)):
        return [list(lines) for lines in pages]
    return [[_without_number(line) for line in lines] for lines in pages]


def _without_number(line: TextLine) -> TextLine:
    found = _HIDDEN_NUMBER.match(line.text)
    if found is None:
        return line
    cut = found.end()
    return replace(
        line, text=line.text[cut:], box_C4=line.box_C4[cut:], placed_C=line.placed_C[cut:], run_C=line.run_C[cut:]
    )
