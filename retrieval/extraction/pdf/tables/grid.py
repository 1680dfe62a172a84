"""A table as rows and columns of printed characters. Axes: N characters of the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from retrieval.extraction.pdf.characters import PageCharacters
from retrieval.extraction.table_rows import MOST_HEADS, is_number


@dataclass(frozen=True, eq=False)
class Cell:
    """Rows `row`..`row_end` - 1 and columns `column`..`column_end` - 1, counted from 0; `members_N` are indices of the
    page's characters, in the order of drawing."""

    row: int
    row_end: int
    column: int
    column_end: int
    members_N: np.ndarray

    def moved(self, rows: int, columns: int = 0) -> Cell:
        """The cell so many rows further down and columns further to the right."""
        return Cell(
            self.row + rows, self.row_end + rows, self.column + columns, self.column_end + columns, self.members_N
        )


@dataclass(frozen=True, eq=False)
class Grid:
    """The filled cells of a table. `edges` are the left ends of its columns and the right end of the last, in points;
    `heading_rows`: how many rows name the columns, None if only their looks can tell."""

    cells: Sequence[Cell]
    edges: tuple[float, ...]
    bordered: bool = False
    heading_rows: int | None = None

    @cached_property
    def members_N(self) -> np.ndarray:
        return members_of(self.cells)

    def in_row(self, row: int) -> list[Cell]:
        """The cells that begin in a row, from left to right."""
        return sorted((cell for cell in self.cells if cell.row == row), key=lambda cell: cell.column)

    def in_column(self, column: int) -> list[Cell]:
        """The cells of one column alone."""
        return [cell for cell in self.cells if (cell.column, cell.column_end) == (column, column + 1)]


def members_of(cells: Iterable[Cell]) -> np.ndarray:
    """The characters of some cells, in the order of drawing."""
    members_N: np.ndarray = np.sort(np.concatenate([cell.members_N for cell in cells]))
    return members_N


_LONGEST_NAME = 80  # characters
_YEAR = re.compile(r"(?:19|20)\d\d")
_BOLD = 600
_SMALL = 0.9  # of the size of the print below


def cell_text(page: PageCharacters, cell: Cell) -> str:
    """The characters of a cell without white space, to judge what it is."""
    return "".join(map(chr, page.code_N[cell.members_N].tolist()))


def heading_rows(page: PageCharacters, grid: Grid) -> int:
    """How many of the first rows name the columns: two or more where cells of the upper ones span several below."""
    levels = _levels(grid)
    return levels if levels > 1 and is_heading(page, grid, levels) else int(is_heading(page, grid, 1))


def _levels(grid: Grid) -> int:
    columns = len(grid.edges) - 1
    for row in range(MOST_HEADS - 1):
        wide = [c for c in grid.in_row(row) if c.row_end == row + 1 and 1 < c.column_end - c.column < columns]
        below = grid.in_row(row + 1)
        if not wide or any(sum(c.column <= b.column < c.column_end for b in below) < 2 for c in wide):
            return row + 1
    return MOST_HEADS


def is_heading(page: PageCharacters, grid: Grid, rows: int) -> bool:
    """Whether so many first rows name the columns: by bold print, by numbers below words, or in a table of three
    columns with borders by short words in each."""
    columns = len(grid.edges) - 1
    first = [cell for cell in grid.cells if cell.row_end <= rows]
    named = {column for cell in first for column in range(cell.column, cell.column_end)}
    texts = [cell_text(page, cell) for cell in first]
    if len(first) < 2 or not named >= set(range(1, columns)):
        return False
    if page.filled_N[members_of(first)].any() or _alternates(page, grid):
        return False
    if any(len(text) > _LONGEST_NAME or (is_number(text) and not _YEAR.fullmatch(text)) for text in texts):
        return False
    body = [cell for cell in grid.cells if cell.row >= rows]
    if _is_bold(page, first) and not _is_bold(page, body):
        return True
    if has_numbers(page, grid, rows):
        return True
    is_told_apart = rows > 1 or len(set(texts)) == len(texts)
    return grid.bordered and columns > 2 and is_told_apart and max(map(len, texts)) <= _LONGEST_NAME / 2


def _alternates(page: PageCharacters, grid: Grid) -> bool:
    """Whether every other row is in small print: labels above their values."""
    rows = sorted({cell.row for cell in grid.cells})
    sizes = [float(np.median(page.size_N[members_of(grid.in_row(row))])) for row in rows]
    return len(sizes) > 3 and len(sizes) % 2 == 0 and max(sizes[::2]) < _SMALL * min(sizes[1::2])


def has_numbers(page: PageCharacters, grid: Grid, start: int) -> bool:
    """Whether a column holds numbers from some row on."""
    for column in range(len(grid.edges) - 1):
        here = [cell for cell in grid.in_column(column) if cell.row >= start]
        if len(here) > 1 and sum(is_number(cell_text(page, cell)) for cell in here) > 0.6 * len(here):
            return True
    return False


def _is_bold(page: PageCharacters, cells: Sequence[Cell]) -> bool:
    return bool(cells) and float(np.mean(page.weight_N[members_of(cells)] >= _BOLD)) > 0.6
