"""Replicas: what the servers of one library share, besides documents and accounts: values that are kept for a while,
files that wait to be started, and notifications of changes that the others made."""

from __future__ import annotations

from storage.blobs.protocol import Blobs
from storage.catalogue import Catalogue
from storage.catalogue.database import Notifications
from storage.catalogue.shared_values import CatalogueValues, Change

__all__ = ["CatalogueValues", "Change", "Replicas"]

UPLOADS = "uploads"


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
