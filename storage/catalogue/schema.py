"""The tables of the catalogue. A new catalogue is made from these; `storage/migrations` brings older ones to
them, as a test compares.

- Documents, jobs, answers, collections and users have random ids (uuid, 32 hex digits); conversations any of the
  caller's, of 64 characters at most.
- Block ids are integers that are never reused, not even after deletion, so an old answer cannot point at someone
  else's text. They come from `counters` and the clock, which makes the ids within a shard consecutive and tells nobody
  how much others have stored.
- Times are UTC text, `2026-01-31T12:00:00.000000+00:00`: they sort chronologically in any database.
- `owner_id` is a user's id. NULL means no owner, which is the case for everything while there are no accounts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite uses only INTEGER (not BIGINT) as its row id.
BigId = BigInteger().with_variant(Integer(), "sqlite")
HexId = String(32)
CallersId = String(64).with_variant(HexId, "sqlite")  # which stores texts of any length
Time = String(32)


def now() -> str:
    """The current time as the catalogue stores it: UTC, microseconds, always the same width."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _random_id() -> Column[str]:
    return Column("id", HexId, primary_key=True, default=lambda: uuid4().hex)


def _created_at(name: str = "created_at", *, index: bool = False) -> Column[str]:
    return Column(name, Time, nullable=False, default=now, index=index)


def _document_id(*, primary_key: bool = False) -> Column[str]:
    document = ForeignKey("documents.id", ondelete="CASCADE")
    return Column("document_id", HexId, document, primary_key=primary_key, nullable=False)


def _counts(*names: str) -> list[Column[int]]:
    return [Column(name, Integer, nullable=False, default=0) for name in names]


home = Table(
    "home",
    metadata,
    Column("id", HexId, primary_key=True),  # one row: the home folder that the catalogue belongs to
    _created_at(),
)

counters = Table(
    "counters",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("next_value", BigInteger, nullable=False),
)

memory_fingerprints = Table(
    "memory_fingerprints",
    metadata,
    Column("digest", String(80), primary_key=True),
    Column("fields", Text, nullable=False),  # JSON object
    _created_at(),
)

users = Table(
    "users",
    metadata,
    _random_id(),
    Column("name", String(64), nullable=False, unique=True),
    Column("password_hash", Text, nullable=False),  # argon2; "" for people who sign in elsewhere only
    Column("token_digest", String(64), unique=True),  # SHA-256 of the bearer token
    Column("issuer", Text),  # who else vouches for this person (OpenID Connect), and as whom
    Column("subject", Text),
    _created_at(),
    Index("uq_users_issuer_subject", "issuer", "subject", unique=True),
)

user_groups = Table(  # as the issuer said when they last signed in there
    "user_groups",
    metadata,
    Column("user_id", HexId, ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(200), primary_key=True),
    Index(None, "name"),
)

collections = Table(
    "collections",
    metadata,
    _random_id(),
    Column("name", Text, nullable=False),
    Column("owner_id", HexId),
    Column("everyone", Boolean, nullable=False, default=False),  # shared with every user
    _created_at(),
    UniqueConstraint("owner_id", "name"),  # two people may each have a collection named "Reports"
)
Index(  # the constraint does not cover collections without an owner: in SQL, NULL never equals NULL
    "uq_collections_common_name",
    collections.c.name,
    unique=True,
    sqlite_where=collections.c.owner_id.is_(None),
    postgresql_where=collections.c.owner_id.is_(None),
)

collection_readers = Table(
    "collection_readers",
    metadata,
    Column("collection_id", HexId, ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True),
    Column("user_id", HexId, ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "user_id"),
)

collection_groups = Table(  # whose members may read it
    "collection_groups",
    metadata,
    Column("collection_id", HexId, ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(200), primary_key=True),
    Index(None, "name"),
)

