"""Maintenance of a library: deleting, verifying, repairing, reading again, and sweeping what nothing refers to."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from retrieval.engine.workspace import Workspace, documents_folders
from retrieval.errors import CairnError, NotFound
from retrieval.extraction.extract import extract
from retrieval.extraction.formats import gains
from retrieval.index.snapshot import MemoryIndex
from retrieval.ingest.file_store import (
    abandoned_files,
    copy_of_original,
    delete_original,
    original_of,
    stored_sha256,
)
from retrieval.types.records import DamageReport, Deleted, GcReport, Job, RepairReport, VerifyReport
from storage import maintenance as storage_maintenance
from storage.backups import keep_backup
from storage.catalogue.home import Home
from storage.errors import Damage, StorageError
from storage.errors import NotFound as NoRow
from storage.records import DeletedDocuments, Document
from storage.recovery import FOLDER as SIDECARS
from storage.recovery import sidecar_name, sidecars, write_sidecar
from storage.trash import Trash, size_of


def delete(workspace: Workspace, index: MemoryIndex, rows: DeletedDocuments) -> Deleted:
    """Remove the files of documents whose rows are gone; files that a question still reads go when it is answered."""
    index.forget_shards(rows.shards)
    folders = [workspace.pages_folder / document_id for document_id in rows.document_ids]
    folders += [
        folder for document_id in rows.document_ids for folder in documents_folders(workspace.home, document_id)
    ]
    freed = workspace.store.blobs.size(rows.shards) + workspace.originals.size(rows.stored_files)
    freed += sum(map(size_of, folders))

    def unlink() -> None:
        workspace.store.delete(rows.shards)
        workspace.blobs.inside(SIDECARS).delete(map(sidecar_name, rows.document_ids))
        for stored_file in rows.stored_files:
            delete_original(workspace, stored_file)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    index.when_unread(unlink)
    return Deleted(len(rows.document_ids), rows.num_blocks, rows.num_answers, freed)


def verify(workspace: Workspace, *, texts: bool = False) -> VerifyReport:
    """Recompute the checksum of every shard, block and original, and list files that no row knows. `texts`: also read
    every original anew, and compare its text with the one that is stored and shown as evidence."""
    began = time.monotonic()
    damage = [
        DamageReport(document.id, document.source, found.shard, str(found))
        for document, found in _damaged_shards(workspace)
    ]
    problems = storage_maintenance.catalogue_problems(workspace.catalogue)
    damage += [DamageReport("", "catalogue", "", problem) for problem in problems]
    documents, shards = workspace.catalogue.documents(), workspace.catalogue.shards()
    for document in documents:
        reason = _original_damage(workspace, document) or (_other_text(workspace, document) if texts else "")
        if reason and _exists(workspace, document.id):
            damage.append(DamageReport(document.id, document.source, "", reason))
    orphans = _orphans(workspace)
    return VerifyReport(
        documents=len(documents),
        shards=len(shards),
        blocks=sum(shard.num_blocks for shard in shards),
        size_bytes=sum(shard.size_bytes for shard in shards),
        seconds=time.monotonic() - began,
        damage=tuple(damage),
        orphans=tuple(orphans.names(workspace)),
    )


def _damaged_shards(workspace: Workspace) -> list[tuple[Document, Damage]]:
    return storage_maintenance.verify(workspace.catalogue, workspace.store.blobs)


def _exists(workspace: Workspace, document_id: str) -> bool:
    """Whether nobody has deleted the document meanwhile."""
    try:
        workspace.catalogue.document(document_id)
    except NoRow:
        return False
    return True


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


def gc(workspace: Workspace, index: MemoryIndex, grace_seconds: float) -> GcReport:
    """Sweep orphans into the trash, empty it of what was swept `grace_seconds` ago, remove old backups, and compact the
    catalogue. What an open question still reads is swept when it is answered. Documents without a sidecar, because a
    process ended before it was written, get one.

    0 seconds empty the trash of everything, and replace all backups by one that holds nothing of what was deleted.
    Raises `CatalogueUnavailable`: then nothing is swept.
    """
    database = workspace.catalogue.database
    storage_maintenance.require_trustworthy(database, Home(workspace.home, workspace.blobs))
    workspace.catalogue.recover_jobs()
    orphans = _orphans(workspace)
    swept_bytes = workspace.blobs.size(orphans.blobs) + sum(map(size_of, orphans.paths))
    index.when_unread(partial(workspace.blobs.sweep, orphans.blobs))
    index.when_unread(partial(Trash(workspace.home).take, orphans.paths))
    copies = sidecars(workspace.blobs)
    for document in workspace.catalogue.documents():
        if document.id not in copies:
            write_sidecar(workspace.database, workspace.blobs, document.id)
    reclaim = partial(storage_maintenance.reclaim, database, workspace.home, workspace.blobs)
    if grace_seconds:
        freed_bytes = reclaim(grace_seconds=grace_seconds)
    else:
        freed_bytes = reclaim(grace_seconds=0, backups_older_than_seconds=0)
        keep_backup(database)
    return GcReport(tuple(orphans.names(workspace)), swept_bytes, freed_bytes)


@dataclass(frozen=True)
class _Orphans:
    """What no document and no living process needs: in the store, and of this machine only."""

    blobs: list[str]
    paths: list[Path]

    def names(self, workspace: Workspace) -> list[str]:
        """As shown to people: relative to the home folder."""
        return self.blobs + [path.relative_to(workspace.home).as_posix() for path in self.paths]


def _orphans(workspace: Workspace) -> _Orphans:
    """Shards, originals and sidecars; unfinished copies, images and what writers made."""
    shards = storage_maintenance.orphans(workspace.catalogue, workspace.kv_folder, workspace.store.blobs)
    originals, unfinished = abandoned_files(workspace)
    # Before the rows: a document made meanwhile is then known.
    images = sorted(workspace.pages_folder.iterdir())
    copies = sidecars(workspace.blobs)
    written = documents_folders(workspace.home)
    known = {document.id for document in workspace.catalogue.documents()}
    blobs = [f"kv/{name}" for name in shards] + [f"files/{name}" for name in originals]
    blobs += [name for document_id, name in copies.items() if document_id not in known]
    return _Orphans(blobs, unfinished + [path for path in (*images, *written) if path.name not in known])


def repair(workspace: Workspace, index: MemoryIndex) -> RepairReport:
    """Make damaged shards again, in order, from the tokens in the catalogue; blocks keep their numbers."""
    # The model's libraries take seconds to import.
    from retrieval.index.inverted_index import index_terms
    from retrieval.index.vectors import index_vectors
    from retrieval.ingest.shard_writer import rebuild_shard

    began = time.monotonic()
    damaged: dict[str, set[str]] = {}
    for document, found in _damaged_shards(workspace):
        damaged.setdefault(document.id, set()).add(found.shard)
    repaired: list[str] = []
    failed: list[tuple[str, str]] = []
    blocks = 0
    for document_id, names in damaged.items():
        source = document_id
        try:
            source = workspace.catalogue.document(document_id).source
            for shard in workspace.catalogue.shards(document_id):
                if shard.name in names:
                    rebuild_shard(workspace, workspace.loaded(), shard)
                    _drop_shards(workspace, index, [shard.name])
                    blocks += shard.num_blocks
        except NoRow:
            continue  # deleted meanwhile, or repaired by somebody else
        except (CairnError, StorageError, ValueError) as error:
            failed.append((source, str(error)))
        else:
            repaired.append(source)
    index_terms(workspace)
    index_vectors(workspace)
    return RepairReport(tuple(repaired), tuple(failed), blocks, time.monotonic() - began)


def _drop_shards(workspace: Workspace, index: MemoryIndex, names: Sequence[str]) -> None:
    index.forget_shards(names)
    index.when_unread(partial(workspace.store.delete, names))


def reingest(
    workspace: Workspace,
    index: MemoryIndex,
    forget_texts: Callable[[Sequence[str]], None],
    run_job: Callable[[str], Job] | None,
) -> RepairReport:
    """Read every document again, from its original, whose memory was made by another model (or by none), or whose text
    lacks what its format has gained since.

    All documents are reassigned to this model first, then the jobs are run: after a crash they resume by themselves.
    `run_job` None: they are left to the queue, whose workers read them while others are asked about.
    """
    began = time.monotonic()
    loaded = workspace.loaded(any_memory=True)
    digest = workspace.catalogue.put_fingerprint(loaded.fingerprint)
    failed: list[tuple[str, str]] = []
    for document in workspace.catalogue.documents():
        is_other = document.fingerprint != digest
        if not is_other and not _is_older(workspace, document):
            continue
        if reason := _original_damage(workspace, document):
            failed.append((document.source, reason))
            continue
        try:
            names = workspace.catalogue.reassign_model(
                document.id, digest, note=f"read again for {'another model' if is_other else 'what is read now'}"
            )
        except NoRow:  # deleted meanwhile
            continue
        forget_texts([document.id])
        _drop_shards(workspace, index, names)
    unassigned = failed and any(document.fingerprint != digest for document in workspace.catalogue.documents())
    if unassigned or run_job is None:
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


def _is_older(workspace: Workspace, document: Document) -> bool:
    if document.state != "ready":
        return False
    return bool(gains(document.kind, workspace.catalogue.extras(document.id).get("version", 1)))
