"""Sheets of cells as text: tables with their headings, every row a sentence, every cell with its place.

A sheet's pages hold `ROWS_A_PAGE` rows each and share its label. A box encloses cells: its edges are fractions of the
page's columns and rows, so that the cells can be named again (`cells_of`).

Axes: N characters of the text, C characters of a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from retrieval.errors import ExtractError
from retrieval.extraction.document import (
    Aside,
    Exhibits,
    ExtractedBox,
    ExtractedDocument,
    ExtractedPage,
    ExtractedTable,
)
from retrieval.extraction.exhibits import table_of, within_limits
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.parts import remark_text, too_long
from retrieval.extraction.table_rows import Piece, in_between, is_number, layout_of, named_cell, own_cells, sentences_of

ROWS_A_PAGE = 1000
"""All pages of a sheet are so high; their width is the sheet's columns."""


@dataclass(frozen=True)
class Row:
    """The filled cells of one row by column, both counted from 0. `bold`: all of them are printed bold; `comments`:
    the column of a cell, and what was remarked on it."""

    number: int
    cells: dict[int, str]
    bold: bool = False
    comments: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True)
class Sheet:
    """`label` says what it is, in several words ("sheet Budget"); what is not `shown` is set aside. Rows without cells
    may be left out.

    `named`: its first row names the columns wherever that is possible, as in a CSV file. `beside`: texts that lie on
    the sheet, in no cell; `hidden`: numbers of rows that are not shown, so that those around them are neighbours.
    """

    label: str
    shown: bool
    rows: Iterable[Row]
    named: bool = False
    beside: Sequence[str] = ()
    hidden: Collection[int] = ()


@dataclass(frozen=True)
class _Line:
    """A line of text made of one row."""

    row: int
    pieces: list[Piece]
    begins_table: bool


