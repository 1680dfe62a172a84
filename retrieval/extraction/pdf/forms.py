"""Labels and what stands behind or below them: fields of forms, boxes that are ticked, pairs on invoices.

Each pair becomes a sentence ("Due date: 13 September 2026."), whether or not the file has fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from retrieval.extraction.pdf.characters import PageCharacters
from retrieval.extraction.pdf.text_boxes import CELL_BORDER, TextLine, composed, piece_of
from retrieval.extraction.pdf.unseen import inside_any
from retrieval.extraction.table_rows import SENTENCE_ENDS, Piece, in_between, row_sentence
from retrieval.extraction.tick_boxes import EMPTY, LEFT_EMPTY, TICKED, stated_ticked

_BOX = re.compile("[☐☑☒]")
_AMOUNT = re.compile(r"[^\w\d]*(?:[A-Z]{3}\s?|[€$£¥]\s?)?[-–−]?\d[\d.,' ]*[.,]\d\d(?:\s?(?:[A-Z]{3}|[€$£¥]))?[^\w]*")
_LONGEST_LABEL = 60  # characters
_SHORT_WORDS, _SHORT_LETTERS = 3, 5
_LABEL_SIZE = 0.85  # of the size of the value below it
_FEWEST_ABOVE = 3  # pairs on a page; fewer small lines above larger ones may be headings


def with_pairs(lines: Sequence[TextLine], page: PageCharacters) -> list[TextLine]:
    """The lines of a page, labels and values joined."""
    found = list(_choices(lines))
    above = [n for n, (a, b) in enumerate(zip(found, found[1:], strict=False)) if _is_above(a, b, page)]
    pairs = sum(found[n].cells for n in above if found[n].size <= _LABEL_SIZE * found[n + 1].size)
    done: list[TextLine] = []
    skip = -1
    for n, line in enumerate(found):
        if n == skip:
            continue
        if n in above and (pairs >= _FEWEST_ABOVE or _is_filled(found[n + 1], 0, page)):
            skip = n + 1
            cells = zip(_cells(line), _cells(found[skip]), strict=True)
            done += [_pair([line, found[skip]], piece_of(line, *a), piece_of(found[skip], *b)) for a, b in cells]
        else:
            done += _beside(line, page)
    return done


def _cells(line: TextLine) -> list[tuple[int, int]]:
    """From and to of each cell in the text of a line."""
    borders = [-1, *(n for n, letter in enumerate(line.text) if letter == CELL_BORDER), len(line.text)]
    return [(start + 1, end) for start, end in zip(borders, borders[1:], strict=False)]


def _is_filled(line: TextLine, start: int, page: PageCharacters) -> bool:
    """Whether a cell that begins there was filled into a field."""
    left, top, right, bottom = line.box_C4[start].tolist()
    middle = np.array([[(left + right) / 2 * page.width, (top + bottom) / 2 * page.height]])
    return bool(inside_any(middle, [field.box for field in page.fields]).any())


def _is_above(a: TextLine, b: TextLine, page: PageCharacters) -> bool:
    """Whether a line holds labels in smaller print than the values in the next one, or labels of fields."""
    if a.table or b.table or a.turn or b.turn or a.cells != b.cells or not 0 < b.base - a.base < 2.5 * b.size:
        return False
    labels, values = _cells(a), _cells(b)
    if len(labels) != len(values):  # one was composed of a question and what is ticked
        return False
    if any(end - start > _LONGEST_LABEL or _is_sentence(a.text[start:end]) for start, end in labels):
        return False
    if any(_is_filled(a, start, page) for start, _ in labels):
        return False
    left = [
        (a.box_C4[start, 0] - b.box_C4[below, 0]) * page.width
        for (start, _), (below, _) in zip(labels, values, strict=True)
    ]
    aligned = max(map(abs, left)) < 4.0
    return aligned and (a.size <= _LABEL_SIZE * b.size or all(_is_filled(b, start, page) for start, _ in values))


def _is_sentence(text: str) -> bool:
    """Whether a cell ends as sentences do, and is not a few words with a short one at their end ("Order no.")."""
    words = text.split()
    is_short = text.endswith(".") and len(words) <= _SHORT_WORDS and len(words[-1]) <= _SHORT_LETTERS
    return text.endswith(SENTENCE_ENDS[:4]) and not is_short


def _beside(line: TextLine, page: PageCharacters) -> Iterator[TextLine]:
    """A line, or a sentence for each of its labels and values side by side."""
    cells = _cells(line)
    if line.table or line.turn or len(cells) < 2 or len(cells) % 2:
        yield line
        return
    pairs = list(zip(cells[::2], cells[1::2], strict=True))
    labels, values = ([line.text[slice(*cell)].strip() for cell in side] for side in zip(*pairs, strict=True))
    filled = all(
        _is_filled(line, start, page) and not _is_filled(line, label, page) for (label, _), (start, _) in pairs
    )
    colons = all(label.endswith(":") for label in labels) and not any(value.endswith(":") for value in values)
    amount = len(pairs) == 1 and labels[0][-1].isalpha() and _AMOUNT.fullmatch(values[0]) is not None
    if max(map(len, labels)) > _LONGEST_LABEL or not (filled or colons or amount):
        yield line
        return
    for label, value in pairs:
        yield _pair([line], piece_of(line, *label), piece_of(line, *value))


def _pair(sources: Sequence[TextLine], label: Piece, value: Piece) -> TextLine:
    return composed(sources, row_sentence([[label], [value]], is_form=True))


def _choices(lines: Sequence[TextLine]) -> Iterator[TextLine]:
    """The lines, those with boxes to tick by the question that they answer: what is ticked stays with it, the rest is
    a sentence of its own."""
    n = 0
    while n < len(lines):
        end = n + 1
        if not _BOX.search(lines[n].text) and _asks(lines[n]):
            while end < len(lines) and _BOX.match(lines[end].text) and lines[end].page == lines[n].page:
                end += 1
        if end == n + 1 and not _BOX.search(lines[n].text):
            yield lines[n]
        else:
            yield from _chosen(lines[n:end])
        n = end


def _asks(line: TextLine) -> bool:
    return not line.table and len(line.text) <= 2 * _LONGEST_LABEL and not line.text.endswith((".", "!", ";"))


def _chosen(lines: Sequence[TextLine]) -> Iterator[TextLine]:
    """A question and its boxes, in one line or several."""
    options: list[tuple[bool, Piece]] = []
    question: list[Piece] = []
    for line in lines:
        boxes = [found.start() for found in _BOX.finditer(line.text)]
        first = boxes[0] if boxes else len(line.text)
        if (asked := piece_of(line, 0, first)).text:
            question.append(asked)
        for start, end in zip(boxes, [*boxes[1:], len(line.text)], strict=False):
            option = piece_of(line, start + 1, end)
            options.append((line.text[start] != EMPTY, option))
    ticked, empty = ([option for is_ticked, option in options if is_ticked is wanted] for wanted in (True, False))
    if ticked:
        stated = Piece.unprinted(stated_ticked("".join(piece.text for piece in question).rstrip()))
        yield composed(lines, [*question, stated, *in_between(ticked, f", {TICKED} "), Piece.unprinted(".")])
    elif question:
        yield composed(lines, question)
    if empty := [option for option in empty if option.text]:
        yield composed(lines, [Piece.unprinted(LEFT_EMPTY), *in_between(empty, ", "), Piece.unprinted(".")])
