"""The queue of files that wait to be read, and its processing."""

from __future__ import annotations

from collections.abc import Callable

from retrieval.errors import catalogue_errors
from retrieval.ingest import file_store
from retrieval.types.records import Job
from retrieval.view import View
from storage.records import ADMINISTRATOR
from storage.records import Job as JobRow


class Jobs:
    """Those of the documents that one user may see; all methods raise `NotFound` for any other job."""

    def __init__(self, view: View):
        self.view, self._catalogue = view, view.catalogue

    @catalogue_errors()
    def get(self, job_id: str) -> Job:
        return self.view.job(self._catalogue.job(job_id))

    def run(self, job_id: str, *, on_progress: Callable[[Job], None] = lambda job: None) -> Job:
        """Do one job in this thread; it resumes at the last committed shard. Never raises for an error of the file."""
        from retrieval.ingest.pipeline import claim

        self.get(job_id)  # not found for whom it does not concern
        with catalogue_errors():
            claimed = claim(self.view.whole, job_id)
        return self.get(job_id) if claimed is None else self._run(claimed, on_progress)

    def run_next(
        self, *, on_progress: Callable[[Job], None] = lambda job: None, idle_owners_only: bool = False
    ) -> Job | None:
        """Work off the oldest waiting job of the owner whose turn it is, if there is one.

        A long one is queued again after its turn if others wait. `idle_owners_only`: of an owner with no running job.
        Raises PermissionDenied for a user.
        """
        from retrieval.ingest.pipeline import claim_next

        self.view.check_administrator()
        claimed = claim_next(self.view.whole, idle_owners_only=idle_owners_only)
        return None if claimed is None else self._run(claimed, on_progress, gives_way=True)

    def _run(self, claimed: JobRow, on_progress: Callable[[Job], None], *, gives_way: bool = False) -> Job:
        from retrieval.ingest.pipeline import Ingestion

        whole = self.view.as_seen_by(ADMINISTRATOR)

        def notify(row: JobRow) -> None:
            on_progress(whole.job(row))

        ended = Ingestion(whole.workspace, claimed, notify, gives_way=gives_way).run()
        if ended.state == "done":
            from retrieval.writers.passages import prefetch

            open_writer = lambda: whole.writers.writer  # noqa: E731
            prefetch(whole.workspace, whole.passages, open_writer, ended.document_id, lambda: notify(ended))
        return whole.job(ended)

    @catalogue_errors()
    def cancel(self, job_id: str) -> Job:
        """A running job stops within one pass. What it stored stays, unseen, until the job is retried or the document
        deleted."""
        return self.view.job(self._catalogue.cancel_job(job_id))

    @catalogue_errors()
    def retry(self, job_id: str, *, password: str | None = None) -> Job:
        """Queue a failed or cancelled job again; it goes on where it stopped. `password` unlocks its PDF for good (the
        kept copy needs none any more). Raises ExtractError."""
        if password is not None:
            file_store.unlock_original(self.view.whole, self._catalogue.job(job_id), password)
        return self.view.job(self._catalogue.retry_job(job_id))

    def num_active(self) -> int:
        """Queued and running."""
        return self._catalogue.num_active_jobs()

    def list(self, *, active_only: bool = False, limit: int | None = 200) -> list[Job]:
        """Newest first; `limit` None: all."""
        return [self.view.job(row) for row in self._catalogue.jobs(active_only=active_only, limit=limit)]
