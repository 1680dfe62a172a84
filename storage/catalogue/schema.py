"""The tables of the catalogue. Migrations under `storage/migrations` build exactly this; a test compares the two.

- Ids of documents, jobs, answers, conversations and collections are random (uuid, 32 hex digits).
- Ids of blocks are numbers that are handed out once and never again, also after deletion: an old answer never points
  at somebody else's text. They come from `counters`, so that the blocks of one shard are numbered without a gap.
- Times are UTC text, `2026-01-31T12:00:00.000000+00:00`: they sort as they read, in any database.
- `owner_id` names a user. Empty: it belongs to nobody in particular, as everything does while there are no accounts.
"""

from __future__ import annotations

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

# SQLite only treats INTEGER (not BIGINT) as its row id.
BigId = BigInteger().with_variant(Integer(), "sqlite")
HexId = String(32)
Time = String(32)


def _document_id(*, primary_key: bool = False) -> Column[str]:
    return Column(
        "document_id",
        HexId,
        ForeignKey("documents.id", ondelete="CASCADE"),
        primary_key=primary_key,
        nullable=False,
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
    Column("created_at", Time, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("id", HexId, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("password_hash", Text, nullable=False),  # argon2
    Column("token_digest", String(64), unique=True),  # SHA-256 of the bearer token
    Column("created_at", Time, nullable=False),
)

collections = Table(
    "collections",
    metadata,
    Column("id", HexId, primary_key=True),
    Column("name", Text, nullable=False),
    Column("owner_id", HexId),
    Column("everyone", Boolean, nullable=False),  # shared with every user
    Column("created_at", Time, nullable=False),
    UniqueConstraint("owner_id", "name"),  # two people may each have their "Reports"
)
Index(  # which does not hold for rows without an owner: to SQL one empty value is never another
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

documents = Table(
    "documents",
    metadata,
    Column("id", HexId, primary_key=True),
    Column("source", Text, nullable=False),  # the name the user knows: file name or path as given
    Column("title", Text, nullable=False),
    Column("search_text", Text, nullable=False),  # title and source, case folded
    Column("kind", String(16), nullable=False),  # pdf, txt, md, html, docx
    Column("content_sha256", String(64), nullable=False),
    Column("stored_file", Text),  # name of the kept copy of the file
    Column("num_pages", Integer, nullable=False),
    Column("num_characters", Integer, nullable=False),
    Column("num_tokens", Integer, nullable=False),
    Column("num_blocks", Integer, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),  # of its shards
    Column("state", String(16), nullable=False),
    Column("notes", Text, nullable=False),  # JSON list of sentences
    Column("collection_id", HexId, ForeignKey("collections.id", ondelete="SET NULL"), index=True),
    Column("owner_id", HexId),
    Column("fingerprint", String(80), ForeignKey("memory_fingerprints.digest"), nullable=False),
    Column("added_at", Time, nullable=False),
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

title_keys = Table(
    "title_keys",
    metadata,
    _document_id(primary_key=True),
    Column("title", Text, nullable=False),  # that they were made of: after a change of title they count no more
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

jobs = Table(
    "jobs",
    metadata,
    Column("id", HexId, primary_key=True),
    _document_id(),
    Column("kind", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("stage", String(32), nullable=False),
    Column("pages_done", Integer, nullable=False),
    Column("pages_total", Integer, nullable=False),
    Column("tokens_done", Integer, nullable=False),
    Column("tokens_total", Integer, nullable=False),
    Column("tokens_per_second", Float, nullable=False),
    Column("eta_seconds", Float),
    Column("error", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("cancel_requested", Boolean, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("worker", Text, nullable=False),
    Column("heartbeat_at", Time),
    Column("created_at", Time, nullable=False),
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
    Column("id", HexId, primary_key=True),
    Column("title", Text, nullable=False),
    Column("owner_id", HexId),
    Column("created_at", Time, nullable=False),
)

answers = Table(
    "answers",
    metadata,
    Column("id", HexId, primary_key=True),
    Column("conversation_id", HexId, ForeignKey("conversations.id", ondelete="CASCADE"), index=True),
    Column("question", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("search_text", Text, nullable=False),  # question and text, case folded
    Column("body", Text, nullable=False),  # JSON, as retrieval gave it
    Column("owner_id", HexId),
    Column("created_at", Time, nullable=False, index=True),
    Index(None, "owner_id", "created_at"),
)

answer_documents = Table(
    "answer_documents",
    metadata,
    Column("answer_id", HexId, ForeignKey("answers.id", ondelete="CASCADE"), primary_key=True),
    Column("document_id", HexId, ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "document_id"),
)
