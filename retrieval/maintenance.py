"""Keeps a library sound: verifying, repairing, reading again, sweeping, backups, and figures for its operator."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from retrieval.engine.workspace import LoadedModel, Workspace, documents_folders
from retrieval.errors import CairnError, NotFound, catalogue_errors
from retrieval.extraction.extract import extract
from retrieval.extraction.formats import gains
from retrieval.ingest.file_store import abandoned_files, copy_of_original, free_bytes, original_of, stored_sha256
from retrieval.jobs import Jobs
from retrieval.types.records import DamageReport, Figures, GcReport, RepairReport, VerifyReport
from retrieval.view import View
from retrieval.writers.opening import writer_report
from storage import maintenance as storage_maintenance
from storage.backups import keep_backup, keep_backup_meanwhile
from storage.catalogue.home import Home
from storage.errors import Damage, StorageError
from storage.errors import NotFound as NoRow
from storage.records import Document
from storage.recovery import sidecars, write_sidecar
from storage.trash import GRACE_SECONDS, Trash, size_of

_LITTLE_SPACE = 1 << 30
_FAILURES_SHOWN = 5
_QUESTION_BYTES = 130_000_000
"""RAM of a question of 4,000 characters at work; waiting ones take next to none."""
_NOT_YOURS = "The model or the memory cannot be used at the moment. `cairn doctor` tells the administrator why."


class Maintenance:
    """For the administrator: all methods but `doctor` and `keep_backup` raise `PermissionDenied` for a user."""

    def __init__(self, view: View):
        self.view, self._workspace, self._catalogue = view, view.workspace, view.catalogue
        self._backup: threading.Thread | None = None

    def verify(self, *, texts: bool = False) -> VerifyReport:
        """Recompute the checksum of every shard, block and original; name what is damaged, and files that no row knows.
        `texts`: also read every original anew, and compare its text with the stored one, which is shown as evidence."""
        self.view.check_administrator()
        began = time.monotonic()
        damage = [
            DamageReport(document.id, document.source, found.shard, str(found))
            for document, found in self._damaged_shards()
        ]
        problems = storage_maintenance.catalogue_problems(self._catalogue)
        damage += [DamageReport("", "catalogue", "", problem) for problem in problems]
        documents, shards = self._catalogue.documents(), self._catalogue.shards()
        for document in documents:
            reason = _original_damage(self._workspace, document)
            if texts and not reason:
                reason = _other_text(self._workspace, document)
            if reason:
                with contextlib.suppress(NoRow):  # deleted meanwhile
                    self._catalogue.document(document.id)
                    damage.append(DamageReport(document.id, document.source, "", reason))
        return VerifyReport(
            documents=len(documents),
            shards=len(shards),
            blocks=sum(shard.num_blocks for shard in shards),
            size_bytes=sum(shard.size_bytes for shard in shards),
            seconds=time.monotonic() - began,
            damage=tuple(damage),
            orphans=tuple(_names(self._workspace, *_orphans(self._workspace))),
        )

    def _damaged_shards(self) -> list[tuple[Document, Damage]]:
        return storage_maintenance.verify(self._catalogue, self._workspace.store.blobs)

    def repair(self, *, reingest: bool = False, later: bool = False) -> RepairReport:
        """Make damaged shards again, in order, from the tokens in the catalogue; blocks keep their numbers. `reingest`:
        instead read all documents again that were read by another model, or by an older version that left out
        something; `later`: in the background, by whoever works on the queue."""
        self.view.check_administrator()
        if reingest:
            return self._reingest(later)
        # The model's libraries take seconds to import.
        from retrieval.ingest.shard_writer import rebuild_shard

        workspace, began = self._workspace, time.monotonic()
        damaged: dict[str, set[str]] = {}
        for document, found in self._damaged_shards():
            damaged.setdefault(document.id, set()).add(found.shard)
        repaired: list[str] = []
        failed: list[tuple[str, str]] = []
        blocks = 0
        for document_id, names in damaged.items():
            source = document_id
            try:
                source = self._catalogue.document(document_id).source
                for shard in self._catalogue.shards(document_id):
                    if shard.name in names:
                        rebuild_shard(workspace, workspace.loaded(), shard)
                        self._drop_shards([shard.name])
                        blocks += shard.num_blocks
            except NoRow:
                continue  # deleted meanwhile, or repaired by somebody else
            except (CairnError, StorageError, ValueError) as error:
                failed.append((source, str(error)))
            else:
                repaired.append(source)
        self.index_blocks()
        return RepairReport(tuple(repaired), tuple(failed), blocks, time.monotonic() - began)

    def _drop_shards(self, names: Sequence[str]) -> None:
        self.view.index.forget_shards(names)
        self.view.index.when_unread(partial(self._workspace.store.delete, names))

    def _reingest(self, later: bool) -> RepairReport:
        """Read every document again, from its original, whose memory was made by another model (or by none), or whose
        text lacks what its format has gained since.

        All documents are reassigned to this model first, then the jobs are run: after a crash they resume by
        themselves. `later`: they are left to the queue, whose workers read them while others are asked about.
        """
        workspace, catalogue, began = self._workspace, self._catalogue, time.monotonic()
        digest = catalogue.put_fingerprint(workspace.loaded(any_memory=True).fingerprint)
        failed: list[tuple[str, str]] = []
        for document in catalogue.documents():
            is_other = document.fingerprint != digest
            if not is_other and not _is_older(workspace, document):
                continue
            if reason := _original_damage(workspace, document):
                failed.append((document.source, reason))
                continue
            try:
                names = catalogue.reassign_model(
                    document.id, digest, note=f"read again for {'another model' if is_other else 'what is read now'}"
                )
            except NoRow:  # deleted meanwhile
                continue
            self._drop_shards(names)
        unassigned = failed and any(document.fingerprint != digest for document in catalogue.documents())
        done = []
        for job in [] if unassigned or later else reversed(catalogue.jobs(active_only=True)):
            with contextlib.suppress(NotFound):  # deleted meanwhile
                done.append(Jobs(self.view).run(job.id))
        return RepairReport(
            repaired=tuple(job.source for job in done if job.state == "done"),
            failed=(*failed, *((job.source, job.error) for job in done if job.state == "failed")),
            blocks=sum(job.blocks for job in done if job.state == "done"),
            seconds=time.monotonic() - began,
        )

    def gc(self, *, grace_seconds: float = GRACE_SECONDS) -> GcReport:
        """Sweep files that no row names into the trash, empty it of what was swept that long ago, remove old backups,
        and compact the catalogue. What an open question still reads is swept when it is answered. Documents without a
        sidecar, because a process ended before it was written, get one.

        0 seconds empty the trash of everything, and replace all backups by one that holds nothing of what was deleted.
        Raises `storage.errors.CatalogueUnavailable`: then nothing is swept.
        """
        self.view.check_administrator()
        workspace, index, database = self._workspace, self.view.index, self._catalogue.database
        storage_maintenance.require_trustworthy(database, Home(workspace.home, workspace.blobs))
        self._catalogue.recover_jobs()
        blobs, paths = _orphans(workspace)
        swept_bytes = workspace.blobs.size(blobs) + sum(map(size_of, paths))
        index.when_unread(partial(workspace.blobs.sweep, blobs))
        index.when_unread(partial(Trash(workspace.home).take, paths))
        copies = sidecars(workspace.blobs)
        for document in self._catalogue.documents():
            if document.id not in copies:
                write_sidecar(database, workspace.blobs, document.id)
        reclaim = partial(storage_maintenance.reclaim, database, workspace.home, workspace.blobs)
        if grace_seconds:
            freed_bytes = reclaim(grace_seconds=grace_seconds)
        else:
            freed_bytes = reclaim(grace_seconds=0, backups_older_than_seconds=0)
            keep_backup(database)
        return GcReport(tuple(_names(workspace, blobs, paths)), swept_bytes, freed_bytes)

    @catalogue_errors()
    def index_blocks(self, go_on: Callable[[], bool] = lambda: True) -> int:
        """Index the terms of stored blocks, and make their vectors, where an older release stored them without, as long
        as `go_on`. Returns the number of shards indexed."""
        self.view.check_administrator()
        # The model's libraries take seconds to import.
        from retrieval.index.inverted_index import index_terms
        from retrieval.index.vectors import index_vectors

        return index_terms(self._workspace, go_on=go_on) + index_vectors(self._workspace, go_on=go_on)

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


def _original_damage(workspace: Workspace, document: Document) -> str:
    try:
        name, file = copy_of_original(workspace, document.id)
        with file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != stored_sha256(name, document.content_sha256):
            return "the original file has changed since it was added; delete the document and add it again"
    except NotFound:
        return "the original file is missing; its memory still answers, but it cannot be read again"
    except OSError as error:
        return f"the original file cannot be read: {error.strerror}"
    return ""


def _other_text(workspace: Workspace, document: Document) -> str:
    """How the stored text differs from that of the original: the maker of a bundle could write what they liked."""
    if document.state != "ready":
        return ""
    try:
        read = extract(original_of(workspace, document.id), kept=workspace.pages_folder / document.id).text
    except CairnError as error:
        return f"the original cannot be read again: {error}"
    if read == workspace.catalogue.extracted_text(document.id).text:
        return ""
    return (
        "its text is not what its original says: whoever made the bundle that it came in wrote another one, or another "
        "release of Cairn read it; delete the document and add its original again"
    )


def _orphans(workspace: Workspace) -> tuple[list[str], list[Path]]:
    """What no document and no living process needs: shards, originals and sidecars in the store; of this machine only,
    unfinished copies, images and what writers made."""
    shards = storage_maintenance.orphans(workspace.catalogue, workspace.kv_folder, workspace.store.blobs)
    originals, unfinished = abandoned_files(workspace)
    # Before the rows: a document made meanwhile is then known.
    images = sorted(workspace.pages_folder.iterdir())
    copies = sidecars(workspace.blobs)
    written = documents_folders(workspace.home)
    known = {document.id for document in workspace.catalogue.documents()}
    blobs = [f"kv/{name}" for name in shards] + [f"files/{name}" for name in originals]
    blobs += [name for document_id, name in copies.items() if document_id not in known]
    return blobs, unfinished + [path for path in (*images, *written) if path.name not in known]


def _names(workspace: Workspace, blobs: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """As shown to people: relative to the home folder."""
    return [*blobs, *(path.relative_to(workspace.home).as_posix() for path in paths)]


def _is_older(workspace: Workspace, document: Document) -> bool:
    if document.state != "ready":
        return False
    return bool(gains(document.kind, workspace.catalogue.extras(document.id).get("version", 1)))


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
