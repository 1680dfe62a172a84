"""Durable jobs: which documents are waiting to be ingested, how far each one is, and which worker has it.

- A claimed job is a lease: it belongs to its `worker` from `started_at` on, as long as its heartbeat is not older than
  the lease's seconds. `recover_jobs` takes it from a worker that died or fell silent; the next claim has other values.
- A worker that changes a document for a job passes the `Job` that it claimed. The same transaction compares it with the
  row. So a worker that was paused or cut off, and has lost its job to another, changes nothing: `LeaseLost`.
- Times of leases are taken from one clock: the database server's, or this machine's for SQLite.
- PostgreSQL's workers claim concurrently (`FOR UPDATE SKIP LOCKED`), SQLite's one after the other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select, update

from storage.catalogue.database import clock, job_of, one_row, update_row
from storage.catalogue.permissions import Repository, for_any_principal, in_owned_document
from storage.catalogue.schema import documents, jobs, now
from storage.errors import LeaseLost
from storage.records import ADMINISTRATOR, Job, JobProgress, JobState, Principal
from storage.workers import is_alive, this_worker

ACTIVE = ("queued", "running")
MAX_ATTEMPTS = 10
_OWNED = jobs.join(documents, jobs.c.document_id == documents.c.id)
_OWNER = func.coalesce(documents.c.owner_id, "")  # what nobody owns is one person's


class JobRepository(Repository):
    """Users see the jobs of the documents they own."""

    @for_any_principal
    def job(self, job_id: str) -> Job:
        """Raises `NotFound`."""
        with self._database.read() as connection:
            return _one(connection, job_id, self.principal)

    @for_any_principal
    def jobs(self, *, active_only: bool = False, limit: int | None = None) -> list[Job]:
        """Newest first."""
        chosen = select(jobs).where(in_owned_document(jobs.c.document_id, self.principal))
        chosen = chosen.order_by(jobs.c.created_at.desc(), jobs.c.id).limit(limit)
        if active_only:
            chosen = chosen.where(jobs.c.state.in_(ACTIVE))
        return [job_of(row) for row in self._rows(chosen)]

    def claim_next_job(self, worker: str, *, idle_owners_only: bool = False) -> Job | None:
        """Take the oldest queued job of the owner whose turn it is; no two workers get the same one.

        Turns go round: owners without a running job first (with `idle_owners_only` no others), then whose last job
        began longest ago. `worker`: see `storage.workers.this_worker`.
        """
        if not self._rows(select(jobs.c.id).where(jobs.c.state == "queued").limit(1)):
            return None  # a waiting worker asks twice a second and must not hold up those who write
        with self._database.claiming, self._database.write(in_turn=False) as connection:
            for owner in _owners_in_turn(connection, idle_owners_only):
                oldest = select(jobs.c.id).select_from(_OWNED).where(jobs.c.state == "queued", _OWNER == owner)  # noqa: SIM300
                oldest = oldest.order_by(jobs.c.created_at, jobs.c.id).limit(1)
                free = oldest.with_for_update(of=jobs, skip_locked=True)  # else another worker is claiming it
                if (job_id := connection.execute(free).scalar()) is not None:
                    return _claim(connection, job_id, worker)
        return None

    def latest_job_of(self, document_id: str) -> Job | None:
        """None if no job of the document is known."""
        with self._database.read() as connection:
            return latest_job(connection, document_id)

    def others_wait(self, job_id: str) -> bool:
        """Whether somebody else than the owner of this job has one in the queue."""
        mine = select(_OWNER).where(documents.c.id == jobs.c.document_id, jobs.c.id == job_id).correlate(None)
        queued = select(jobs.c.id).select_from(_OWNED).where(jobs.c.state == "queued", mine.scalar_subquery() != _OWNER)
        return bool(self._rows(queued.limit(1)))

    @for_any_principal
    def num_active_jobs(self) -> int:
        """Queued and running."""
        own = in_owned_document(jobs.c.document_id, self.principal)
        return self._count(jobs, jobs.c.state.in_(ACTIVE) & own)

    def num_jobs_by_state(self) -> dict[str, int]:
        """How many jobs of everybody's are in each state that some job is in."""
        counted = select(jobs.c.state, func.count().label("number")).group_by(jobs.c.state)
        return {row.state: row.number for row in self._rows(counted)}

    def claim_job(self, job_id: str, worker: str) -> Job | None:
        """Take this job. Returns None if it is no longer queued. Raises `NotFound`."""
        with self._database.write(in_turn=False) as connection:
            free = _one(connection, job_id, lock=True).state == "queued"
            return _claim(connection, job_id, worker) if free else None

    def renew_lease(self, job: Job) -> bool:
        """The worker still has the job. False means stop: it is another's, or gone."""
        with self._database.write(in_turn=False) as connection:
            renewed = update(jobs).where(_held(job)).values(heartbeat_at=clock(connection))
            return connection.execute(renewed).rowcount > 0

    def report_progress(self, job: Job, progress: JobProgress) -> bool:
        """Record a running job's progress, which also renews its lease. False means stop: cancelled, another's or
        gone."""
        with self._database.write(in_turn=False) as connection:
            return write_progress(connection, job, progress)

    @for_any_principal
    def cancel_job(self, job_id: str) -> Job:
        """Cancel a queued job at once, ask a running one to stop, leave an ended one alone. Raises `NotFound`."""
        with self._database.write() as connection:
            job = _one(connection, job_id, self.principal, lock=True)
            if job.state == "queued":
                end(connection, job, "cancelled", note="cancelled before it began")
            elif job.state == "running":
                update_row(connection, jobs, job_id, cancel_requested=True)
            return _one(connection, job_id)

    def end_job(self, job: Job, state: JobState, *, error: str = "", note: str = "") -> Job:
        """End a job as "failed" or "cancelled"; `finish_document` ends it as "done". Raises `NotFound`, `LeaseLost`."""
        assert state in ("failed", "cancelled"), state
        with self._database.write() as connection:
            hold(connection, job)
            end(connection, job, state, error=error, note=note)
            return _one(connection, job.id)

    def release_job(self, job: Job) -> None:
        """Put a running job back into the queue because its worker must stop; the next worker resumes it. Nothing
        happens if it is another's by now."""
        with self._database.write() as connection:
            handed_back = {"state": "queued", "worker": "", "attempt": jobs.c.attempt - 1}  # not a crash
            connection.execute(update(jobs).where(_held(job)).values(handed_back))

    @for_any_principal
    def retry_job(self, job_id: str) -> Job:
        """Requeue a failed or cancelled job; it resumes after the last committed shard. Raises `NotFound`."""
        with self._database.write() as connection:
            job = _one(connection, job_id, self.principal)
            if job.state in ("failed", "cancelled"):
                queued = {"state": "queued", "error": "", "cancel_requested": False, "finished_at": None, "attempt": 0}
                update_row(connection, jobs, job_id, **queued)
                unfinished = documents.c.state.in_(("failed", "cancelled"))
                again = update(documents).where(documents.c.id == job.document_id, unfinished)
                connection.execute(again.values(state="ingesting"))
            return _one(connection, job_id)

    def recover_jobs(self, *, max_attempts: int = MAX_ATTEMPTS) -> list[Job]:
        """Requeue the running jobs whose worker died or let its lease expire; workers call it before they claim.

        A job that was lost `max_attempts` times without committing a shard in between fails instead: its file may be
        what brings the workers down. Writes only if there is such a job, so that nobody waits for writers.
        """
        with self._database.read() as connection:
            if not self._abandoned(connection):
                return []
        with self._database.write() as connection:
            lost = self._abandoned(connection, lock=True)
            for job in lost:
                if job.cancel_requested:
                    end(connection, job, "cancelled", note="cancelled")
                elif job.attempt >= max_attempts:
                    why = f"The process died {job.attempt} times while working on this document, or fell silent. "
                    why += "The file itself may be the cause; a retry tries again."
                    end(connection, job, "failed", error=why)
                else:
                    update_row(connection, jobs, job.id, state="queued", worker="")
            return [_one(connection, job.id) for job in lost]

    def _abandoned(self, connection: Connection, *, lock: bool = False) -> list[Job]:
        """Running jobs of workers of this machine that ended, and those with an expired lease. A job of this process
        is not given up: it lives, and its heartbeat is only late."""
        running = select(jobs).where(jobs.c.state == "running")
        found = map(job_of, connection.execute(running.with_for_update(skip_locked=True) if lock else running).all())
        of_others = [job for job in found if job.worker != this_worker()]
        if not of_others:
            return []
        moment = datetime.fromisoformat(connection.execute(select(clock(connection))).scalar_one())
        return [job for job in of_others if is_alive(job.worker) is False or self._is_expired(job, moment)]

    def _is_expired(self, job: Job, moment: datetime) -> bool:
        """Also a heartbeat that is yet to come: the clock was set back."""
        if job.heartbeat_at is None:
            return True
        seconds = (moment - datetime.fromisoformat(job.heartbeat_at)).total_seconds()
        return abs(seconds) > self._database.lease_seconds


