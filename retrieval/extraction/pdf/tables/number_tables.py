"""Tables of numbers without borders: rows that end in two numbers or more, below names in one line or several.

Columns are where the numbers of all rows stand. Lines without numbers between them are headings of groups, or parts of
the labels beside the numbers.

Axes: N characters of the page, F words. Points, origin top left of the displayed page.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from retrieval.extraction.exhibits import is_table_caption
from retrieval.extraction.pdf.characters import PRINTED_RULE
from retrieval.extraction.pdf.tables.grid import Cell, Grid
from retrieval.extraction.pdf.tables.open_tables import Row, Words
from retrieval.extraction.pdf.tables.rules import Rules, joined
from retrieval.extraction.table_rows import is_number

_FEWEST_ROWS = 3  # with numbers
_FULL_SHARE = 0.6  # of the cells are filled, or of the rows
_BETWEEN = 2  # lines without numbers, one below the other
_HEADING_LINES = 7
_FAR = 2.4  # em between two lines; wider, and the table has ended
_PHRASE_GAP = 0.6  # em; words of one name are closer
_ACROSS = 0.7  # of the width; a line of prose above the table runs across so much of it
_SHORTEST_SCALE = 5  # numbers
_SCALE_SHARE = 0.8  # of the numbers, and of the steps from one to the next
_EMPTY = re.compile(r"[-–—−†‡*.…#()]{1,4}|n\.?/?a\.?|\([A-Z]\)|X|NA|[$€£%]", re.IGNORECASE)  # noqa: RUF001 (as printed)
_YEAR = re.compile(r"(?:19|20)\d\d(?:[-–/]\d\d(?:\d\d)?)?")  # noqa: RUF001 (as printed)

Columns = Sequence[tuple[float, float]]
"""From and to of each."""


@dataclass(frozen=True)
class _Printed:
    """A line: its words before the numbers, and the numbers (none in a line that does not end in any)."""

    label: Row
    numbers: Row


def number_tables(words: Words, rules: Rules) -> Iterator[Grid]:
    words = replace(words, rows=[row for row in words.rows if PRINTED_RULE.fullmatch(words.text(row)) is None])
    printed = [_printed(words, row) for row in words.rows]
    number = 0
    while number < len(printed):
        end = _end_of(words, printed, number) if printed[number].numbers else number
        grid = None
        start, table = _regular(words, number, printed[number:end])
        if sum(bool(line.numbers) for line in table) >= _FEWEST_ROWS:
            grid = _grid(words, rules, start, table)
        if grid is not None and (grid.heading_rows or not _are_scales(words, table)):
            yield grid
        number = max(number + 1, end)


def _printed(words: Words, row: Row) -> _Printed:
    first = len(row)
    while first and _is_amount(words.text([row[first - 1]])):
        first -= 1
    while first < len(row) and not is_number(words.text([row[first]])):
        if first and len(_phrases(words, row[first - 1 : first + 1])) > 1:
            break  # in place of a number
        first += 1  # a dash between words and the first number belongs to the words
    has_number = any(is_number(words.text([word])) for word in row[first:])
    return _Printed(row[:first], row[first:]) if has_number else _Printed(row, [])


def _is_amount(text: str) -> bool:
    """Whether a word is a number, or a sign in place of one; the first half of "10,000–14,999" is neither."""
    return (is_number(text) and text[-1] not in "-–—") or _EMPTY.fullmatch(text) is not None


def _end_of(words: Words, printed: Sequence[_Printed], start: int) -> int:
    """Behind the last line with numbers of the table that begins at a line."""
    end = number = start + 1
    while number < len(printed) and number - end <= _BETWEEN:
        row = words.rows[number]
        if words.gap_between(words.rows[number - 1], row) > _FAR * words.size or is_table_caption(
            words.spaced_text(row)
        ):
            break
        number += 1
        if printed[number - 1].numbers:
            end = number
    return end


def _regular(words: Words, start: int, printed: Sequence[_Printed]) -> tuple[int, Sequence[_Printed]]:
    """The lines from the first to the last with about as many numbers as others have, and where they begin; a few
    numbers at the end of other lines are words."""
    usual = float(np.median([len(line.numbers) for line in printed if line.numbers] or [0]))
    lines = [line if len(line.numbers) >= usual / 2 else _Printed([*line.label, *line.numbers], []) for line in printed]
    full = [number for number, line in enumerate(lines) if line.numbers]
    while full and all(_YEAR.fullmatch(words.text([word])) for word in lines[full[0]].numbers):
        full.pop(0)  # names of the columns
    return (start + full[0], lines[full[0] : full[-1] + 1]) if full else (start, [])


def _are_scales(words: Words, printed: Sequence[_Printed]) -> bool:
    """Whether most of the numbers belong to the scales of charts: below each other they change in equal steps.
    A table of such numbers has names above them."""
    rows = [line.numbers for line in printed if line.numbers]
    scales = 0
    for low, high in _columns(words, rows):
        values = [_value(words.text([word])) for row in rows for word in row if low <= words.f.x0[word] <= high]
        steps = Counter(round(below - above, 6) for above, below in pairwise(values) if above != below)
        if len(values) >= _SHORTEST_SCALE and max(steps.values(), default=0) >= _SCALE_SHARE * (len(values) - 1):
            scales += len(values)
    return scales >= _SCALE_SHARE * sum(map(len, rows))


def _value(text: str) -> float:
    found = re.search(r"[-−]?\d+(?:\.\d+)?", text.replace(",", ""))  # noqa: RUF001 (as printed)
    return float(found[0].replace("−", "-")) if found else math.nan  # noqa: RUF001 (as printed)


def _grid(words: Words, rules: Rules, start: int, printed: Sequence[_Printed]) -> Grid | None:
    f = words.f
    columns: Columns = _columns(words, [line.numbers for line in printed if line.numbers])
    printed, columns = _without_numbers_as_labels(words, printed, columns)
    if not _is_regular(words, printed, columns):
        columns = _columns_by_count(words, [line.numbers for line in printed if line.numbers])
    first = int(any(line.label and line.numbers for line in printed))
    if len(columns) < 2 or not _is_regular(words, printed, columns):
        return None
    left = min(float(f.x0[word]) for line in printed for word in (*line.label, *line.numbers))
    edges = [left] * first + [low for low, _ in columns] + [columns[-1][1]]
    heading, count = _heading(words, rules, start, columns, first, left)
    cells = list(heading)
    row = count - 1
    group: Row = []  # of lines without numbers: a heading, or the label of the next line
    for line in printed:
        text = words.text(line.label)
        if not line.numbers:
            if not (group and text[:1].islower()):
                row += 1
            else:
                cells.pop()
                line = _Printed([*group, *line.label], [])
            group = line.label
            wide = bool(float(f.x1[line.label].max()) > columns[0][0])
            cells.append(words.cell(row, 0, len(edges) - 1 if wide else max(1, first), line.label))
            continue
        if group and first and (not text or text[:1].islower()):
            cells.pop()
            line = _Printed([*group, *line.label], line.numbers)
        else:
            row += 1
        group = []
        cells += [words.cell(row, 0, 1, line.label)] if line.label else []
        for column, here in enumerate(_by_column(words, line.numbers, columns)):
            cells += [words.cell(row, column + first, column + first + 1, here)] if here else []
    return Grid(cells, tuple(edges), heading_rows=count)


def _columns(words: Words, rows: Sequence[Row]) -> list[tuple[float, float]]:
    """From and to of each column: where numbers stand in more rows than a few."""
    spans = sorted((float(words.f.x0[word]), float(words.f.x1[word])) for row in rows for word in row)
    found: list[list[float]] = []
    for low, high in spans:
        if found and low <= found[-1][1]:
            found[-1][1] = max(found[-1][1], high)
        else:
            found.append([low, high])
    return [(low, high) for low, high in found]


def _columns_by_count(words: Words, rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The same where numbers of several rows overlap, but most rows have as many."""
    usual = int(np.median([len(row) for row in rows]))
    full = [row for row in rows if len(row) == usual]
    if usual < 2 or len(full) < _FULL_SHARE * len(rows):
        return []
    low, high = words.f.x0[full].mean(axis=0), words.f.x1[full].mean(axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _without_numbers_as_labels(
    words: Words, printed: Sequence[_Printed], columns: Columns
) -> tuple[Sequence[_Printed], Columns]:
    """Lines and columns. Where most lines begin with a label, numbers at its place are labels, too; and so is what
    stands a space behind it in every line ("Size 3")."""
    rows = [line for line in printed if line.numbers]
    low, high = columns[0]
    begun = [line for line in rows if words.f.x0[line.numbers[0]] <= high]
    beside = all(line.label and len(_phrases(words, [line.label[-1], line.numbers[0]])) == 1 for line in begun)
    few = len(begun) <= 0.5 * len(rows) <= sum(bool(line.label) for line in rows)
    if len(columns) < 2 or not (beside or few):
        return printed, columns

    def moved(line: _Printed) -> _Printed:
        count = sum(bool(words.f.x1[word] <= high) for word in line.numbers)
        return _Printed([*line.label, *line.numbers[:count]], line.numbers[count:])

    return ([moved(line) for line in printed], columns[1:]) if low < columns[1][0] else (printed, columns)


def _by_column(words: Words, numbers: Row, columns: Columns) -> list[Row]:
    """The numbers of a line: in their order where it is full, else each in the nearest column."""
    if len(numbers) == len(columns):
        return [[word] for word in numbers]
    found: list[Row] = [[] for _ in columns]
    middles = np.array([(low + high) / 2 for low, high in columns])
    for word in numbers:
        found[int(np.abs(middles - (words.f.x0[word] + words.f.x1[word]) / 2).argmin())].append(word)
    return found


def _is_regular(words: Words, printed: Sequence[_Printed], columns: Columns) -> bool:
    """Whether the columns are filled in most rows, by one number each, and labels do not reach into them."""
    rows = [line for line in printed if line.numbers]
    counts = np.array([[len(here) for here in _by_column(words, line.numbers, columns)] for line in rows])
    into = sum(float(words.f.x1[line.label].max()) > columns[0][1] for line in rows if line.label)
    return bool((counts > 0).mean() > _FULL_SHARE and (counts > 1).mean() < 0.2 and into < 0.2 * len(rows))


def _heading(
    words: Words, rules: Rules, start: int, columns: Columns, first: int, left: float
) -> tuple[list[Cell], int]:
    """The cells above the numbers, and their rows: names of columns at the foot, of groups of columns above them."""
    lines: list[Row] = []
    right = columns[-1][1]
    for number in range(start - 1, max(-1, start - 1 - _HEADING_LINES), -1):
        row = words.rows[number]
        phrases = _phrases(words, row)
        widest = max(words.f.x1[phrase[-1]] - words.f.x0[phrase[0]] for phrase in phrases)
        beyond = words.f.x1[row[-1]] > right + 40 or words.f.x0[row[0]] < left - 20
        if words.gap_between(row, words.rows[number + 1]) > _FAR * words.size or beyond:
            break
        if widest > _ACROSS * (right - left) or is_table_caption(words.spaced_text(row)):
            break
        lines.insert(0, row)
    while lines and (
        len(_phrases(words, lines[0])) == 1 and words.f.x0[lines[0][0]] < columns[0][0] and len(lines) > 1
    ):
        lines.pop(0)  # a caption
    names: dict[tuple[int, int], Row] = {}
    groups: list[tuple[tuple[int, int], Row]] = []
    for row in lines:
        level = float(words.f.y1[row].max())
        for phrase in _phrases(words, row):
            span = _span(words, rules, phrase, level, columns, first)
            if span[1] - span[0] > 1:
                groups.append((span, phrase))
            else:
                names.setdefault(span, []).extend(phrase)
    levels = _stacked(words, groups)
    count = len(levels) + bool(names)
    cells = [
        words.cell(row, span[0], span[1], here) for row, level in enumerate(levels) for span, here in level.items()
    ]
    for span, here in names.items():
        above = [row for row, level in enumerate(levels) if any(a <= span[0] < b for a, b in level)]
        cells.append(words.cell(max(above, default=-1) + 1, span[0], span[1], here, count))
    return cells, count


def _stacked(words: Words, groups: Sequence[tuple[tuple[int, int], Row]]) -> list[dict[tuple[int, int], Row]]:
    """Names of groups of columns by level, lines of one name joined."""
    levels: list[dict[tuple[int, int], Row]] = []
    for span, phrase in groups:
        level = next((level for level in levels if span in level), None)
        if level is not None:
            level[span] = [*level[span], *phrase]
        elif levels and all(b <= span[0] or span[1] <= a for a, b in levels[-1]):
            levels[-1][span] = phrase
        else:
            levels.append({span: phrase})
    return levels


def _phrases(words: Words, row: Row) -> list[Row]:
    gaps = words.f.x0[row[1:]] - words.f.x1[row[:-1]]
    cuts = np.flatnonzero(gaps > _PHRASE_GAP * words.size) + 1
    return [part.tolist() for part in np.split(np.array(row), cuts)]


def _span(words: Words, rules: Rules, phrase: Row, level: float, columns: Columns, first: int) -> tuple[int, int]:
    """The columns that some words of the heading stand above: those over the rule below the words, those whose middle
    the words cover, else the nearest."""
    x0, x1 = float(words.f.x0[phrase[0]]), float(words.f.x1[phrase[-1]])
    middles = np.array([(low + high) / 2 for low, high in columns])
    whole = columns[-1][1] - columns[0][0]
    for y, start, end in joined(rules.level_R3, 1.0).tolist():
        over = np.flatnonzero((middles > start) & (middles < end))
        is_below = -2.0 < y - level < 0.8 * words.size and start - 6 <= x0 and x1 <= end + 6
        if is_below and len(over) > 1 and end - start < 0.9 * whole:
            return int(over[0]) + first, int(over[-1]) + 1 + first
    over = np.flatnonzero((middles > x0) & (middles < x1))
    if len(over):
        return int(over[0]) + first, int(over[-1]) + 1 + first
    if first and x1 < columns[0][0]:
        return 0, 1
    middle = (x0 + x1) / 2
    distance = [max(low - middle, middle - high, 0.0) for low, high in columns]
    nearest = int(np.argmin(distance))
    return nearest + first, nearest + 1 + first
