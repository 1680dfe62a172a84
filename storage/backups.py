"""Copies of the catalogue, made when a program that writes starts: what `cairn rescue` begins with.

- Made with SQLite's own backup, while others read and write, and checked before any older copy goes.
- Kept for the last `KEPT_DAYS` days on which one was made, one for each. They hold what was deleted since.
- Nothing is copied if the catalogue has not changed since the newest copy.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from storage.catalogue.database.connection import Database
from storage.catalogue.database.upgrade import backup
from storage.errors import StorageError

logger = logging.getLogger(__name__)

KEPT_DAYS = 3
FOLDER = "backups"


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
    made = backup(database, _folder(database.path) / f"{database.path.stem}-{stamp}{database.path.suffix}")
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
    return sorted(_folder(catalogue).glob(f"{catalogue.stem}-[0-9]*{catalogue.suffix}"))


def _folder(catalogue: Path) -> Path:
    return catalogue.parent / FOLDER


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
