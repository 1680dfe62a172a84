"""Copies of the catalogue, made when a program that writes starts: `cairn rescue` begins with one of them.

- SQLite's own backup makes a copy while others read and write. It is checked before an older copy is removed.
- One copy is kept for each of the last `KEPT_DAYS` days on which one was made. Copies hold what was deleted since.
- Nothing is copied if the catalogue has not changed since the newest copy.
- A copy is always a catalogue in one SQLite file, also that of a catalogue in PostgreSQL (`copy_rows`).
"""

from __future__ import annotations

import contextlib
import glob
import logging
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import delete, func, insert, select, text

from storage.catalogue.database import Database
from storage.catalogue.schema import metadata, shards
from storage.errors import StorageError
from storage.migrations.upgrade import backup, bring_up_to_date

_ROWS = 500  # at once


def copy_catalogue(database: Database, path: Path) -> Path:
    """Copy a catalogue into one SQLite file, consistently while it is in use. Durable when it has its name.

    Raises `CatalogueUnavailable`; then there is no copy.
    """
    if database.path is not None:
        return backup(database, path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (
        tempfile.TemporaryDirectory(dir=path.parent) as folder,  # which nobody else may read
        contextlib.closing(Database(Path(folder, "unfinished.sqlite3"))) as made,
    ):
        bring_up_to_date(made)
        copy_rows(database, made)
        return backup(made, path)


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


logger = logging.getLogger(__name__)

KEPT_DAYS = 3
FOLDER = "backups"
_STAMPED = f"{8 * '[0-9]'}T*"


def keep_backup(database: Database) -> Path | None:
    """Copy the catalogue unless its newest copy is current. Returns the new copy. Raises `CatalogueUnavailable`.

    PostgreSQL's backups are its server's business.
    """
    if database.path is None:
        return None
    before = kept_backups(database.path)
    if before and not _changed_since(database.path, before[-1]):
        return None
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    made = backup(database, database.path.parent / FOLDER / f"{database.path.stem}-{stamp}{database.path.suffix}")
    newest_of_day = {_day(path): path for path in [*before, made]}
    kept = {made, *(newest_of_day[day] for day in sorted(newest_of_day)[-KEPT_DAYS:])}
    for path in before:
        if path not in kept:
            path.unlink(missing_ok=True)
    return made


def keep_backup_meanwhile(database: Database) -> threading.Thread:
    """`keep_backup` in a thread of its own. A copy that cannot be made is a line in the log."""

    def copy() -> None:
        try:
            keep_backup(database)
        except (StorageError, OSError) as error:
            logger.warning("The catalogue was not backed up: %s", error)

    thread = threading.Thread(target=copy, name="cairn-backup", daemon=True)
    thread.start()
    return thread


def kept_backups(catalogue: Path) -> list[Path]:
    """Oldest first."""
    return sorted(_named(catalogue, _STAMPED + glob.escape(catalogue.suffix)))


def all_backups(catalogue: Path) -> list[Path]:
    """Those, those made before a migration, and unfinished ones. The folder may hold files of other programs."""
    return [*_named(catalogue, _STAMPED), *_named(catalogue, f"schema-*-{_STAMPED}")]


def _named(catalogue: Path, pattern: str) -> Iterator[Path]:
    return (catalogue.parent / FOLDER).glob(f"{glob.escape(catalogue.stem)}-{pattern}")


def _day(path: Path) -> str:
    return path.stem.rpartition("-")[2][:8]


def _changed_since(catalogue: Path, copy: Path) -> bool:
    """Whether something was written after the copy; also if the clock was set back since."""
    copied = copy.stat().st_mtime_ns
    if copied > time.time_ns():
        return True
    with contextlib.suppress(FileNotFoundError):
        log = catalogue.with_name(catalogue.name + "-wal").stat()
        if log.st_size and log.st_mtime_ns >= copied:
            return True
    return catalogue.stat().st_mtime_ns >= copied
