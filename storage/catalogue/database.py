"""The connection to the catalogue's database: SQLite set up to keep what it acknowledged, or PostgreSQL.

- Readers never wait for a writer nor the other way round (WAL); writers wait for each other, up to 15 seconds.
- A writer takes its lock when it begins (BEGIN IMMEDIATE): a transaction that started by reading cannot fail halfway.
- `synchronous=FULL`: a committed shard or document survives a power failure, not only the death of the process. The
  shard file was fsynced before, so its row must not be weaker; there are a few commits a second, so it costs little.
- Deleted rows are overwritten with zeros (`secure_delete`), so that a deleted document is not left in the file.
- PostgreSQL (`postgresql+psycopg://...`) is treated alike: one writer at a time, readers see one moment.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text

BUSY_SECONDS = 15
WRITER_LOCK = 0x434149524E  # "CAIRN": the advisory lock that makes PostgreSQL's writers take turns, as SQLite's do


class Database:
    """Engine plus the two ways to use it: `read()` and `write()`, each one short transaction."""

    def __init__(self, url: str):
        parsed = make_url(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if not self.is_sqlite and parsed.get_backend_name() != "postgresql":
            raise ValueError(f"The catalogue is kept in SQLite or PostgreSQL, not in {parsed.get_backend_name()}.")
        self.path: Path | None = None
        if self.is_sqlite:
            if not parsed.database or parsed.database == ":memory:":
                raise ValueError("The catalogue must be a file, e.g. sqlite:////home/me/cairn/cairn.sqlite3")
            self.path = Path(parsed.database)
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self.engine: Engine = create_engine(parsed)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"This catalogue needs a driver that is not installed: pip install {error.name}"
            ) from error
        self._writer = self.engine.execution_options(begin_immediate=True)
        self._reader = self.engine
        # Threads of this process queue here, in order, instead of polling for SQLite's lock.
        self._writing = threading.Lock()
        if self.is_sqlite:
            event.listen(self.engine, "connect", _configure_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        else:
            self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view of the database."""
        with self._reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction that may write: committed at the end, or nothing of it. Keep it short; do not nest."""
        with self._writing, self._writer.connect() as connection, connection.begin():
            if not self.is_sqlite:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})"))
            yield connection

    def erase_deleted(self) -> None:
        """After a deletion: empty the write-ahead log, which still holds the deleted text. Does not wait for readers.

        (The table pages were overwritten with zeros in the deleting transaction itself, `secure_delete`.)
        """
        if self.path is not None:
            with closing(sqlite3.connect(self.path, timeout=0.2)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self.engine.dispose()


def _configure_sqlite(connection: Any, _record: Any) -> None:
    # The driver must not begin transactions by itself (it would emit none for SELECT and DDL): _begin_sqlite does.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
    mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":  # changing it needs an exclusive lock, so only the first opener does
        mode = cursor.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise ValueError(f"The catalogue's folder cannot hold a write-ahead log ({mode}); use a local disk.")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA secure_delete=ON")
    cursor.execute("PRAGMA journal_size_limit=67108864")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("begin_immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
