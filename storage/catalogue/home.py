"""Binds a catalogue to a home folder. The same id is in both, and the home knows how far its catalogue had come.

`gc` sweeps files that no row names. So an empty, foreign or older catalogue would cost all that only the right one
knows. Such a catalogue is refused before anything is read, written or migrated. A home of an earlier release has no id:
it takes that of the first catalogue that knows something of what is stored in it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import portalocker
from portalocker import LockFlags
from sqlalchemy import Connection, func, insert, inspect, select

from storage.blobs.files import FileBlobs
from storage.blobs.protocol import Blobs
from storage.catalogue.database import Database, batches
from storage.catalogue.schema import counters, documents, home, shards
from storage.errors import CatalogueUnavailable, ForeignCatalogue, NameInUse

ID_FILE, MARK_FILE, LOCK_FILE = "home.json", "home.mark", "home.lock"
_MARK_DIGITS = 20


class Home:
    """The home folder as its catalogue sees it. `blobs`: the store with memory and originals, if not that folder; then
    the id is there, too, and several home folders may use one store."""

    def __init__(self, folder: Path, blobs: Blobs | None = None):
        self.folder, self.blobs = folder, FileBlobs(folder) if blobs is None else blobs
        self._noted = -1

    @property
    def id(self) -> str | None:
        """None if the folder never had a catalogue, or one of an earlier release."""
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            return str(json.loads(self.blobs.read(ID_FILE))["id"])
        return None

    @property
    def mark(self) -> int:
        """The furthest `progress` that was noted; 0 if none was."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((self.folder / MARK_FILE).read_bytes())
        return 0

    def used(self) -> contextlib.AbstractContextManager[None]:
        """Exclude rescues, as every open catalogue does. Raises `CatalogueUnavailable` while there is one."""
        return self._locked(LockFlags.SHARED, "`cairn rescue` is at work")

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Exclude all other users of the home. Raises `CatalogueUnavailable` while it is in use."""
        return self._locked(LockFlags.EXCLUSIVE, "other Cairn processes use it; stop them first")

    @contextlib.contextmanager
    def _locked(self, kind: LockFlags, reason: str) -> Iterator[None]:
        with open(os.open(self.folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600), "rb+") as file:
            try:
                portalocker.lock(file, kind | LockFlags.NON_BLOCKING)
            except portalocker.AlreadyLocked:
                raise CatalogueUnavailable(f"The home folder {self.folder} cannot be used now: {reason}.") from None
            yield

    def check(self, database: Database) -> None:
        """Raises `ForeignCatalogue` unless the catalogue, of any schema, belongs here. Changes nothing."""
        if database.path is not None and not database.path.exists():
            self._check_empty(database)
            return
        mark = self.mark  # before the catalogue is looked at: others commit meanwhile, and note it
        if self.progress_of_own(database) < mark:
            raise ForeignCatalogue("an older copy", database.place, self.blobs.place)

    def progress_of_own(self, database: Database) -> int:
        """How far the catalogue has come. Raises `ForeignCatalogue` if it is empty, or that of another home."""
        with database.read() as connection:
            tables = set(inspect(connection).get_table_names())
            if "documents" not in tables:
                self._check_empty(database)
                return self.mark
            theirs = connection.execute(select(home.c.id)).scalar() if "home" in tables else None
            mine = self.id
            if None not in (mine, theirs) and mine != theirs:
                raise ForeignCatalogue("another home folder's", database.place, self.blobs.place)
            if mine != theirs or mine is None:
                self._check_evidence(connection, database)
            return progress_of(connection)

    def bind(self, database: Database) -> None:
        """Write the id into catalogue and folder, wherever it is missing."""
        with database.read() as connection:
            theirs = connection.execute(select(home.c.id)).scalar()
        if theirs is None:
            theirs = self.adopt(database)
            with database.read() as connection:
                self.set_mark(progress_of(connection))
        if self.id != theirs:
            self._write_id(theirs, database)

    def _write_id(self, theirs: str, database: Database) -> None:
        contents = memoryview(json.dumps({"id": theirs}).encode())
        try:
            self.blobs.create(ID_FILE, contents)
        except NameInUse as error:
            if self.id is not None:  # another catalogue's, since it was looked at
                raise ForeignCatalogue("another home folder's", database.place, self.blobs.place) from error
            self.blobs.delete([ID_FILE])  # unreadable
            self.blobs.create(ID_FILE, contents)

    def adopt(self, database: Database) -> str:
        """Give the home's id, or a new one, to a catalogue that has none. Returns that of the catalogue."""
        with database.write() as connection:
            theirs = connection.execute(select(home.c.id)).scalar()
            if theirs is None:
                theirs = self.id or uuid4().hex
                connection.execute(insert(home).values(id=theirs))
        return str(theirs)

    def note(self, progress: int) -> None:
        """Record how far the catalogue has come. Not flushed to the disk: after a power failure the mark may be behind,
        which costs a warning and no data; it is never ahead of what was committed."""
        if progress > self._noted:
            self._noted = progress
            if progress > self.mark:
                self.set_mark(progress)

    def set_mark(self, progress: int) -> None:
        with contextlib.suppress(OSError):  # evidence, not truth: the commit stands without it
            descriptor = os.open(self.folder / MARK_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(descriptor, f"{progress:0{_MARK_DIGITS}}".encode(), 0)
            finally:
                os.close(descriptor)

    def stored_ids(self) -> set[str]:
        """Ids of the documents whose memory or original lies here."""
        shards_here = (fact.name.split("/") for fact in self.blobs.listing("kv"))
        found = {parts[1] for parts in shards_here if len(parts) > 2}
        files_here = (fact.name.rpartition("/")[2] for fact in self.blobs.listing("files"))
        return found | {name.split(".")[0] for name in files_here} - {""}

    def _check_empty(self, database: Database) -> None:
        if self.stored_ids():
            raise ForeignCatalogue("empty", database.place, self.blobs.place)

    def _check_evidence(self, connection: Connection, database: Database) -> None:
        """One of the two has no id: the catalogue must know something of what is here."""
        here = self.stored_ids()
        if not here:
            if connection.execute(select(shards.c.id).limit(1)).first() is not None:
                raise ForeignCatalogue("another home folder's", database.place, self.blobs.place)
            return
        for batch in batches(sorted(here)):
            if connection.execute(select(documents.c.id).where(documents.c.id.in_(batch)).limit(1)).first():
                return
        any_row = connection.execute(select(documents.c.id).limit(1)).first()
        raise ForeignCatalogue(
            "empty" if any_row is None else "another home folder's", database.place, self.blobs.place
        )


def progress_of(connection: Connection) -> int:
    """A number that grows with every document, shard and deletion, and never shrinks."""
    return int(connection.execute(select(func.coalesce(func.sum(counters.c.next_value), 0))).scalar_one())