def _owners_in_turn(connection: Connection, idle_owners_only: bool) -> list[str]:
    """Those with a queued job: see `claim_next_job`."""

    def of_state(state: str) -> dict[str, str]:
        """By owner: when the first of their jobs in this state was queued."""
        first = select(_OWNER, func.min(jobs.c.created_at)).select_from(_OWNED)
        return {owner: at for owner, at in connection.execute(first.where(jobs.c.state == state).group_by(_OWNER))}

    waiting, working = of_state("queued"), of_state("running")
    if idle_owners_only:
        waiting = {owner: at for owner, at in waiting.items() if owner not in working}
    begun = select(_OWNER, func.max(jobs.c.started_at)).select_from(_OWNED).where(_OWNER.in_(waiting)).group_by(_OWNER)
    last_turn = {owner: at or "" for owner, at in connection.execute(begun)} if len(waiting) > 1 else {}
    return sorted(waiting, key=lambda owner: (owner in working, last_turn.get(owner, ""), waiting[owner]))


def insert_job(connection: Connection, document_id: str, *, note: str = "") -> Job:
    """Queue a job inside the caller's transaction."""
    inserted = insert(jobs).values(document_id=document_id, note=note).returning(jobs)
    return job_of(connection.execute(inserted).one())


def latest_job(connection: Connection, document_id: str) -> Job | None:
    newest = select(jobs).where(jobs.c.document_id == document_id).order_by(jobs.c.created_at.desc()).limit(1)
    row = connection.execute(newest).first()
    return None if row is None else job_of(row)


