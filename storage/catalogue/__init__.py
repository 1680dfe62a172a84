"""What exists: documents with their pages and blocks, shards, jobs, collections, answers, accounts, followed folders.

    catalogue = Catalogue.open("sqlite:////home/me/cairn/cairn.sqlite3")     # backs up and migrates if needed
    ann = catalogue.acting_for(Principal(user.id, user.name))                # what this user may see and change
    submitted = ann.add_document(NewDocument(...))               # document + queued job, or "already stored"
    job = catalogue.claim_next_job(worker)                       # a lease: `renew_lease` keeps it
    catalogue.commit_shard(document_id, shard, blocks, job=job, progress=JobProgress(...))    # now these exist
    catalogue.finish_document(document_id, job=job)              # now it is searched

Every method is one transaction: complete when it returns, or without effect. Values are the frozen dataclasses of
`storage.records`. `storage.catalogue.permissions` decides who may do what. Threads and processes may share a catalogue.
"""

from __future__ import annotations

from pathlib import Path

from storage.blobs.protocol import Blobs
from storage.catalogue.answers import AnswerRepository
from storage.catalogue.collections import CollectionRepository
from storage.catalogue.database import LEASE_SECONDS, Database
from storage.catalogue.documents import DocumentRepository
from storage.catalogue.folders import FolderRepository
from storage.catalogue.home import Home
from storage.catalogue.jobs import JobRepository
from storage.catalogue.memory import MemoryRepository
from storage.catalogue.properties import PropertyRepository
from storage.catalogue.search import SearchRepository
from storage.catalogue.users import UserRepository
from storage.migrations.upgrade import bring_up_to_date
from storage.records import ADMINISTRATOR, Principal

__all__ = ["LEASE_SECONDS", "Catalogue"]


class Catalogue(
    DocumentRepository,
    CollectionRepository,
    MemoryRepository,
    JobRepository,
    AnswerRepository,
    UserRepository,
    FolderRepository,
    PropertyRepository,
    SearchRepository,
):
    """All repositories as one object; see the module docstring."""

    @classmethod
    def open(
        cls,
        place: str | Path,
        home: Path | None = None,
        *,
        blobs: Blobs | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Catalogue:
        """Open or create the catalogue at `place` (see `Database`) for the administrator; a backup precedes pending
        migrations.

        `home` is the folder of the memory that it must belong to; without it nothing is compared. `blobs`: where that
        memory lies, if not there. `lease_seconds`: how long a worker may be silent before its job is given to another;
        the same for all who share the catalogue. Raises `CatalogueUnavailable`: `ForeignCatalogue` if it belongs to
        another home or is not the newest, `CatalogueTooNew` if a newer release made it; `ValueError` for a URL that
        cannot be used.
        """
        database = Database(place)
        database.lease_seconds = lease_seconds
        try:
            if home is None:
                bring_up_to_date(database)
            else:
                own = Home(home, blobs)
                database.while_open.enter_context(own.used())
                own.check(database)
                bring_up_to_date(database)
                own.bind(database)
                database.on_progress = own.note
        except BaseException:
            database.close()
            raise
        database.keep_room()
        return cls(database, ADMINISTRATOR)

    def acting_for(self, principal: Principal) -> Catalogue:
        """The same catalogue for another principal."""
        return Catalogue(self._database, principal)

    @property
    def database(self) -> Database:
        """Raises `PermissionDenied`."""
        self.require_administrator()
        return self._database

    def close(self) -> None:
        self._database.close()
