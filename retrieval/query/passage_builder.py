"""Groups of found blocks into passages: their text, pages and boxes from the catalogue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cachetools import LRUCache

from retrieval.extraction import character_places
from retrieval.extraction.formats import CELL_KINDS
from retrieval.extraction.office.sheets import ROWS_A_PAGE, cells_of
from retrieval.index.terms import described_name
from retrieval.query.passage_spans import Hit, readable_span
from retrieval.types.answers import Passage, PassageBlock
from retrieval.types.records import boxes_of, page_of
from storage.catalogue import Catalogue
from storage.errors import NotFound as NoRow
from storage.records import Block, Document, Page

_KEPT_CHARACTERS = 20_000_000


@dataclass(frozen=True)
class _Source:
    document: Document
    pages: tuple[Page, ...]
    text: str


class _Texts:
    """Text and pages of recently used documents, bounded in characters. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[str, tuple[str, tuple[Page, ...]]] = LRUCache(
            _KEPT_CHARACTERS, getsizeof=lambda kept: len(kept[0])
        )

    def get(self, document_id: str) -> tuple[str, tuple[Page, ...]] | None:
        with self._lock:
            return self._kept.get(document_id)

    def put(self, document_id: str, text: str, pages: tuple[Page, ...]) -> None:
        with self._lock, suppress(ValueError):  # a text larger than all of the cache is not kept
            self._kept[document_id] = (text, pages)

    def forget(self, document_ids: Sequence[str]) -> None:
        with self._lock:
            for document_id in document_ids:
                self._kept.pop(document_id, None)