documents = Table(
    "documents",
    metadata,
    _random_id(),
    Column("source", Text, nullable=False),  # file name or path as the user gave it
    Column("title", Text, nullable=False),
    Column("search_text", Text, nullable=False),  # title and source, case folded
    Column("kind", String(16), nullable=False),  # pdf, txt, md, html, docx
    Column("content_sha256", String(64), nullable=False),
    Column("stored_file", Text),  # name of the kept copy of the file
    *_counts("num_pages", "num_characters", "num_tokens", "num_blocks"),
    Column("size_bytes", BigInteger, nullable=False, default=0),  # of its shards
    Column("state", String(16), nullable=False, default="ingesting"),
    Column("notes", Text, nullable=False, default="[]"),  # JSON list of sentences
    Column("collection_id", HexId, ForeignKey("collections.id", ondelete="SET NULL"), index=True),
    Column("owner_id", HexId),
    Column("fingerprint", String(80), ForeignKey("memory_fingerprints.digest"), nullable=False),
    _created_at("added_at"),
    CheckConstraint("state IN ('ingesting', 'ready', 'failed', 'cancelled')", name="state"),
    Index(None, "content_sha256", "fingerprint"),
    Index(None, "added_at"),
    Index(None, "owner_id"),
)

document_texts = Table(
    "document_texts",
    metadata,
    _document_id(primary_key=True),
    Column("text", LargeBinary, nullable=False),  # zlib over UTF-8
    Column("extras", Text, nullable=False),  # JSON object: outline, metadata, whatever reading the file gave
)

document_properties = Table(
    "document_properties",
    metadata,
    _document_id(primary_key=True),
    Column("name", String(64), primary_key=True),  # author, date, language, tag, or a name of the user's own
    Column("position", Integer, primary_key=True, autoincrement=False),  # a property may have several values
    Column("value", Text, nullable=False),  # "" set by hand: the property is not to be taken from the file
    Column("folded", Text, nullable=False),  # the value, case folded: what filters compare
    Column("number", Float),  # the value as a number, if it is one and no date
    Column("by_hand", Boolean, nullable=False, default=False),  # reading the file again leaves it alone
    Index(None, "name", "folded"),
)

title_keys = Table(
    "title_keys",
    metadata,
    _document_id(primary_key=True),
    Column("title", Text, nullable=False),  # the title they were made from: a new title invalidates them
    Column("packed", LargeBinary, nullable=False),  # little-endian float16: tokens, weighed layers, KV heads, head dim
)

