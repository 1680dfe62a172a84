"""The library's reports on its contents and work: documents, collections, jobs, sizes, damage, figures and tables.
Plain values."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from retrieval.errors import NotFound
from retrieval.types.answers import PageBox
from retrieval.types.serialisation import Record
from storage import records as rows


@dataclass(frozen=True)
class Exported(Record):
    """`left_out`: sources and reasons of documents that are not in the bundle."""

    path: str
    documents: int
    blocks: int
    size_bytes: int
    left_out: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ImportedDocument(Record):
    """One document of a bundle: `status` is "imported", "already stored", "read again" or "failed" (see `error`)."""

    source: str
    document_id: str | None
    status: str
    blocks: int = 0
    error: str = ""


@dataclass(frozen=True)
class FileChange(Record):
    """What a run did about one file.

    `change`: added, changed, moved, removed or same; or what was left undone: reading (it is in the queue), later (it
    is still being written), failed (it could not be read) or skipped (it is not followed).
    `source`: its path below the folder; `previous`: where a moved file was; `reason`: why it was not read, or what
    became of its document.
    """

    source: str
    document_id: str | None
    change: str
    previous: str = ""
    reason: str = ""


@dataclass(frozen=True)
class FolderReport(Record):
    """`counts`: number of files by change; `problems`: sources and reasons of the first that failed."""

    path: str
    counts: Mapping[str, int]
    seconds: float
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FollowedFolder(Record):
    """`removed`: what happens to documents of files that are gone ("keep", "trash", "delete"); `watched`: a server
    checks it regularly; `report` of its last run; `problem`: why the last run did not end."""

    id: str
    path: str
    owner: str
    collection: str
    removed: str
    watched: bool
    last_run_at: str = ""
    report: FolderReport | None = None
    problem: str = ""


@dataclass(frozen=True)
class FollowOptions:
    """`again`: also read what was deleted by hand in the library; `every_byte`: compare contents even if size and times
    are unchanged; `emptied`: the folder may really be empty now; `settle_seconds`: a file that was written to within
    this time is checked a second time."""

    again: bool = False
    every_byte: bool = False
    emptied: bool = False
    settle_seconds: float = 1.0


@dataclass(frozen=True)
class Figures:
    """`jobs`: how many, by state; `stored_bytes`: keys and values on disk; `resident_bytes`: landmarks and blocks in
    RAM."""

    jobs: dict[str, int]
    num_documents: int
    num_tokens: int
    stored_bytes: int
    resident_bytes: int
    free_bytes: int


# Job.state: queued -> running -> done | failed | cancelled; Job.stage while running: extracting -> recognising (text in
# pictures) -> arranging (both where there are some) -> reading.
ACTIVE_STATES = ("queued", "running")


@dataclass(frozen=True)
class Scope(Record):
    """The documents that a question may see: these documents and all of these collections (both empty = everything),
    restricted to those that meet all conditions in `where`, written as in `storage.properties`."""

    document_ids: tuple[str, ...] = ()
    collection_ids: tuple[str, ...] = ()
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class Collection(Record):
    """`owner`: name of the owner, empty without one; `mine`: the caller may change it; `shared_with`, `groups`: names
    of users and groups, for its owner only."""

    id: str
    name: str
    documents: int
    created_at: str = ""
    owner: str = ""
    mine: bool = True
    everyone: bool = False
    shared_with: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document(Record):
    """`state`: "ingesting" until its whole memory is stored, then "ready"; "failed" / "cancelled" when its job ended
    so. `kind`: the file's format ("pdf", "docx", "html", "md", "txt"). `owner` and `mine` as in `Collection`.
    `properties`: author, date and the like, each with its values."""

    id: str
    source: str
    title: str
    collection_id: str | None
    pages: int
    tokens: int
    blocks: int
    size_bytes: int
    state: str
    added_at: str
    content_hash: str
    kind: str
    notes: tuple[str, ...] = ()
    owner: str = ""
    mine: bool = True
    properties: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Description(Record):
    """What a document is about. `kind`: of file, in words; `first_lines`: its beginning; `key_terms`: its keyphrases;
    `questions`: those that it can really answer, none until they have been tried."""

    document_id: str
    kind: str
    first_lines: str
    key_terms: tuple[str, ...]
    questions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suggestion(Record):
    """A question that a document can answer."""

    question: str
    document_id: str
    title: str


ALREADY_STORED = "already stored"
"""The beginning of the note of a job that had nothing to do."""


@dataclass(frozen=True)
class Job(Record):
    """One file on its way into the memory. `eta_seconds` is None while unknown; `note` e.g. `ALREADY_STORED`;
    `cancelling`: it was told to stop and has not yet stopped."""

    id: str
    document_id: str
    source: str
    collection_id: str | None
    state: str
    stage: str
    pages_done: int
    pages: int
    tokens_done: int
    tokens: int
    blocks: int
    size_bytes: int
    tokens_per_second: float
    eta_seconds: float | None
    seconds: float
    error: str
    note: str
    created_at: str
    cancelling: bool = False

    @property
    def active(self) -> bool:
        return self.state in ACTIVE_STATES

    @property
    def share(self) -> float:
        """The finished share of its stage, from 0 to 1: of the pages before the model reads, then of the tokens."""
        before = self.stage in ("extracting", "recognising", "arranging")
        done, total = (self.pages_done, self.pages) if before else (self.tokens_done, self.tokens)
        return min(1.0, done / total) if total else 0.0


@dataclass(frozen=True)
class Estimate(Record):
    """What ingesting a file would cost, before any work. `exact` False: tokens were guessed from a sample."""

    source: str
    pages: int
    tokens: int
    blocks: int
    size_bytes: int
    seconds: float
    free_bytes: int
    already_stored: bool = False
    exact: bool = True

    @property
    def fits(self) -> bool:
        return self.size_bytes < self.free_bytes


@dataclass(frozen=True)
class Deleted(Record):
    documents: int
    blocks: int
    answers: int
    freed_bytes: int


@dataclass(frozen=True)
class TextBlock(Record):
    """A stored block on one page of text: character span in the document and all its boxes."""

    block_id: int
    start: int
    end: int
    boxes: tuple[PageBox, ...] = ()


@dataclass(frozen=True)
class PageText(Record):
    """Text of one page; `start` is its first character's position in the document; `blocks` overlap the page."""

    document_id: str
    page: int
    label: str
    text: str
    start: int
    blocks: tuple[TextBlock, ...]
    note: str = ""


