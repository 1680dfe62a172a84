"""Durable jobs: what is to be ingested or repaired, how far it is, and who is at it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, insert, select, update

from storage.catalogue.rows import Tables, job_of, now, progress_columns
from storage.catalogue.schema import documents, jobs
from storage.catalogue.sharing import owned
from storage.errors import NotFound
from storage.records import Job, JobKind, JobProgress, JobState
from storage.workers import is_alive

ACTIVE = ("queued", "running")


class JobTables(Tables):
    def add_job(self, document_id: str, kind: JobKind, *, note: str = "") -> Job:
        """Queue work on a document; if some is queued or running already, that job is returned. Raises `NotFound`."""
        with self.database.write() as connection:
            if connection.execute(select(documents.c.id).where(documents.c.id == document_id)).first() is None:
                raise NotFound("document", document_id)
            active = select(jobs).where(jobs.c.document_id == document_id, jobs.c.state.in_(ACTIVE))
            row = connection.execute(active).first()
            return insert_job(connection, document_id, kind, note=note) if row is None else job_of(row)

    def job(self, job_id: str) -> Job:
        """Raises `NotFound`."""
        with self.database.read() as connection:
            return _one(connection, job_id)

    def jobs(
        self,
        *,
        active_only: bool = False,
        document_id: str | None = None,
        limit: int | None = None,
        owner_id: str | None = None,
    ) -> list[Job]:
        """Jobs, newest first; `owner_id`: only those of this user's documents."""
        chosen = select(jobs).order_by(jobs.c.created_at.desc(), jobs.c.id).limit(limit)
        if owner_id is not None:
            mine = select(documents.c.id).where(owned(documents.c.owner_id, owner_id))
            chosen = chosen.where(jobs.c.document_id.in_(mine))
        if active_only:
            chosen = chosen.where(jobs.c.state.in_(ACTIVE))
        if document_id is not None:
            chosen = chosen.where(jobs.c.document_id == document_id)
        with self.database.read() as connection:
            return [job_of(row) for row in connection.execute(chosen)]

    def claim_next_job(self, worker: str) -> Job | None:
        """Take the oldest queued job; no two workers get the same one. `worker`: see `storage.workers.this_worker`."""
        with self.database.write() as connection:
            oldest = select(jobs.c.id).where(jobs.c.state == "queued").order_by(jobs.c.created_at, jobs.c.id).limit(1)
            oldest = oldest.with_for_update(skip_locked=True)  # SQLite has no such thing, and one writer at a time
            job_id = connection.execute(oldest).scalar()
            return None if job_id is None else _claim(connection, job_id, worker)

    def claim_job(self, job_id: str, worker: str) -> Job | None:
        """Take this job if it is queued; None if it is not (any more). Raises `NotFound`."""
        with self.database.write() as connection:
            return _claim(connection, job_id, worker) if _one(connection, job_id).state == "queued" else None

    def report_progress(self, job_id: str, progress: JobProgress) -> bool:
        """Write down how far a running job is (this is its heartbeat). False: stop, it was cancelled or is gone."""
        with self.database.write() as connection:
            return write_progress(connection, job_id, progress)

    def cancel_job(self, job_id: str) -> Job:
        """A queued job is cancelled at once, a running one is asked to stop; others stay. Raises `NotFound`."""
        with self.database.write() as connection:
            job = _one(connection, job_id)
            if job.state == "queued":
                _end(connection, job_id, "cancelled", note="cancelled before it began")
                _mark_unfinished_document(connection, job, "cancelled")
            elif job.state == "running":
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(cancel_requested=True))
            return _one(connection, job_id)

    def end_job(self, job_id: str, state: JobState, *, error: str = "", note: str = "") -> Job:
        """A worker ends its job as "failed" or "cancelled" ("done": `finish_document`, or a repair that is complete).

        A document that was not whole yet becomes failed or cancelled with it. Raises `NotFound`.
        """
        assert state in ("done", "failed", "cancelled"), state
        with self.database.write() as connection:
            job = _one(connection, job_id)
            _end(connection, job_id, state, error=error, note=note)
            if state != "done":
                _mark_unfinished_document(connection, job, state)
            return _one(connection, job_id)

    def release_job(self, job_id: str) -> None:
        """A worker that must stop hands its running job back; whoever takes it next goes on with it."""
        with self.database.write() as connection:
            mine = (jobs.c.id == job_id) & (jobs.c.state == "running")
            handed_back = {"state": "queued", "worker": "", "attempt": jobs.c.attempt - 1}  # it did not crash
            connection.execute(update(jobs).where(mine).values(handed_back))

    def retry_job(self, job_id: str) -> Job:
        """Queue a failed or cancelled job again; it goes on behind the last committed shard. Raises `NotFound`."""
        with self.database.write() as connection:
            job = _one(connection, job_id)
            if job.state in ("failed", "cancelled"):
                queued = {"state": "queued", "error": "", "cancel_requested": False, "finished_at": None, "attempt": 0}
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(queued))
                unfinished = documents.c.state.in_(("failed", "cancelled"))
                again = update(documents).where(documents.c.id == job.document_id, unfinished)
                connection.execute(again.values(state="ingesting"))
            return _one(connection, job_id)

    def recover_jobs(self, *, max_attempts: int = 100) -> list[Job]:
        """Queue the running jobs whose worker died; call it at start. Jobs of living workers are left alone.

        One that took its worker down `max_attempts` times without committing a shard in between fails instead.
        """
        with self.database.write() as connection:
            running = [job_of(row) for row in connection.execute(select(jobs).where(jobs.c.state == "running"))]
            dead = [job for job in running if not is_alive(job.worker)]
            for job in dead:
                if job.cancel_requested:
                    _end(connection, job.id, "cancelled", note="cancelled")
                    _mark_unfinished_document(connection, job, "cancelled")
                elif job.attempt >= max_attempts:
                    why = f"The process ended {job.attempt} times while working on this document, each time unfinished."
                    _end(connection, job.id, "failed", error=why)
                    _mark_unfinished_document(connection, job, "failed")
                else:
                    connection.execute(update(jobs).where(jobs.c.id == job.id).values(state="queued", worker=""))
            return [_one(connection, job.id) for job in dead]


