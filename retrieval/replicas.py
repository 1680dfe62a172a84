"""Replicas: what the servers of one library share, besides documents and accounts: values that are kept for a while,
files that wait to be started, and notifications of changes that the others made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from storage.blobs.protocol import Blobs
from storage.catalogue import Catalogue
from storage.catalogue.database import Notifications

UPLOADS = "uploads"
Change: TypeAlias = Callable[[Mapping[str, str], float], Mapping[str, tuple[str, float]]]
"""Values by key, and the moment -> those that change, each with the seconds for which it is kept."""


class CatalogueValues:
    """Text under a kind and a key, in the catalogue. See `storage.catalogue.shared_values`; `notify`: whether pages at
    other servers show them."""

    def __init__(self, catalogue: Catalogue, *, notify: bool = False):
        self._catalogue, self._notify = catalogue, notify

    def put(self, kind: str, key: str, value: str, *, seconds: float, owner: str = "", most: int | None = None) -> None:
        """Keep a value for so many seconds, replacing that of its key. `most`: so many of an owner stay, the newest."""
        self._catalogue.put_value(kind, key, value, seconds=seconds, owner=owner, most=most, notify=self._notify)

    def update(self, kind: str, key: str, value: str) -> bool:
        """Replace a value, which expires when the old one would have; False if that is gone."""
        return self._catalogue.update_value(kind, key, value, notify=self._notify)

    def read(self, kind: str, keys: Sequence[str]) -> tuple[dict[str, str], float]:
        """Those that exist, and the present time."""
        return self._catalogue.values(kind, keys)

    def of(self, kind: str, owner: str | None) -> list[str]:
        """Those of one owner, or of all; oldest first."""
        return self._catalogue.values_of(kind, owner)

    def count(self, kind: str) -> int:
        return self._catalogue.num_values(kind)

    def take(self, kind: str, key: str) -> str | None:
        """Remove the value and return it: of several callers at once, one gets it."""
        return self._catalogue.take_value(kind, key, notify=self._notify)

    def change(self, kind: str, keys: Sequence[str], change: Change) -> None:
        """Change values with no other write in between. An error of `change` leaves everything as it is."""
        self._catalogue.change_values(kind, keys, change)


class Replicas:
    """See the module docstring. Changes to `uploads` notify the other servers, changes to `values` do not."""

    def __init__(self, catalogue: Catalogue, blobs: Blobs):
        self._database = catalogue.database
        self.values = CatalogueValues(catalogue)
        self.uploads, self.upload_files = CatalogueValues(catalogue, notify=True), blobs.inside(UPLOADS)
        self.blobs = blobs

    def notifications(self) -> Notifications:
        """Of changes by other processes from now on."""
        return Notifications(self._database)

    def announce(self, message: str) -> bool:
        """Send a message to the other servers. False where there can be none (SQLite)."""
        if self._database.is_sqlite:
            return False
        with self._database.write(in_turn=False) as connection:
            self._database.announce(connection, message)
        return True