pages = Table(
    "pages",
    metadata,
    _document_id(primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # from 0
    Column("label", Text, nullable=False),
    Column("width", Float, nullable=False),
    Column("height", Float, nullable=False),
    Column("start", Integer, nullable=False),  # characters of the document's text
    Column("end", Integer, nullable=False),
    Column("note", Text, nullable=False),
)

shards = Table(
    "shards",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    _document_id(),
    Column("name", Text, nullable=False, unique=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("checksum", String(80), nullable=False),
    Column("num_blocks", Integer, nullable=False),
    Column("first_ordinal", Integer, nullable=False),
    Column("first_block_id", BigInteger, nullable=False),
    UniqueConstraint("document_id", "first_ordinal"),
    sqlite_autoincrement=True,
)

blocks = Table(
    "blocks",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=False),
    _document_id(),
    Column("ordinal", Integer, nullable=False),  # from 0, within the document
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    Column("num_tokens", Integer, nullable=False),
    Column("tokens", LargeBinary, nullable=False),  # little-endian, 2 or 4 bytes a token
    Column("boxes", Text, nullable=False),  # JSON list of [page, x0, y0, x1, y1]
    Column("shard_id", BigId, ForeignKey("shards.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("index_in_shard", Integer, nullable=False),
    UniqueConstraint("document_id", "ordinal"),
)

shard_terms = Table(  # which blocks hold which words: `storage.catalogue.search`
    "shard_terms",
    metadata,
    Column("term", BigInteger, primary_key=True, autoincrement=False),
    Column("shard_id", BigId, ForeignKey("shards.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("indices", LargeBinary, nullable=False),  # little-endian, 4 bytes each: of blocks in the shard
    sqlite_with_rowid=False,
)

shard_vectors = Table(  # what blocks are about: `storage.catalogue.search`
    "shard_vectors",
    metadata,
    Column("shard_id", BigId, ForeignKey("shards.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("encoder", String(64), nullable=False),  # digest of what made them
    Column("title", Text, nullable=False),  # that they were made with: they are made again for a new one
    Column("vectors", LargeBinary, nullable=False),
)

folders = Table(
    "folders",
    metadata,
    _random_id(),
    Column("path", Text, nullable=False),  # absolute
    Column("owner_id", HexId),  # of the documents made from its files
    Column("collection", Text),  # name of the collection that new documents go to
    Column("removed", String(8), nullable=False, default="keep"),  # what happens to documents of files that are gone
    Column("watched", Boolean, nullable=False, default=False),  # a server looks at it again and again
    Column("last_run_at", Time),
    Column("report", Text, nullable=False, default="{}"),  # JSON object: what the last run did
    _created_at(),
    CheckConstraint("removed IN ('keep', 'trash', 'delete')", name="removed"),
)

folder_files = Table(
    "folder_files",
    metadata,
    Column("folder_id", HexId, ForeignKey("folders.id", ondelete="CASCADE"), primary_key=True),
    Column("source", Text, primary_key=True),  # path below the folder
    Column("document_id", HexId, ForeignKey("documents.id", ondelete="SET NULL"), index=True),
    Column("content_sha256", String(64), nullable=False, default=""),  # of what the document was made from
    Column("stamp", String(80), nullable=False, default=""),  # size and times of the file then
    # The same of newer content while it is being read, or after reading it failed:
    Column("next_document_id", HexId, ForeignKey("documents.id", ondelete="SET NULL"), index=True),
    Column("next_sha256", String(64), nullable=False, default=""),
    Column("next_stamp", String(80), nullable=False, default=""),
    Column("error", Text, nullable=False, default=""),
)

jobs = Table(
    "jobs",
    metadata,
    _random_id(),
    _document_id(),
    Column("kind", String(16), nullable=False, default="ingest"),  # no release ever queued another kind
    Column("state", String(16), nullable=False, default="queued"),
    Column("stage", String(32), nullable=False, default="waiting"),
    *_counts("pages_done", "pages_total", "tokens_done", "tokens_total"),
    Column("tokens_per_second", Float, nullable=False, default=0.0),
    Column("eta_seconds", Float),
    Column("error", Text, nullable=False, default=""),
    Column("note", Text, nullable=False, default=""),
    Column("cancel_requested", Boolean, nullable=False, default=False),
    *_counts("attempt"),
    Column("worker", Text, nullable=False, default=""),
    Column("heartbeat_at", Time),
    _created_at(),
    Column("started_at", Time),
    Column("finished_at", Time),
    CheckConstraint("kind IN ('ingest', 'repair')", name="kind"),
    CheckConstraint("state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name="state"),
    Index(None, "state", "created_at"),
    Index(None, "document_id"),
)

conversations = Table(
    "conversations",
    metadata,
    Column("id", CallersId, primary_key=True),
    Column("title", Text, nullable=False),
    Column("owner_id", HexId),
    _created_at(),
)

answers = Table(
    "answers",
    metadata,
    _random_id(),
    Column("conversation_id", CallersId, ForeignKey("conversations.id", ondelete="CASCADE"), index=True),
    Column("question", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("search_text", Text, nullable=False),  # question and text, case folded
    Column("body", Text, nullable=False),  # JSON, as passed in by retrieval
    Column("owner_id", HexId),
    _created_at(index=True),
    Index(None, "owner_id", "created_at"),
)

answer_documents = Table(
    "answer_documents",
    metadata,
    Column("answer_id", HexId, ForeignKey("answers.id", ondelete="CASCADE"), primary_key=True),
    Column("document_id", HexId, ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "document_id"),
)

shared_values = Table(  # what the servers of one library have to know of each other, for a while
    "shared_values",
    metadata,
    Column("kind", String(16), primary_key=True),  # session, sign-in, attempt, upload
    Column("key", String(64), primary_key=True),
    Column("owner", String(64), nullable=False, default=""),  # of whom only so many may be kept: a user, a network
    Column("value", Text, nullable=False),  # JSON
    Column("until", Float, nullable=False, index=True),  # seconds since 1970, by the clock of `rows.seconds`
    Index(None, "kind", "owner", "until"),
)
