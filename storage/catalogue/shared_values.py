"""Values that the servers of one library share for a while: sessions, failed attempts, files that wait to be started.

A value is text under a kind and a key; it expires by the clock of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from storage.catalogue import Catalogue
from storage.catalogue.database import seconds as moment_of
from storage.catalogue.schema import shared_values as values

Change: TypeAlias = Callable[[Mapping[str, str], float], Mapping[str, tuple[str, float]]]
"""Values by key, and the moment -> those that change, each with the seconds for which it is kept."""


class CatalogueValues:
    """Text under a kind and a key, in the catalogue of the administrator. `notify`: whether pages at other servers show
    them."""

    def __init__(self, catalogue: Catalogue, *, notify: bool = False):
        self._database, self._notify = catalogue.database, notify

    def put(self, kind: str, key: str, value: str, *, seconds: float, owner: str = "", most: int | None = None) -> None:
        """Keep a value, in place of the one before. Of one owner only the newest `most` of a kind are kept."""
        with self._database.write(notify=self._notify) as connection:
            now = moment_of(connection)
            connection.execute(delete(values).where(values.c.until <= now))
            _write(connection, kind, key, value, now + seconds, owner)
            if most is not None:
                theirs = (values.c.kind == kind) & (values.c.owner == owner)
                newest = select(values.c.key).where(theirs).order_by(values.c.until.desc(), values.c.key).limit(most)
                kept = connection.execute(newest).scalars().all()
                connection.execute(delete(values).where(theirs, values.c.key.not_in(kept), values.c.key != key))

    def update(self, kind: str, key: str, value: str) -> bool:
        """Another value for as long as the one before would have been kept; False if that is gone."""
        with self._database.write(notify=self._notify) as connection:
            here = _here(kind, [key], moment_of(connection))
            return connection.execute(update(values).where(here).values(value=value)).rowcount > 0

    def read(self, kind: str, keys: Sequence[str]) -> tuple[dict[str, str], float]:
        """Those that exist, and the present time."""
        with self._database.read() as connection:
            return _read(connection, kind, keys)

    def of(self, kind: str, owner: str | None) -> list[str]:
        """Those of one owner, or of all, in the order of their ends."""
        with self._database.read() as connection:
            chosen = select(values.c.value).where(values.c.kind == kind, values.c.until > moment_of(connection))
            if owner is not None:
                chosen = chosen.where(values.c.owner == owner)
            return list(connection.execute(chosen.order_by(values.c.until, values.c.key)).scalars())

    def count(self, kind: str) -> int:
        with self._database.read() as connection:
            counted = select(func.count()).where(values.c.kind == kind, values.c.until > moment_of(connection))
            return connection.execute(counted).scalar_one()

    def take(self, kind: str, key: str) -> str | None:
        """Remove the value and return it: of several callers at once, one gets it."""
        with self._database.write(notify=self._notify) as connection:
            here = _here(kind, [key], moment_of(connection))
            return connection.execute(delete(values).where(here).returning(values.c.value)).scalar()

    def change(self, kind: str, keys: Sequence[str], change: Change) -> None:
        """Change some values, given their present ones, with no other write in between. An error of `change` leaves
        them as they are."""
        with self._database.write(notify=False) as connection:
            known, now = _read(connection, kind, keys)
            connection.execute(delete(values).where(values.c.until <= now))
            for key, (value, kept_seconds) in change(known, now).items():
                _write(connection, kind, key, value, now + kept_seconds, "")


def _here(kind: str, keys: Sequence[str], now: float) -> ColumnElement[bool]:
    return (values.c.kind == kind) & values.c.key.in_(keys) & (values.c.until > now)


def _read(connection: Connection, kind: str, keys: Sequence[str]) -> tuple[dict[str, str], float]:
    now = moment_of(connection)
    found = connection.execute(select(values.c.key, values.c.value).where(_here(kind, keys, now)))
    return {row.key: row.value for row in found}, now


def _write(connection: Connection, kind: str, key: str, value: str, until: float, owner: str) -> None:
    row = {"value": value, "until": until, "owner": owner}
    same = (values.c.kind == kind) & (values.c.key == key)
    if connection.execute(update(values).where(same).values(row)).rowcount == 0:
        connection.execute(insert(values).values(row | {"kind": kind, "key": key}))
