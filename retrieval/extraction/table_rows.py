"""The rows of tables as text: every row a sentence of its own, in which each cell stands behind the name of its column.

    Region: North; Price per tonne, EUR: 41.50.

Names that are repeated and what is put between cells stand nowhere, so boxes enclose the cells of the row alone.

Axes: C characters of a piece.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LONGEST_NAME = 100  # characters
MOST_REMARKS = 8  # rows of remarks above a table
MOST_HEADS = 3  # rows that hold names of columns
WIDE_ROW = 400
"""Characters of a row that is one sentence, at most. Digits count twice: they fill blocks twice as fast as letters."""
LONGEST_KEY = 60  # characters of a cell that names the parts of a wide row
_YEAR = re.compile(r"(?:19|20)\d\d(?:[-/]\d\d?)?")
_LEVEL = " / "  # between the names of several rows
_SEPARATED = (":", ";")
_VALUES = ("value", "values", "wert", "werte", "valeur", "valeurs", "valor", "valores")
SENTENCE_ENDS = (".", "!", "?", "…", ":", ";")


@dataclass(frozen=True)
class Piece:
    """Some text of a row with its places; printed nowhere if it has none. `run_C` numbers its separate pieces."""

    text: str
    placed_C: np.ndarray
    box_C4: np.ndarray
    run_C: np.ndarray

    @classmethod
    def unprinted(cls, text: str) -> Piece:
        count = len(text)
        return cls(text, np.zeros(count, bool), np.zeros((count, 4), np.float32), np.zeros(count, np.int32))


def joined_pieces(pieces: Sequence[Piece]) -> Piece:
    """All of them as one, their runs numbered on."""
    starts = np.cumsum([0, *(1 + int(piece.run_C.max(initial=0)) for piece in pieces)])
    return Piece(
        "".join(piece.text for piece in pieces),
        np.concatenate([piece.placed_C for piece in pieces]),
        np.concatenate([piece.box_C4 for piece in pieces]),
        np.concatenate([piece.run_C + start for piece, start in zip(pieces, starts, strict=False)]).astype(np.int32),
    )


def named(name: str, cell: Piece) -> list[Piece]:
    """A cell behind the name of its column; "" for none."""
    if not name:
        return [cell]
    return [Piece.unprinted(f"{name} " if name.endswith(SENTENCE_ENDS) else f"{name}: "), cell]


def row_sentence(cells: Sequence[list[Piece]], *, is_form: bool = False) -> list[Piece]:
    """The cells of a row, each with its name, as a sentence. Of a form the first asks what the second answers."""
    if is_form:
        asked = cells[0][-1].text.endswith(("?", "!")) if cells and cells[0] else False
        stated = ": " in "".join(piece.text for piece in cells[0]) if cells else False
        between = " " if asked else "; " if stated else ": "
        return _closed(in_between([piece for cell in cells for piece in cell], between))
    return _closed(in_between(cells, "; "))


def in_between(parts: Sequence[Piece | list[Piece]], separator: str) -> list[Piece]:
    """All parts with the separator between them, or a space behind what ends with one already. A full stop does not:
    the row goes on behind "Voda s.r.o."."""
    pieces: list[Piece] = []
    for part in parts:
        added = part if isinstance(part, list) else [part]
        if pieces:
            ends = pieces[-1].text.endswith(_SEPARATED)
            pieces.append(Piece.unprinted(" " if ends and separator != "\t" else separator))
        pieces += added
    return pieces


def _closed(pieces: list[Piece]) -> list[Piece]:
    """With a full stop, so that the row is a sentence."""
    return pieces if not pieces or pieces[-1].text.endswith(SENTENCE_ENDS) else [*pieces, Piece.unprinted(".")]


def is_number(text: str) -> bool:
    """Whether a cell holds a number, perhaps with a unit or a sign."""
    digits, letters = sum(letter.isdigit() for letter in text), sum(letter.isalpha() for letter in text)
    return digits > 0 and digits > letters


class Merged(str):
    """The text of a merged cell, in one of the further rows and columns that the cell spans."""

    __slots__ = ()


@dataclass(frozen=True)
class Layout:
    """What the rows of a table are: the first `apart` stand above it (titles, remarks), the next `heads` hold the
    names of its columns. `wide`: cells of its widest row. `is_form`: two columns without names, in each row a label
    and its value. `key`: the column that tells most rows apart, measures aside, or -1."""

    apart: int
    heads: int
    names: Mapping[int, str]
    wide: int
    is_form: bool
    key: int


def layout_of(rows: Sequence[Mapping[int, str]], *, named: int = 0, bold: Sequence[bool] = ()) -> Layout:
    """Of the filled rows of a table, each by column. `named`: so many of the first rows are known to be titles or to
    hold names, wherever that is possible; -1: none does. `bold`: rows whose cells are all printed bold."""
    wide = max((len(own_cells(row)) for row in rows), default=0)
    apart = 0
    while apart < len(rows) and wide > 1 and len(own_cells(rows[apart])) == 1:
        apart += 1
    is_bold = bool(bold) and bold[min(apart, len(bold) - 1)] and not all(bold[apart:])
    named = max(named - apart, min(named, 0)) or int(is_bold)
    heads, names = heading_of(rows[apart:], named=named)
    if not names and named >= 0 and len(rows) - apart >= 4:
        usual = max(
            Counter(len(own_cells(row)) for row in rows[apart:]).items(), key=lambda found: (found[1], found[0])
        )[0]
        remarks = next(number for number, row in enumerate(rows[apart:]) if len(own_cells(row)) >= usual)
        if 0 < remarks <= MOST_REMARKS and len(rows) - apart - remarks > 2:
            is_bold = bool(bold) and bold[apart + remarks]
            heads, names = heading_of(rows[apart + remarks :], named=int(is_bold))
            apart += remarks if names else 0
    used = {column for row in rows[apart + heads :] for column in row}
    if names_values(list(names.values())):
        names = {}
    return Layout(apart, heads, names, wide, not names and len(used) == 2, _key(rows[apart + heads :]))


def _key(rows: Sequence[Mapping[int, str]]) -> int:
    columns = sorted({column for row in rows for column in row})
    names = [
        column
        for column in columns
        if not any("." in (text := row.get(column, "")) and is_number(text) for row in rows)
    ]
    return max(names, key=lambda column: len({row.get(column, "") for row in rows}), default=-1)


def names_values(names: Sequence[str]) -> bool:
    """Whether two columns are labels and their values, and are called so ("Detail", "Value"): what a row is about is
    its label, not the word above it."""
    return len(names) == 2 and names[1].casefold().strip(": ") in _VALUES


def heading_of(rows: Sequence[Mapping[int, str]], *, named: int = 0) -> tuple[int, dict[int, str]]:
    """How many of the first rows hold the names of the columns, and the names: of several rows joined ("2024 / Zinc").

    Several rows do where the table says so, or where cells of an upper one span several names of the next."""
    if named < 0:
        return 0, {}
    for count in range(min(MOST_HEADS, len(rows) - 1), 1, -1):
        last = rows[count - 1]
        upper = [_spread(row, last) for row in rows[: count - 1]]
        if count > named and not all(_spans(row, last) for row in upper):
            continue
        if count > named and (_are_values(last, rows[count]) or len(own_cells(last)) < 2):
            continue
        names = column_names([_joined([*upper, last]), *rows[count:]], named=True)
        if names:
            return count, names
    names = column_names(rows, named=named > 0)
    return (1, names) if names else (0, {})


def _spans(row: Mapping[int, str], below: Mapping[int, str]) -> bool:
    """Whether cells of a row span several names below, and those that span one column none, or some of these go on in
    the row below."""
    spanned = {column for column, text in row.items() if isinstance(text, Merged) and row.get(column - 1) == text}
    spanned |= {column - 1 for column in spanned}
    single = {column: text for column, text in row.items() if column not in spanned}
    goes_on = any(isinstance(below.get(column), Merged) and below[column] == text for column, text in single.items())
    return bool(spanned) and (goes_on or all(below.get(column, text) == text for column, text in single.items()))


def _spread(row: Mapping[int, str], below: Mapping[int, str]) -> Mapping[int, str]:
    """An upper row of names; where names below occur twice, each of its cells stands above all to its right."""
    if len(set(below.values())) == len(below) or len(row) >= len(below) or len(row) < 2:
        return row
    spread, last = dict(row), ""
    for column in range(min(row), max(*row, *below) + 1):
        last = row.get(column, Merged(last))
        if last:
            spread[column] = last
    return spread


def _joined(rows: Sequence[Mapping[int, str]]) -> dict[int, str]:
    """Names of several rows as one; a cell that spans the same columns in all of them goes on doing so."""
    names: dict[int, str] = {}
    for column in sorted({column for row in rows for column in row}):
        parts = [row[column] for row in rows if column in row]
        told = [" ".join(part.split()) for part, above in zip(parts, ["", *parts], strict=False) if part != above]
        names[column] = (Merged if all(isinstance(part, Merged) for part in parts) else str)(_LEVEL.join(told))
    return names


def text_rows(rows: Sequence[Sequence[str]], *, named: int = 0) -> list[str]:
    """The rows of a table that is known by its cells alone: its names, where it has any, and a sentence each.

    `named`: so many of its first rows are known to hold names; -1: none does."""
    filled = [{column: text for column, text in enumerate(row) if text} for row in rows]
    filled = [row for row in filled if row]
    layout = layout_of(filled, named=named)
    pieces = [{column: Piece.unprinted(text) for column, text in row.items()} for row in filled]
    lines = (sentences_of(row, at, layout, own) for at, (row, own) in enumerate(zip(filled, pieces, strict=True)))
    return ["".join(piece.text for piece in line) for sentences in lines for line in sentences]


def sentences_of(row: Mapping[int, str], number: int, layout: Layout, pieces: Mapping[int, Piece]) -> list[list[Piece]]:
    """A row of a table, by its number: cells as they stand if it is a title or holds names, else sentences."""
    own = own_cells(row)
    if number < layout.apart + layout.heads or layout.wide < 2 or len(own) == 1 < len(row):
        return [in_between([pieces[column] for column in own], "\t")]
    told = [column for column in row if column in own or layout.names.get(column) != layout.names.get(column - 1)]
    cells = [named_cell(layout.names, column, pieces[column]) for column in told]
    key = told.index(layout.key) if layout.key in told else 0
    return row_sentences(cells, is_form=layout.is_form and len(cells) == 2, key=key)


def own_cells(row: Mapping[int, str]) -> list[int]:
    """The columns of a row's cells, of one that spans several columns the first."""
    return [column for column, text in row.items() if not isinstance(text, Merged) or row.get(column - 1) != text]


