"""Figures and tables of a document, found when it is read: where they are, what is written about them, their cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from retrieval.extraction.document import Exhibits, ExtractedBox, ExtractedTable
from retrieval.extraction.table_rows import Merged

_MOST = 1000  # of each kind
_MOST_CELLS = 200_000  # of all tables
MOST_PICTURE_BYTES = 32 << 20  # of all pictures of a document, as they are kept
PICTURE_NAME = re.compile(r"[0-9a-f]{32}\.(?:png|jpg)")
SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "jpg": b"\xff\xd8\xff"}
_LONGEST_CAPTION = 300
_FIGURE = re.compile(
    r"(?:Fig(?:ure|\.)?|Abb(?:ildung|\.)|Chart|Exhibit|Plate|Map)\s?[A-Z]?(?:\d+(?:[.-]\d+)*[.:|)]|\d+[.-]\d+)\s", re.I
)
_TABLE = re.compile(r"Tab(?:le|elle|leau|\.)?\s?[A-Z]?\d+(?:[.-]\d+)*[.:|)]?(?:\s|$)", re.I)


def within_limits(exhibits: Exhibits) -> Exhibits:
    """The first figures and tables, as many as are kept of one document."""
    tables, cells = [], 0
    for table in exhibits.tables[:_MOST]:
        cells += sum(map(len, table.rows))
        if cells > _MOST_CELLS:
            break
        tables.append(table)
    return Exhibits(exhibits.figures[:_MOST], tuple(tables))


def table_of(page: int, caption: str, rows: Sequence[Sequence[str]]) -> ExtractedTable | None:
    """A table that is known by its cells alone; None for what is none: a single row or a single column."""
    filled = [
        ["" if isinstance(cell, Merged) else " ".join(cell.split()) for cell in row]
        for row in rows
        if any(cell.strip() for cell in row)
    ]
    columns = max(map(len, filled), default=0)
    if len(filled) < 2 or columns < 2:
        return None
    padded = tuple((*row, *[""] * (columns - len(row))) for row in filled)
    return ExtractedTable(page, caption_of(caption), None, padded)


def from_plain(plain: Mapping[str, Any]) -> Exhibits:
    """From JSON of `asdict`. Raises ValueError for anything else."""
    from pydantic import TypeAdapter  # takes as long as reading a short text

    exhibits: Exhibits = TypeAdapter(Exhibits).validate_python(plain)
    boxes = [one.box for one in exhibits.figures] + [one.box for one in exhibits.tables]
    if not all(0 <= side <= 1 for box in boxes if box is not None for side in box[1:]):
        raise ValueError("a box beyond its page")
    return exhibits


def is_figure_caption(text: str) -> bool:
    return bool(_FIGURE.match(text))


def is_table_caption(text: str) -> bool:
    return bool(_TABLE.match(text))


def caption_of(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_CAPTION]


def nearest_caption(captions: Sequence[tuple[str, ExtractedBox]], box: ExtractedBox, reach: float) -> int | None:
    """The index of the caption that stands nearest above or below a box, within `reach` of the page's height."""
    best, best_gap = None, reach
    for number, (_, line) in enumerate(captions):
        beside = line.x1 < box.x0 or line.x0 > box.x1
        gap = max(box.y0 - line.y1, line.y0 - box.y1, 0.0)
        if not beside and gap < best_gap:
            best, best_gap = number, gap
    return best
