"""Documents: their rows, pages and text; deleting them with everything that was made from them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from storage.catalogue.collections import checked_name, find_or_insert_collection, one_collection
from storage.catalogue.database import (
    batches,
    document_of,
    holds_words,
    mark_memory_changed,
    one_row,
    record_of,
    reserve_numbers,
    search_part,
    search_text,
    update_row,
    write_folder_file,
)
from storage.catalogue.jobs import hold, insert_job, latest_job
from storage.catalogue.permissions import Repository, for_any_principal, in_readable_document, owned, readable_documents
from storage.catalogue.schema import (
    answer_documents,
    answers,
    blocks,
    collections,
    document_texts,
    documents,
    pages,
    shards,
)
from storage.errors import NotFound, PermissionDenied
from storage.names import clean_name
from storage.records import (
    ADMINISTRATOR,
    DeletedDocuments,
    Document,
    DocumentSort,
    ExtractedText,
    FolderFile,
    Job,
    NewDocument,
    Page,
    Principal,
    Submitted,
)

_ORDER: dict[DocumentSort, ColumnElement[Any]] = {
    "added": documents.c.added_at.desc(),
    "title": search_part(documents.c.search_text, 1),
    "source": search_part(documents.c.search_text, 2),
    "pages": documents.c.num_pages.desc(),
    "size": documents.c.size_bytes.desc(),
}


class DocumentRepository(Repository):
    @for_any_principal
    def add_document(
        self, new: NewDocument, *, collection: str | None = None, of_folder: tuple[str, FolderFile] | None = None
    ) -> Submitted:
        """Create a document owned by the principal and queue its job, unless the principal already has the same content
        stored, or being stored, by the same model.

        The document goes into the principal's collection named `collection`, which is created if needed. An existing
        document goes there too if it is in no collection; otherwise it stays where it is and no collection is created.
        `of_folder`: a followed folder and the file there that it is read from, remembered with it in one transaction.
        Register the fingerprint with `put_fingerprint` first. Raises `ValueError` for an empty name.
        """
        with self._database.write() as connection:
            new, submitted = insert_document(connection, self.principal, new, collection)
            if submitted is None:
                job = insert_job(connection, new.id)
                submitted = Submitted(one_document(connection, self.principal, new.id), job, already_stored=False)
            if of_folder is not None:
                folder_id, file = of_folder
                write_folder_file(connection, folder_id, replace(file, next_document_id=submitted.document.id))
            return submitted

    @for_any_principal
    def document(self, document_id: str) -> Document:
        """Raises `NotFound`."""
        with self._database.read() as connection:
            return one_document(connection, self.principal, document_id)

    @for_any_principal
    def document_and_first_block(self, document_id: str) -> tuple[Document, int | None]:
        """The document and the id of its first block, by which its text is known: one that is read anew and says
        something else gets new blocks. None while it has no block, and the text may still change. Raises `NotFound`."""
        first = select(func.min(shards.c.first_block_id)).where(shards.c.document_id == document_id)
        chosen = select(documents, first.scalar_subquery().label("first_block_id"))
        chosen = chosen.where(documents.c.id == document_id, readable_documents(self.principal))
        row = self._row(chosen, "document", document_id)
        return document_of(row), row.first_block_id

    @for_any_principal
    def find_document(self, content_sha256: str, fingerprint: str) -> Document | None:
        """The principal's own ready document with this content and model: nobody learns of other people's files."""
        same = same_content(content_sha256, fingerprint, self.principal.user_id) & (documents.c.state == "ready")
        found = self._rows(select(documents).where(same))
        return document_of(found[0]) if found else None

    @for_any_principal
    def documents(
        self, *, search: str = "", collection_id: str | None = None, sort: DocumentSort = "added"
    ) -> list[Document]:
        """Documents whose title or source contains every word of `search`, ignoring case; newest first by default."""
        if sort not in _ORDER:
            raise ValueError(f"Documents are sorted by {', '.join(_ORDER)}, not {sort!r}.")
        chosen = select(documents).where(readable_documents(self.principal)).order_by(_ORDER[sort], documents.c.id)
        chosen = chosen.where(holds_words(documents.c.search_text, search))
        if collection_id is not None:
            chosen = chosen.where(documents.c.collection_id == collection_id)
        return [document_of(row) for row in self._rows(chosen)]

    @for_any_principal
    def document_ids(self) -> set[str]:
        """Ids of all documents that the principal may read, in any state."""
        with self._database.read() as connection:  # asked at every question: plain values, no rows
            return set(connection.execute(select(documents.c.id).where(readable_documents(self.principal))).scalars())

    def owned_document_ids(self, owner_id: str) -> list[str]:
        """Ids of the documents that a user owns."""
        return [row.id for row in self._rows(select(documents.c.id).where(documents.c.owner_id == owner_id))]

    @for_any_principal
    def rename_document(self, document_id: str, title: str) -> Document:
        """Raises `NotFound`, `PermissionDenied`, and `ValueError` for an empty title."""
        title = clean_name(title)
        if not title:
            raise ValueError("A document needs a title.")
        with self._database.write() as connection:
            source = one_document(connection, self.principal, document_id, to_change=True).source
            update_row(connection, documents, document_id, title=title, search_text=search_text(title, source))
            return one_document(connection, self.principal, document_id)

    @for_any_principal
    def move_document(self, document_id: str, collection_id: str | None) -> Document:
        """Move it to a collection, or out of any. Raises `NotFound`, `PermissionDenied`.

        An unowned document becomes the collection owner's; otherwise everyone could read it once the collection is
        deleted.
        """
        with self._database.write() as connection:
            one_document(connection, self.principal, document_id, to_change=True)
            if collection_id is not None:
                one_collection(connection, self.principal, collection_id, to_change=True)
            move_to(connection, document_id, collection_id)
            return one_document(connection, self.principal, document_id)

    def replace_original(self, document_id: str, stored_file: str) -> None:
        """Replace the stored file with another one, such as an unlocked copy. Raises `NotFound`."""
        with self._database.write(notify=False) as connection:
            if not update_row(connection, documents, document_id, stored_file=stored_file):
                raise NotFound("document", document_id)

    def save_extracted(
        self,
        document_id: str,
        *,
        text: str,
        pages_read: Sequence[Page],
        title: str | None = None,
        num_tokens: int = 0,
        notes: Sequence[str] = (),
        extras: Mapping[str, Any] | None = None,
        job: Job | None = None,
    ) -> Document:
        """Store what was extracted from the file, replacing what was stored before. `job`: for which that was done.

        Raises `NotFound`, `LeaseLost`.
        """
        packed = pack_text(text)
        with self._database.write(notify=False) as connection:
            hold(connection, job)
            before = one_document(connection, ADMINISTRATOR, document_id)
            title = clean_name(title or "") or before.title
            values = {"title": title, "search_text": search_text(title, before.source), "num_characters": len(text)}
            values |= {"num_tokens": num_tokens, "notes": json.dumps(list(notes))}
            write_text(connection, document_id, packed, pages_read, extras or {}, **values)
            return one_document(connection, ADMINISTRATOR, document_id)

    @for_any_principal
    def names(self, document_ids: Collection[str]) -> dict[str, tuple[str, str]]:
        """Title and source of those of the documents that the principal may read, by their ids."""
        chosen = select(documents.c.id, documents.c.title, documents.c.source).where(readable_documents(self.principal))
        found = self._rows(chosen.where(documents.c.id.in_(list(document_ids))))
        return {row.id: (row.title, row.source) for row in found}

    @for_any_principal
    def extracted_text(self, document_id: str) -> ExtractedText:
        """The text and extras that `save_extracted` stored. Raises `NotFound`."""
        row = self._extracted(document_id, document_texts.c.text, document_texts.c.extras)
        return ExtractedText(zlib.decompress(row.text).decode("utf-8", "surrogatepass"), json.loads(row.extras))

    @for_any_principal
    def extras(self, document_id: str) -> dict[str, Any]:
        """The extras that `save_extracted` stored, without the text. Raises `NotFound`."""
        extras: dict[str, Any] = json.loads(self._extracted(document_id, document_texts.c.extras).extras)
        return extras

    def _extracted(self, document_id: str, *columns: ColumnElement[Any]) -> Row[Any]:
        readable = in_readable_document(document_texts.c.document_id, self.principal)
        chosen = select(*columns).where(document_texts.c.document_id == document_id, readable)
        return self._row(chosen, "text of document", document_id)

    @for_any_principal
    def pages(self, document_id: str) -> list[Page]:
        """The document's pages in order; empty if none were stored."""
        readable = in_readable_document(pages.c.document_id, self.principal)
        chosen = select(pages).where(pages.c.document_id == document_id, readable).order_by(pages.c.number)
        return [record_of(Page, row) for row in self._rows(chosen)]

    @for_any_principal
    def delete_documents(self, document_ids: Iterable[str]) -> DeletedDocuments:
        """Delete documents with their pages, text, blocks, shards and jobs, and every answer that used one of them.

        Then remove the files named in the result; a crash in between leaves orphans, which `gc` removes. Documents that
        do not exist are skipped. Raises `PermissionDenied` and deletes nothing if the principal may not delete all.
        """
        with self._database.write_to_delete() as connection:
            deleted = delete_with_contents(connection, self.principal, list(dict.fromkeys(document_ids)))
        return deleted