class PassageBuilder:
    """Reads documents' text and pages, keeping recently used ones. Thread-safe."""

    def __init__(self, catalogue: Catalogue, places: Path, kept: _Texts | None = None):
        """`places`: the folder where the places of characters are kept, by document."""
        self._catalogue, self._places, self._kept = catalogue, places, kept or _Texts()
        self._seen: dict[str, Document] | None = None  # the rows of documents, for one question
        self._rows: dict[int, Block | None] | None = None  # those of blocks; None: it is gone

    def with_catalogue(self, catalogue: Catalogue) -> PassageBuilder:
        """The same texts with another view of the catalogue, which is asked each time."""
        return PassageBuilder(catalogue, self._places, self._kept)

    def for_one_question(self) -> PassageBuilder:
        """The same, but the rows of a document and of a block are looked up only once."""
        builder = self.with_catalogue(self._catalogue)
        builder._seen, builder._rows = {}, {}
        return builder

    def blocks(self, ids: Iterable[int]) -> dict[int, Block]:
        """The rows of blocks; none for those that are gone."""
        wanted = list(dict.fromkeys(ids))
        if self._rows is None:
            return self._catalogue.blocks_by_id(wanted)
        if new := [id_ for id_ in wanted if id_ not in self._rows]:
            rows = self._catalogue.blocks_by_id(new)
            self._rows.update({id_: rows.get(id_) for id_ in new})
        return {id_: row for id_ in wanted if (row := self._rows[id_]) is not None}

    def passages(
        self, groups: Sequence[Sequence[Hit]], joined: Callable[[Iterable[float]], float] = sum
    ) -> list[Passage]:
        """One passage a group, in the same order. Groups whose document was deleted meanwhile are left out.

        `joined` makes a passage's score of those of its blocks.
        """
        blocks = self.blocks(hit.block_id for group in groups for hit in group)
        found = [[(hit, blocks[hit.block_id]) for hit in group if hit.block_id in blocks] for group in groups]
        sources: dict[str, _Source] = {}
        for document_id in {present[0][1].document_id for present in found if present}:
            with suppress(NoRow):
                sources[document_id] = self._source(document_id)
        return [
            self._placed(_passage(source, present, joined), source)
            for present in found
            if present and (source := sources.get(present[0][1].document_id)) is not None
        ]

    def sentence(self, hits: Sequence[Hit], start: int, end: int) -> Passage | None:
        """Characters start..end of the document whose neighbouring blocks `hits` hold them; the score is the best of
        the hits. None if it was deleted meanwhile."""
        blocks = self.blocks(hit.block_id for hit in hits)
        present = [(hit, blocks[hit.block_id]) for hit in hits if hit.block_id in blocks]
        if len(present) < len(hits):
            return None
        try:
            source = self._source(present[0][1].document_id)
        except NoRow:
            return None
        text = source.text[start:end]
        start += len(text) - len(text.lstrip())
        end = start + len(text.strip())
        passage = _passage(source, present, max)
        pages = [page for page in source.pages if page.start < end and start < page.end]
        on_pages = {page_of(page.number) for page in pages}
        # A block may begin on the page before the sentence: what is shown of it is on the sentence's pages.
        shown = tuple(
            replace(block, boxes=tuple(box for box in block.boxes if box.page in on_pages)) for block in passage.blocks
        )
        found = replace(
            passage,
            start_index=start,
            end_index=end,
            text=source.text[start:end],
            pages=tuple(page_of(page.number) for page in pages),
            page_labels=tuple(page.label for page in pages),
            blocks=shown,
            place="",
        )
        return self._placed(found, source)

    def _placed(self, passage: Passage, source: _Source) -> Passage:
        """With the cells that it stands in, where it stands in cells. Their boxes are on no picture."""
        span = passage.start_index, passage.end_index
        place = cell_place(self._places, source.document, source.text, source.pages, *span)
        if not place:
            return passage
        return replace(passage, place=place, blocks=tuple(replace(block, boxes=()) for block in passage.blocks))

    def forget(self, document_ids: Sequence[str]) -> None:
        """Documents that were deleted or read again."""
        self._kept.forget(document_ids)

    def text(self, document_id: str) -> str:
        """Raises `storage.errors.NotFound`."""
        return self._source(document_id).text

    def name(self, document_id: str) -> str:
        """What the document is called, see `described_name`. Raises `storage.errors.NotFound`."""
        document = self._source(document_id).document
        return described_name(str(document.title), document.source)

    def _source(self, document_id: str) -> _Source:
        document = self._document(document_id)
        kept = self._kept.get(document_id)
        if kept is not None:
            return _Source(document, kept[1], kept[0])
        text = self._catalogue.extracted_text(document_id).text
        pages = tuple(self._catalogue.pages(document_id))
        self._kept.put(document_id, text, pages)
        return _Source(document, pages, text)

    def _document(self, document_id: str) -> Document:
        if self._seen is None:  # always fresh: titles change, and so does who may read it
            return self._catalogue.document(document_id)
        if document_id not in self._seen:
            self._seen[document_id] = self._catalogue.document(document_id)
        return self._seen[document_id]


def _passage(
    source: _Source, found: Sequence[tuple[Hit, Block]], joined: Callable[[Iterable[float]], float]
) -> Passage:
    first, last = found[0][1], found[-1][1]
    start, end = readable_span(source.text, first.start, last.end)
    blocks = tuple(
        PassageBlock(block.id, _share(hit.score), block.start, block.end, boxes_of(block)) for hit, block in found
    )
    pages = _pages(source.pages, blocks)
    return Passage(
        document_id=source.document.id,
        source=source.document.source,
        title=source.document.title,
        pages=tuple(page_of(page.number) for page in pages),
        page_labels=tuple(page.label for page in pages),
        start_index=start,
        end_index=end,
        text=source.text[start:end],
        score=_share(joined(hit.score for hit, _ in found)),
        block_ids=tuple(block.id for _, block in found),
        blocks=blocks,
        total_pages=source.document.num_pages,
    )


def _pages(pages: Sequence[Page], blocks: Sequence[PassageBlock]) -> list[Page]:
    """Pages that the blocks stand on: those of their boxes, or where there are none, those of their characters."""
    boxed = {box.page for block in blocks for box in block.boxes}
    if boxed:
        return [page for page in pages if page_of(page.number) in boxed]
    start, end = blocks[0].start, blocks[-1].end
    touched = [page for page in pages if page.start < end and start < page.end]
    return touched or list(pages[:1])


def _share(score: float) -> float:
    return min(1.0, max(0.0, float(score)))


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
