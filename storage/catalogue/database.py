"""The connection to the catalogue's database: SQLite configured for durability, or PostgreSQL.

- Readers and writers do not wait for each other (WAL); writers wait for other writers, up to 15 seconds.
- A writer locks when it begins (BEGIN IMMEDIATE), so that a transaction that starts by reading cannot fail halfway.
- `synchronous=FULL`: a committed row survives a power failure, as the fsynced shard file does. With a few commits a
  second, this costs little.
- Deleted rows are overwritten with zeros (`secure_delete`), so that deleted documents do not remain in the file.
- PostgreSQL (`postgresql://...`, by psycopg 3) behaves the same: one writer at a time, consistent reads. The server
  ends a transaction that hangs, and a cut connection is noticed: a paused machine does not keep writers waiting.

Other processes notify of their changes to the catalogue, so that a server can refresh the pages it shows.

PostgreSQL sends it (LISTEN, NOTIFY). SQLite's processes count their writes in the file, and whoever wants to know
looks.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import numpy as np
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    Table,
    and_,
    case,
    create_engine,
    delete,
    event,
    func,
    insert,
    literal,
    make_url,
    select,
    text,
    true,
    update,
)
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, StatementError

from storage.catalogue.schema import counters, folder_files, now
from storage.errors import CatalogueDamaged, CatalogueFull, CatalogueUnavailable, NotFound, StorageError
from storage.names import LONGEST_NAME, encodable
from storage.records import Block, Box, Document, FolderFile, Job, JobProgress

if TYPE_CHECKING:
    import psycopg


_PRIMARY_CODE = 0xFF  # SQLite's extended codes keep the primary code in their lowest byte


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise what the database reports as `CatalogueUnavailable`, and too little memory as MemoryError. `place` names
    the catalogue. Raises ValueError for a value that the database does not take, as PostgreSQL takes no NUL in a text.

    What a statement of ours did wrong passes as it is, `IntegrityError` too.
    """
    try:
        yield
    except DataError as error:
        raise ValueError(f"The catalogue takes no such value: {_line(error.orig or error)}.") from error
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        known = None if isinstance(error, IntegrityError) or cause is None else _explanation(cause, place)
        if known is None:
            raise
        raise known from error
    except StatementError as error:  # SQLAlchemy's frame around what is no error of a database
        if isinstance(error.orig, MemoryError):
            raise error.orig from error
        raise


