"""The documents of a library: adding, finding, reading, changing and deleting them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast
from uuid import uuid4

from retrieval.errors import NotFound, catalogue_errors
from retrieval.extraction import character_places
from retrieval.extraction.document import Exhibits, ExtractedBox
from retrieval.extraction.exhibits import PICTURE_NAME
from retrieval.extraction.extract import extract, render_page
from retrieval.extraction.formats import DRAWN_KINDS, older_note
from retrieval.index.exact_text import TextMatch, Wanted, documents_holding, matches
from retrieval.index.snapshot import scope_documents
from retrieval.ingest import file_store
from retrieval.ingest.estimate import Watch, estimate
from retrieval.query.spelling import nearest_words
from retrieval.types.answers import PageBox, place_of
from retrieval.types.records import (
    Deleted,
    Document,
    DocumentExhibits,
    Estimate,
    Figure,
    Job,
    PageText,
    Scope,
    SetAside,
    Table,
    TextHit,
    page_number,
    page_of,
    page_text_view,
)
from retrieval.view import View
from storage.blobs.files import sync_folder
from storage.names import LONGEST_NAME
from storage.properties import condition
from storage.records import Document as DocumentRow
from storage.records import DocumentSort, FolderFile
from storage.recovery import write_sidecar

MOST_HITS = 1000


class Documents:
    """Those that one user may see. Methods that take a document's id raise `NotFound` for any other."""

    def __init__(self, view: View):
        self.view, self._workspace, self._catalogue = view, view.workspace, view.catalogue

    # Taking in

    def estimate(self, path: Path, *, password: str | None = None, watch: Watch = lambda done, total: None) -> Estimate:
        """What `submit` of this file would cost; `watch` as in `retrieval.ingest.estimate`. Raises ExtractError."""
        return estimate(self._workspace, Path(path), password, watch)

    def submit(
        self,
        path: Path,
        *,
        collection: str | None = None,
        source: str | None = None,
        password: str | None = None,
        content_sha256: str | None = None,
        of_folder: tuple[str, FolderFile] | None = None,
    ) -> Job:
        """Copy the file in and queue it. `collection` is a name, made if new; `source` the name shown (default: the
        file's).

        A file whose content is already stored by this model gives a job in state "done" with note "already stored"; one
        that is just being stored gives the job at work. Either is put into `collection` if it was in none; of one that
        stays in another the note says so. `content_sha256`: what the file is known to hold. `of_folder`: the followed
        folder in which it lies, and what is known of it there. Raises ExtractError, NotEnoughSpace, MemoryMismatch,
        FileChanged.
        """
        submitted = file_store.submit(
            self._workspace,
            Path(path),
            collection=collection,
            source=source,
            password=password,
            content_sha256=content_sha256,
            of_folder=of_folder,
        )
        if not submitted.already_stored and of_folder is None:
            self._forget_failed(submitted.document)
        return self.view.submitted(submitted, collection)

    def _forget_failed(self, new: DocumentRow) -> None:
        """Failed attempts with a file of the same name stored nothing: the new one replaces them."""
        rows = [row for row in self._catalogue.documents(search=new.source) if row.owner_id == new.owner_id]
        failed = [row.id for row in rows if row.source == new.source and row.state == "failed"]
        if failed:
            self.delete(failed)

    # One document

    @catalogue_errors()
    def get(self, document_id: str) -> Document:
        """Its notes also say what reading it again would add, if an older version read it."""
        found = self._catalogue.document(document_id)
        record = self.view.document(found)
        if found.state != "ready":
            return record
        note = older_note(found.kind, self._catalogue.extras(document_id).get("version", 1))
        return replace(record, notes=(*record.notes, note)) if note else record

    @catalogue_errors()
    def rename(self, document_id: str, title: str) -> Document:
        from retrieval.index.title_keys import keep_title
        from retrieval.index.vectors import take_title

        renamed = self._catalogue.rename_document(document_id, title)
        keep_title(self._workspace, renamed)
        take_title(self.view.whole, renamed)
        return self.view.document(renamed)

    @catalogue_errors()
    def move(self, document_id: str, collection_id: str | None) -> Document:
        """Into a collection, or out of all of them."""
        return self.view.document(self._catalogue.move_document(document_id, collection_id))

    @catalogue_errors()
    def set_properties(self, document_id: str, properties: Mapping[str, Sequence[str]]) -> Document:
        """Set author, date, language, tag or any other property by hand; one without values is taken away. Raises
        PermissionDenied, InvalidRequest."""
        self._catalogue.set_properties(document_id, properties)
        write_sidecar(self._workspace.database, self._workspace.blobs, document_id)
        return self.get(document_id)

    @catalogue_errors()
    def delete(self, document_ids: Sequence[str]) -> Deleted:
        """Remove rows, stored memory, originals, page images, and answers that used them. Unknown ids are ignored."""
        return self.view.removed(self._catalogue.delete_documents(document_ids))

    def original(self, document_id: str) -> Path:
        """The kept copy of the original file."""
        return file_store.original_of(self._workspace, document_id)

    @catalogue_errors()
    def set_aside(self, document_id: str) -> list[SetAside]:
        """What was set aside when the document was read, such as hidden and deleted text."""
        kept = self._catalogue.extras(document_id).get("asides", ())
        return [SetAside(str(kind), page_of(int(page)), str(text)) for kind, page, text in kept]

    @catalogue_errors()
    def exhibits(self, document_id: str) -> DocumentExhibits:
        """Figures and tables, with their captions and cells. Raises ExtractError."""
        document, text = self._opened(document_id)
        folder = self._folder(document_id)
        found = character_places.kept_exhibits(folder, text)
        if found is None:  # stored by another release
            self._extract_again(document_id)
            found = character_places.kept_exhibits(folder, text) or Exhibits()
        labels = [page.label for page in self._catalogue.pages(document_id)]
        is_drawn = document.kind in DRAWN_KINDS

        def page_and_place(page: int) -> tuple[int, str]:
            return page_of(page), place_of([page_of(page)], [labels[page]], len(labels))

        return DocumentExhibits(
            tuple(
                Figure(
                    *page_and_place(one.page),
                    one.caption,
                    _page_box(one.box) if one.box is not None else None,
                    one.picture,
                    one.start,
                    one.width,
                    one.height,
                )
                for one in found.figures
            ),
            tuple(
                Table(
                    *page_and_place(one.page),
                    one.caption,
                    _page_box(one.box) if one.box is not None and is_drawn else None,
                    one.rows,
                )
                for one in found.tables
            ),
        )

    @catalogue_errors()
    def picture(self, document_id: str, name: str) -> bytes:
        """The picture of a figure (PNG or JPEG), by its name in `exhibits`. Raises ExtractError."""
        self._catalogue.document(document_id)
        if not PICTURE_NAME.fullmatch(name):
            raise NotFound("picture", name)
        kept = self._folder(document_id) / name
        if not kept.is_file():  # what is derived from the file may have been deleted
            self._extract_again(document_id)
        if not kept.is_file():
            raise NotFound("picture", name)
        return kept.read_bytes()

    def _folder(self, document_id: str) -> Path:
        """Where pictures of the document, and the places of its characters, are kept."""
        return self._workspace.pages_folder / document_id

    def _extract_again(self, document_id: str) -> None:
        """Keep what is derived from the document's file."""
        folder = self._folder(document_id)
        character_places.keep(folder, extract(self.original(document_id), kept=folder))

    # Its pages, counted from 1

    @catalogue_errors()
    def read(self, document_id: str, first: int = 1, last: int | None = None) -> list[PageText]:
        """Text of the pages from `first` to `last` (default: to the end), without their blocks. Raises NotFound also
        for a first page that is not there."""
        document, text = self._opened(document_id)
        rows = self._catalogue.pages(document_id)
        number = page_number(first, document, len(rows))
        return [page_text_view(document_id, row, text, ()) for row in rows[number:last]]

    @catalogue_errors()
    def page_text(self, document_id: str, page: int) -> PageText:
        """Text of one page with its blocks."""
        document, text = self._opened(document_id)
        rows = self._catalogue.pages(document_id)
        row = rows[page_number(page, document, len(rows))]
        blocks = self._catalogue.blocks_of_document(document_id, start=row.start, end=row.end)
        return page_text_view(document_id, row, text, blocks)

    @catalogue_errors()
    def page_labels(self, document_id: str) -> list[str]:
        """The printed number of each page, or the name of each part."""
        self._catalogue.document(document_id)
        return [page.label for page in self._catalogue.pages(document_id)]

    def page_image(self, document_id: str, page: int, *, width_px: int = 1200) -> bytes:
        """PNG of one page, drawn once and kept while the disk has room. Raises ExtractError (not a PDF, password
        missing)."""
        document, folder = self.get(document_id), self._folder(document_id)
        number = page_number(page, document, max(1, document.pages))
        kept = folder / f"{number}-{width_px}.png"
        if kept.is_file():
            return kept.read_bytes()
        person = self._workspace.person
        image = render_page(self.original(document_id), number, width_px=width_px, person=person)
        if file_store.has_room(self._workspace, len(image)):  # else it is drawn again the next time
            folder.mkdir(exist_ok=True, mode=0o700)
            unfinished = folder / f".{uuid4().hex}"  # several may draw the same page at once
            unfinished.write_bytes(image)
            unfinished.replace(kept)
            sync_folder(folder)
        return image

    @catalogue_errors()
    def boxes(self, document_id: str, start: int, end: int) -> list[PageBox]:
        """The lines that hold these characters of the text, a box each; none without pages.

        Where the places of the characters are not kept, the file is read again. If that gives another text, because it
        was stored by another release, there are no boxes: a wrong mark is worse than none. Raises ExtractError.
        """
        document, text = self._opened(document_id)
        if document.kind not in DRAWN_KINDS or start >= end:
            return []
        found = character_places.boxes(self._folder(document_id), text, start, end)
        if found is None:
            self._extract_again(document_id)
            found = character_places.boxes(self._folder(document_id), text, start, end)
        return [_page_box(box) for box in found or ()]

    @catalogue_errors()
    def find(self, document_id: str, words: str) -> list[TextHit]:
        """The places of these words in a document, as `exact_text` compares them; the first `MOST_HITS`."""
        _, text = self._opened(document_id)
        if not words.strip():
            return []
        starts = [page.start for page in self._catalogue.pages(document_id)]
        return [
            TextHit(max(1, bisect_right(starts, start)), start, end)
            for start, end in islice(Wanted.of_words(words).places(text), MOST_HITS)
        ]

    def _opened(self, document_id: str) -> tuple[Document, str]:
        """With its text."""
        return self.view.document(self._catalogue.document(document_id)), self.view.passages.text(document_id)

    # All of them

    @catalogue_errors()
    def grep(
        self, pattern: str, *, expression: bool = False, within: Scope | None = None, limit: int = 100, each: int = 20
    ) -> list[TextMatch]:
        """The places of these words in the documents in scope, or with `expression` the matches of a regular
        expression: at most `limit`, `each` of one document, newest documents first. Raises NotFound, InvalidRequest."""
        wanted = Wanted.of_expression(pattern) if expression else Wanted.of_words(pattern)
        rows = self._catalogue.documents(sort="added")
        if within not in (None, Scope()):
            ids = scope_documents(self._catalogue, within)
            rows = [row for row in rows if row.id in ids]
        return list(islice(matches(self._catalogue, rows, wanted, each=each), limit))

    @catalogue_errors()
    def nearest(self, words: str) -> str:
        """These words, with each that no document holds replaced by the nearest one of the library; "" if none is."""
        return nearest_words(self._catalogue, words)

    def listed(
        self, search: str, *, collection_id: str | None = None, sort: str = "added", where: Sequence[str] = ()
    ) -> tuple[Sequence[Document], str]:
        """As `list`, with "". If no document holds the words of `search`: the documents that hold the nearest words of
        the library, with these words."""
        found = self.list(search=search, collection_id=collection_id, sort=sort, where=where)
        if found or not (nearest := self.nearest(search)) or len(nearest) > LONGEST_NAME:
            return found, ""
        return self.list(search=nearest, collection_id=collection_id, sort=sort, where=where), nearest

    @catalogue_errors()
    def list(  # the last method: above it `list` is the type
        self, *, search: str = "", collection_id: str | None = None, sort: str = "added", where: Sequence[str] = ()
    ) -> list[Document]:
        """`search`: words of the name or title, or else of the text; documents that are named so come first. `sort`:
        "added" (newest first), "source", "title", "size", "pages". `where` as in `Scope`. Raises NotFound,
        InvalidRequest."""
        if collection_id is not None:
            self._catalogue.collection(collection_id)
        order = cast(DocumentSort, sort)
        rows = self._catalogue.documents(search=search, collection_id=collection_id, sort=order)
        if search.strip():
            holding = documents_holding(self._catalogue, search) - {row.id for row in rows}
            if holding:
                among = self._catalogue.documents(collection_id=collection_id, sort=order)
                rows += [row for row in among if row.id in holding]
        if where:
            wanted = self._catalogue.documents_where([condition(text) for text in where])
            rows = [row for row in rows if row.id in wanted]
        return self.view.documents(rows)


def _page_box(box: ExtractedBox) -> PageBox:
    return PageBox(page_of(box.page), *(round(side, 5) for side in box[1:]))
