"""Keeping a library sound: verifying, repairing, sweeping, backing up, and what whoever runs it watches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from retrieval import doctor
from retrieval.errors import catalogue_errors
from retrieval.ingest import maintenance
from retrieval.ingest.file_store import free_bytes
from retrieval.jobs import Jobs
from retrieval.types.records import Figures, GcReport, RepairReport, VerifyReport
from retrieval.view import View
from storage.backups import keep_backup_meanwhile
from storage.trash import GRACE_SECONDS


class Maintenance:
    """The administrator's business: all but `doctor` and `keep_backup` raise `PermissionDenied` for a user."""

    def __init__(self, view: View):
        self._view = view
        self._backup: threading.Thread | None = None

    def verify(self, *, texts: bool = False) -> VerifyReport:
        """Re-derive every checksum; name what is damaged or orphaned. `texts`: also read every original anew, and
        compare its text with the stored one."""
        self._view.check_administrator()
        return maintenance.verify(self._view.workspace, texts=texts)

    def repair(self, *, reingest: bool = False) -> RepairReport:
        """Make damaged parts of the memory again; `reingest`: read all documents again that another model has read, or
        an older version that left out what is read now."""
        self._view.check_administrator()
        workspace, index = self._view.workspace, self._view.index
        if not reingest:
            return maintenance.repair(workspace, index)
        return maintenance.reingest(workspace, index, self._view.passages.forget, Jobs(self._view).run)

    def gc(self, *, grace_seconds: float = GRACE_SECONDS) -> GcReport:
        """Sweep files that no row knows into the trash, and empty it of what was swept so long ago; 0: of everything,
        and of all backups that hold what was deleted. Raises `storage.errors.CatalogueUnavailable`."""
        self._view.check_administrator()
        return maintenance.gc(self._view.workspace, self._view.index, grace_seconds)

    def note_terms(self, go_on: Callable[[], bool] = lambda: True) -> int:
        """Record the words of stored blocks that lack them, as in a library of an older release, for as long as `go_on`
        says so. Returns the number of shards done."""
        from retrieval.index.rare_terms import note_terms  # the model's libraries take seconds to import

        self._view.check_administrator()
        with catalogue_errors():
            return note_terms(self._view.workspace, go_on=go_on)

    @catalogue_errors()
    def figures(self) -> Figures:
        """Cheap."""
        self._view.check_administrator()
        totals = self._view.catalogue.totals()
        return Figures(
            jobs=self._view.catalogue.num_jobs_by_state(),
            num_documents=totals.num_documents,
            num_tokens=totals.num_tokens,
            stored_bytes=totals.size_bytes,
            resident_bytes=self._view.index.size_bytes,
            free_bytes=free_bytes(self._view.workspace),
        )

    def doctor(self) -> dict[str, Any]:
        """What this machine and this library can do, and what is wrong; JSON-able. A user's speaks of what they see.

        A checkpoint as writer is tried once (see `writer_report`), which takes about a minute.
        """
        return doctor.examine(self._view.workspace, self._view.index, self._view.writers.writer)

    def keep_backup(self) -> threading.Thread:
        """Copy the catalogue in the background if it changed since its last copy; closing the library waits for it."""
        self._backup = keep_backup_meanwhile(self._view.catalogue.database)
        return self._backup

    def finish_backup(self) -> None:
        """Wait for the copy that was begun."""
        if self._backup is not None:
            self._backup.join()
