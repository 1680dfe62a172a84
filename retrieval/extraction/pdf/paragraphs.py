"""Joins the lines of all pages into running text: paragraphs, headings, table rows and hyphenated words.

Axes: N characters of the document, C characters of a line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from retrieval.extraction.line_ends import LINE_HYPHENS, SOFT_HYPHEN, SPACE, Words, join_words
from retrieval.extraction.pdf.characters import PRINTED_RULE
from retrieval.extraction.pdf.text_boxes import APART, TextLine

PARAGRAPH, ROW = "\n\n", "\n"

_SENTENCE_END = re.compile(r"[.!?:;][\"'”’)\]]*\s*\d{0,2}$")
_BULLET = re.compile(r"[•▪◦‣·●○■□➢✓❖–—*-]\s+\S|o\s+[A-Z]")
_NUMBERED = re.compile(r"(?:\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)]|\[\d{1,3}\]|\d{1,2}(?:\.\d{1,2})+\.?)\s+\S")
_LABELLED = re.compile(r"[^\s:;.][^:;.]{0,30}:\s+\S")
_FEWEST_LABELS, _LABELS = 3, 0.75  # lines of a list of labels or keys and what they stand for, and their share
_LARGE = 1.15
"""Times the usual size of a column: what is larger is a heading."""
_FIRST_PIECE = re.compile(r"[^\s/–—-]+[/–—-]?|\S+")
_RAGGED = 0.3  # of the width of a block may be free at the end of a line whose sentence goes on
_LONGEST_INSERTION = 15  # lines
_SAME_PRINT = 0.04  # of its size may differ
_FEWEST_WORDS = 5  # of a note or a caption; a formula inside a sentence has fewer


@dataclass(frozen=True)
class RunningText:
    """The document's text, the positions of its characters (see ExtractedDocument) and the span of each page."""

    text: str
    page_N: np.ndarray
    line_N: np.ndarray
    box_N4: np.ndarray
    spans: list[tuple[int, int]]


def join_lines(pages: Sequence[Sequence[TextLine]]) -> RunningText:
    """The running text of all pages' lines, given in reading order."""
    lines = _with_sentences_whole([line for page in pages for line in page])
    texts: list[str] = []
    page_parts, line_parts, box_parts = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)], [np.zeros((0, 4), np.float32)]
    bounds: dict[int, tuple[int, int]] = {}  # of each page that has text
    position = runs = 0  # characters and line pieces so far
    for line, (kept, separator) in zip(lines, _joints(lines), strict=True):
        # A soft hyphen inside a line is not printed.
        shown = np.flatnonzero([letter != SOFT_HYPHEN for letter in line.text[:kept]])
        text = "".join(line.text[i] for i in shown).replace("\u2010", "-")
        placed = line.placed_C[shown]
        blank = len(separator)
        texts += [text, separator]
        page_parts += [np.where(placed, line.page, -1).astype(np.int32), np.full(blank, -1, np.int32)]
        line_parts += [np.where(placed, runs + line.run_C[shown], -1).astype(np.int32), np.full(blank, -1, np.int32)]
        box_parts += [line.box_C4[shown], np.zeros((blank, 4), np.float32)]
        runs += int(line.run_C.max()) + 1
        bounds[line.page] = bounds.get(line.page, (position, 0))[0], position + len(text)
        position += len(text) + blank
    spans: list[tuple[int, int]] = []
    for number in range(len(pages)):  # a page without text is an empty span where its text would be
        last = spans[-1][1] if spans else 0
        spans.append(bounds.get(number, (last, last)))
    return RunningText(
        "".join(texts), np.concatenate(page_parts), np.concatenate(line_parts), np.concatenate(box_parts), spans
    )


def _with_sentences_whole(lines: list[TextLine]) -> list[TextLine]:
    """The lines with each note, caption or figure that stands inside a sentence moved behind it, or before it where the
    sentence goes on on the next page."""
    for start in range(1, len(lines)):
        if (goes_on := _goes_on_at(lines, start)) is None:
            continue
        between = lines[start:goes_on]
        if lines[goes_on].page == between[0].page:
            same = goes_on
            while same + 1 < len(lines) and lines[same + 1].page == between[0].page and not ends_sentence(lines[same]):
                same += 1
            lines[start : same + 1] = [*lines[goes_on : same + 1], *between]
        else:
            begin = start - 1
            while begin and not ends_sentence(lines[begin - 1]) and lines[begin - 1].page == between[0].page:
                begin -= 1
            lines[begin:goes_on] = [*between, *lines[begin:start]]
    return lines


