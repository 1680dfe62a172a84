"""The values that go into and come out of the catalogue: frozen dataclasses, never rows or sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

DocumentState = Literal["ingesting", "ready", "failed", "cancelled"]
JobState = Literal["queued", "running", "done", "failed", "cancelled"]
Removed = Literal["keep", "trash", "delete"]
DocumentSort = Literal["added", "title", "source", "pages", "size"]
# Page number from 0, then x0, y0, x1, y1 as fractions of the displayed page, origin at the top left.
Box = tuple[int, float, float, float, float]


@dataclass(frozen=True)
class Principal:
    """Who acts. `user_id` None is the administrator, who may see and change everything."""

    user_id: str | None = None
    name: str = ""

    @property
    def is_administrator(self) -> bool:
        return self.user_id is None

    def may_change(self, owner_id: str | None) -> bool:
        return self.is_administrator or owner_id == self.user_id


ADMINISTRATOR = Principal()


@dataclass(frozen=True)
class User:
    """An account. `password_hash` "": without a password; `has_token`: programs can sign in as this user; `issuer` and
    `subject`: who else vouches for them (OpenID Connect), and as whom."""

    id: str
    name: str
    password_hash: str = field(repr=False)
    has_token: bool
    created_at: str
    issuer: str | None = None
    subject: str | None = None


@dataclass(frozen=True)
class Collection:
    """`owner_id` None: unowned, so that everyone may read it. `readers`: ids of the users it is shared with; `groups`:
    names of the groups."""

    id: str
    name: str
    num_documents: int
    created_at: str
    owner_id: str | None = None
    everyone: bool = False
    readers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """`number` counts from 0; `start` and `end` delimit its part of the document's text; sizes are in points."""

    number: int
    label: str
    width: float
    height: float
    start: int
    end: int
    note: str = ""


@dataclass(frozen=True)
class NewDocument:
    """What is known of a document when its file is added. `id` is a new uuid in hex."""

    id: str
    source: str
    title: str
    kind: str
    content_sha256: str
    fingerprint: str
    stored_file: str | None = None


@dataclass(frozen=True, kw_only=True)
class Document(NewDocument):
    """`size_bytes` is the size of its shards. Only "ready" documents are searched."""

    collection_id: str | None
    owner_id: str | None
    num_pages: int
    num_characters: int
    num_tokens: int
    num_blocks: int
    size_bytes: int
    state: DocumentState
    notes: tuple[str, ...]
    added_at: str


@dataclass(frozen=True)
class NewBlock:
    """One block of a shard about to be committed; `start` and `end` delimit its part of the document's text."""

    start: int
    end: int
    tokens: tuple[int, ...]
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Block:
    """`ordinal` counts from 0 within the document, `index_in_shard` within the file named `shard`."""

    id: int
    document_id: str
    ordinal: int
    start: int
    end: int
    tokens: tuple[int, ...]
    boxes: tuple[Box, ...]
    shard_id: int
    shard: str
    index_in_shard: int


@dataclass(frozen=True)
class ShardFile:
    """A shard as written: `name` is its path inside the store, `checksum` "sha256:..." of the whole file."""

    name: str
    size_bytes: int
    checksum: str
    num_blocks: int


@dataclass(frozen=True)
class Shard(ShardFile):
    """A committed shard; its blocks have the ids `first_block_id` .. `first_block_id + num_blocks - 1`."""

    id: int
    document_id: str
    first_ordinal: int
    first_block_id: int

    @property
    def block_ids(self) -> range:
        return range(self.first_block_id, self.first_block_id + self.num_blocks)


@dataclass(frozen=True)
class BlockRefs:
    """Where blocks lie, by ascending block id; each array has one entry per block.

    `shards[shard_ids[i]].name` and `indices[i]` are what the store asks for.
    """

    block_ids: np.ndarray  # int64
    shard_ids: np.ndarray  # int64
    indices: np.ndarray  # int32
    shards: Mapping[int, Shard]

    def __len__(self) -> int:
        return len(self.block_ids)


@dataclass(frozen=True)
class JobProgress:
    """How far along a job is. `eta_seconds` is None while unknown."""

    stage: str
    pages_done: int = 0
    pages_total: int = 0
    tokens_done: int = 0
    tokens_total: int = 0
    tokens_per_second: float = 0.0
    eta_seconds: float | None = None


@dataclass(frozen=True)
class Job:
    """`worker` has it since `started_at`, and was heard of at `heartbeat_at`; these are its lease: see
    `storage.catalogue.jobs`. `attempt` counts the claims since its last committed shard."""

    id: str
    document_id: str
    state: JobState
    progress: JobProgress
    error: str
    note: str
    cancel_requested: bool
    attempt: int
    worker: str
    heartbeat_at: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None

    def is_same_claim(self, other: Job) -> bool:
        return (self.worker, self.started_at) == (other.worker, other.started_at)


@dataclass(frozen=True)
class Folder:
    """A folder whose files are followed. `removed`: what happens to the documents of files that are gone; `report`:
    what the last run did, JSON values."""

    id: str
    path: str
    owner_id: str | None
    collection: str | None
    removed: Removed
    watched: bool
    last_run_at: str | None
    report: Mapping[str, Any]


@dataclass(frozen=True)
class Property:
    """One value of a property of a document. `by_hand`: not what its file says; then "" takes the property away."""

    name: str
    value: str
    by_hand: bool


@dataclass(frozen=True)
class FolderFile:
    """What is known of one file below a followed folder.

    `document_id`, `content_sha256`, `stamp`: the document made from it, of which content; None after somebody deleted
    it. `next_...`: the same of newer content while it is being read, or, with `error`, after reading it failed.
    """

    source: str
    document_id: str | None = None
    content_sha256: str = ""
    stamp: str = ""
    next_document_id: str | None = None
    next_sha256: str = ""
    next_stamp: str = ""
    error: str = ""


@dataclass(frozen=True)
class Submitted:
    """`already_stored`: the same content was already read by the same model; `job` is then that document's last job."""

    document: Document
    job: Job | None
    already_stored: bool


@dataclass(frozen=True)
class DeletedDocuments:
    """What was deleted from the catalogue, and the files that are no longer needed."""

    document_ids: tuple[str, ...]
    num_blocks: int
    num_answers: int
    shards: tuple[str, ...]
    stored_files: tuple[str, ...]


@dataclass(frozen=True)
class AnswerHead:
    id: str
    conversation_id: str | None
    question: str
    text: str
    created_at: str


@dataclass(frozen=True)
class StoredAnswer(AnswerHead):
    """`body` is the stored JSON, unchanged."""

    body: str
    document_ids: tuple[str, ...]


@dataclass(frozen=True)
class Totals:
    """How much the catalogue holds. Blocks, tokens and bytes are those of ready documents."""

    num_documents: int
    num_blocks: int
    num_tokens: int
    size_bytes: int
    num_shards: int
    num_answers: int


@dataclass(frozen=True)
class ExtractedText:
    """A document's text and what else was extracted from the file (outline, metadata: JSON values)."""

    text: str
    extras: Mapping[str, Any] = field(default_factory=dict)
