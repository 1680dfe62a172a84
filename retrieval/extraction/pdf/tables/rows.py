"""Tables of a page to sentences (see `retrieval.extraction.table_rows`).

Axes: C characters of a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from retrieval.extraction.document import ExtractedBox, ExtractedTable
from retrieval.extraction.pdf.characters import PageCharacters, extent
from retrieval.extraction.pdf.layout import Line, lines_of_cell
from retrieval.extraction.pdf.paragraphs import join_lines
from retrieval.extraction.pdf.tables.grid import Cell, Grid, heading_rows, members_of
from retrieval.extraction.pdf.text_boxes import TextLine, composed, plain_line
from retrieval.extraction.table_rows import (
    LONGEST_NAME,
    SENTENCE_ENDS,
    Piece,
    in_between,
    is_number,
    joined_pieces,
    named,
    names_values,
    row_sentence,
)

_LONGEST_REPEATED = 60  # characters of a cell that is repeated in the rows it stands beside
_ONE_LINE = 160  # characters; shorter cells have no line breaks
_SAME_EDGE = 6.0  # points
_LEADERS = re.compile(r"\s*(?:\.\s?){4,}")


@dataclass(frozen=True)
class Names:
    """Names of the columns between some edges, for a table that goes on on the next page, and the cells of its last row
    by column."""

    edges: tuple[float, ...]
    names: tuple[str, ...]
    last: Mapping[int, Piece] = field(default_factory=dict)
    last_line: TextLine | None = None

    def fit(self, grid: Grid) -> bool:
        return len(grid.edges) == len(self.edges) and all(
            abs(ours - theirs) < _SAME_EDGE for ours, theirs in zip(self.edges, grid.edges, strict=True)
        )


def read_table(
    page_number: int, page: PageCharacters, whole: Line, number: int, before: Names | None
) -> tuple[list[TextLine], Names | None, ExtractedTable, tuple[TextLine, TextLine] | None]:
    """A table as sentences, the names of its columns, its cells as they stand; and the last row of the table before as
    it was read, and with the rest of it, where that stands above the rows of this one.

    `before`: the names of a table that this one may continue; `number` distinguishes it from others."""
    assert whole.table is not None
    grid = whole.table
    cells = {id(cell): _text_of(page_number, page, cell) for cell in grid.cells}
    heading = grid.heading_rows if grid.heading_rows is not None else heading_rows(page, grid)
    names = _names(grid, cells, heading) if heading else None
    rows = sorted({cell.row for cell in grid.cells})
    cut = None
    if names is None and before is not None and before.fit(grid):
        names = replace(before, edges=grid.edges)
        cut = _rest_of_row(grid, cells, rows[0], before) if not heading else None
    lines = []
    for row in rows[1:] if cut is not None else rows:
        if row < heading:
            pieces = in_between([cells[id(cell)] for cell in grid.in_row(row)], "\t")
        else:
            pieces = _row_pieces(grid, cells, row, heading, names)
        if any(piece.placed_C.any() for piece in pieces):  # not of a row of dots, or of names that are repeated
            lines.append(_line(page_number, page, whole, members_of(grid.in_row(row)), pieces, number))
    if names is not None and lines:
        last = {cell.column: cells[id(cell)] for cell in grid.in_row(rows[-1])}
        names = replace(names, last=last, last_line=lines[-1])
    return lines, names, _shown(page_number, page, grid, cells), cut


def _rest_of_row(grid: Grid, cells: dict[int, Piece], row: int, before: Names) -> tuple[TextLine, TextLine] | None:
    """The last row of the table before as it was read, and with the cells of this one, which go on with it; None where
    they do not."""
    here = {cell.column: cells[id(cell)].text for cell in grid.in_row(row)}
    if before.last_line is None or 0 in here or not set(here) <= set(before.last):
        return None
    if not any(text[:1].islower() for text in here.values()):
        return None
    parts = []
    for column, piece in before.last.items():
        rest = [Piece.unprinted(f" {here[column]}")] if column in here else []
        parts.append([*named(before.names[column], piece), *rest])
    return before.last_line, composed([before.last_line], row_sentence(parts, is_form=not any(before.names)))


def _shown(page_number: int, page: PageCharacters, grid: Grid, cells: dict[int, Piece]) -> ExtractedTable:
    """The cells as they stand on the page."""
    rows = [[""] * (len(grid.edges) - 1) for _ in range(max(cell.row_end for cell in grid.cells))]
    for cell in grid.cells:
        rows[cell.row][cell.column] = " ".join(cells[id(cell)].text.split())
    corners = np.array(extent(page.box_N4[grid.members_N])) / [page.width, page.height, page.width, page.height]
    box = ExtractedBox(page_number, *corners.clip(0, 1).tolist())  # fields may reach beyond the page
    filled = tuple(tuple(row) for row in rows if any(row))
    return ExtractedTable(page_number, "", box, filled)


def _names(grid: Grid, cells: dict[int, Piece], heading: int) -> Names | None:
    """The names of the columns, those of groups of columns before them."""
    names = [""] * (len(grid.edges) - 1)
    for cell in sorted(grid.cells, key=lambda cell: cell.row):
        if cell.row < heading:
            for column in range(cell.column, cell.column_end):
                names[column] = " ".join([*names[column].split(), *cells[id(cell)].text.split()])
    if names_values(names):
        names = [""] * len(names)
    return Names(grid.edges, tuple(names)) if max(map(len, names)) <= LONGEST_NAME else None


def _row_pieces(grid: Grid, cells: dict[int, Piece], row: int, heading: int, names: Names | None) -> list[Piece]:
    """The sentence of one row; a cell that stands beside several rows is repeated."""
    here = sorted((cell for cell in grid.cells if cell.row <= row < cell.row_end), key=lambda cell: cell.column)
    own = [cell for cell in here if cell.row == row]
    if len(own) == 1 and own[0].column_end - own[0].column == len(grid.edges) - 1 > 1:
        return [cells[id(own[0])]]  # a line across the whole table
    parts: list[list[Piece]] = []
    label = _label_above(grid, row, heading) if here and here[0].column > 0 else None
    if label is not None and is_number(cells[id(label)].text):  # the number of one row
        label = None
    for cell in [label, *here] if label is not None else here:
        piece = cells[id(cell)]
        if cell.row < row:
            if len(piece.text) > _LONGEST_REPEATED:
                continue
            piece = Piece.unprinted(piece.text)
        name = names.names[cell.column] if names is not None else ""
        if not piece.text or piece.text == name:
            continue
        parts.append(named(name, piece))
    # Of two columns without names, the first asks what is filled in behind it.
    is_form = (names is None or not any(names.names)) and len(parts) == 2 and len(grid.edges) == 3
    return row_sentence(parts, is_form=is_form)


def _label_above(grid: Grid, row: int, heading: int) -> Cell | None:
    """The last filled cell of the first column above a row that leaves it empty: the name of its group."""
    above = [cell for cell in grid.cells if cell.column == 0 and cell.column_end == 1 and heading <= cell.row < row]
    return max(above, key=lambda cell: cell.row, default=None)


def _text_of(page_number: int, page: PageCharacters, cell: Cell) -> Piece:
    """The running text of a cell, in one line if it is short."""
    lines = [plain_line(page_number, page, line) for line in lines_of_cell(page, cell.members_N, cell.column)]
    joined = join_lines([[replace(line, page=0) for line in lines if line is not None]])
    is_short = len(joined.text) <= _ONE_LINE
    letters: list[str] = []
    kept: list[int] = []
    for number, letter in enumerate(_LEADERS.sub(lambda found: "\t" * len(found[0]), joined.text)):
        if letter in "\n\t":
            if not letters or letters[-1] in " \n":
                continue
            breaks = letter == "\n" and not is_short and letters[-1] in SENTENCE_ENDS
            letter = "\n" if breaks else " "
        letters.append(letter)
        kept.append(number)
    while letters and letters[-1].isspace():
        letters.pop()
        kept.pop()
    printed = np.array([not letter.isspace() for letter in letters], bool)  # dots that were left out are not
    boxes = np.where(printed[:, None], joined.box_N4[kept], 0.0).astype(np.float32)
    return Piece("".join(letters), printed, boxes, joined.line_N[kept].clip(0))


def _line(
    page_number: int, page: PageCharacters, whole: Line, own: np.ndarray, pieces: list[Piece], number: int
) -> TextLine:
    row = joined_pieces(pieces)
    x0, y0, x1, y1 = extent(page.box_N4[own])
    return TextLine(
        page_number, whole.column, whole.turn, row.text, row.box_C4, row.placed_C, row.run_C,
        x0, y0, x1, y1, y1, whole.size, False, 1, number,
    )  # fmt: skip
