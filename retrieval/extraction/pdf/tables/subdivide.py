"""Bordered tables in which not every row and column has borders: several printed rows between two rules, several
columns of numbers ("P R F1") between two more.

Axes: N characters of the page, R rules, L printed lines. Points, origin top left of the displayed page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from retrieval.extraction.pdf.characters import PageCharacters
from retrieval.extraction.pdf.fragments import make_fragments, rows_by_height, upright
from retrieval.extraction.pdf.tables.grid import Cell, Grid
from retrieval.extraction.table_rows import is_number

_WORD_GAP = 0.18  # em
_GUTTER = 0.22  # em; between two columns of numbers
_BETWEEN_NAMES = 0.5  # em; words of one name are closer
_APART = 1.5  # em; what stands so far apart is two names
_LEVEL = 0.5  # em; lines of two cells that differ less are side by side
_MOSTLY = 0.8  # of the lines of a column of numbers
_NOTHING = re.compile(r"[-–—−]|n/?a", re.IGNORECASE)  # noqa: RUF001 (dashes as they are printed)


@dataclass(frozen=True)
class _Word:
    x0: float
    x1: float
    text: str
    members_N: np.ndarray


@dataclass(frozen=True)
class _Printed:
    """One line of a cell; `middle`: its height on the page; `size` of its print."""

    middle: float
    size: float
    words: Sequence[_Word]


def subdivided(page: PageCharacters, grid: Grid) -> Grid:
    """The table with the rows and columns that only white space parts; itself if there are none."""
    lines = {id(cell): _lines_of(page, cell) for cell in grid.cells}
    rows = sorted({cell.row for cell in grid.cells})
    stacks = {row: _levels(grid, lines, row) for row in rows}
    body = next((row for row in rows if stacks[row]), None)
    if body is None:
        return grid
    gutters = {column: found for column in range(len(grid.edges) - 1) if (found := _gutters(grid, lines, column, body))}
    if not gutters and all(len(levels) < 2 for levels in stacks.values()):
        return grid
    return _rebuilt(grid, lines, stacks, body, gutters)


def _lines_of(page: PageCharacters, cell: Cell) -> list[_Printed]:
    box_N4, origin_N2 = upright(page, 0)
    f = make_fragments(page, cell.members_N, box_N4, origin_N2, gap=_WORD_GAP)
    found = []
    for row in rows_by_height(f, np.arange(len(f.members))):
        words = [
            _Word(float(f.x0[n]), float(f.x1[n]), "".join(map(chr, page.code_N[f.members[n]].tolist())), f.members[n])
            for n in row
        ]
        found.append(_Printed(float(f.middle[row].mean()), float(np.median(f.size[row])), words))
    return found


def _levels(grid: Grid, lines: dict[int, list[_Printed]], row: int) -> list[float]:
    """Where the printed rows begin that stand in one row of the grid: at the lines of the column of numbers that has
    fewest, if the first column has a line at each. None if it is a row of words, or one of cells of several lines."""
    if any(cell.row < row < cell.row_end or cell.row == row < cell.row_end - 1 for cell in grid.cells):
        return []
    first, *others = grid.in_row(row)
    numbers = [found for cell in others if all(map(_has_amount, found := lines[id(cell)]))]
    if first.column or not numbers:
        return []
    levels = [line.middle for line in min(numbers, key=len)]
    named = [line for line in lines[id(first)] if _level_of(line, levels) is not None]
    if len({_level_of(line, levels) for line in named}) < len(levels):
        return []
    levels = _tops(lines[id(first)], levels)
    begun = {level: line.words[0].text for line in lines[id(first)] if (level := _level_of(line, levels)) is not None}
    if len({text[0].islower() for text in begun.values()}) > 1:  # one goes on with another
        return []
    begins = [_row_of(line, levels) for cell in (first, *others) for line in lines[id(cell)]]
    return levels if min(begins) >= 0 else []


def _tops(names: Sequence[_Printed], levels: Sequence[float]) -> list[float]:
    """The levels of rows, those of names whose numbers stand beside their last line moved up to the first: to the lines
    between two levels, if the name at the lower one goes on in small letters."""
    tops = list(levels)
    between: list[_Printed] = []
    for line in sorted(names, key=lambda line: line.middle):
        level = _level_of(line, levels)
        if level is None:
            between.append(line)
        elif between and line.words[0].text[0].islower():
            tops[level] = between[0].middle
        if level is not None:
            between = []
    return tops


def _level_of(line: _Printed, levels: Sequence[float]) -> int | None:
    near = [number for number, level in enumerate(levels) if abs(level - line.middle) < _LEVEL * line.size]
    return near[0] if near else None


def _row_of(line: _Printed, levels: Sequence[float]) -> int:
    """The row whose cells a line belongs to: a line below the first goes on with it; -1 above the first."""
    return sum(level < line.middle + _LEVEL * line.size for level in levels) - 1


def _has_amount(line: _Printed) -> bool:
    return any(_is_amount(word.text) for word in line.words)


def _is_amount(text: str) -> bool:
    return is_number(text) or bool(_NOTHING.fullmatch(text))


def _gutters(grid: Grid, lines: dict[int, list[_Printed]], column: int, body: int) -> list[float]:
    """Where columns of numbers begin, after the first, between two borders; each has a name in the last line above."""
    below = [line for cell in grid.in_column(column) if cell.row >= body for line in lines[id(cell)]]
    above = [line for cell in grid.in_column(column) if cell.row < body for line in lines[id(cell)]]
    if not below or not above:
        return []
    spans = sorted((word.x0, word.x1) for line in below for word in line.words)
    found, end = [], spans[0][1]
    for x0, x1 in spans[1:]:
        if x0 - end > _GUTTER * below[0].size:
            found.append(x0)
        end = max(end, x1)
    parted = [_parts(line.words, found) for line in below]
    texts = [["".join(word.text for word in words) for words in parts.values()] for parts in parted]
    full = [len(row) == len(found) + 1 and all(map(_is_amount, row)) for row in texts]
    names = max(above, key=lambda line: line.middle)
    named = [words for _, words in sorted(_parts(names.words, found).items())]
    gaps = [right[0].x0 - left[-1].x1 for left, right in pairwise(named)]
    is_named = len(named) == len(found) + 1 and all(gap > _BETWEEN_NAMES * names.size for gap in gaps)
    return found if is_named and sum(full) >= _MOSTLY * len(full) else []


def _parts(words: Sequence[_Word], gutters: Sequence[float]) -> dict[int, list[_Word]]:
    """Words by the column in which most of them stands; a name is often wider than the numbers below it."""
    parts: dict[int, list[_Word]] = {}
    borders = [-np.inf, *gutters, np.inf]
    for word in words:
        covered = [min(word.x1, right) - max(word.x0, left) for left, right in pairwise(borders)]
        parts.setdefault(int(np.argmax(covered)), []).append(word)
    return parts


def _rebuilt(
    grid: Grid,
    lines: dict[int, list[_Printed]],
    stacks: dict[int, list[float]],
    body: int,
    gutters: dict[int, list[float]],
) -> Grid:
    """All cells with their new rows and columns; names of columns that were parted stand in a row of their own."""
    starts = np.cumsum([0, *(1 + len(gutters.get(column, ())) for column in range(len(grid.edges) - 1))]).tolist()
    tops: dict[int, int] = {}
    top = 0
    for row in range(max(cell.row_end for cell in grid.cells) + 1):
        top += bool(gutters) and row == body
        tops[row] = top
        top += max(1, len(stacks.get(row, ())))
    cells: list[Cell] = []
    for cell in grid.cells:
        first, end = starts[cell.column], starts[cell.column_end]
        printed, parting = lines[id(cell)], gutters.get(cell.column, ())
        is_parted = bool(parting) and cell.column_end == cell.column + 1
        levels = stacks[cell.row]
        if is_parted and cell.row < body and cell is _lowest(grid, cell.column, body):
            over, names = _heads(printed, parting)
            if over:
                cells.append(_cell(tops[cell.row], first, end, [word for line in over for word in line.words]))
            cells += [_cell(tops[body] - 1, first + part, first + part + 1, words) for part, words in names.items()]
        elif levels:
            for number in range(len(levels)):
                here = [word for line in printed if _row_of(line, levels) == number for word in line.words]
                row = tops[cell.row] + number
                if is_parted:
                    parts = _parts(here, parting).items()
                    cells += [_cell(row, first + part, first + part + 1, words) for part, words in parts]
                elif here:
                    cells.append(_cell(row, first, end, here))
        else:
            row_end = max(tops[cell.row] + 1, tops[cell.row_end] - (bool(gutters) and cell.row_end == body))
            cells.append(Cell(tops[cell.row], row_end, first, end, cell.members_N))
    edges = sorted([*grid.edges, *(place for found in gutters.values() for place in found)])
    return Grid(cells, tuple(edges), grid.bordered, tops[body] if gutters else grid.heading_rows)


def _lowest(grid: Grid, column: int, body: int) -> Cell:
    return max((cell for cell in grid.in_column(column) if cell.row < body), key=lambda cell: cell.row)


def _heads(printed: Sequence[_Printed], gutters: Sequence[float]) -> tuple[list[_Printed], dict[int, list[_Word]]]:
    """What stands over all columns, and the names of columns: the last line, and of those above it the ones whose parts
    each begin, end or have their middle where another name does."""
    *over, last = sorted(printed, key=lambda line: line.middle)
    names = _parts(last.words, gutters)
    while over:
        groups = list(_apart(over[-1]))
        nearest = [min(names, key=lambda column: _offset(names[column], group)) for group in groups]
        offsets = [_offset(names[column], group) for column, group in zip(nearest, groups, strict=True)]
        if len({*nearest}) < len(groups) or len(groups) == 1 or max(offsets) > _LEVEL * over[-1].size:
            break
        for column, group in zip(nearest, groups, strict=True):
            names[column] = [*group, *names[column]]
        over.pop()
    return over, names


def _apart(line: _Printed) -> Iterator[list[_Word]]:
    """The words of a line, names by names."""
    gaps = [right.x0 - left.x1 for left, right in pairwise(line.words)]
    widest = min(max(_BETWEEN_NAMES * line.size, 2 * min(gaps, default=0)), _APART * line.size)  # within a name
    begun = [line.words[0]]
    for gap, word in zip(gaps, line.words[1:], strict=True):
        if gap > widest:
            yield begun
            begun = []
        begun.append(word)
    yield begun


def _offset(words: Sequence[_Word], others: Sequence[_Word]) -> float:
    """How far apart the beginnings, the ends or the middles are, whichever is least."""
    (x0, x1), (x2, x3) = ((min(word.x0 for word in each), max(word.x1 for word in each)) for each in (words, others))
    return min(abs(x0 - x2), abs(x1 - x3), abs(x0 + x1 - x2 - x3) / 2)


def _cell(row: int, column: int, column_end: int, words: Sequence[_Word]) -> Cell:
    return Cell(row, row + 1, column, column_end, np.sort(np.concatenate([word.members_N for word in words])))
