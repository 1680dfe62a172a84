"""Between rows and records, and the few idioms that all repositories share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Connection, Row, Table, insert, update

from storage.catalogue.schema import counters
from storage.records import Block, Box, Document, Job, JobProgress

Item = TypeVar("Item")
BATCH = 500  # values in one IN (...): well below every database's limit


def now() -> str:
    """This moment as the catalogue writes it: UTC, microseconds, always the same width."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def batches(items: Sequence[Item], size: int = BATCH) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def update_row(connection: Connection, table: Table, row_id: Any, **values: Any) -> bool:
    """Whether there is a row of that id."""
    return connection.execute(update(table).where(table.c.id == row_id).values(values)).rowcount > 0


def reserve_numbers(connection: Connection, counter: str, count: int) -> int:
    """`count` consecutive numbers that were never handed out before; the first of them."""
    mine = counters.c.name == counter
    raised = update(counters).where(mine).values(next_value=counters.c.next_value + count)
    following = connection.execute(raised.returning(counters.c.next_value)).scalar()
    if following is None:
        connection.execute(insert(counters).values(name=counter, next_value=1 + count))
        return 1
    return int(following) - count


def mark_memory_changed(connection: Connection) -> None:
    """Inside the transaction that changes what questions may read: readers of any process notice (`memory_version`)."""
    reserve_numbers(connection, "memory version", 1)


def search_text(*parts: str) -> str:
    """What a search is compared with. Databases fold the case of ASCII only, so it is done here."""
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


def document_of(row: Row[Any]) -> Document:
    values = dict(row._mapping)
    del values["search_text"]
    return Document(**values | {"notes": tuple(json.loads(row.notes))})


def block_of(row: Row[Any]) -> Block:
    """From a row of `blocks` joined with the name of its shard as `shard`."""
    values = dict(row._mapping)
    del values["num_tokens"]
    boxes = tuple(tuple(box) for box in json.loads(row.boxes))
    return Block(**values | {"tokens": unpack_tokens(row.tokens, row.num_tokens), "boxes": boxes})


def job_of(row: Row[Any]) -> Job:
    values = dict(row._mapping)
    del values["kind"]  # schemas up to now also know a kind of job that no release ever queued
    progress = JobProgress(**{field.name: values.pop(field.name) for field in fields(JobProgress)})
    return Job(**values, progress=progress)
