"""Sheets of cells as text: tables with their headings, every row a sentence, every cell with its place.

A sheet's pages hold `ROWS_A_PAGE` rows each and share its label. A box encloses cells: its edges are fractions of the
page's columns and rows, so that the cells can be named again (`cells_of`).

Legend: N characters of the text, C characters of a row.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from retrieval.errors import ExtractError
from retrieval.extraction.document import Exhibits, ExtractedDocument, ExtractedPage, ExtractedTable
from retrieval.extraction.exhibits import within_limits
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.office.cell_names import ROWS_A_PAGE
from retrieval.extraction.parts import too_long
from retrieval.extraction.table_rows import Piece, column_names, in_between, named, row_sentence

_MOST_NOTES = 8  # rows of remarks above a table


@dataclass(frozen=True)
class Row:
    """The filled cells of one row by column, both counted from 0. `bold`: all of them are printed bold."""

    number: int
    cells: dict[int, str]
    bold: bool = False


@dataclass(frozen=True)
class Sheet:
    """`label` says what it is, in several words ("sheet Budget"). Rows without cells may be left out.

    `named`: its first row names the columns wherever that is possible, as in a CSV file.
    """

    label: str
    rows: Iterable[Row]
    named: bool = False


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
    notes: Sequence[str] = (),
) -> ExtractedDocument:
    """Raises ExtractError without any text or beyond the limits."""
    text = _Text(limits)
    shown: list[ExtractedTable] = []
    for sheet in sheets:
        rows = list(_within(sheet.rows, limits))
        columns = 1 + max((max(row.cells) for row in rows), default=0)
        lines = [line for table in _tables(rows) for line in _lines(table, columns, sheet.named)]
        for number, chunk in groupby(lines, key=lambda line: line.row // ROWS_A_PAGE):
            text.add_page(sheet.label, number, columns, list(chunk))
        shown += [_shown(table, text.first_page(sheet.label)) for table in _tables(rows) if _is_table(table)]
    document = text.document(title or path.stem, metadata, notes)
    return replace(document, exhibits=within_limits(Exhibits(tables=tuple(shown))))


def _within(rows: Iterable[Row], limits: ExtractLimits) -> Iterator[Row]:
    """Rows with something in them, until they are too many."""
    characters = 0
    for row in rows:
        if row.cells:
            characters += sum(map(len, row.cells.values()))
            if characters > limits.characters:
                raise too_long(limits)
            yield row


def _tables(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows without an empty one between them."""
    table: list[Row] = []
    for row in rows:
        if table and row.number > table[-1].number + 1:
            yield table
            table = []
        table.append(row)
    if table:
        yield table


def _lines(table: Sequence[Row], columns: int, is_named: bool) -> Iterator[_Line]:
    """What stands alone above a table comes first, then its heading, then a sentence for each row."""
    rows = list(table)
    wide = max(len(row.cells) for row in rows)
    begins = True
    while rows and wide > 1 and len(rows[0].cells) == 1:
        yield _Line(rows[0].number, _bare(rows[0], columns), begins)
        rows, begins = rows[1:], False
    for note in rows[: _num_notes(rows, is_named)]:
        yield _Line(note.number, _bare(note, columns), begins)
        rows, begins = rows[1:], False
    bold = bool(rows) and rows[0].bold and not all(row.bold for row in rows)
    names = column_names([row.cells for row in rows], named=is_named or bold)
    if names:
        yield _Line(rows[0].number, _bare(rows[0], columns), True)
        rows, begins = rows[1:], False
    used = {column for row in rows for column in row.cells}
    is_form = not names and len(used) == 2
    for row in rows:
        cells = [named(_name(names, column, text), _piece(row, column, columns)) for column, text in row.cells.items()]
        pieces = row_sentence(cells, is_form=is_form and len(cells) == 2) if wide > 1 else cells[0]
        yield _Line(row.number, pieces, begins)
        begins = False


