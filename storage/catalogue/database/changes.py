"""What other processes change in the catalogue, as news: a server shows it to those who look at its pages.

PostgreSQL sends it (LISTEN, NOTIFY). SQLite's processes count their writes in the file, and whoever wants to know
looks.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from storage.catalogue.database.connection import CHANNEL, NOTICE_CUT, Database
from storage.errors import CatalogueUnavailable

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5  # of SQLite: between one look and the next
AGAIN_SECONDS = 2.0  # after the server was lost


class News:
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
        """Unless it is closed meanwhile."""
        self._closed.wait(seconds)

    def wait(self) -> list[str]:
        """Waits for about half a second; returns what came. "": something changed, or may have while nothing was heard;
        anything else is a message of another server (`Database.announce`)."""
        if self.closed:
            self._hang_up()
            return []
        try:
            return self._look() if self._database.is_sqlite else self._listen()
        except CatalogueUnavailable as error:
            log.warning("News of the catalogue have to wait: %s", error)
            self._closed.wait(AGAIN_SECONDS)
            return [""]

    def _look(self) -> list[str]:
        if self._closed.wait(LOOK_SECONDS):
            return []
        others = self._others()
        news = [""] if others != self._seen else []
        self._seen = others
        return news

    def _others(self) -> int:
        """How many writes were not this process's own."""
        told_here = self._database.told_here  # first: a write of ours meanwhile counts as another's, once
        with self._database.read() as connection:
            return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one()) - told_here

    def _listen(self) -> list[str]:
        import psycopg

        try:
            if self._listening is None:
                self._listening = self._call()
                return [""]  # since the last connection there may have been some
            came = [note.payload for note in self._listening.notifies(timeout=LOOK_SECONDS, stop_after=1)]
            came += [note.payload for note in self._listening.notifies(timeout=0)]
        except psycopg.Error as error:
            log.warning("News of the catalogue have to wait: %s", error)
            self._hang_up()
            self._closed.wait(AGAIN_SECONDS)
            return [""]
        told = [payload.partition(" ") for payload in came]
        return list(dict.fromkeys(message for teller, _, message in told if teller != self._database.teller))

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
