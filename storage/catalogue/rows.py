"""Between rows and records, and the few idioms that all tables share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Connection, Row, insert, update

from storage.catalogue.database import Database
from storage.catalogue.schema import counters
from storage.records import Block, Box, Document, Job, JobProgress, Page, Shard

Item = TypeVar("Item")
BATCH = 500  # values in one IN (...): well below every database's limit


class Tables:
    """What each part of the catalogue stands on."""

    database: Database


def now() -> str:
    """This moment as the catalogue writes it: UTC, microseconds, always the same width."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def batches(items: Sequence[Item], size: int = BATCH) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def mark_memory_changed(connection: Connection) -> None:
    """Inside the transaction that changes what questions may read: readers of any process notice (`memory_version`)."""
    mine = counters.c.name == "memory version"
    if connection.execute(update(counters).where(mine).values(next_value=counters.c.next_value + 1)).rowcount == 0:
        connection.execute(insert(counters).values(name="memory version", next_value=1))


def search_text(*parts: str) -> str:
    """What a search is compared with: databases fold the case of ASCII only, so it is done here."""
    return "\n".join(parts).casefold()


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Two bytes a token where all fit, else four; little-endian."""
    numbers = np.asarray(tokens, dtype=np.int64)
    return numbers.astype("<u2" if len(numbers) == 0 or numbers.max() < 1 << 16 else "<u4").tobytes()


def unpack_tokens(packed: bytes, num_tokens: int) -> tuple[int, ...]:
    width = len(packed) // num_tokens if num_tokens else 2
    return tuple(np.frombuffer(packed, f"<u{width}").tolist())


def pack_boxes(boxes: Sequence[Box]) -> str:
    """Fractions are rounded to 1/100,000 of the page: a hundredth of a millimetre on A4."""
    return json.dumps([[box[0], *(round(side, 5) for side in box[1:])] for box in boxes], separators=(",", ":"))


def unpack_boxes(packed: str) -> tuple[Box, ...]:
    return tuple(tuple(box) for box in json.loads(packed))


def document_of(row: Row[Any]) -> Document:
    fields = dict(row._mapping)
    fields.pop("search_text")
    return Document(**fields | {"notes": tuple(json.loads(fields["notes"]))})


def page_of(row: Row[Any]) -> Page:
    return Page(row.number, row.label, row.width, row.height, row.start, row.end, row.note)


def shard_of(row: Row[Any]) -> Shard:
    return Shard(**row._mapping)


def block_of(row: Row[Any]) -> Block:
    """From a row of `blocks` joined with the name of its shard as `shard`."""
    return Block(
        id=row.id,
        document_id=row.document_id,
        ordinal=row.ordinal,
        start=row.start,
        end=row.end,
        tokens=unpack_tokens(row.tokens, row.num_tokens),
        boxes=unpack_boxes(row.boxes),
        shard_id=row.shard_id,
        shard=row.shard,
        index_in_shard=row.index_in_shard,
    )


_PROGRESS = ("stage", "pages_done", "pages_total", "tokens_done", "tokens_total", "tokens_per_second", "eta_seconds")


def progress_columns(progress: JobProgress) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in _PROGRESS}


def job_of(row: Row[Any]) -> Job:
    fields = dict(row._mapping)
    progress = JobProgress(**{name: fields.pop(name) for name in _PROGRESS})
    return Job(**fields, progress=progress)
