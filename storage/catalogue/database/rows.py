"""Conversion between rows and records, and the SQL idioms that all repositories share."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    case,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from storage.catalogue.database.schema import counters, folder_files, now
from storage.errors import NotFound
from storage.records import Block, Box, Document, FolderFile, Job, JobProgress

Item = TypeVar("Item")
Record = TypeVar("Record")
BATCH = 500  # values in one IN (...): well below every database's limit


def batches(items: Sequence[Item], size: int = BATCH) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def one_row(connection: Connection, chosen: Select[Any], kind: str, key: object) -> Row[Any]:
    """The first row of `chosen`. Raises `NotFound`, which names `kind` and `key`."""
    row = connection.execute(chosen).first()
    if row is None:
        raise NotFound(kind, key)
    return row


def update_row(connection: Connection, table: Table, row_id: Any, **values: Any) -> bool:
    """Returns whether a row has this id."""
    return connection.execute(update(table).where(table.c.id == row_id).values(values)).rowcount > 0


def clock(connection: Connection) -> ColumnElement[str]:
    """The moment, as `now` writes it, told by the database server: clocks of several machines differ."""
    if connection.dialect.name == "sqlite":
        return literal(now())
    return func.to_char(func.timezone("UTC", func.clock_timestamp()), 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')


def seconds(connection: Connection) -> float:
    """The moment in seconds since 1970, by the clock of `clock`."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())


def reserve_numbers(connection: Connection, counter: str, count: int, *, at_least: int = 1) -> int:
    """Reserve `count` consecutive numbers that were never used before. Returns the first, which is `at_least` so."""
    mine = counters.c.name == counter
    first = case((counters.c.next_value < at_least, at_least), else_=counters.c.next_value)
    raised = update(counters).where(mine).values(next_value=first + count)
    following = connection.execute(raised.returning(counters.c.next_value)).scalar()
    if following is None:
        connection.execute(insert(counters).values(name=counter, next_value=at_least + count))
        return at_least
    return int(following) - count


def reserve_block_ids(connection: Connection, count: int) -> int:
    """Reserve consecutive ids that no block ever had. They begin with the microseconds of now: an id tells its owner
    when the block was stored, not how many blocks other people have stored before it."""
    return reserve_numbers(connection, "block", count, at_least=time.time_ns() // 1000)


def mark_memory_changed(connection: Connection) -> None:
    """Increase `memory_version`, for all processes, in the transaction that changes what questions may read."""
    reserve_numbers(connection, "memory version", 1)


def search_text(*parts: str) -> str:
    """The text that searches are matched against. Case is folded here because SQLite folds ASCII only."""
    return "\n".join(parts).casefold()


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Two bytes per token if all ids fit, otherwise four; little-endian."""
    numbers = np.asarray(tokens, dtype=np.int64)
    return numbers.astype("<u2" if len(numbers) == 0 or numbers.max() < 1 << 16 else "<u4").tobytes()


def unpack_tokens(packed: bytes, num_tokens: int) -> tuple[int, ...]:
    width = len(packed) // num_tokens if num_tokens else 2
    return tuple(np.frombuffer(packed, f"<u{width}").tolist())


def pack_boxes(boxes: Sequence[Box]) -> str:
    """JSON, with fractions rounded to 1/100,000 of the page: less than a hundredth of a millimetre on A4."""
    return json.dumps([[box[0], *(round(side, 5) for side in box[1:])] for box in boxes], separators=(",", ":"))


def record_of(record: type[Record], row: Row[Any], **converted: Any) -> Record:
    """A dataclass from the columns that are named like its fields; `converted` holds the fields that need more work."""
    names = _field_names(record)  # type: ignore[arg-type]
    return record(**{name: getattr(row, name) for name in names if name not in converted}, **converted)


@cache
def _field_names(record: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record))


def document_of(row: Row[Any]) -> Document:
    return record_of(Document, row, notes=tuple(json.loads(row.notes)))


def block_of(row: Row[Any]) -> Block:
    """From a row of `blocks` joined with its shard's name as `shard`."""
    boxes = tuple(tuple(box) for box in json.loads(row.boxes))
    return record_of(Block, row, tokens=unpack_tokens(row.tokens, row.num_tokens), boxes=boxes)


def job_of(row: Row[Any]) -> Job:
    return record_of(Job, row, progress=record_of(JobProgress, row))


def write_folder_file(
    connection: Connection, folder_id: str, file: FolderFile, *, instead_of: str | None = None
) -> None:
    """What is remembered of one file below a followed folder, in place of what was known of it, and of `instead_of` if
    it moved."""
    gone = {file.source} if instead_of is None else {file.source, instead_of}
    mine = folder_files.c.folder_id == folder_id
    connection.execute(delete(folder_files).where(mine, folder_files.c.source.in_(gone)))
    connection.execute(insert(folder_files).values(vars(file) | {"folder_id": folder_id}))
