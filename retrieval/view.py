"""What the parts of an open library share, in the view of one user.

`Documents`, `Jobs`, `Collections`, `Answers` and the others are made of a view; `as_seen_by` gives that of another
user. storage/catalogue/permissions.py decides what a user sees.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from retrieval.engine.workspace import Workspace, documents_folders
from retrieval.errors import PermissionDenied
from retrieval.index.snapshot import MemoryIndex
from retrieval.ingest.file_store import delete_original
from retrieval.query.passage_builder import PassageBuilder
from retrieval.types.records import ALREADY_STORED, Collection, Deleted, Document, Job
from retrieval.writers.opening import CurrentWriter
from storage import records as rows
from storage.catalogue import Catalogue
from storage.errors import NotFound as NoRow
from storage.records import Principal
from storage.recovery import FOLDER as SIDECARS
from storage.recovery import sidecar_name
from storage.trash import size_of


@dataclass(frozen=True, eq=False)
class View:
    """`whole`: the administrator's workspace."""

    workspace: Workspace
    whole: Workspace
    index: MemoryIndex
    passages: PassageBuilder
    writers: CurrentWriter

    @property
    def catalogue(self) -> Catalogue:
        return self.workspace.catalogue

    @property
    def principal(self) -> Principal:
        return self.catalogue.principal

    def as_seen_by(self, principal: Principal) -> View:
        """Cheap. The administrator's view is itself."""
        if principal.is_administrator:
            workspace = self.whole
        else:
            workspace = self.whole.with_catalogue(self.whole.catalogue.acting_for(principal))
        if workspace is self.workspace:
            return self
        return replace(self, workspace=workspace, passages=self.passages.with_catalogue(workspace.catalogue))

    def check_administrator(self) -> None:
        """Raises PermissionDenied for a user."""
        if not self.principal.is_administrator:
            raise PermissionDenied("library")

    # Rows as the records that the library hands out

    def documents(self, found: Sequence[rows.Document]) -> list[Document]:
        names = self._owners(found)
        said = self.catalogue.properties_of([row.id for row in found])
        return [_document(row, names, self.principal, said.get(row.id, ())) for row in found]

    def document(self, row: rows.Document) -> Document:
        return self.documents([row])[0]

    def collections(self, found: Sequence[rows.Collection]) -> list[Collection]:
        names = self._owners(found)
        return [_collection(row, names, self.principal) for row in found]

    def collection(self, row: rows.Collection) -> Collection:
        return self.collections([row])[0]

    def _owners(self, found: Sequence[rows.Document] | Sequence[rows.Collection]) -> dict[str, str]:
        """Names by user id; read only if some row has an owner."""
        return {user.id: user.name for user in self.catalogue.users()} if any(row.owner_id for row in found) else {}

    def job(self, row: rows.Job) -> Job:
        try:
            return _job(row, self.catalogue.document(row.document_id))
        except NoRow:
            return _job(row, None)

    def submitted(self, submitted: rows.Submitted, collection: str | None) -> Job:
        """The job of a submitted file. `collection`: the name that was asked for."""
        document = submitted.document
        if submitted.already_stored and document.state == "ready":
            names = {one.id: one.name for one in self.catalogue.collections()}
            current = names.get(document.collection_id or "", "")
            elsewhere = current if collection is not None and current != collection.strip() else ""
            return _stored_already(document, submitted.job, elsewhere)
        assert submitted.job is not None, "a document that is not ready has a job"
        return _job(submitted.job, document)

    def removed(self, found: rows.DeletedDocuments) -> Deleted:
        """Removes the files of documents whose rows are gone; those that a question still reads go when it is
        answered."""
        workspace, ids = self.workspace, found.document_ids
        self.passages.forget(ids)
        self.index.forget_shards(found.shards)
        folders = [workspace.pages_folder / document_id for document_id in ids]
        folders += [folder for document_id in ids for folder in documents_folders(workspace.home, document_id)]
        freed = workspace.store.blobs.size(found.shards) + workspace.originals.size(found.stored_files)
        freed += sum(map(size_of, folders))

        def unlink() -> None:
            workspace.store.delete(found.shards)
            workspace.blobs.inside(SIDECARS).delete(map(sidecar_name, ids))
            for stored_file in found.stored_files:
                delete_original(workspace, stored_file)
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

        self.index.when_unread(unlink)
        return Deleted(len(ids), found.num_blocks, found.num_answers, freed)