def _explanation(cause: BaseException, place: str) -> StorageError | None:
    if not isinstance(cause, sqlite3.Error):
        return _explanation_of_postgresql(cause, place)
    match getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE:
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return CatalogueDamaged(place, _line(cause))
        case sqlite3.SQLITE_ERROR if _line(cause).startswith(("no such table", "no such column")):
            return CatalogueDamaged(place, f"its tables are not those of this program: {_line(cause)}")
        case sqlite3.SQLITE_FULL:
            return CatalogueFull(
                f"The catalogue {place} cannot grow: the disk is full. Nothing was changed. Free some disk space, then "
                "try again."
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return CatalogueUnavailable(
                f"The catalogue {place} is locked by another program. Nothing was changed. Try again once that program "
                "is done; if none is running, look for a backup or synchronisation tool that has the file open."
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return CatalogueUnavailable(
                f"The catalogue {place} cannot be written ({_line(cause)}). Nothing was changed. Give the user who "
                "runs Cairn the right to write this file and its folder, or choose another folder with --home."
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR:
            return CatalogueUnavailable(
                f"The catalogue {place} cannot be read or written ({_line(cause)}). Check the disk and the "
                "permissions of this file and its folder, then try again."
            )
    return None


def _explanation_of_postgresql(cause: BaseException, place: str) -> StorageError | None:
    match getattr(cause, "sqlstate", None):  # PostgreSQL's manual, appendix A
        case "53100":
            return CatalogueFull(
                f"The catalogue {place} cannot grow: its server's disk is full. Nothing was changed. Free some disk "
                "space there, then try again."
            )
        case "55P03" | "40P01":
            return CatalogueUnavailable(
                f"The catalogue {place} is locked by another writer ({_line(cause)}). Nothing was changed. Try again."
            )
        case "25006" | "42501":
            return CatalogueUnavailable(
                f"The catalogue {place} cannot be written ({_line(cause)}). Nothing was changed. Give its user the "
                "right to write there, or name the server that takes writes in CAIRN_DATABASE_URL."
            )
    lost = type(cause).__name__ in ("OperationalError", "InterfaceError") or "Connection" in type(cause).__name__
    if lost or str(getattr(cause, "sqlstate", "")).startswith(("08", "25P03", "57P")):
        return CatalogueUnavailable(f"The catalogue {place} cannot be reached: {_line(cause)}.")
    return None


def _line(cause: BaseException) -> str:
    return (str(cause).strip() or type(cause).__name__).splitlines()[0].rstrip(".")


Item = TypeVar("Item")
Record = TypeVar("Record")
BATCH = 500  # values in one IN (...): well below every database's limit


def batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


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


def holds_words(search_text: ColumnElement[str], search: str) -> ColumnElement[bool]:
    """Whether such a text holds every word of `search`, which is no longer than a name, since a database compares only
    so many at once. Raises ValueError for more."""
    if len(search) > LONGEST_NAME:
        raise ValueError(f"Search for fewer words: at most {LONGEST_NAME} characters.")
    words = encodable(search).casefold().split()
    return and_(true(), *(search_text.contains(word, autoescape=True) for word in words))


def search_part(search_text: ColumnElement[str], number: int) -> ColumnElement[str]:
    """Part `number`, from 1, of a column of texts that `search_text` made. Of SQLite it is a function of ours."""
    return func.split_part(search_text, "\n", number)


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
    """An engine and the two ways to use it, `read()` and `write()`, each a short transaction. `place`: a URL of
    SQLAlchemy, or the path of SQLite's file, in which a question mark or a percent sign means nothing."""

    def __init__(self, place: str | Path):
        """Raises `ValueError` for a URL that cannot be used."""
        try:
            parsed = make_url(place) if isinstance(place, str) else URL.create("sqlite", database=str(place))
        except (ArgumentError, ValueError) as error:  # neither of which says what is wrong; it may hold a password
            raise ValueError(
                "The URL of the catalogue cannot be read: write sqlite:////home/me/cairn/cairn.sqlite3 or "
                "postgresql://user@host/name. Check CAIRN_DATABASE_URL."
            ) from error
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if not self.is_sqlite and parsed.get_backend_name() != "postgresql":
            raise ValueError(f"The catalogue can be kept in SQLite or PostgreSQL, not in {parsed.get_backend_name()}.")
        self.path: Path | None = None
        self._room: Path | None = None
        self.place = parsed.difference_update_query(("password", "sslpassword")).render_as_string()
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
        self.sender = uuid4().hex  # processes ignore their own notifications
        self.notified_here = 0
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
    def write(self, *, in_turn: bool = True, notify: bool = True) -> Iterator[Connection]:
        """One writing transaction, committed at the end or rolled back. Keep it short; do not nest.

        `in_turn=False`: on PostgreSQL it does not wait for other writers. For what locks the one row that it changes,
        and reserves no numbers. `notify`: let other processes know (`storage.catalogue.database`), for what
        somebody who looks at the library may see; never out of turn. Raises `CatalogueUnavailable`; then nothing was
        changed.
        """
        notify = notify and in_turn
        alone = self._writing if in_turn or self.is_sqlite else nullcontext()
        with alone, explained(self.place), self._writer.connect() as connection:
            progress = 0
            with connection.begin():
                if in_turn and not self.is_sqlite:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})"))
                yield connection
                if notify:
                    self._notify(connection)
                if in_turn and self.on_progress is not None:
                    progress = connection.exec_driver_sql(_PROGRESS).scalar_one()
            if notify:
                self.notified_here += 1
            if in_turn and self.on_progress is not None:
                self.on_progress(int(progress))

    def _notify(self, connection: Connection) -> None:
        """Whoever listens learns of it once this is committed. SQLite has a number in the file's head that nothing
        else uses."""
        if self.is_sqlite:
            number = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            connection.exec_driver_sql(f"PRAGMA user_version = {(number + 1) % (1 << 31)}")
        else:
            self.announce(connection, "")

    def announce(self, connection: Connection, message: str) -> None:
        """Tell other servers something, when this is committed. PostgreSQL only."""
        call = text("SELECT pg_notify(:channel, :message)")
        connection.execute(call, {"channel": CHANNEL, "message": f"{self.sender} {message}"})

    @contextmanager
    def write_to_delete(self) -> Iterator[Connection]:
        """The same, with the room that was set aside for it, and the erasing of what was deleted."""
        if self._room is not None:
            self._room.unlink(missing_ok=True)
        try:
            with self.write() as connection:
                yield connection
            self._erase_deleted()
        finally:
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
    connection.create_function("split_part", 3, lambda text, mark, number: [*text.split(mark), ""][number - 1])
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


log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5  # of SQLite: between one look and the next
AGAIN_SECONDS = 2.0  # after the server was lost


class Notifications:
    """What others did since the last `wait`. For one thread; `close` may be called by another."""

    def __init__(self, database: Database):
        self._database = database
        self._closed = threading.Event()
        self._listening: psycopg.Connection[Any] | None = None
        self._seen = self._others() if database.is_sqlite else 0

    def close(self) -> None:
        """The `wait` at hand ends soon."""
        self._closed.set()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def rest(self, seconds: float) -> None:
        """Sleep for so long, or until it is closed."""
        self._closed.wait(seconds)

    def wait(self) -> list[str]:
        """Waits for about half a second; returns what was received. "": something changed, or may have while nobody
        listened; anything else is a message of another server (`Database.announce`)."""
        if self.closed:
            self._hang_up()
            return []
        try:
            return self._look() if self._database.is_sqlite else self._listen()
        except CatalogueUnavailable as error:
            log.warning("Notifications of the catalogue have to wait: %s", error)
            self._closed.wait(AGAIN_SECONDS)
            return [""]

    def _look(self) -> list[str]:
        if self._closed.wait(LOOK_SECONDS):
            return []
        others = self._others()
        received = [""] if others != self._seen else []
        self._seen = others
        return received

    def _others(self) -> int:
        """How many writes were not this process's own."""
        notified_here = self._database.notified_here  # first: a write of ours meanwhile counts as another's, once
        with self._database.read() as connection:
            return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one()) - notified_here

    def _listen(self) -> list[str]:
        import psycopg

        try:
            if self._listening is None:
                self._listening = self._call()
                return [""]  # since the last connection there may have been some
            received = [note.payload for note in self._listening.notifies(timeout=LOOK_SECONDS, stop_after=1)]
            received += [note.payload for note in self._listening.notifies(timeout=0)]
        except psycopg.Error as error:
            self._hang_up()
            raise CatalogueUnavailable(str(error)) from error
        notices = [payload.partition(" ") for payload in received]
        return list(dict.fromkeys(message for sender, _, message in notices if sender != self._database.sender))

    def _call(self) -> psycopg.Connection[Any]:
        """A connection of its own, outside of the pool: it is kept."""
        import psycopg

        engine = self._database.engine
        given: dict[str, Any] = {**engine.dialect.create_connect_args(engine.url)[1], **NOTICE_CUT}
        connection: psycopg.Connection[Any] = psycopg.connect(**given, autocommit=True)
        connection.execute(f"LISTEN {CHANNEL}")
        return connection

    def _hang_up(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
