"""Figures and tables of a stored document."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from retrieval.types.answers import PageBox
from retrieval.types.serialisation import Record

_STARTS_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Figure(Record):
    """`page` counts from 1; `caption` is "" where none was found. The box is the picture's, else the caption's.

    Where pages cannot be drawn there is no box, but `picture`, a name to ask for, of `width` by `height` pixels, which
    stands before character `start` of the text.
    """

    page: int
    place: str
    caption: str
    box: PageBox | None
    picture: str = ""
    start: int | None = None
    width: int = 0
    height: int = 0


@dataclass(frozen=True)
class Table(Record):
    """`rows`: its cells as they stand, rows of equal length. `box` is None for files whose pages cannot be drawn."""

    page: int
    place: str
    caption: str
    box: PageBox | None
    rows: tuple[tuple[str, ...], ...]

    @property
    def csv(self) -> str:
        """For spreadsheets. A cell that they would compute, and is no number, has an apostrophe before it."""
        written = io.StringIO()
        csv.writer(written).writerows([_safe(cell) for cell in row] for row in self.rows)
        return written.getvalue()


@dataclass(frozen=True)
class DocumentExhibits(Record):
    """In the order of the pages."""

    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


def _safe(cell: str) -> str:
    if not cell.startswith(_STARTS_FORMULAS):
        return cell
    try:
        float(cell.replace(",", "").replace(" ", "").rstrip("%"))
    except ValueError:
        return f"'{cell}"
    return cell