def named_cell(names: Mapping[int, str], column: int, cell: Piece) -> list[Piece]:
    name = names.get(column, "")
    return named("" if name == cell.text else name, cell)


def row_sentences(cells: Sequence[list[Piece]], *, is_form: bool = False, key: int = 0) -> list[list[Piece]]:
    """A row as a sentence, or as several where it is wide: each begins with the first cell and, if that is another one,
    with the `key` cell: they name the row."""
    widths = [sum(len(piece.text) + sum(map(str.isdigit, piece.text)) for piece in cell) for cell in cells]
    if sum(widths) <= WIDE_ROW or len(cells) < 4:
        return [row_sentence(cells, is_form=is_form)]
    groups, size = [[cells[0]]], 0
    naming = [cells[0], cells[key]] if key and len(cells[key][-1].text) <= LONGEST_KEY else [cells[0]]
    name = [Piece.unprinted("".join(piece.text for piece in in_between(naming, "; ")))]
    for cell, added in zip(cells[1:], widths[1:], strict=True):
        if size and size + added > WIDE_ROW // 2:
            groups.append([name])
            size = 0
        groups[-1].append(cell)
        size += added
    return [row_sentence(group) for group in groups]


def column_names(rows: Sequence[Mapping[int, str]], *, named: bool = False) -> dict[int, str]:
    """The names of the columns, if the first of the filled rows holds them: different words, and below them numbers,
    or more than two columns, or whatever follows where the table is known to be `named`. A merged cell names all
    columns that it spans."""
    own = own_cells(rows[0]) if rows else []
    if len(rows) < 2 or len(own) < 2:
        return {}
    names = {column: " ".join(text.split()) for column, text in rows[0].items()}
    if any(len(name) > LONGEST_NAME for name in names.values()):
        return {}
    if any(_is_value(name) and not _is_code_above_numbers(name, column, rows[1:]) for column, name in names.items()):
        return {}
    if 0 < sum(name.endswith(":") for name in names.values()) < len(names):  # labels and their values
        return {}
    used = {column for row in rows[1:] for column in row}
    if not _tells_apart([names[column] for column in own]):
        return {}
    if len(used & set(names)) < 2 or len(used - set(names)) > len(names) / 2:
        return {}
    if not named and 10 * len(used & set(names)) < len(names):  # a row far wider than those below it
        return {}
    return names if named or len(own) > 2 or _has_numbers(rows[1:]) else {}