def insert_job(connection: Connection, document_id: str, kind: JobKind, *, note: str = "") -> Job:
    row: dict[str, Any] = {
        "id": uuid4().hex,
        "document_id": document_id,
        "kind": kind,
        "state": "queued",
        **progress_columns(JobProgress(stage="waiting")),
        "error": "",
        "note": note,
        "cancel_requested": False,
        "attempt": 0,
        "worker": "",
        "created_at": now(),
    }
    connection.execute(insert(jobs).values(row))
    return _one(connection, row["id"])


def latest_job(connection: Connection, document_id: str) -> Job | None:
    newest = select(jobs).where(jobs.c.document_id == document_id).order_by(jobs.c.created_at.desc()).limit(1)
    row = connection.execute(newest).first()
    return None if row is None else job_of(row)


def write_progress(connection: Connection, job_id: str, progress: JobProgress) -> bool:
    """Inside the caller's transaction; False if the job should stop."""
    mine = (jobs.c.id == job_id) & (jobs.c.state == "running")
    connection.execute(update(jobs).where(mine).values(**progress_columns(progress), heartbeat_at=now()))
    return connection.execute(select(jobs.c.cancel_requested).where(mine)).scalar() is False


def finish_job(connection: Connection, job_id: str, note: str) -> None:
    """Inside the caller's transaction."""
    _end(connection, job_id, "done", note=note)


def _claim(connection: Connection, job_id: str, worker: str) -> Job:
    moment = now()
    values: dict[str, Any] = {"state": "running", "worker": worker, "attempt": jobs.c.attempt + 1}
    values |= {"started_at": moment, "heartbeat_at": moment, "cancel_requested": False, "error": ""}
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(values))
    return _one(connection, job_id)


def _end(connection: Connection, job_id: str, state: JobState, *, error: str = "", note: str = "") -> None:
    values: dict[str, Any] = {"state": state, "error": error, "finished_at": now(), "eta_seconds": None}
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(values | ({"note": note} if note else {})))


def _mark_unfinished_document(connection: Connection, job: Job, state: JobState) -> None:
    unfinished = (documents.c.id == job.document_id) & (documents.c.state == "ingesting")
    connection.execute(update(documents).where(unfinished).values(state=state))


def _one(connection: Connection, job_id: str) -> Job:
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).first()
    if row is None:
        raise NotFound("job", job_id)
    return job_of(row)
