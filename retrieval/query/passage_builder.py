"""Groups of found blocks into passages: their text, pages and boxes from the catalogue."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

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
_Text: TypeAlias = tuple[str, tuple[Page, ...]]
"""Of a document, with its pages."""
_Row: TypeAlias = tuple[Document, int | None]
"""Of a document, with the id of its first block, by which its text is known."""


@dataclass(frozen=True)
class _Source:
    document: Document
    text: str
    pages: tuple[Page, ...]


class PassageBuilder:
    """Reads documents' text and pages, keeping recently used ones. Thread-safe."""

    def __init__(self, catalogue: Catalogue, places: Path):
        """`places`: the folder where the places of characters are kept, by document."""
        self._catalogue, self._places = catalogue, places
        self._lock = threading.Lock()
        # Each with the first block of its document; bounded in characters.
        self._kept: LRUCache[str, tuple[int, _Text]] = LRUCache(_KEPT_CHARACTERS, getsizeof=lambda one: len(one[1][0]))
        self._seen: dict[str, _Row] | None = None  # the rows of documents, for one question
        self._rows: dict[int, Block | None] | None = None  # those of blocks; None: it is gone

    def with_catalogue(self, catalogue: Catalogue) -> PassageBuilder:
        """The same texts with another view of the catalogue, which is asked each time."""
        builder = copy.copy(self)
        builder._catalogue = catalogue
        return builder

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
        made = []
        for present in found:
            if present and (source := sources.get(present[0][1].document_id)) is not None:
                rows = [block for _, block in present]
                start, end = readable_span(source.text, rows[0].start, rows[-1].end)
                made.append(self._passage(source, present, joined, start, end, _pages(source.pages, rows)))
        return made

    def sentence(self, hits: Sequence[Hit], start: int, end: int) -> Passage | None:
        """Characters start..end of the document whose neighbouring blocks `hits` hold them, or all but their ends; the
        score is the best of the hits. None if it was deleted meanwhile."""
        blocks = self.blocks(hit.block_id for hit in hits)
        present = [(hit, blocks[hit.block_id]) for hit in hits if hit.block_id in blocks]
        if len(present) < len(hits):
            return None
        document_id, best = present[0][1].document_id, max(hit.score for hit in hits)
        try:
            source = self._source(document_id)
            if start < present[0][1].start or present[-1][1].end < end:
                rows = self._catalogue.blocks_of_document(document_id, start=start + 1, end=end - 1)
                if not {hit.block_id for hit in hits} <= {row.id for row in rows}:  # it was read anew meanwhile
                    return None
                present = [(Hit(row.id, document_id, row.ordinal, best), row) for row in rows]
        except NoRow:
            return None
        text = source.text[start:end]
        start += len(text) - len(text.lstrip())
        end = start + len(text.strip())
        return self._passage(source, present, max, start, end, _touched(source.pages, start, end))

    def _passage(
        self,
        source: _Source,
        found: Sequence[tuple[Hit, Block]],
        joined: Callable[[Iterable[float]], float],
        start: int,
        end: int,
        pages: Sequence[Page],
    ) -> Passage:
        """Characters start..end, on these pages: a block may begin on the page before a sentence, and what is shown of
        it is on the sentence's. Boxes of cells are on no picture."""
        place = cell_place(self._places, source.document, source.text, source.pages, start, end)
        shown = set() if place else {page_of(page.number) for page in pages}
        blocks = (
            PassageBlock(
                block.id,
                _share(hit.score),
                block.start,
                block.end,
                tuple(box for box in boxes_of(block) if box.page in shown),
            )
            for hit, block in found
        )
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
            blocks=tuple(blocks),
            total_pages=source.document.num_pages,
            place=place,
        )

    def forget(self, document_ids: Sequence[str]) -> None:
        """Documents that were deleted."""
        with self._lock:
            for document_id in document_ids:
                self._kept.pop(document_id, None)

    def text(self, document_id: str) -> str:
        """Raises `storage.errors.NotFound`."""
        return self._source(document_id).text

    def name(self, document_id: str) -> str:
        """What the document is called, see `described_name`. Raises `storage.errors.NotFound`."""
        document, _ = self._row(document_id)
        return described_name(str(document.title), document.source)

    def _source(self, document_id: str) -> _Source:
        document, first_block = self._row(document_id)
        with self._lock:
            of_block, kept = self._kept.get(document_id, (None, ("", ())))
        same = first_block is not None and of_block == first_block and len(kept[0]) == document.num_characters
        if not same:  # perhaps another process has read it again
            kept = self._catalogue.extracted_text(document_id).text, tuple(self._catalogue.pages(document_id))
            if first_block is not None:
                with self._lock, suppress(ValueError):  # a text larger than all of the cache is not kept
                    self._kept[document_id] = first_block, kept
        return _Source(document, *kept)

    def _row(self, document_id: str) -> _Row:
        if self._seen is None:  # always fresh: titles change, and so does who may read it
            return self._catalogue.document_and_first_block(document_id)
        if document_id not in self._seen:
            self._seen[document_id] = self._catalogue.document_and_first_block(document_id)
        return self._seen[document_id]


def _pages(pages: Sequence[Page], blocks: Sequence[Block]) -> list[Page]:
    """Pages that the blocks stand on: those of their boxes, or where there are none, those of their characters."""
    boxed = {number for block in blocks for number, *_ in block.boxes}
    if boxed:
        return [page for page in pages if page.number in boxed]
    return _touched(pages, blocks[0].start, blocks[-1].end) or list(pages[:1])


def _touched(pages: Sequence[Page], start: int, end: int) -> list[Page]:
    """Pages that hold some of these characters."""
    return [page for page in pages if page.start < end and start < page.end]


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
