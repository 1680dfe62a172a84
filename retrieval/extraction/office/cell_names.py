"""Cells of a sheet as boxes on its pages, and their names."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.extraction.document import ExtractedBox

ROWS_A_PAGE = 1000
"""All pages of a sheet are so high; their width is the sheet's columns."""


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
