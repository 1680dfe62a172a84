"""What a database reports when it is damaged, full, locked or cannot be written, as errors that say what to do next."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError

from storage.errors import CatalogueDamaged, CatalogueFull, CatalogueUnavailable, StorageError

_PRIMARY_CODE = 0xFF  # SQLite's extended codes keep the primary code in their lowest byte


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise what the database reports as `CatalogueUnavailable`, and too little memory as MemoryError. `place` names
    the catalogue.

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
                f"The catalogue {place} cannot be read or written ({_line(cause)}). Look after the disk and the rights "
                "of this file and its folder, then try again."
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