def _num_notes(rows: Sequence[Row], is_named: bool) -> int:
    """How many rows above the names of the columns are remarks: shorter than most rows, and without names of their
    own."""
    if len(rows) < 4 or column_names([row.cells for row in rows], named=is_named or rows[0].bold):
        return 0
    usual = max(Counter(len(row.cells) for row in rows).items(), key=lambda found: (found[1], found[0]))[0]
    first = next(number for number, row in enumerate(rows) if len(row.cells) >= usual)
    below = [row.cells for row in rows[first:]]
    return first if first <= _MOST_NOTES and len(below) > 2 and column_names(below, named=rows[first].bold) else 0


def _name(names: dict[int, str], column: int, text: str) -> str:
    name = names.get(column, "")
    return "" if name == text else name


def _is_table(rows: Sequence[Row]) -> bool:
    return len(rows) > 1 and any(len(row.cells) > 1 for row in rows)


def _shown(table: Sequence[Row], first_page: int) -> ExtractedTable:
    """The cells of a table as they stand in its sheet."""
    columns = sorted({column for row in table for column in row.cells})
    rows = tuple(tuple(" ".join(row.cells.get(column, "").split()) for column in columns) for row in table)
    return ExtractedTable(first_page + table[0].number // ROWS_A_PAGE, "", None, rows)


def _bare(row: Row, columns: int) -> list[Piece]:
    """A row as it stands, its cells parted by tabs."""
    return in_between([_piece(row, column, columns) for column in row.cells], "\t")


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
        self._pages: list[ExtractedPage] = []
        self._page_parts, self._line_parts = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        self._box_parts = [np.zeros((0, 4), np.float32)]
        self._length = self._runs = 0

    def add_page(self, label: str, number: int, columns: int, lines: Sequence[_Line]) -> None:
        """`number`: of the page in its sheet; what is empty before it is a page, too."""
        own = 0
        for page in reversed(self._pages):
            if page.label != label:
                break
            own += 1
        for _ in range(number - own + 1):
            if len(self._pages) >= self._limits.pages:
                raise too_long(self._limits)
            at = self._length
            page = ExtractedPage(len(self._pages), label, float(columns), float(ROWS_A_PAGE), at, at)
            self._pages.append(page)
        if self._length:
            self._put([Piece.unprinted("\n\n")])
        start = self._length
        for line in lines:
            if self._length > start:
                self._put([Piece.unprinted("\n\n" if line.begins_table else "\n")])
            self._put(line.pieces)
            if self._length > self._limits.characters:
                raise too_long(self._limits)
        last = self._pages[-1]
        self._pages[-1] = ExtractedPage(last.number, label, last.width, last.height, start, self._length)

    def first_page(self, label: str) -> int:
        """The number of the first page with this label."""
        return next(page.number for page in self._pages if page.label == label)

    def _put(self, pieces: Sequence[Piece]) -> None:
        page = len(self._pages) - 1
        placed = np.concatenate([piece.placed_C for piece in pieces])
        run = np.repeat(np.arange(len(pieces), dtype=np.int32), [len(piece.text) for piece in pieces])
        self._texts += [piece.text for piece in pieces]
        self._page_parts.append(np.where(placed, page, -1).astype(np.int32))
        self._line_parts.append(np.where(placed, self._runs + run, -1).astype(np.int32))
        self._box_parts.append(np.concatenate([piece.box_C4 for piece in pieces]))
        self._runs += len(pieces)
        self._length += len(placed)

    def document(self, title: str, metadata: dict[str, str], notes: Sequence[str]) -> ExtractedDocument:
        if not self._length:
            raise ExtractError("The file has no text: all its cells are empty.")
        return ExtractedDocument(
            " ".join(title.split())[:300], "".join(self._texts), tuple(self._pages), (), metadata,
            np.concatenate(self._page_parts), np.concatenate(self._line_parts), np.concatenate(self._box_parts),
            tuple(notes),
        )  # fmt: skip


def number_text(value: float) -> str:
    """A number as people write it, without what floating point adds."""
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e15):
        return str(int(value))
    return f"{value:.12g}"