@dataclass(frozen=True)
class SetAside(Record):
    """Text of a file that is never quoted: it is deleted, hidden, or not part of the document's content. `kind`: why
    ("deleted", "hidden", "header"...); `page` from 1."""

    kind: str
    page: int
    text: str


@dataclass(frozen=True)
class TextHit(Record):
    """Words found in a document: their page (from 1) and their characters in its text."""

    page: int
    start: int
    end: int


@dataclass(frozen=True)
class DamageReport(Record):
    """One damaged or missing thing, in words."""

    document_id: str
    source: str
    shard: str
    detail: str


@dataclass(frozen=True)
class VerifyReport(Record):
    documents: int
    shards: int
    blocks: int
    size_bytes: int
    seconds: float
    damage: tuple[DamageReport, ...]
    orphans: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.damage


@dataclass(frozen=True)
class RepairReport(Record):
    """Documents that were read again, those that could not be (their file is gone or damaged), and the number of blocks
    rewritten."""

    repaired: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    blocks: int
    seconds: float


@dataclass(frozen=True)
class GcReport(Record):
    """`files`: those that no catalogue row names, swept into the trash, and their `swept_bytes`; `freed_bytes` on the
    disk."""

    files: tuple[str, ...]
    swept_bytes: int
    freed_bytes: int


def page_of(number: int) -> int:
    """The public page number, from 1, of the number from 0 in the catalogue and in extraction."""
    return number + 1


def boxes_of(block: rows.Block) -> tuple[PageBox, ...]:
    return tuple(PageBox(page_of(number), *edges) for number, *edges in block.boxes)


def page_number(page: int, document: Document, num_pages: int) -> int:
    """The inverse of `page_of`. Raises `NotFound` for a page that the document does not have."""
    if not 1 <= page <= num_pages:
        there_is = {0: "None of its pages was read.", 1: "It has one page, page 1."}
        raise NotFound("page", page, document.source, there_is.get(num_pages, f"It has pages 1 to {num_pages}."))
    return page - 1


def page_text_view(document_id: str, page: rows.Page, text: str, blocks: Sequence[rows.Block]) -> PageText:
    touching = [block for block in blocks if block.start < page.end and page.start < block.end]
    return PageText(
        document_id=document_id,
        page=page_of(page.number),
        label=page.label,
        text=text[page.start : page.end],
        start=page.start,
        blocks=tuple(TextBlock(block.id, block.start, block.end, boxes_of(block)) for block in touching),
        note=page.note,
    )


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