def _tells_apart(names: Sequence[str]) -> bool:
    """Whether no name occurs twice, but in tables that stand side by side with the same names."""
    most = len(set(names))
    return most == len(names) or (most > 1 and [*names] == [*names[:most]] * (len(names) // most))


def _are_values(row: Mapping[int, str], below: Mapping[int, str]) -> bool:
    """Whether a row holds values and not names: years name columns only where none stands below them."""
    years = (
        is_number(text) and is_number(below.get(column, "")) and _YEAR.fullmatch(below[column])
        for column, text in row.items()
    )
    return any(map(_is_value, row.values())) or any(years)


def _is_value(name: str) -> bool:
    """Whether a cell holds a number and not the name of a column. A year is a name, also in "2024 / Oil"."""
    return all(is_number(part) and not _YEAR.fullmatch(part) for part in name.split(_LEVEL))


def _is_code_above_numbers(name: str, column: int, rows: Sequence[Mapping[int, str]]) -> bool:
    """Whether a cell begins with a letter and those below it do not, or only repeat it as a mark: "Q1 2024", "G20"."""
    below = [row[column] for row in rows if column in row]
    return name[0].isalpha() and bool(below) and not any(text[0].isalpha() and text != name for text in below)


def _has_numbers(rows: Sequence[Mapping[int, str]]) -> bool:
    columns: dict[int, list[bool]] = {}
    for row in rows:
        for column, text in row.items():
            columns.setdefault(column, []).append(is_number(text) or text[0] in "=#")
    return any(sum(found) > 0.6 * len(found) for found in columns.values())


LONGEST_SUBJECT = 60  # characters of a heading that is said with the rows or labels below it


def subject_of(text: str) -> str:
    """What stands above a table if that may be its name, else ""."""
    text = " ".join(text.split())
    return "" if len(text) > LONGEST_SUBJECT or text.endswith(SENTENCE_ENDS[:4]) else text.rstrip(":")


def alike(tables: Sequence[tuple[str, Sequence[str]]]) -> list[bool]:
    """Of tables, each with its name and its lines: whether only its name tells its rows from those of another one."""
    rows = [{line.partition(";")[0] for line in lines if ";" in line and "\t" not in line} for _, lines in tables]
    where: dict[str, list[int]] = {}
    for number, own in enumerate(rows):
        for row in own if tables[number][0] else ():
            where.setdefault(row, []).append(number)

    def has_twin(number: int) -> bool:
        name, shared = tables[number][0], Counter[int]()
        for row in rows[number] if name else ():
            for other in where[row]:
                shared[other] += 1
                most = max(len(rows[number]), len(rows[other]))
                if tables[other][0] != name and 2 * shared[other] > most > 1:
                    return True
        return False

    return [has_twin(number) for number in range(len(tables))]
