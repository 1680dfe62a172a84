"""What a database reports when it is damaged, full, locked or cannot be written, as errors that say what to do next."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError

from storage.errors import CatalogueDamaged, CatalogueFull, CatalogueUnavailable, StorageError

_PRIMARY_CODE = 0xFF  # SQLite's extended codes keep the primary code in their lowest byte


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise what the database reports as `CatalogueUnavailable`. `place` names the catalogue.

    What a statement of ours did wrong passes as it is, `IntegrityError` too.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        known = None if isinstance(error, IntegrityError) or cause is None else _explanation(cause, place)
        if known is None:
            raise
        raise known from error


def _explanation(cause: BaseException, place: str) -> StorageError | None:
    if not isinstance(cause, sqlite3.Error):  # PostgreSQL's driver: the connection is refused, lost or out of disk
        lost = type(cause).__name__ in ("OperationalError", "InterfaceError") or "Connection" in type(cause).__name__
        return CatalogueUnavailable(f"The catalogue {place} cannot be reached: {_line(cause)}.") if lost else None
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
                f"The catalogue {place} cannot be read or written ({_line(cause)}). Look after the disk and the rights "
                "of this file and its folder, then try again."
            )
    return None


def _line(cause: BaseException) -> str:
    return (str(cause).strip() or type(cause).__name__).splitlines()[0].rstrip(".")