def take_back(connection: Connection, document_id: str) -> bool:
    """Inside the caller's transaction: the document's active job waits again, from the beginning, and whoever works on
    it has lost its lease. False if there is none."""
    active = (jobs.c.document_id == document_id) & jobs.c.state.in_(ACTIVE)
    again = {"state": "queued", "worker": "", "attempt": 0, "cancel_requested": False}
    return connection.execute(update(jobs).where(active).values(again)).rowcount > 0


def write_progress(connection: Connection, job: Job, progress: JobProgress) -> bool:
    """Inside the caller's transaction. False means that the job should stop."""
    reported = update(jobs).where(_held(job)).values(**vars(progress), heartbeat_at=clock(connection))
    return connection.execute(reported.returning(jobs.c.cancel_requested)).scalar() is False


def hold(connection: Connection, job: Job | None) -> None:
    """Inside the caller's transaction, until whose end nobody else can take the job. Raises `LeaseLost` if it is not
    the caller's any more, `NotFound` if it is gone. None: no job is concerned."""
    if job is None:
        return
    if connection.execute(select(jobs.c.id).where(_held(job)).with_for_update()).first() is None:
        raise LeaseLost(job.id, _one(connection, job.id).worker)


def _held(job: Job) -> ColumnElement[bool]:
    """Whether the row is still that of this claim."""
    mine = (jobs.c.worker == job.worker) & (jobs.c.started_at == job.started_at)
    return and_(jobs.c.id == job.id, jobs.c.state == "running", mine)


def end(connection: Connection, job: Job, state: JobState, *, error: str = "", note: str = "") -> None:
    """Inside the caller's transaction. An unfinished document becomes failed or cancelled with its job."""
    values = {"state": state, "error": error, "note": note or job.note, "finished_at": now(), "eta_seconds": None}
    update_row(connection, jobs, job.id, **values)
    if state != "done":
        unfinished = (documents.c.id == job.document_id) & (documents.c.state == "ingesting")
        connection.execute(update(documents).where(unfinished).values(state=state))


def _claim(connection: Connection, job_id: str, worker: str) -> Job:
    moment = clock(connection)
    values: dict[str, Any] = {"state": "running", "worker": worker, "attempt": jobs.c.attempt + 1}
    values |= {"started_at": moment, "heartbeat_at": moment, "cancel_requested": False, "error": ""}
    update_row(connection, jobs, job_id, **values)
    return _one(connection, job_id)


def _one(connection: Connection, job_id: str, principal: Principal = ADMINISTRATOR, *, lock: bool = False) -> Job:
    chosen = select(jobs).where(jobs.c.id == job_id, in_owned_document(jobs.c.document_id, principal))
    return job_of(one_row(connection, chosen.with_for_update(of=jobs) if lock else chosen, "job", job_id))
