"""What is reported of bundles. Plain values."""

from __future__ import annotations

from dataclasses import dataclass

from retrieval.types.serialisation import Record


@dataclass(frozen=True)
class Exported(Record):
    """`left_out`: sources and reasons of documents that are not in the bundle."""

    path: str
    documents: int
    blocks: int
    size_bytes: int
    left_out: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Arrived(Record):
    """One document of a bundle: `status` is "imported", "already stored", "read again" or "failed" (see `error`)."""

    source: str
    document_id: str | None
    status: str
    blocks: int = 0
    error: str = ""
