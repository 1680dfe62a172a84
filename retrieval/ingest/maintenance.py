"""Looking after a library: deleting, verifying, repairing, clearing up, and saying what the machine can do."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from retrieval.engine.workspace import Workspace
from retrieval.errors import CairnError, NotFound
from retrieval.index.snapshot import MemoryIndex
from retrieval.ingest.file_store import INCOMING, abandoned_files, free_bytes, original_of, stored_sha256
from retrieval.query.passage_builder import PassageBuilder
from retrieval.types.records import DamageReport, Deleted, GcReport, Job, RepairReport, VerifyReport
from storage import maintenance as storage_upkeep
from storage.errors import NotFound as NoRow
from storage.errors import StorageError
from storage.records import DeletedDocuments, Shard


def delete(workspace: Workspace, resident: MemoryIndex, sources: PassageBuilder, rows: DeletedDocuments) -> Deleted:
    """Remove the files of documents whose rows are gone; files that a question still reads go when it is answered."""
    sources.forget(rows.document_ids)
    resident.forget_shards(rows.shards)
    originals = [workspace.original(name) for name in rows.stored_files]
    freed = sum(_size(workspace.kv_folder / name) for name in rows.shards) + sum(_size(path) for path in originals)
    freed += sum(_folder_size(workspace.pages_folder / document_id) for document_id in rows.document_ids)

    def unlink() -> None:
        workspace.store.delete(rows.shards)
        for path in originals:
            path.unlink(missing_ok=True)
            for incoming in workspace.files_folder.glob(f"{INCOMING}*-{path.name}"):
                incoming.unlink(missing_ok=True)
        for document_id in rows.document_ids:
            shutil.rmtree(workspace.pages_folder / document_id, ignore_errors=True)

    resident.when_unread(unlink)
    return Deleted(len(rows.document_ids), rows.num_blocks, rows.num_answers, freed)


def verify(workspace: Workspace) -> VerifyReport:
    """Re-derives the checksum of every shard, block and original, and lists files that no row knows."""
    began = time.monotonic()
    report = storage_upkeep.verify(workspace.catalogue, workspace.kv_folder)
    damage = [
        DamageReport(each.document_id, each.source, each.shard, str(found))
        for each in report.damaged
        for found in each.damages
    ]
    damage += [DamageReport("", "catalogue", "", problem) for problem in report.problems]
    for document in workspace.catalogue.documents():
        if (reason := _original_damage(workspace, document.id, document.content_sha256)) and _exists(
            workspace, document.id
        ):
            damage.append(DamageReport(document.id, document.source, "", reason))
    return VerifyReport(
        documents=report.num_documents,
        shards=report.num_shards,
        blocks=report.num_blocks,
        size_bytes=report.size_bytes,
        seconds=time.monotonic() - began,
        damage=tuple(damage),
        orphans=tuple(_orphans(workspace)),
    )


def _exists(workspace: Workspace, document_id: str) -> bool:
    """Whether nobody has deleted the document meanwhile."""
    try:
        workspace.catalogue.document(document_id)
    except NoRow:
        return False
    return True


def _original_damage(workspace: Workspace, document_id: str, content_sha256: str) -> str:
    try:
        path = original_of(workspace, document_id)
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != stored_sha256(path.name, content_sha256):
                return "the original file has changed since it was added; delete the document and add it again"
    except NotFound:
        return "the original file is missing; its memory still answers, but it cannot be read again"
    except OSError as error:
        return f"the original file cannot be read: {error.strerror}"
    return ""


def _orphans(workspace: Workspace) -> list[str]:
    shards, images = _orphaned_shards(workspace), _orphaned_images(workspace)
    return [f"kv/{name}" for name in shards] + [
        _name(workspace, path) for path in (*abandoned_files(workspace), *images)
    ]


def _name(workspace: Workspace, path: Path) -> str:
    return path.relative_to(workspace.home).as_posix() if path.is_relative_to(workspace.home) else str(path)


def _orphaned_shards(workspace: Workspace) -> list[str]:
    """Files of the store that no row names and that no writer is about to commit."""
    return storage_upkeep.orphans(workspace.catalogue, workspace.kv_folder)


def _orphaned_images(workspace: Workspace) -> list[Path]:
    folders = sorted(workspace.pages_folder.iterdir())  # before the rows: a document made meanwhile is then known
    known = {document.id for document in workspace.catalogue.documents()}
    return [path for path in folders if path.name not in known]


def gc(workspace: Workspace, resident: MemoryIndex) -> GcReport:
    """Removes orphans and old backups, and gives the catalogue's unused pages back. What an open question still reads
    goes when it is answered."""
    workspace.catalogue.recover_jobs()
    shards = _orphaned_shards(workspace)
    removed = [f"kv/{name}" for name in shards]
    freed = sum(_size(workspace.kv_folder / name) for name in shards)
    resident.when_unread(partial(workspace.store.delete, shards))
    for path in abandoned_files(workspace):
        freed += _size(path)
        path.unlink(missing_ok=True)
        removed.append(_name(workspace, path))
    for path in _orphaned_images(workspace):
        freed += _folder_size(path)
        shutil.rmtree(path, ignore_errors=True)
        removed.append(_name(workspace, path))
    rest = storage_upkeep.collect_garbage(workspace.catalogue, workspace.kv_folder)
    removed += [_name(workspace, path) for path in rest.files]
    return GcReport(tuple(removed), freed + rest.freed_bytes)


def repair(workspace: Workspace, resident: MemoryIndex) -> RepairReport:
    """Makes damaged shards again, in order, from the tokens in the catalogue; blocks keep their numbers."""
    began = time.monotonic()
    damaged: dict[str, list[str]] = {}
    for each in storage_upkeep.verify(workspace.catalogue, workspace.kv_folder).damaged:
        damaged.setdefault(each.document_id, []).append(each.shard)
    repaired: list[str] = []
    failed: list[tuple[str, str]] = []
    blocks = 0
    for document_id, names in damaged.items():
        source = document_id
        try:
            source = workspace.catalogue.document(document_id).source
            for shard in workspace.catalogue.shards(document_id):
                if shard.name in names:
                    _remake(workspace, resident, shard)
                    blocks += shard.num_blocks
        except NoRow:
            continue  # deleted meanwhile, or made again by somebody else: nothing of it is left to repair
        except (CairnError, StorageError, ValueError) as error:
            failed.append((source, str(error)))
        else:
            repaired.append(source)
    return RepairReport(tuple(repaired), tuple(failed), blocks, time.monotonic() - began)


def _remake(workspace: Workspace, resident: MemoryIndex, shard: Shard) -> None:
    from retrieval.ingest.pipeline import rebuild_shard  # the model's libraries take seconds to import

    rebuild_shard(workspace, workspace.loaded(), shard)
    resident.forget_shards([shard.name])
    resident.when_unread(partial(workspace.store.delete, [shard.name]))


def reingest(
    workspace: Workspace, resident: MemoryIndex, sources: PassageBuilder, run_job: Callable[[str], Job]
) -> RepairReport:
    """Reads every document again whose memory another model made (or none did), from its original.

    First all documents are handed over to this model, then the jobs are worked off: after a crash they go on by
    themselves.
    """
    began = time.monotonic()
    loaded = workspace.loaded(any_memory=True)
    digest = workspace.catalogue.put_fingerprint(loaded.fingerprint)
    failed: list[tuple[str, str]] = []
    for document in workspace.catalogue.documents():
        if document.fingerprint == digest:
            continue
        if reason := _original_damage(workspace, document.id, document.content_sha256):
            failed.append((document.source, reason))
            continue
        try:
            names = workspace.catalogue.reassign_model(document.id, digest, note="read again for another model")
        except NoRow:  # deleted meanwhile
            continue
        sources.forget([document.id])
        resident.forget_shards(names)
        resident.when_unread(partial(workspace.store.delete, names))
    if failed and any(document.fingerprint != digest for document in workspace.catalogue.documents()):
        return RepairReport((), tuple(failed), 0, time.monotonic() - began)
    done = []
    for job in reversed(workspace.catalogue.jobs(active_only=True)):
        with contextlib.suppress(NotFound):  # deleted meanwhile
            done.append(run_job(job.id))
    return RepairReport(
        repaired=tuple(job.source for job in done if job.state == "done"),
        failed=(*failed, *((job.source, job.error) for job in done if job.state == "failed")),
        blocks=sum(job.blocks for job in done if job.state == "done"),
        seconds=time.monotonic() - began,
    )


def doctor(workspace: Workspace, resident: MemoryIndex) -> dict[str, Any]:
    """What this machine and this library can do, and what is wrong with them."""
    problems: list[str] = []
    model: dict[str, Any] = {}
    try:
        loaded = workspace.loaded(any_memory=True)
        model = {
            "source": loaded.model.source,
            "device": str(loaded.model.device),
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "layers": loaded.model.num_layers,
            "memory_layers": list(loaded.model.memory_layers),
            "heads": loaded.model.num_heads,
            "kv_heads": loaded.model.num_kv_heads,
            "block_size": loaded.model.config.block_size,
            "bytes_per_token": round(loaded.layout.block_bytes / loaded.model.config.tokens_per_block),
            "identity": loaded.fingerprint.digest,
            "calibrated": loaded.model.config.answer_threshold is not None,
        }
        workspace.check_memory()
    except CairnError as error:
        problems.append(str(error))
    except (OSError, ValueError) as error:
        problems.append(f"The model cannot be loaded: {error}")
    free = free_bytes(workspace)
    if free < 1 << 30:
        problems.append(f"Only {free / 1e6:,.0f} MB are free on the disk of {workspace.home}.")
    failed = [job for job in workspace.catalogue.jobs(limit=200) if job.state == "failed"]
    for job in failed[:5]:
        with contextlib.suppress(NoRow):  # the document was deleted since the jobs were listed
            problems.append(f"{workspace.catalogue.document(job.document_id).source} could not be read: {job.error}")
    return {
        "machine": _machine(),
        "home": str(workspace.home),
        "free_bytes": free,
        "model": model,
        "memory": vars(workspace.catalogue.totals()) | {"kv_dtype": workspace.kv_dtype},
        "index": {"kind": resident.kind, "resident_bytes": resident.size_bytes},
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "faiss-cpu")},
        "problems": problems,
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


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _folder_size(folder: Path) -> int:
    return sum(_size(path) for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
