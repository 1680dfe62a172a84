"""What exists: documents with their pages and blocks, shards, jobs, collections, questions and answers, accounts.

    catalogue = Catalogue.open("sqlite:////home/me/cairn/cairn.sqlite3")     # migrates, after a backup, if needed
    submitted = catalogue.add_document(NewDocument(...))         # document + queued job, or "already stored"
    job = catalogue.claim_next_job(worker)
    catalogue.commit_shard(document_id, shard, blocks, job_id=job.id, progress=JobProgress(...))    # now these exist
    catalogue.finish_document(document_id, job_id=job.id)                    # now it is searched

Every method is one transaction: done when it returns, or not at all. Values go in and come out as the frozen
dataclasses of `storage.records`. Safe for threads; several processes may share one catalogue.
"""

from __future__ import annotations

from pathlib import Path

from storage.catalogue.answers import AnswerTables
from storage.catalogue.collections import CollectionTables
from storage.catalogue.database import Database
from storage.catalogue.documents import DocumentTables
from storage.catalogue.jobs import JobTables
from storage.catalogue.memory import MemoryTables
from storage.catalogue.upgrade import backup, bring_up_to_date
from storage.catalogue.users import UserTables

__all__ = ["Catalogue"]


class Catalogue(DocumentTables, CollectionTables, MemoryTables, JobTables, AnswerTables, UserTables):
    """All tables behind one object; see the module."""

    def __init__(self, database: Database):
        self.database = database

    @classmethod
    def open(cls, database_url: str) -> Catalogue:
        """Open the catalogue, or make it; pending migrations are run after a backup beside it.

        Raises `CatalogueTooNew` if a newer release made it, `ValueError` for an address that cannot be used.
        """
        database = Database(database_url)
        bring_up_to_date(database)
        return cls(database)

    def backup(self, path: Path) -> Path:
        """Copy the (SQLite) catalogue to `path` while it is in use."""
        return backup(self.database, path)

    def close(self) -> None:
        self.database.close()
