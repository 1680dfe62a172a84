"""Keeps a library sound: verifying, repairing, sweeping, backups, and figures for its operator."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import threading
from collections.abc import Callable
from typing import Any

import torch

from retrieval.engine.workspace import LoadedModel
from retrieval.errors import CairnError, catalogue_errors
from retrieval.ingest import maintenance
from retrieval.ingest.file_store import free_bytes
from retrieval.jobs import Jobs
from retrieval.types.records import Figures, GcReport, RepairReport, VerifyReport
from retrieval.view import View
from retrieval.writers.opening import writer_report
from storage.backups import keep_backup_meanwhile
from storage.errors import NotFound as NoRow
from storage.trash import GRACE_SECONDS

_LITTLE_SPACE = 1 << 30
_FAILURES_SHOWN = 5
_QUESTION_BYTES = 130_000_000
"""RAM of a question of 4,000 characters at work; waiting ones take next to none."""
_NOT_YOURS = "The model or the memory cannot be used at the moment. `cairn doctor` tells the administrator why."


class Maintenance:
    """For the administrator: all methods but `doctor` and `keep_backup` raise `PermissionDenied` for a user."""

    def __init__(self, view: View):
        self.view = view
        self._backup: threading.Thread | None = None

    def verify(self, *, texts: bool = False) -> VerifyReport:
        """Re-derive every checksum; name what is damaged or orphaned. `texts`: also read every original anew, and
        compare its text with the stored one."""
        self.view.check_administrator()
        return maintenance.verify(self.view.workspace, texts=texts)

    def repair(self, *, reingest: bool = False, later: bool = False) -> RepairReport:
        """Make damaged parts of the memory again; `reingest`: also read all documents again that were read by another
        model, or by an older version that left out something; `later`: in the background, by whoever works on the
        queue."""
        self.view.check_administrator()
        workspace, index = self.view.workspace, self.view.index
        if not reingest:
            return maintenance.repair(workspace, index)
        run = None if later else Jobs(self.view).run
        return maintenance.reingest(workspace, index, self.view.passages.forget, run)

    def gc(self, *, grace_seconds: float = GRACE_SECONDS) -> GcReport:
        """Sweep files that no row names into the trash, and empty it of what was swept that long ago; 0: of everything,
        and of all backups that hold deleted documents. Raises `storage.errors.CatalogueUnavailable`."""
        self.view.check_administrator()
        return maintenance.gc(self.view.workspace, self.view.index, grace_seconds)

    def index_blocks(self, go_on: Callable[[], bool] = lambda: True) -> int:
        """Index the terms of stored blocks, and make their vectors, where an older release stored them without, as long
        as `go_on`. Returns the number of shards indexed."""
        # The model's libraries take seconds to import.
        from retrieval.index.inverted_index import index_terms
        from retrieval.index.vectors import index_vectors

        self.view.check_administrator()
        workspace = self.view.workspace
        with catalogue_errors():
            return index_terms(workspace, go_on=go_on) + index_vectors(workspace, go_on=go_on)

    @catalogue_errors()
    def figures(self) -> Figures:
        """Counts and sizes, for the metrics of a server. Cheap."""
        self.view.check_administrator()
        totals = self.view.catalogue.totals()
        return Figures(
            jobs=self.view.catalogue.num_jobs_by_state(),
            num_documents=totals.num_documents,
            num_tokens=totals.num_tokens,
            stored_bytes=totals.size_bytes,
            resident_bytes=self.view.index.size_bytes,
            free_bytes=free_bytes(self.view.workspace),
        )

    def doctor(self) -> dict[str, Any]:
        """What this machine and this library can do, and what is wrong; JSON-able. `problems` are sentences, empty when
        all is well. Users get nothing about the machine, and no paths.

        A checkpoint as writer is tried once (see `writer_report`), which takes about a minute.
        """
        workspace, index, writer = self.view.workspace, self.view.index, self.view.writers.writer
        administrator = workspace.catalogue.principal.is_administrator
        problems: list[str] = []
        model: dict[str, Any] = {}
        try:
            model = _model(workspace.loaded(any_memory=True))
            workspace.check_memory()
        except CairnError as error:
            problems.append(str(error) if administrator else _NOT_YOURS)
        except (OSError, ValueError) as error:
            problems.append(f"The model cannot be loaded: {error}" if administrator else _NOT_YOURS)
        written: dict[str, Any] = {}
        if writer is not None:
            written, its_problems = writer_report(writer, workspace.home)
            problems += its_problems
        free = free_bytes(workspace)
        if free < _LITTLE_SPACE:
            where = str(workspace.home) if administrator else "the library"
            problems.append(f"Only {free / 1e6:,.0f} MB are free on the disk of {where}.")
        failed = [job for job in workspace.catalogue.jobs(limit=200) if job.state == "failed"]
        for job in failed[:_FAILURES_SHOWN]:
            with contextlib.suppress(NoRow):  # the document was deleted since the jobs were listed
                source = workspace.catalogue.document(job.document_id).source
                problems.append(f"{source} could not be read: {job.error}")
        if not administrator:
            model.pop("source", None)
        administrators = {
            "machine": _machine(),
            "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "faiss-cpu")},
            "home": str(workspace.home),
            "index": {"kind": index.kind, "resident_bytes": index.size_bytes, **index.expected_bytes()},
            "bytes_per_question_at_work_at_most": _QUESTION_BYTES,
        }
        return {
            **(administrators if administrator else {}),
            "free_bytes": free,
            "model": model,
            **({"writer": written} if written else {}),
            "memory": vars(workspace.catalogue.totals()) | {"kv_dtype": workspace.kv_dtype_in_use},
            "problems": problems,
        }

    def keep_backup(self) -> threading.Thread:
        """Copy the catalogue in the background if it changed since its last copy; closing the library waits for it."""
        self._backup = keep_backup_meanwhile(self.view.catalogue.database)
        return self._backup

    def finish_backup(self) -> None:
        """Wait for the copy that was begun."""
        if self._backup is not None:
            self._backup.join()


def _model(loaded: LoadedModel) -> dict[str, Any]:
    model, config = loaded.model, loaded.model.config
    return {
        "source": model.source,
        "device": str(model.device),
        "dtype": str(model.dtype).removeprefix("torch."),
        "layers": model.num_layers,
        "memory_layers": list(model.memory_layers),
        "heads": model.num_heads,
        "kv_heads": model.num_kv_heads,
        "block_size": config.block_size,
        "bytes_per_token": round(loaded.layout.block_bytes / config.tokens_per_block),
        "identity": loaded.fingerprint.digest,
        "calibrated": loaded.ranker.is_calibrated,
    }


def _machine() -> dict[str, Any]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": pages,
        "gpus": gpus,
    }
