"""Bringing a catalogue to the current schema when it is opened: a backup, then the pending Alembic migrations.

- A new catalogue is made from the schema itself.
- For an up-to-date catalogue this costs one SELECT; Alembic is not even imported.
- All pending migrations run in one transaction, so a crash leaves the old schema intact.
- One process migrates at a time (a lock file beside the database); the others wait.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import portalocker
from sqlalchemy import inspect, text

from storage.blobs.files import sync_folder
from storage.catalogue.database import Database, explained
from storage.catalogue.schema import metadata
from storage.errors import CatalogueDamaged, CatalogueTooNew

HEAD = "0011"  # the newest revision in migrations/versions, as a test checks
MIGRATIONS = Path(__file__).parent
BEFORE = tuple(f"000{number}" for number in range(1, 9))  # of 0.1 and 0.2, which the first migration brings to 0009


def bring_up_to_date(database: Database) -> Path | None:
    """Migrate if necessary. Returns the path of the backup, if one was made. Raises `CatalogueTooNew`."""
    if database.path is not None and database.path.exists() and revision(database) == HEAD:
        return None
    with _one_at_a_time(database):
        current = revision(database)
        if current == HEAD:
            return None
        if current is None:
            _make_new(database)
            return None
        _refuse_unknown(current)
        backup_path = None
        if database.path is not None:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
            name = f"{database.path.stem}-schema-{current}-{stamp}{database.path.suffix}"
            backup_path = backup(database, database.path.parent / "backups" / name)
        _run_alembic(database, current)
        return backup_path


def revision(database: Database) -> str | None:
    """The database's schema revision, None if it is empty."""
    with database.read() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def backup(database: Database, path: Path) -> Path:
    """Copy the SQLite database to `path`, consistently even while it is in use (SQLite's backup API).

    The copy is checked and durable before it has its name. Raises `CatalogueUnavailable`; then there is no copy.
    """
    if database.path is None:
        raise ValueError("Only SQLite catalogues can be backed up here. Use your database server's own backup tool.")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT, 0o600))
        with explained(database.place):
            source, target = sqlite3.connect(database.path), sqlite3.connect(unfinished)
            with contextlib.closing(source), contextlib.closing(target):
                source.backup(target)
                target.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
                problem = target.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise CatalogueDamaged(database.place, problem)
        with open(unfinished, "rb+") as file:
            os.fsync(file.fileno())
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)
    return path


def _refuse_unknown(current: str) -> None:
    known = {path.name.split("_")[0] for path in (MIGRATIONS / "versions").glob("*.py")}
    if current not in known | set(BEFORE):
        raise CatalogueTooNew(
            f"The catalogue has schema {current}, made by a newer release. Install that release, "
            "or restore a copy from the folder `backups` beside the catalogue."
        )


def _make_new(database: Database) -> None:
    """From the schema itself, as of `HEAD`."""
    version = "version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)"
    with database.write() as connection:
        if inspect(connection).has_table("alembic_version"):
            return  # another server was first
        metadata.create_all(connection, checkfirst=False)
        connection.execute(text(f"CREATE TABLE alembic_version ({version})"))
        connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def _run_alembic(database: Database, current: str) -> None:
    from alembic import command  # slow to import, and needed only here
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with database.write() as connection:
        config.attributes["connection"] = connection
        if current in BEFORE:
            connection.execute(text("DELETE FROM alembic_version"))
        command.upgrade(config, HEAD)


@contextlib.contextmanager
def _one_at_a_time(database: Database) -> Iterator[None]:
    if database.path is None:
        yield
        return
    with open(database.path.with_name(database.path.name + ".lock"), "w") as file:
        portalocker.lock(file, portalocker.LockFlags.EXCLUSIVE)
        yield
