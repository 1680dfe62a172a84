"""What folders and bundles need of a library: to take files in, and to change or remove what was taken in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from retrieval.types.records import Deleted, Document, Job
from storage.records import FolderFile, Principal


class Intake(Protocol):
    """`retrieval.library.Library` documents each of these."""

    def submit(
        self,
        path: Path,
        *,
        collection: str | None = None,
        source: str | None = None,
        content_sha256: str | None = None,
        of_folder: tuple[str, FolderFile] | None = None,
    ) -> Job: ...

    def run_job(self, job_id: str, *, on_progress: Callable[[Job], None] = ...) -> Job: ...

    def rename_document(self, document_id: str, title: str) -> Document: ...

    def delete_documents(self, document_ids: Sequence[str]) -> Deleted: ...

    def as_seen_by(self, principal: Principal) -> Intake: ...
