"""A PostgreSQL server for the tests: one a session, with databases that are emptied and given to the next test.

It is started from the binaries of this machine (Debian's `postgresql`, or `pip install pgserver`), in a folder of its
own, and listens on a socket there. `CAIRN_TEST_POSTGRESQL` names a server that runs already instead.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from sqlalchemy import Connection, Engine, create_engine, make_url, text

from storage.catalogue import Catalogue
from storage.catalogue.schema import metadata
from storage.migrations.upgrade import HEAD

VARIABLE = "CAIRN_TEST_POSTGRESQL"
START_SECONDS = 60.0
_QUICK = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "autovacuum=off", "max_connections=200")
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def why_not() -> str:
    """Why there is no PostgreSQL here; "" if there is."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed (requirements-dev.txt)"
    if not os.environ.get(VARIABLE) and _binaries() is None:
        return "no PostgreSQL on this machine (Debian's `postgresql`, or `pip install pgserver`)"
    return ""


def _binaries() -> Path | None:
    found = [Path(one).parent for one in (shutil.which("initdb"),) if one]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    spec = importlib.util.find_spec("pgserver")
    if spec is not None and spec.origin is not None:
        found.append(Path(spec.origin).parent / "pginstall" / "bin")
    return next((folder for folder in found if (folder / "initdb").exists()), None)


@contextmanager
def running_server() -> Iterator[str]:
    """URL of a server, until the end of the block."""
    if given := os.environ.get(VARIABLE):
        yield given
        return
    binaries = _binaries()
    assert binaries is not None, why_not()
    folder = Path(tempfile.mkdtemp(prefix="cairn-postgresql-"))
    # It refuses to run as root.
    other: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
    if other:
        shutil.chown(folder, **other)
    try:
        make = [binaries / "initdb", "-D", folder / "data", "-U", "cairn", "-A", "trust", "-E", "UTF8", "--locale=C"]
        subprocess.run([*make, "--no-sync"], check=True, capture_output=True, cwd=folder, **other)
        options = [part for setting in ("listen_addresses=", *_QUICK) for part in ("-c", setting)]
        server = subprocess.Popen(
            [binaries / "postgres", "-D", folder / "data", "-k", folder, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            preexec_fn=_die_with_parent,
            **other,
        )
        try:
            url = f"postgresql+psycopg://cairn@/postgres?host={quote(str(folder))}"
            _wait_for(url, server)
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown
            server.wait(START_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _die_with_parent() -> None:
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGQUIT)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    import psycopg

    place = make_url(url)
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(host=str(place.query["host"]), user="cairn", dbname="postgres").close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.02)


class Databases:
    """Catalogues on one server: each is empty, of the newest schema, and used by one test at a time."""

    def __init__(self, server: str):
        self._server = make_url(server)
        self._engine: Engine = create_engine(server, isolation_level="AUTOCOMMIT")
        self._free: list[str] = []
        self._used: list[str] = []
        self._emptying: dict[str, Engine] = {}  # with a connection each: a new one has to learn of every table first
        self._template = ""

    def take(self) -> str:
        """URL of an empty catalogue; `give_back` makes it empty again."""
        if not self._template:
            self._template = self._make()
            Catalogue.open(self._url(self._template)).close()
        name = self._free.pop() if self._free else self._make(f" TEMPLATE {self._template}")
        self._used.append(name)
        return self._url(name)

    def take_bare(self) -> str:
        """URL of a database without tables."""
        self._used.append(self._make())
        return self._url(self._used[-1])

    def give_back(self) -> None:
        """All that were taken."""
        while self._used:
            name = self._used.pop()
            if name not in self._emptying:
                self._emptying[name] = create_engine(
                    self._url(name), isolation_level="AUTOCOMMIT", pool_size=1, pool_pre_ping=True
                )
            with self._emptying[name].connect() as connection:
                emptied = self._emptied(connection)
            if emptied:
                self._free.append(name)
            else:
                self._drop(name)

    def close(self) -> None:
        self.give_back()
        for name in [*self._free, *filter(None, [self._template])]:
            self._drop(name)
        self._engine.dispose()

    def _emptied(self, connection: Connection) -> bool:
        """Whether it has the schema that it should have, and now no rows; everybody else's connections are gone."""
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))
        if connection.execute(text("SELECT to_regclass('alembic_version')")).scalar() is None:
            return False
        if connection.execute(text("SELECT version_num FROM alembic_version")).scalar() != HEAD:
            return False
        rows = "; ".join(f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables))
        connection.exec_driver_sql(f"{rows}; ALTER SEQUENCE shards_id_seq RESTART")
        return True

    def _drop(self, name: str) -> None:
        if name in self._emptying:
            self._emptying.pop(name).dispose()
        self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def _make(self, end: str = "") -> str:
        name = f"cairn_test_{uuid4().hex[:16]}"
        self._run(f"CREATE DATABASE {name}{end}")
        return name

    def _run(self, statement: str) -> None:
        with self._engine.connect() as connection:
            connection.execute(text(statement))

    def _url(self, name: str) -> str:
        return self._server.set(database=name).render_as_string(hide_password=False)