def _document(
    row: rows.Document, names: Mapping[str, str], principal: Principal, said: Sequence[rows.Property]
) -> Document:
    properties: dict[str, tuple[str, ...]] = {}
    for one in said:
        if one.value:
            properties[one.name] = (*properties.get(one.name, ()), one.value)
    return Document(
        id=row.id,
        source=row.source,
        title=row.title,
        collection_id=row.collection_id,
        pages=row.num_pages,
        tokens=row.num_tokens,
        blocks=row.num_blocks,
        size_bytes=row.size_bytes,
        state=row.state,
        added_at=row.added_at,
        content_hash=row.content_sha256,
        kind=row.kind,
        notes=row.notes,
        owner=names.get(row.owner_id or "", ""),
        mine=principal.may_change(row.owner_id),
        properties=properties,
    )


def _collection(row: rows.Collection, names: Mapping[str, str], principal: Principal) -> Collection:
    mine = principal.may_change(row.owner_id)
    return Collection(
        id=row.id,
        name=row.name,
        documents=row.num_documents,
        created_at=row.created_at,
        owner=names.get(row.owner_id or "", ""),
        mine=mine,
        everyone=row.everyone,
        shared_with=tuple(sorted(names[reader] for reader in row.readers if reader in names)) if mine else (),
        groups=row.groups if mine else (),
    )


def _job(row: rows.Job, document: rows.Document | None) -> Job:
    """`document` is None if it was deleted meanwhile."""
    progress = row.progress
    return Job(
        id=row.id,
        document_id=row.document_id,
        source=document.source if document else "(deleted)",
        collection_id=document.collection_id if document else None,
        state=row.state,
        stage="done" if row.state == "done" else progress.stage,
        pages_done=progress.pages_done,
        pages=progress.pages_total or (document.num_pages if document else 0),
        tokens_done=progress.tokens_done,
        tokens=progress.tokens_total or (document.num_tokens if document else 0),
        blocks=document.num_blocks if document else 0,
        size_bytes=document.size_bytes if document else 0,
        tokens_per_second=progress.tokens_per_second,
        eta_seconds=progress.eta_seconds if row.state == "running" else None,
        seconds=_seconds(row),
        error=row.error,
        note=row.note,
        created_at=row.created_at,
        cancelling=row.cancel_requested and row.state == "running",
    )


def _stored_already(document: rows.Document, row: rows.Job | None, elsewhere: str) -> Job:
    """A finished job for a file that is already stored, without an id if its own row is gone.

    `elsewhere`: name of the collection it stays in if another one was asked for.
    """
    return Job(
        id=row.id if row else "",
        document_id=document.id,
        source=document.source,
        collection_id=document.collection_id,
        state="done",
        stage="done",
        pages_done=document.num_pages,
        pages=document.num_pages,
        tokens_done=document.num_tokens,
        tokens=document.num_tokens,
        blocks=document.num_blocks,
        size_bytes=document.size_bytes,
        tokens_per_second=0.0,
        eta_seconds=None,
        seconds=0.0,
        error="",
        note=ALREADY_STORED + (f", in collection {elsewhere}" if elsewhere else ""),
        created_at=document.added_at,
    )


def _seconds(row: rows.Job) -> float:
    if row.started_at is None:
        return 0.0
    end = datetime.fromisoformat(row.finished_at) if row.finished_at else datetime.now(UTC)
    return max(0.0, (end - datetime.fromisoformat(row.started_at)).total_seconds())
