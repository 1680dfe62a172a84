"""Pages of a stored document as people see them: pictures, text with its blocks, and where words stand."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import islice

from retrieval.engine.workspace import Workspace
from retrieval.extraction import character_places
from retrieval.extraction.extract import extract, render_page
from retrieval.extraction.formats import PDF
from retrieval.ingest.file_store import original_of
from retrieval.types.passages import PageBox
from retrieval.types.records import Document, PageText, TextHit
from retrieval.types.views import page_number, page_text_view
from storage.kv.shard import sync_folder

MOST_HITS = 1000


def page_image(workspace: Workspace, document: Document, page: int, width_px: int) -> bytes:
    """PNG of a page (from 1), drawn once and kept. Raises `NotFound`, `ExtractError`."""
    number = page_number(page, document, max(1, document.pages))
    folder = workspace.pages_folder / document.id
    kept = folder / f"{number}-{width_px}.png"
    if kept.is_file():
        return kept.read_bytes()
    image = render_page(original_of(workspace, document.id), number, width_px=width_px, person=workspace.person)
    folder.mkdir(exist_ok=True, mode=0o700)
    unfinished = kept.with_name(f".{kept.name}")
    unfinished.write_bytes(image)
    unfinished.replace(kept)
    sync_folder(folder)
    return image


def page_text(workspace: Workspace, document: Document, text: str, page: int) -> PageText:
    """A page (from 1) of the document's text with its blocks. Raises `NotFound`."""
    pages = workspace.catalogue.pages(document.id)
    row = pages[page_number(page, document, len(pages))]
    found = workspace.catalogue.blocks_of_document(document.id, start=row.start, end=row.end)
    return page_text_view(document.id, row, text, {block.id: block for block in found})


def boxes_of(workspace: Workspace, document: Document, text: str, start: int, end: int) -> list[PageBox]:
    """Exact line boxes of `text[start:end]`, where `text` is the document's; none where a file has no pages.

    Where the places of the characters are not kept, the file is read again. If that gives another text, because it was
    stored by another release, there are no boxes: a wrong mark is worse than none. Raises `NotFound`, `ExtractError`.
    """
    if document.kind != PDF.kind or start >= end:
        return []
    folder = workspace.pages_folder / document.id
    found = character_places.boxes(folder, text, start, end)
    if found is None:
        character_places.keep(folder, extract(original_of(workspace, document.id)))
        found = character_places.boxes(folder, text, start, end)
    return [PageBox(box.page + 1, *(round(side, 5) for side in box[1:])) for box in found or ()]


def find(workspace: Workspace, document: Document, text: str, words: str) -> list[TextHit]:
    """Where `words` stand in `text`, the document's, in any case and over line breaks; the first `MOST_HITS`."""
    if not words.strip():
        return []
    pattern = re.compile(r"\s+".join(map(re.escape, words.split())), re.IGNORECASE)
    starts = [page.start for page in workspace.catalogue.pages(document.id)]
    return [
        TextHit(max(1, bisect_right(starts, match.start())), match.start(), match.end())
        for match in islice(pattern.finditer(text), MOST_HITS)
    ]
