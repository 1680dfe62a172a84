"""The fake library with the parts that only the command line uses: jobs that run here, and upkeep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from retrieval.types.records import ALREADY_STORED, DamageReport, GcReport, Job, RepairReport, VerifyReport
from tests.app.fake_library import FakeLibrary


class CliLibrary(FakeLibrary):
    """`broken` names sources whose job fails; `damage` and `orphans` are what upkeep finds."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()
        self.damage: tuple[DamageReport, ...] = ()
        self.orphans: tuple[str, ...] = ()
        self.closed = 0
        self.reingested = False
        self.kept_in = ""

    def submit(
        self, path: Path, *, collection: str | None = None, source: str | None = None, password: str | None = None
    ) -> Job:
        name = source or Path(path).name
        stored = [one for one in self.document_rows.values() if one.source == name and one.state == "ready"]
        if stored:
            one = stored[0]
            return Job(
                "again", one.id, name, one.collection_id, "done", "", one.pages, one.pages, one.tokens, one.tokens,
                one.blocks, one.size_bytes, 0.0, None, 0.0, "", ALREADY_STORED + self.kept_in, "",
            )  # fmt: skip
        return super().submit(path, collection=collection, source=source, password=password)

    def run_job(self, job_id: str, *, on_progress: Callable[[Job], None] = lambda job: None) -> Job:
        job = self.job(job_id)
        if job.source in self.broken:
            self.document_rows.pop(job.document_id)
            reason = "Page 2 is damaged: its content stream cannot be read."
            self.job_rows[job_id] = replace(job, state="failed", error=reason)
            return self.job_rows[job_id]
        while (now := self.deliver()) is not None:
            job = now
            on_progress(now)
        return job

    def run_next_job(
        self, *, on_progress: Callable[[Job], None] = lambda job: None, idle_owners_only: bool = False
    ) -> Job | None:
        if idle_owners_only:  # there is one owner, whose jobs another thread works off
            return None
        waiting = [job for job in self.job_rows.values() if job.active]
        return self.run_job(waiting[0].id, on_progress=on_progress) if waiting else None

    def verify(self) -> VerifyReport:
        return VerifyReport(len(self.document_rows), 3, 27, 4_000_000, 0.1, self.damage, self.orphans)

    def repair(self, *, reingest: bool = False) -> RepairReport:
        self.reingested = reingest
        repaired = tuple(one.document_id for one in self.damage if one.detail != "hopeless")
        failed = tuple((one.document_id, "The original is gone.") for one in self.damage if one.detail == "hopeless")
        return RepairReport(repaired, failed, 9 * len(repaired), 0.2)

    def gc(self) -> GcReport:
        return GcReport(self.orphans, 1000 * len(self.orphans))

    def close(self) -> None:
        self.closed += 1

    def __enter__(self) -> CliLibrary:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
