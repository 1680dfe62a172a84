"""Tables to text: every row a sentence of its own, in which each cell stands behind the name of its column.

    Region: North; Price per tonne, EUR: 41.50.

Names that are repeated and what is put between cells stand on no page, so boxes enclose the cells of the row alone.

Legend: C characters of a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from retrieval.extraction.document import ExtractedBox, ExtractedTable
from retrieval.extraction.pdf.characters import PageCharacters
from retrieval.extraction.pdf.layout import Line, lines_of_cell
from retrieval.extraction.pdf.paragraphs import join_lines
from retrieval.extraction.pdf.tables.grid import Cell, Grid, has_heading
from retrieval.extraction.pdf.text_boxes import TextLine, plain_line
from retrieval.extraction.table_rows import (
    LONGEST_NAME,
    SENTENCE_ENDS,
    Piece,
    in_between,
    is_number,
    named,
    row_sentence,
)

_LONGEST_REPEATED = 60  # characters of a cell that is repeated in the rows it stands beside
_ONE_LINE = 160  # characters; shorter cells have no line breaks
_SAME_EDGE = 6.0  # points
_LEADERS = re.compile(r"\s*(?:\.\s?){4,}")


@dataclass(frozen=True)
class Names:
    """Names of the columns between some edges, for a table that goes on on the next page."""

    edges: tuple[float, ...]
    names: tuple[str, ...]

    def fit(self, grid: Grid) -> bool:
        return len(grid.edges) == len(self.edges) and all(
            abs(ours - theirs) < _SAME_EDGE for ours, theirs in zip(self.edges, grid.edges, strict=True)
        )


@dataclass(frozen=True)
class ReadTable:
    """A table as sentences (`lines`) and as cells (`shown`), and the names of its columns."""

    lines: list[TextLine]
    names: Names | None
    shown: ExtractedTable


def read_table(page_number: int, page: PageCharacters, whole: Line, number: int, before: Names | None) -> ReadTable:
    """`before`: the names of a table that this one may continue; `number` distinguishes it from others."""
    assert whole.table is not None
    grid = whole.table
    cells = {id(cell): _text_of(page_number, page, cell) for cell in grid.cells}
    heading = grid.heading_rows if grid.heading_rows is not None else int(has_heading(page, grid))
    names = _names(grid, cells, heading) if heading else None
    if names is None and before is not None and before.fit(grid):
        names = replace(before, edges=grid.edges)
    lines = []
    for row in sorted({cell.row for cell in grid.cells}):
        if row < heading:
            shown = [cell for cell in grid.cells if cell.row == row]
            pieces = in_between([cells[id(cell)] for cell in sorted(shown, key=lambda cell: cell.column)], "\t")
        else:
            pieces = _row_pieces(grid, cells, row, heading, names)
        if pieces:
            own = np.concatenate([cell.members_N for cell in grid.cells if cell.row == row])
            lines.append(_line(page_number, page, whole, own, pieces, number))
    return ReadTable(lines, names, _shown(page_number, page, grid, cells))


def _shown(page_number: int, page: PageCharacters, grid: Grid, cells: dict[int, Piece]) -> ExtractedTable:
    """The cells as they stand on the page."""
    rows = [[""] * (len(grid.edges) - 1) for _ in range(max(cell.row_end for cell in grid.cells))]
    for cell in grid.cells:
        rows[cell.row][cell.column] = " ".join(cells[id(cell)].text.split())
    low, high = page.box_N4[grid.members_N, :2].min(axis=0), page.box_N4[grid.members_N, 2:].max(axis=0)
    sides = (low[0] / page.width, low[1] / page.height, high[0] / page.width, high[1] / page.height)
    filled = tuple(tuple(row) for row in rows if any(row))
    return ExtractedTable(page_number, "", ExtractedBox(page_number, *map(float, sides)), filled)


def _names(grid: Grid, cells: dict[int, Piece], heading: int) -> Names | None:
    """The names of the columns, those of groups of columns before them."""
    names = [""] * (len(grid.edges) - 1)
    for cell in sorted(grid.cells, key=lambda cell: cell.row):
        if cell.row < heading:
            for column in range(cell.column, cell.column_end):
                names[column] = " ".join([*names[column].split(), *cells[id(cell)].text.split()])
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
    is_form = names is None and len(parts) == 2 and len(grid.edges) == 3
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
    page_number: int,
    page: PageCharacters,
    whole: Line,
    own: np.ndarray,
    pieces: list[Piece],
    number: int,
) -> TextLine:
    runs, run_parts = 0, []
    for piece in pieces:
        run_parts.append(runs + piece.run_C)
        runs += int(piece.run_C.max(initial=0)) + 1
    low, high = page.box_N4[own, :2].min(axis=0), page.box_N4[own, 2:].max(axis=0)
    return TextLine(
        page_number, whole.column, whole.turn, "".join(piece.text for piece in pieces),
        np.concatenate([piece.box_C4 for piece in pieces]), np.concatenate([piece.placed_C for piece in pieces]),
        np.concatenate(run_parts), float(low[0]), float(low[1]), float(high[0]), float(high[1]), float(high[1]),
        whole.size, False, 1, number,
    )  # fmt: skip
