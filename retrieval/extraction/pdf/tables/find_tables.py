"""Where a page has tables: cells between drawn borders, columns between drawn rules, and columns that only align.

Axes: N characters of the page, R rules, F fragments (here words). Points, origin top left of the displayed page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from retrieval.extraction.pdf.characters import PageCharacters
from retrieval.extraction.pdf.fragments import set_upright, turned_boxes
from retrieval.extraction.pdf.tables.grid import Cell, Grid, members_of
from retrieval.extraction.pdf.tables.number_tables import number_tables
from retrieval.extraction.pdf.tables.open_tables import Words, aligned_tables, tables_between_rules
from retrieval.extraction.pdf.tables.rules import Rules, joined
from retrieval.extraction.pdf.tables.subdivide import subdivided
from retrieval.extraction.pdf.unseen import SLANTED

_TOUCH = 3.0  # points; borders this close meet
_SNAP = 3.5  # points; borders this close are one
_TURNED_REACH = 90.0  # points above a table for names of columns that are set sideways
_COVERED = 0.6  # a border separates two cells if it covers this share of their side
_FEWEST_FILLED = 0.4  # of the cells; a drawing of boxes has more empty ones
_FEWEST_PLAIN = 0.6  # of the filled cells span one row and one column; boxes of a drawing are in no such order


def find_tables(page: PageCharacters, rules: Rules) -> list[Grid]:
    """The tables of a page, none sharing a character. Only text of the direction that most of it has is looked at, and
    names of columns that are set across it."""
    counts = np.bincount(page.turn_N[page.turn_N < SLANTED], minlength=1)
    turn = int(counts.argmax())
    if turn:
        page, rules = set_upright(page, turn), Rules.of(turned_boxes(page, rules.ends_R4, turn))
    free_N = page.turn_N == 0
    found: list[Grid] = []

    def take(grids: Iterator[Grid]) -> None:
        for grid in grids:
            if free_N[grid.members_N].all():
                found.append(_with_turned_names(page, grid))
                free_N[grid.members_N] = False

    take(_bordered_tables(page, rules, free_N))
    words, before = Words.of(page, free_N), len(found)
    for search in (tables_between_rules, number_tables, aligned_tables):
        if len(found) > before:
            words, before = Words.of(page, free_N), len(found)
        take(search(words, rules))
    return found


def _with_turned_names(page: PageCharacters, grid: Grid) -> Grid:
    """The table with the names of its columns that are set sideways above them."""
    x_N, y_N = page.middle_N2[:, 0], page.middle_N2[:, 1]
    top = float(page.box_N4[grid.members_N, 1].min())
    first = grid.in_row(0)
    foot = max((float(page.box_N4[cell.members_N, 3].max()) for cell in first), default=top)
    edges = np.array(grid.edges)
    near_N = (page.turn_N % 2 == 1) & (page.turn_N < SLANTED) & (y_N < foot) & (y_N > top - _TURNED_REACH)
    near = np.flatnonzero(near_N & (x_N > edges[0] - 10) & (x_N < edges[-1] + 10))
    middles = np.array([_middle_of(page, grid, column) for column in range(len(edges) - 1)])
    owner = np.abs(x_N[near, None] - middles).argmin(axis=1) if len(near) else near
    if len(np.unique(owner)) < 2 or len(near) < 2 * len(np.unique(owner)):
        return grid
    shift = int(any(cell.column in owner for cell in first))
    cells = [cell.moved(shift) for cell in grid.cells]
    cells += [Cell(0, 1, column, column + 1, near[owner == column]) for column in np.unique(owner).tolist()]
    return replace(grid, cells=cells, heading_rows=1 + shift * (grid.heading_rows or 0))


def _middle_of(page: PageCharacters, grid: Grid, column: int) -> float:
    """Where the text of a column stands."""
    own = grid.in_column(column)
    if not own:
        return (grid.edges[column] + grid.edges[column + 1]) / 2
    return float(np.median(page.middle_N2[members_of(own), 0]))


def _bordered_tables(page: PageCharacters, rules: Rules, free_N: np.ndarray) -> Iterator[Grid]:
    """Tables whose cells have drawn borders, at least inside."""
    for level_R3, upright_R3 in _touching(rules):
        left = min(level_R3[:, 1].min(), upright_R3[:, 0].min())
        right = max(level_R3[:, 2].max(), upright_R3[:, 0].max())
        top = min(upright_R3[:, 1].min(), level_R3[:, 0].min())
        bottom = max(upright_R3[:, 2].max(), level_R3[:, 0].max())
        xs = _distinct([left, *upright_R3[:, 0].tolist(), right])
        ys = _distinct([top, *level_R3[:, 0].tolist(), bottom])
        if len(xs) < 3 or len(ys) < 3:
            continue
        grid = _filled(page, free_N, _merged(xs, ys, level_R3, upright_R3), xs, ys)
        if grid is not None:
            yield subdivided(page, grid)


def _touching(rules: Rules) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Horizontal and vertical rules that hang together, a group at a time."""
    level, upright = joined(rules.level_R3, _TOUCH), joined(rules.upright_R3, _TOUCH)
    if not len(level) or not len(upright):
        return
    meets = (
        (upright[:, 0] >= level[:, 1, None] - _TOUCH)
        & (upright[:, 0] <= level[:, 2, None] + _TOUCH)
        & (level[:, 0, None] >= upright[:, 1] - _TOUCH)
        & (level[:, 0, None] <= upright[:, 2] + _TOUCH)
    )
    waiting = set(range(len(level)))
    while waiting:
        rows, columns, fresh = set[int](), set[int](), {min(waiting)}
        while fresh:
            rows |= fresh
            columns |= set(np.flatnonzero(meets[sorted(fresh)].any(axis=0)).tolist())
            fresh = set(np.flatnonzero(meets[:, sorted(columns)].any(axis=1)).tolist()) - rows if columns else set()
        waiting -= rows
        if columns:
            yield level[sorted(rows)], upright[sorted(columns)]


