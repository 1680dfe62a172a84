"""Pages of a stored document for people: pictures, text with its blocks, and where words are."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from uuid import uuid4

from retrieval.engine.workspace import Workspace
from retrieval.errors import NotFound
from retrieval.extraction import character_places
from retrieval.extraction.document import Exhibits, ExtractedBox
from retrieval.extraction.exhibits import PICTURE_NAME
from retrieval.extraction.extract import extract, render_page
from retrieval.extraction.formats import DRAWN_KINDS
from retrieval.index.exact_text import Wanted
from retrieval.ingest.file_store import has_room, original_of
from retrieval.types.answers import PageBox, place_of
from retrieval.types.records import (
    Document,
    DocumentExhibits,
    Figure,
    PageText,
    Table,
    TextHit,
    page_number,
    page_of,
    page_text_view,
)
from storage.blobs.files import sync_folder

MOST_HITS = 1000


def page_image(workspace: Workspace, document: Document, page: int, width_px: int) -> bytes:
    """PNG of a page (from 1), drawn once and kept while the disk has room. Raises `NotFound`, `ExtractError`."""
    number = page_number(page, document, max(1, document.pages))
    folder = workspace.pages_folder / document.id
    kept = folder / f"{number}-{width_px}.png"
    if kept.is_file():
        return kept.read_bytes()
    image = render_page(original_of(workspace, document.id), number, width_px=width_px, person=workspace.person)
    if has_room(workspace, len(image)):  # else it is drawn again the next time
        folder.mkdir(exist_ok=True, mode=0o700)
        unfinished = folder / f".{uuid4().hex}"  # several may draw the same page at once
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
    if document.kind not in DRAWN_KINDS or start >= end:
        return []
    folder = workspace.pages_folder / document.id
    found = character_places.boxes(folder, text, start, end)
    if found is None:
        character_places.keep(folder, extract(original_of(workspace, document.id), kept=folder))
        found = character_places.boxes(folder, text, start, end)
    return [page_box(box) for box in found or ()]


def exhibits_of(workspace: Workspace, document_id: str, kind: str, text: str) -> DocumentExhibits:
    """Figures and tables of the document with this text. Raises `NotFound`, `ExtractError`."""
    folder = workspace.pages_folder / document_id
    found = character_places.kept_exhibits(folder, text)
    if found is None:  # stored by another release
        character_places.keep(folder, extract(original_of(workspace, document_id), kept=folder))
        found = character_places.kept_exhibits(folder, text) or Exhibits()
    labels = [row.label for row in workspace.catalogue.pages(document_id)]
    is_drawn = kind in DRAWN_KINDS

    def place(page: int) -> str:
        return place_of([page_of(page)], [labels[page]], len(labels))

    return DocumentExhibits(
        tuple(
            Figure(
                page_of(one.page),
                place(one.page),
                one.caption,
                page_box(one.box) if one.box is not None else None,
                one.picture,
                one.start,
                one.width,
                one.height,
            )
            for one in found.figures
        ),
        tuple(
            Table(
                page_of(one.page),
                place(one.page),
                one.caption,
                page_box(one.box) if one.box is not None and is_drawn else None,
                one.rows,
            )
            for one in found.tables
        ),
    )


def figure_picture(workspace: Workspace, document_id: str, name: str) -> bytes:
    """PNG or JPEG, as the end of its name says. Raises `NotFound`, `ExtractError`."""
    if not PICTURE_NAME.fullmatch(name):
        raise NotFound("picture", name)
    folder = workspace.pages_folder / document_id
    if not (folder / name).is_file():  # what is derived from the file may have been deleted
        character_places.keep(folder, extract(original_of(workspace, document_id), kept=folder))
    if not (folder / name).is_file():
        raise NotFound("picture", name)
    return (folder / name).read_bytes()


def page_box(box: ExtractedBox) -> PageBox:
    return PageBox(page_of(box.page), *(round(side, 5) for side in box[1:]))


def find(workspace: Workspace, document: Document, text: str, words: str) -> list[TextHit]:
    """Where `words` stand in `text`, the document's, as `exact_text` compares them; the first `MOST_HITS`."""
    if not words.strip():
        return []
    starts = [page.start for page in workspace.catalogue.pages(document.id)]
    return [
        TextHit(max(1, bisect_right(starts, start)), start, end)
        for start, end in islice(Wanted.of_words(words).places(text), MOST_HITS)
    ]