def _goes_on_at(lines: Sequence[TextLine], start: int) -> int | None:
    """The line on which the sentence goes on that is not finished before `start`, if sentences in smaller print stand
    between; else None. In listings whose lines look unfinished, too, the text between them is no smaller."""
    before, first = lines[start - 1], lines[start]
    is_open = before.text[-1].isalnum() or before.text[-1] == "," or _is_divided(before)
    if before.table or before.cells > 1 or not is_open:
        return None
    if first.text[:1].islower() or _is_item(before) or _is_item(first):
        return None
    if (before.page, before.column) == (first.page, first.column) and first.base - before.base < 1.5 * before.size:
        return None
    for number in range(start, min(len(lines), start + _LONGEST_INSERTION)):
        line = lines[number]
        if line.table:
            return None
        if line.size < (1 - _SAME_PRINT) * before.size:
            continue
        goes_on = number > start and _is_alike(before, line) and line.text[:1].islower() and not _is_item(line)
        words = " ".join(each.text for each in lines[start:number]).split()
        return number if goes_on and len(words) >= _FEWEST_WORDS and ends_sentence(lines[number - 1]) else None
    return None


def _is_alike(a: TextLine, b: TextLine) -> bool:
    """Whether two lines have the same print, and in one column the same edge."""
    beside = (a.page, a.column) == (b.page, b.column) and abs(a.x0 - b.x0) > 3.0
    return not beside and a.turn == b.turn and abs(a.size - b.size) <= _SAME_PRINT * a.size


def _is_divided(line: TextLine) -> bool:
    """Whether a line ends within a word."""
    return line.text.endswith(LINE_HYPHENS) and len(line.text) > 1 and line.text[-2].isalnum()


def _is_item(line: TextLine) -> bool:
    return bool(_BULLET.match(line.text) or _NUMBERED.match(line.text))


def ends_sentence(line: TextLine) -> bool:
    return _SENTENCE_END.search(line.text) is not None


def _joints(lines: Sequence[TextLine]) -> Iterator[tuple[int, str]]:
    """For each line how many of its characters stay, and what separates it from the next line."""
    words = Words(line.text for line in lines)
    margins = _margins(lines)
    is_first = True  # of its paragraph
    for number, (line, following) in enumerate(pairwise(lines)):
        kept = len(line.text)
        separator = _separator(line, following, margins[number], margins[number + 1], is_first)
        if separator == SPACE:
            kept, separator = join_words(line.text, following.text, words)
        yield kept, separator
        is_first = separator in (PARAGRAPH, ROW)
    if lines:
        yield len(lines[-1].text), ""


@dataclass(frozen=True)
class _Margins:
    """Left and right edge, usual line spacing and usual size of the text around a line, in points. `labelled`: most of
    its lines begin with a label and a colon."""

    left: float
    right: float
    step: float
    size: float
    labelled: bool


def _margins(lines: Sequence[TextLine]) -> list[_Margins]:
    """For each line the edges of its block (closely spaced lines), or of its column where the block is small."""
    columns: dict[tuple[int, int], list[TextLine]] = {}
    blocks: list[list[TextLine]] = []
    for number, line in enumerate(lines):
        columns.setdefault((line.page, line.column), []).append(line)
        if number and _same_block(lines[number - 1], line):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    step_of = {place: _usual_step(members) for place, members in columns.items()}
    size_of = {place: float(np.median([line.size for line in members])) for place, members in columns.items()}
    ends_of = {place: _right_ends(members) for place, members in columns.items()}
    result: list[_Margins] = []
    for block in blocks:
        place = (block[0].page, block[0].column)
        edges = block if len(block) > 2 else columns[place]
        left, right = min(line.x0 for line in edges), max(line.x1 for line in block)
        if len(block) <= 2:
            ends_N, shared_N = ends_of[place]
            near_N = shared_N[shared_N > right - 3.0]  # the nearest that several lines share, or the outermost
            right = float(near_N[0]) if len(near_N) else float(ends_N[-1]) if len(ends_N) else right
        labels = sum(_LABELLED.match(line.text) is not None for line in block)
        labelled = labels >= max(_FEWEST_LABELS, _LABELS * len(block))
        result += [_Margins(left, right, step_of[place], size_of[place], labelled)] * len(block)
    return result


def _right_ends(column: Sequence[TextLine]) -> tuple[np.ndarray, np.ndarray]:
    """Ascending, the right edges of a column's lines, and those of them that at least four lines share."""
    ends_N = np.sort(np.array([line.x1 for line in column if not line.table], dtype=np.float64))
    times_N = np.searchsorted(ends_N, ends_N + 3.0, "left") - np.searchsorted(ends_N, ends_N - 3.0, "right")
    return ends_N, ends_N[times_N >= 4]


