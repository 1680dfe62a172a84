"""The connection to the catalogue's database: SQLite configured for durability, or PostgreSQL.

- Readers and writers do not wait for each other (WAL); writers wait for other writers, up to 15 seconds.
- A writer locks when it begins (BEGIN IMMEDIATE), so that a transaction that starts by reading cannot fail halfway.
- `synchronous=FULL`: a committed row survives a power failure, as the fsynced shard file does. With a few commits a
  second, this costs little.
- Deleted rows are overwritten with zeros (`secure_delete`), so that deleted documents do not remain in the file.
- PostgreSQL (`postgresql://...`, by psycopg 3) behaves the same: one writer at a time, consistent reads. The server
  ends a transaction that hangs, and a cut connection is noticed: a paused machine does not keep writers waiting.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text

from storage.catalogue.database.failures import explained

BUSY_SECONDS = 15
LEASE_SECONDS = 60.0  # how long a worker may be silent before its job is given to another
_PROGRESS = "SELECT COALESCE(SUM(next_value), 0) FROM counters"
WRITER_LOCK = 0x434149524E  # "CAIRN": the advisory lock by which PostgreSQL's writers take turns, as SQLite's do
CHANNEL = "cairn_changes"  # on which PostgreSQL tells of writes
HANG_SECONDS = 30  # of a transaction whose process does nothing, and of waiting for one
ROOM_BYTES = 4 << 20
"""Of the disk, set aside for deleting: without it, what is on a full disk could not be deleted either, as the
write-ahead log must grow for it. Enough for the rows of some ten documents of a hundred pages at once."""
NOTICE_CUT = {"connect_timeout": 10, "keepalives_idle": 20, "keepalives_interval": 5, "keepalives_count": 4}


class Database:
    """An engine and the two ways to use it, `read()` and `write()`, each a short transaction."""

    def __init__(self, url: str):
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if not self.is_sqlite and parsed.get_backend_name() != "postgresql":
            raise ValueError(f"The catalogue can be kept in SQLite or PostgreSQL, not in {parsed.get_backend_name()}.")
        self.path: Path | None = None
        self._room: Path | None = None
        self.place = parsed.render_as_string()  # without the password
        if self.is_sqlite:
            if not parsed.database or parsed.database == ":memory:":
                raise ValueError("The catalogue must be a file, e.g. sqlite:////home/me/cairn/cairn.sqlite3")
            # SQLite also takes a URI as the name: sqlite:///file:/srv/cairn.sqlite3?mode=ro&uri=true
            self.path = Path(unquote(urlsplit(parsed.database).path) if "uri" in parsed.query else parsed.database)
            self.place = str(self.path)
            self._room = self.path.with_name(f"{self.path.name}-room")
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            # As many connections as threads ask at once: a sixteenth reader would else wait for half a minute.
            more = {} if self.is_sqlite else {"pool_pre_ping": True, "connect_args": NOTICE_CUT}
            self.engine: Engine = create_engine(parsed, max_overflow=-1, **more)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"This catalogue needs a driver that is not installed: pip install {error.name}"
            ) from error
        self.on_progress: Callable[[int], None] | None = None  # told after each commit: see storage.catalogue.home
        self.lease_seconds = LEASE_SECONDS
        self.while_open = ExitStack()
        self.teller = uuid4().hex  # who told of a change: others only need to know
        self.told_here = 0
        self._writer = self.engine.execution_options(begin_immediate=True)
        self._reader = self.engine
        # Threads of this process queue here instead of polling for SQLite's lock.
        self._writing = threading.Lock()
        self.claiming = threading.Lock()  # of jobs: whose turn it is, is known when the last claim is committed
        if self.is_sqlite:
            event.listen(self.engine, "connect", _configure_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        else:
            event.listen(self.engine, "connect", _configure_postgresql)
            self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view of the database, which takes no lock. Raises `CatalogueUnavailable`."""
        with explained(self.place), self._reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self, *, in_turn: bool = True, tell: bool = True) -> Iterator[Connection]:
        """One writing transaction, committed at the end or rolled back. Keep it short; do not nest.

        `in_turn=False`: on PostgreSQL it does not wait for other writers. For what locks the one row that it changes,
        and reserves no numbers. `tell`: let other processes know (`storage.catalogue.database.changes`), for what
        somebody who looks at the library may see; never out of turn. Raises `CatalogueUnavailable`; then nothing was
        changed.
        """
        tell = tell and in_turn
        alone = self._writing if in_turn or self.is_sqlite else nullcontext()
        with alone, explained(self.place), self._writer.connect() as connection:
            progress = 0
            with connection.begin():
                if in_turn and not self.is_sqlite:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})"))
                yield connection
                if tell:
                    self._tell(connection)
                if in_turn and self.on_progress is not None:
                    progress = connection.exec_driver_sql(_PROGRESS).scalar_one()
            if tell:
                self.told_here += 1
            if in_turn and self.on_progress is not None:
                self.on_progress(int(progress))

    def _tell(self, connection: Connection) -> None:
        """Whoever listens learns of it once this is committed. SQLite has a number in the file's head that nothing
        else uses."""
        if self.is_sqlite:
            number = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            connection.exec_driver_sql(f"PRAGMA user_version = {(number + 1) % (1 << 31)}")
        else:
            self.announce(connection, "")

    def announce(self, connection: Connection, message: str) -> None:
        """Tell other servers something, when this is committed. PostgreSQL only."""
        told = text("SELECT pg_notify(:channel, :message)")
        connection.execute(told, {"channel": CHANNEL, "message": f"{self.teller} {message}"})

    @contextmanager
    def write_to_delete(self) -> Iterator[Connection]:
        """The same, with the room that was set aside for it, and the erasing of what was deleted."""
        if self._room is not None:
            self._room.unlink(missing_ok=True)
        with self.write() as connection:
            yield connection
        self._erase_deleted()
        self.keep_room()

    def keep_room(self) -> None:
        """Set room aside on the disk, where there is some and none is set aside."""
        if self._room is None:
            return
        with suppress(OSError):  # it is there, the disk is full, or cannot set room aside
            descriptor = os.open(self._room, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with open(descriptor, "wb", buffering=0) as file:
                    if file.write(os.urandom(ROOM_BYTES)) < ROOM_BYTES:  # zeros might be packed, and set nothing aside
                        raise OSError
            except OSError:
                self._room.unlink()

    def _erase_deleted(self) -> None:
        """After a deletion, empty the write-ahead log, which still holds the text. Does not wait for readers."""
        if self.path is not None:
            # The deletion is committed. If the log cannot be emptied now, the next checkpoint overwrites it.
            with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.path, timeout=0.2)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self.engine.dispose()
        self.while_open.close()


def _configure_sqlite(connection: Any, _record: Any) -> None:
    # _begin_sqlite begins transactions, since the driver would begin none for SELECT and DDL.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
    mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":  # changing it takes an exclusive lock, so only the first process does
        mode = cursor.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise ValueError(f"The catalogue's folder cannot hold a write-ahead log ({mode}); use a local disk.")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA secure_delete=ON")
    cursor.execute("PRAGMA journal_size_limit=67108864")
    cursor.close()


def _configure_postgresql(connection: Any, _record: Any) -> None:
    for name in ("idle_in_transaction_session_timeout", "lock_timeout"):
        connection.execute(f"SET {name} = '{HANG_SECONDS}s'")
    connection.commit()


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("begin_immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