def one_document(
    connection: Connection, principal: Principal, document_id: str, *, to_change: bool = False
) -> Document:
    """The document. Raises `NotFound`, and `PermissionDenied` if the principal may only read what is to be changed."""
    chosen = select(documents).where(documents.c.id == document_id, readable_documents(principal))
    row = one_row(connection, chosen, "document", document_id)
    if to_change and not principal.may_change(row.owner_id):
        raise PermissionDenied("document")
    return document_of(row)


def same_content(content_sha256: str, fingerprint: str, owner_id: str | None) -> ColumnElement[bool]:
    return (
        (documents.c.content_sha256 == content_sha256)
        & (documents.c.fingerprint == fingerprint)
        & documents.c.owner_id.is_not_distinct_from(owner_id)
    )


def insert_document(
    connection: Connection, principal: Principal, new: NewDocument, collection: str | None, **values: Any
) -> tuple[NewDocument, Submitted | None]:
    """The document as it was inserted, with clean names; or what the principal has of the same content and model.

    `values`: of further columns. Raises `ValueError` for an empty name of the collection.
    """
    new = replace(new, source=clean_name(new.source) or "unnamed", title=clean_name(new.title) or "unnamed")
    name = None if collection is None else checked_name(collection)
    same = same_content(new.content_sha256, new.fingerprint, principal.user_id)
    same &= documents.c.state.in_(("ingesting", "ready"))
    existing = connection.execute(select(documents).where(same)).first()
    if existing is not None:
        if name is not None and existing.collection_id is None:
            move_to(connection, existing.id, find_or_insert_collection(connection, name, principal.user_id))
        document = one_document(connection, principal, existing.id)
        return new, Submitted(document, latest_job(connection, existing.id), already_stored=True)
    row = vars(new) | {
        "owner_id": principal.user_id,
        "collection_id": None if name is None else find_or_insert_collection(connection, name, principal.user_id),
        "search_text": search_text(new.title, new.source),
    }
    connection.execute(insert(documents).values(row | values))
    reserve_numbers(connection, "document", 1)  # an older catalogue is known by its counters
    return new, None