def _distinct(values: Sequence[float]) -> np.ndarray:
    """Sorted; of values close together their mean."""
    ordered = np.sort(np.array(values))
    groups = np.split(ordered, np.flatnonzero(np.diff(ordered) > _SNAP) + 1)
    return np.array([group.mean() for group in groups])


def _merged(xs: np.ndarray, ys: np.ndarray, level_R3: np.ndarray, upright_R3: np.ndarray) -> np.ndarray:
    """cell_RC: the cell that each square of the grid belongs to; without a border between, two squares are one."""
    number = np.arange((len(ys) - 1) * (len(xs) - 1)).reshape(len(ys) - 1, len(xs) - 1)
    for row in range(len(ys) - 1):
        for column in range(1, len(xs) - 1):
            if not _is_covered(upright_R3, xs[column], ys[row], ys[row + 1]):
                number[number == number[row, column]] = number[row, column - 1]
    for row in range(1, len(ys) - 1):
        for column in range(len(xs) - 1):
            if not _is_covered(level_R3, ys[row], xs[column], xs[column + 1]):
                number[number == number[row, column]] = number[row - 1, column]
    return number


def _is_covered(rules_R3: np.ndarray, place: float, low: float, high: float) -> bool:
    near = rules_R3[np.abs(rules_R3[:, 0] - place) <= _SNAP]
    covered = (np.minimum(near[:, 2], high) - np.maximum(near[:, 1], low)).clip(0).sum()
    return bool(covered >= _COVERED * (high - low))


def _filled(
    page: PageCharacters, free_N: np.ndarray, cell_RC: np.ndarray, xs: np.ndarray, ys: np.ndarray
) -> Grid | None:
    """The grid with the characters of its cells; None if it is no table: too few cells, or most of them empty."""
    x_N, y_N = page.middle_N2[:, 0], page.middle_N2[:, 1]
    inside = np.flatnonzero(free_N & (x_N > xs[0]) & (x_N < xs[-1]) & (y_N > ys[0]) & (y_N < ys[-1]))
    owner = cell_RC[np.searchsorted(ys, y_N[inside]) - 1, np.searchsorted(xs, x_N[inside]) - 1]
    cells: list[Cell] = []
    for number in np.unique(cell_RC).tolist():
        rows, columns = np.nonzero(cell_RC == number)
        row, row_end, column, column_end = map(int, (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1))
        cells.append(Cell(row, row_end, column, column_end, inside[owner == number]))
    filled = [cell for cell in cells if len(cell.members_N)]
    plain = [cell for cell in filled if cell.row_end - cell.row == 1 == cell.column_end - cell.column]
    if len(filled) < _FEWEST_FILLED * len(cells) or len(plain) < _FEWEST_PLAIN * len(filled):
        return None
    if len({cell.row for cell in filled}) < 2 or len({cell.column for cell in filled}) < 2:
        return None
    return _trimmed(Grid(filled, tuple(xs.tolist()), bordered=True))


def _trimmed(grid: Grid) -> Grid:
    """Without empty rows above and empty columns at the sides, as a frame around a table or its caption makes them."""
    above, before = min(cell.row for cell in grid.cells), min(cell.column for cell in grid.cells)
    last = max(cell.column_end for cell in grid.cells)
    cells = [cell.moved(-above, -before) for cell in grid.cells]
    return replace(grid, cells=cells, edges=grid.edges[before : last + 1])