def from_sheets(
    sheets: Iterable[Sheet],
    title: str,
    path: Path,
    metadata: dict[str, str],
    limits: ExtractLimits,
    notes: list[str],
    asides: list[Aside],
) -> ExtractedDocument:
    """Sheets that are not shown are added to `asides` and named in `notes`, which may grow while sheets are taken, too.
    Raises ExtractError without any text or beyond the limits."""
    text = _Text(limits)
    shown: list[ExtractedTable | None] = []
    read = [(sheet, list(_within(sheet.rows, limits))) for sheet in _shown(sheets, notes, asides)]
    alike = _alike([rows for _, rows in read])
    for sheet, rows in read:
        columns = 1 + max((max(row.cells) for row in rows), default=0)
        name = sheet.label.removeprefix("sheet ") if len(read) > 1 else ""
        tables = list(_tables(rows, sheet.hidden))
        lines = [line for table in tables for line in _lines(table, columns, sheet.named, name if alike else "")]
        last = rows[-1].number if rows else 0
        if name and not alike and lines:
            lines.insert(0, _Line(lines[0].row, [Piece.unprinted(name)], True))
        lines += [_Line(last, [Piece.unprinted(text)], True) for text in sheet.beside]
        first = len(text.pages)
        for number, chunk in groupby(lines, key=lambda line: line.row // ROWS_A_PAGE):
            text.add_page(sheet.label, first + number, columns, list(chunk))
        for table in tables:
            used = sorted({column for row in table for column in row.cells})
            cells = [[row.cells.get(column, "") for column in used] for row in table]
            shown.append(table_of(first + table[0].number // ROWS_A_PAGE, "", cells))
    if not text.length:
        hidden = "All text of the file is hidden or deleted."
        raise ExtractError(hidden if asides else "The file has no text: all its cells are empty.")
    return ExtractedDocument(
        " ".join((title or path.stem).split())[:300], text.text, tuple(text.pages), (), metadata, *text.places(),
        tuple(notes), exhibits=within_limits(Exhibits(tables=tuple(filter(None, shown)))), asides=tuple(asides),
    )  # fmt: skip


def _shown(sheets: Iterable[Sheet], notes: list[str], asides: list[Aside]) -> Iterator[Sheet]:
    for sheet in sheets:
        if sheet.shown:
            yield sheet
            continue
        notes.append(f"The {sheet.label} is hidden in the file.")
        rows = [row for row in sheet.rows if row.cells]
        lines = ["\t".join(row.cells.values()) for row in rows]
        comments = [text for row in rows for _, text in row.comments]
        if text := "\n".join([*lines, *comments, *sheet.beside]):
            asides.append(Aside("hidden", text))


def _alike(sheets: Sequence[Sequence[Row]]) -> bool:
    """Whether sheets have the same rows and columns, so that only their names tell them apart."""
    names = [{row.cells[min(row.cells)] for row in rows} for rows in sheets if rows]
    return len(names) > 1 and any(
        2 * len(one & other) > max(len(one), len(other)) for at, one in enumerate(names) for other in names[:at]
    )


def _within(rows: Iterable[Row], limits: ExtractLimits) -> Iterator[Row]:
    """Rows with something in them, until they are too many."""
    characters = 0
    for row in rows:
        if row.cells:
            characters += sum(map(len, row.cells.values()))
            if characters > limits.characters:
                raise too_long(limits)
            yield row


def _tables(rows: Sequence[Row], hidden: Collection[int]) -> Iterator[list[Row]]:
    """Rows without an empty one between them."""
    table: list[Row] = []
    for row in rows:
        if table and not all(number in hidden for number in range(table[-1].number + 1, row.number)):
            yield table
            table = []
        table.append(row)
    if table:
        yield table


def _lines(table: Sequence[Row], columns: int, is_named: bool, name: str) -> Iterator[_Line]:
    """What stands above a table as it stands, then its heading, then a sentence for each row, which begins with `name`,
    and for each comment on its cells."""
    titles = next((number for number, row in enumerate(table) if len(own_cells(row.cells)) > 1), 0)
    named = titles + 1 if is_named else 0
    layout = layout_of([row.cells for row in table], named=named, bold=[row.bold for row in table])
    for number, row in enumerate(table):
        sentences = sentences_of(row.cells, number, layout, {one: _piece(row, one, columns) for one in row.cells})
        about = layout.names if number >= layout.apart + layout.heads else {}
        sentences += [[Piece.unprinted(_remark(row, about, *comment))] for comment in row.comments]
        if name and number >= layout.apart + layout.heads:
            sentences = [[Piece.unprinted(f"{name}; "), *pieces] for pieces in sentences]
        for pieces in sentences:
            yield _Line(row.number, pieces, number in (0, layout.apart) and pieces is sentences[0])


def _remark(row: Row, names: Mapping[int, str], column: int, text: str) -> str:
    """A comment as a sentence that names its cell, and in a table with names its row by the first cell and the first
    with a word."""
    worded = next((one for one, cell in row.cells.items() if not is_number(cell)), column)
    named = [one for one in sorted({min(row.cells), worded, column} if names else {column}) if one in row.cells]
    cells = [named_cell(names, one, Piece.unprinted(" ".join(row.cells[one].split()))) for one in named]
    return remark_text("Comment", "".join(piece.text for piece in in_between(cells, "; ")), text)


def _piece(row: Row, column: int, columns: int) -> Piece:
    text = " ".join(row.cells[column].split())
    count, top = len(text), row.number % ROWS_A_PAGE
    box = (column / columns, top / ROWS_A_PAGE, (column + 1) / columns, (top + 1) / ROWS_A_PAGE)
    boxes = np.broadcast_to(np.array(box, np.float32), (count, 4))
    return Piece(text, np.ones(count, bool), boxes, np.zeros(count, np.int32))


class _Text:
    """The text of all sheets as it grows."""

    def __init__(self, limits: ExtractLimits):
        self._limits = limits
        self._texts: list[str] = []
        self.pages: list[ExtractedPage] = []
        self._page_parts, self._line_parts = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        self._box_parts = [np.zeros((0, 4), np.float32)]
        self.length = self._runs = 0

    def add_page(self, label: str, number: int, columns: int, lines: Sequence[_Line]) -> None:
        """What is empty before it is a page, too."""
        while len(self.pages) <= number:
            if len(self.pages) >= self._limits.pages:
                most = self._limits.pages * ROWS_A_PAGE
                raise ExtractError(f"The sheets have more than {most:,} rows. Split the file and add the parts.")
            sizes = float(columns), float(ROWS_A_PAGE)
            self.pages.append(ExtractedPage(len(self.pages), label, *sizes, self.length, self.length))
        if self.length:
            self._put([Piece.unprinted("\n\n")])
        start = self.length
        for line in lines:
            if self.length > start:
                self._put([Piece.unprinted("\n\n" if line.begins_table else "\n")])
            self._put(line.pieces)
            if self.length > self._limits.characters:
                raise too_long(self._limits)
        self.pages[-1] = replace(self.pages[-1], start=start, end=self.length)

    def _put(self, pieces: Sequence[Piece]) -> None:
        page = len(self.pages) - 1
        placed = np.concatenate([piece.placed_C for piece in pieces])
        run = np.repeat(np.arange(len(pieces), dtype=np.int32), [len(piece.text) for piece in pieces])
        self._texts += [piece.text for piece in pieces]
        self._page_parts.append(np.where(placed, page, -1).astype(np.int32))
        self._line_parts.append(np.where(placed, self._runs + run, -1).astype(np.int32))
        self._box_parts.append(np.concatenate([piece.box_C4 for piece in pieces]))
        self._runs += len(pieces)
        self.length += len(placed)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Page, line and box of every character."""
        return np.concatenate(self._page_parts), np.concatenate(self._line_parts), np.concatenate(self._box_parts)


def cells_of(boxes: Sequence[ExtractedBox], width: float, height: float, first_row: int) -> str:
    """The range of cells that boxes of one page enclose, as spreadsheets name it ("B17:D18"); "" without boxes.

    `width`, `height`: columns and rows of the page; `first_row`: the row at its top, counted from 0.
    """
    if not boxes:
        return ""
    left, right = min(box.x0 for box in boxes) * width, max(box.x1 for box in boxes) * width
    top, bottom = min(box.y0 for box in boxes) * height, max(box.y1 for box in boxes) * height
    first = f"{column_name(round(left))}{first_row + round(top) + 1}"
    last = f"{column_name(round(right) - 1)}{first_row + round(bottom)}"
    return first if first == last else f"{first}:{last}"


def column_name(column: int) -> str:
    """A for column 0, AA for column 26."""
    letters = ""
    column += 1
    while column:
        column, letter = divmod(column - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return letters
