"""Where a span of a sheet's text stands, in the words of spreadsheets: "sheet Budget, B17:D17"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from retrieval.extraction import character_places
from retrieval.extraction.formats import CELL_KINDS
from retrieval.extraction.office.cell_names import ROWS_A_PAGE, cells_of
from storage.records import Document, Page


def cell_place(folder: Path, document: Document, text: str, pages: Sequence[Page], start: int, end: int) -> str:
    """The place of `text[start:end]`, where `text` is the document's; "" for other documents, and where the places of
    the characters are not kept. `folder`: where they are, by document."""
    if document.kind not in CELL_KINDS:
        return ""
    boxes = character_places.boxes(folder / document.id, text, start, end) or []
    named = []
    for number in dict.fromkeys(box.page for box in boxes):
        page = pages[number]
        first_row = ROWS_A_PAGE * sum(other.label == page.label and other.number < number for other in pages)
        cells = cells_of([box for box in boxes if box.page == number], page.width, page.height, first_row)
        named.append(f"{page.label}, {cells}")
    return named[0] if len(named) == 1 else f"{named[0]} – {named[-1]}" if named else ""
