"""The rows of tables as text: every row a sentence of its own, in which each cell stands behind the name of its column.

    Region: North; Price per tonne, EUR: 41.50.

Names that are repeated and what is put between cells stand nowhere, so boxes enclose the cells of the row alone.

Legend: C characters of a piece.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LONGEST_NAME = 100  # characters
_YEAR = re.compile(r"(?:19|20)\d\d(?:[-/]\d\d?)?")
_SEPARATED = (":", ";")
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


def named(name: str, cell: Piece) -> list[Piece]:
    """A cell behind the name of its column; "" for none."""
    if not name:
        return [cell]
    return [Piece.unprinted(f"{name} " if name.endswith(SENTENCE_ENDS) else f"{name}: "), cell]


def row_sentence(cells: Sequence[list[Piece]], *, is_form: bool = False) -> list[Piece]:
    """The cells of a row, each with its name, as a sentence. Of a form the first asks what the second answers."""
    if is_form:
        asked = cells[0][-1].text.endswith(("?", "!")) if cells and cells[0] else False
        return _closed(in_between([piece for cell in cells for piece in cell], " " if asked else ": "))
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


def text_rows(rows: Sequence[Sequence[str]], *, has_names: bool = False) -> list[str]:
    """The rows of a table that is known by its cells alone: its names, where it has any, and a sentence each.

    `has_names`: its first row is known to hold them."""
    filled = [{column: text for column, text in enumerate(row) if text} for row in rows]
    filled = [row for row in filled if row]
    names = column_names(filled, named=has_names)
    lines = ["\t".join(filled[0].values())] if names else []
    used = {column for row in filled for column in row}
    for row in filled[1:] if names else filled:
        cells = [
            named("" if names.get(column) == text else names.get(column, ""), Piece.unprinted(text))
            for column, text in row.items()
        ]
        is_form = not names and len(used) == len(cells) == 2
        pieces = row_sentence(cells, is_form=is_form) if len(used) > 1 else cells[0]
        lines.append("".join(piece.text for piece in pieces))
    return lines


def column_names(rows: Sequence[Mapping[int, str]], *, named: bool = False) -> dict[int, str]:
    """The names of the columns, if the first of the filled rows holds them: different words, and below them numbers,
    or more than two columns, or whatever follows where the table is known to be `named`."""
    if len(rows) < 2 or len(rows[0]) < 2:
        return {}
    names = {column: " ".join(text.split()) for column, text in rows[0].items()}
    if any(len(name) > LONGEST_NAME or (is_number(name) and not _YEAR.fullmatch(name)) for name in names.values()):
        return {}
    used = {column for row in rows[1:] for column in row}
    if len(set(names.values())) < len(names) or len(used & set(names)) < 2 or len(used - set(names)) > len(names) / 2:
        return {}
    return names if named or len(names) > 2 or _has_numbers(rows[1:]) else {}


def _has_numbers(rows: Sequence[Mapping[int, str]]) -> bool:
    columns: dict[int, list[bool]] = {}
    for row in rows:
        for column, text in row.items():
            columns.setdefault(column, []).append(is_number(text) or text[0] in "=#")
    return any(sum(found) > 0.6 * len(found) for found in columns.values())
