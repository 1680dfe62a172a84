"""A catalogue's rows from one database into another: from SQLite to PostgreSQL, and back.

The copy of a catalogue is always a catalogue in one SQLite file, whatever it was made of.
"""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from sqlalchemy import delete, func, insert, select, text

from storage.blobs.durable import sync_folder
from storage.catalogue.database.connection import Database
from storage.catalogue.database.schema import metadata, shards
from storage.catalogue.database.upgrade import backup, bring_up_to_date

_ROWS = 500  # at once


def copy_catalogue(database: Database, path: Path) -> Path:
    """Copy a catalogue into one SQLite file, consistently while it is in use. Durable when it has its name.

    Raises `CatalogueUnavailable`; then there is no copy.
    """
    if database.path is not None:
        return backup(database, path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{uuid4().hex[:8]}.unfinished")
    made = Database(f"sqlite:///{unfinished}")
    try:
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        bring_up_to_date(made)
        copy_rows(database, made)
        backup(made, path)
    finally:
        made.close()
        for end in ("", "-wal", "-shm", ".lock"):
            unfinished.with_name(unfinished.name + end).unlink(missing_ok=True)
    sync_folder(path.parent)
    return path


def copy_rows(source: Database, target: Database) -> None:
    """Every row of the source, in place of those of the target, in one transaction; both of the newest schema."""
    with source.read() as reading, target.write() as writing:
        for table in reversed(metadata.sorted_tables):
            writing.execute(delete(table))
        for table in metadata.sorted_tables:
            rows = reading.execution_options(yield_per=_ROWS).execute(select(table)).mappings()
            for batch in rows.partitions(_ROWS):
                writing.execute(insert(table), [dict(row) for row in batch])
        if not target.is_sqlite:  # which numbers shards by itself
            last = writing.execute(select(func.coalesce(func.max(shards.c.id), 0))).scalar_one()
            writing.execute(text("SELECT setval('shards_id_seq', :next, false)"), {"next": last + 1})