def _same_block(above: TextLine, below: TextLine) -> bool:
    step = below.base - above.base
    return (
        (above.page, above.column, above.turn) == (below.page, below.column, below.turn)
        and not above.table
        and not below.table
        and abs(above.size - below.size) <= 0.12 * max(above.size, below.size)
        and 0.5 * above.size < step < 2.2 * above.size
        and min(above.x1, below.x1) > max(above.x0, below.x0)
    )


def _usual_step(lines: Sequence[TextLine]) -> float:
    steps = [below.base - above.base for above, below in pairwise(lines) if _same_block(above, below)]
    return float(np.median(steps)) if steps else 0.0


def _separator(a: TextLine, b: TextLine, margin_a: _Margins, margin_b: _Margins, a_is_first: bool) -> str:
    """What separates two consecutive lines."""
    if (a.table or b.table) and not a.table == b.table == APART:
        return ROW if a.table == b.table else PARAGRAPH
    if PRINTED_RULE.fullmatch(a.text) or PRINTED_RULE.fullmatch(b.text):
        return PARAGRAPH
    em = max(a.size, 1.0)
    ends = bool(_SENTENCE_END.search(a.text))
    hyphen = _is_divided(a)
    room = _room(a, margin_a)
    in_sentence = b.text[:1].islower() and (a.text[-1].isalnum() or a.text[-1] == ",") and not _NUMBERED.match(b.text)
    goes_on = hyphen or (in_sentence and room < _RAGGED * (margin_a.right - margin_a.left))
    # The line ends early: the next word would have fitted.
    broken_off = not goes_on and room > _first_word_width(b) + 0.5 * em
    together = (a.page, a.column) == (b.page, b.column)
    step = b.base - a.base
    if a.turn != b.turn or abs(a.size - b.size) > 0.12 * max(a.size, b.size):
        return PARAGRAPH
    if a.cells > 1 or b.cells > 1:
        return ROW if together and 0 <= b.base - a.base < 3 * em else PARAGRAPH
    if a.bold != b.bold and (broken_off or (b.bold and ends)):
        return PARAGRAPH
    if _BULLET.match(b.text):
        return ROW if together and step < 3 * em else PARAGRAPH
    if margin_a is margin_b and margin_b.labelled and _LABELLED.match(b.text):
        return ROW
    if a.page == b.page and b.column < a.column:  # behind a box that was read apart
        return PARAGRAPH
    if not together:
        indented = b.x0 > margin_b.left + 0.8 * em
        if hyphen or (not ends and b.text[:1].islower()):
            return SPACE
        return PARAGRAPH if ends or broken_off or indented or a.bold or b.text[:1].isdigit() else SPACE
    if step < -em or (step <= 0.3 * em and b.x0 < a.x1):
        return PARAGRAPH  # another box
    usual = margin_a.step
    large = min(a.size, b.size) > _LARGE * margin_a.size and not ends
    if ((a.bold and b.bold) or large) and not _NUMBERED.match(b.text):
        usual *= max(1.0, a.size / margin_a.size)  # lines of a heading stand as far apart as its size asks
    far = step > max((1.2 if ends else 1.35) * usual, 1.1 * em) if usual else step > 1.9 * em
    if far and not (in_sentence and step > 4 * em):  # so far that something stood between
        return PARAGRAPH
    indent = b.x0 - a.x0
    if ends or broken_off:
        if _NUMBERED.match(b.text) and indent < 3 * em:
            return ROW
        if 0.8 * em < indent < 6 * em and b.text[:1].isupper():
            return PARAGRAPH
        if indent < -0.8 * em and not a_is_first:
            return PARAGRAPH
    if broken_off:
        return PARAGRAPH if ends and a.text[-1] not in ":;," else ROW
    return SPACE


def _room(line: TextLine, margin: _Margins) -> float:
    """Free space after the end of a line, in points."""
    if unicodedata.bidirectional(line.text[0]) in ("R", "AL"):
        return line.x0 - margin.left
    return margin.right - line.x1


def _first_word_width(line: TextLine) -> float:
    """Width of the text before the first possible line break, in points."""
    match = _FIRST_PIECE.match(line.text)
    count = len(match[0]) if match else len(line.text)
    axis = line.turn % 2  # the page axis along which this text runs
    box = line.box_C4[line.placed_C]
    word = line.box_C4[:count][line.placed_C[:count]]
    if not len(word):
        return 0.0
    whole = float(box[:, 2 + axis].max() - box[:, axis].min())
    part = float(word[:, 2 + axis].max() - word[:, axis].min())
    return (line.x1 - line.x0) * part / whole if whole > 0 else 0.0
