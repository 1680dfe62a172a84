"""New SQLite catalogues without running every migration for each: what the migrations made is repeated.

Tests of the catalogue itself (tests/storage) run them; for those of what stands above it they were most of the time.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from storage.catalogue.database import upgrade
from storage.catalogue.database.connection import Database

_run_alembic = upgrade._run_alembic


@cache
def statements() -> list[str]:
    """What makes an empty catalogue of today, as SQLite writes down the one that the migrations made."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.sqlite3"
        database = Database(f"sqlite:///{path}")
        _run_alembic(database, upgrade.MIGRATIONS, upgrade.HEAD)
        database.close()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return [each for each in connection.iterdump() if each not in ("BEGIN TRANSACTION;", "COMMIT;")]


def _quickly(database: Database, migrations: Path, head: str) -> None:
    if database.path is None or migrations != upgrade.MIGRATIONS or upgrade.revision(database) is not None:
        _run_alembic(database, migrations, head)
        return
    with database.write() as connection:
        for statement in statements():
            connection.exec_driver_sql(statement)


@contextlib.contextmanager
def migrated_once() -> Iterator[None]:
    """While it lasts, new catalogues of this process are made quickly; older ones are migrated as ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upgrade, "_run_alembic", _quickly)
        yield