def pack_text(text: str) -> bytes:
    """As it is stored. Takes a while for a long one, for which no other writer should have to wait."""
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 6)


def write_text(
    connection: Connection,
    document_id: str,
    packed: bytes,
    pages_read: Sequence[Page],
    extras: Mapping[str, Any],
    **values: Any,
) -> None:
    """Inside the caller's transaction: what was extracted from a document, in place of what was stored before. `packed`
    is its text (`pack_text`); `values`: of further columns of the document."""
    update_row(connection, documents, document_id, num_pages=len(pages_read), **values)
    for table in (document_texts, pages):
        connection.execute(delete(table).where(table.c.document_id == document_id))
    extracted = {"document_id": document_id, "text": packed, "extras": json.dumps(dict(extras))}
    connection.execute(insert(document_texts).values(extracted))
    if pages_read:
        connection.execute(insert(pages), [{"document_id": document_id} | vars(page) for page in pages_read])


def move_to(connection: Connection, document_id: str, collection_id: str | None) -> None:
    new_owner = select(collections.c.owner_id).where(collections.c.id == collection_id).scalar_subquery()
    moved = update(documents).where(documents.c.id == document_id)
    owner_id = func.coalesce(documents.c.owner_id, new_owner)
    connection.execute(moved.values(collection_id=collection_id, owner_id=owner_id))


def delete_with_contents(connection: Connection, principal: Principal, document_ids: Sequence[str]) -> DeletedDocuments:
    """Inside the caller's transaction; see `DocumentRepository.delete_documents`."""
    found: list[str] = []
    shard_names: list[str] = []
    stored_files: list[str] = []
    num_blocks = num_answers = 0
    mark_memory_changed(connection)
    for batch in batches(document_ids):
        visible = select(documents).where(documents.c.id.in_(batch), readable_documents(principal))
        rows = connection.execute(visible).all()
        if not all(principal.may_change(row.owner_id) for row in rows):
            raise PermissionDenied("document")
        ids = [row.id for row in rows]
        found += ids
        stored_files += [row.stored_file for row in rows if row.stored_file]
        shard_names += connection.execute(select(shards.c.name).where(shards.c.document_id.in_(ids))).scalars()
        counted = select(func.count()).select_from(blocks).where(blocks.c.document_id.in_(ids))
        num_blocks += connection.execute(counted).scalar_one()
        using = select(answer_documents.c.answer_id).where(answer_documents.c.document_id.in_(ids))
        # Users learn how many of their own answers are deleted, not how many of other people's.
        own = select(func.count()).select_from(answers).where(answers.c.id.in_(using))
        num_answers += connection.execute(own.where(owned(answers.c.owner_id, principal))).scalar_one()
        connection.execute(delete(answers).where(answers.c.id.in_(using)))
        connection.execute(delete(documents).where(documents.c.id.in_(ids)))
    return DeletedDocuments(tuple(found), num_blocks, num_answers, tuple(shard_names), tuple(stored_files))
