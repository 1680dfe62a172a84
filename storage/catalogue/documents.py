"""Documents: their rows, pages and text."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, update

from storage.catalogue.jobs import insert_job, latest_job
from storage.catalogue.names import checked_name, collection_named
from storage.catalogue.rows import Tables, batches, document_of, mark_memory_changed, now, page_of, search_text
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
from storage.catalogue.sharing import owned, readable_documents
from storage.errors import NotFound
from storage.records import (
    DeletedDocuments,
    Document,
    DocumentSort,
    DocumentState,
    ExtractedText,
    NewDocument,
    Page,
    Submitted,
)

_ORDER: dict[DocumentSort, tuple[ColumnElement[Any], ...]] = {
    "added": (documents.c.added_at.desc(),),
    "title": (func.lower(documents.c.title),),
    "source": (func.lower(documents.c.source),),
    "pages": (documents.c.num_pages.desc(),),
    "size": (documents.c.size_bytes.desc(),),
}


class DocumentTables(Tables):
    def add_document(self, new: NewDocument, *, collection: str | None = None, note: str = "") -> Submitted:
        """Make the document and a queued job for it, unless its content is stored, or being stored, by the same model.

        It is put into `new.collection_id`, or into the owner's collection named `collection`, made if there is none. So
        is what is there already and in no collection; out of another it is not taken, and none is made for it.
        `put_fingerprint` must have made the fingerprint known. Raises `NotFound` for an unknown collection and
        `ValueError` for an empty name.
        """
        same = (
            (documents.c.content_sha256 == new.content_sha256)
            & (documents.c.fingerprint == new.fingerprint)
            & documents.c.owner_id.is_not_distinct_from(new.owner_id)
            & documents.c.state.in_(("ingesting", "ready"))
        )
        row = {name: getattr(new, name) for name in new.__dataclass_fields__} | {
            "search_text": search_text(new.title, new.source),
            "state": "ingesting",
            "notes": "[]",
            "added_at": now(),
            **dict.fromkeys(("num_pages", "num_characters", "num_tokens", "num_blocks", "size_bytes"), 0),
        }
        name = None if collection is None else checked_name(collection)
        with self.database.write() as connection:
            existing = connection.execute(select(documents).where(same)).first()
            collection_id = new.collection_id
            if name is not None and (existing is None or existing.collection_id is None):
                collection_id = collection_named(connection, name, new.owner_id)
            if existing is not None and existing.collection_id is None and collection_id is not None:
                _move(connection, existing.id, collection_id)
            if existing is not None:
                document = one_document(connection, existing.id)
                return Submitted(document, latest_job(connection, existing.id), already_stored=True)
            _require_collection(connection, collection_id)
            connection.execute(insert(documents).values(row | {"collection_id": collection_id}))
            job = insert_job(connection, new.id, "ingest", note=note)
            return Submitted(one_document(connection, new.id), job, already_stored=False)

    def document(self, document_id: str, *, reader: str | None = None) -> Document:
        """`reader`: id of the user who looks, see `storage.catalogue.sharing`. Raises `NotFound`."""
        with self.database.read() as connection:
            return one_document(connection, document_id, reader)

    def find_document(self, content_sha256: str, fingerprint: str, *, owner_id: str | None = None) -> Document | None:
        """The owner's ready document with this content made by this model, if there is one."""
        with self.database.read() as connection:
            row = connection.execute(
                select(documents).where(
                    documents.c.content_sha256 == content_sha256,
                    documents.c.fingerprint == fingerprint,
                    documents.c.owner_id.is_not_distinct_from(owner_id),
                    documents.c.state == "ready",
                )
            ).first()
            return None if row is None else document_of(row)

    def documents(
        self,
        *,
        search: str = "",
        collection_id: str | None = None,
        state: DocumentState | None = None,
        sort: DocumentSort = "added",
        limit: int | None = None,
        offset: int = 0,
        reader: str | None = None,
    ) -> list[Document]:
        """Documents whose title or source contains `search` (any case), newest first unless sorted otherwise.

        `reader`: only those that this user may read.
        """
        if sort not in _ORDER:
            raise ValueError(f"documents are sorted by {', '.join(_ORDER)}, not {sort!r}")
        chosen = _filtered(select(documents), search, collection_id, state).where(readable_documents(reader))
        chosen = chosen.order_by(*_ORDER[sort], documents.c.id).limit(limit).offset(offset)
        with self.database.read() as connection:
            return [document_of(row) for row in connection.execute(chosen)]

    def count_documents(
        self,
        *,
        search: str = "",
        collection_id: str | None = None,
        state: DocumentState | None = None,
        reader: str | None = None,
    ) -> int:
        """How many documents `documents` would give without a limit."""
        counted = _filtered(select(func.count()).select_from(documents), search, collection_id, state)
        with self.database.read() as connection:
            return connection.execute(counted.where(readable_documents(reader))).scalar_one()

    def readable_document_ids(self, reader: str, *, of: Iterable[str] | None = None) -> set[str]:
        """Ids of all documents that the user may read; `of`: of these only."""
        chosen = select(documents.c.id).where(readable_documents(reader))
        with self.database.read() as connection:
            if of is None:
                return set(connection.execute(chosen).scalars())
            found: set[str] = set()
            for batch in batches(list(dict.fromkeys(of))):
                found.update(connection.execute(chosen.where(documents.c.id.in_(batch))).scalars())
            return found

    def owned_document_ids(self, owner_id: str, *, of: Iterable[str] | None = None) -> list[str]:
        """Ids of a user's own documents; `of`: of these only, in their order."""
        with self.database.read() as connection:
            mine = list(connection.execute(select(documents.c.id).where(documents.c.owner_id == owner_id)).scalars())
        return mine if of is None else [document_id for document_id in of if document_id in set(mine)]

    def rename_document(self, document_id: str, title: str) -> Document:
        """Give it another title. Raises `NotFound`, and `ValueError` for an empty title."""
        if not title.strip():
            raise ValueError("A document needs a title.")
        with self.database.write() as connection:
            source = one_document(connection, document_id).source
            values = {"title": title.strip(), "search_text": search_text(title, source)}
            connection.execute(update(documents).where(documents.c.id == document_id).values(values))
            return one_document(connection, document_id)

    def move_document(self, document_id: str, collection_id: str | None) -> Document:
        """Put it into a collection, or into none. Raises `NotFound`.

        What had no owner becomes the collection's owner's: otherwise it would be everybody's as soon as that goes.
        """
        with self.database.write() as connection:
            one_document(connection, document_id)
            _move(connection, document_id, collection_id)
            return one_document(connection, document_id)

    def replace_original(self, document_id: str, stored_file: str) -> None:
        """Another kept file stands for what was handed in: an unlocked copy. Raises `NotFound`."""
        changed = update(documents).where(documents.c.id == document_id).values(stored_file=stored_file)
        with self.database.write() as connection:
            if connection.execute(changed).rowcount == 0:
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
    ) -> Document:
        """Keep what reading the file gave: text, pages, title, counts, notes. Replaces what was kept before.

        Raises `NotFound`.
        """
        compressed = zlib.compress(text.encode("utf-8", "surrogatepass"), 6)
        with self.database.write() as connection:
            before = one_document(connection, document_id)
            title = (title or "").strip() or before.title
            values = {
                "title": title,
                "search_text": search_text(title, before.source),
                "num_pages": len(pages_read),
                "num_characters": len(text),
                "num_tokens": num_tokens,
                "notes": json.dumps(list(notes)),
            }
            connection.execute(update(documents).where(documents.c.id == document_id).values(values))
            for table in (document_texts, pages):
                connection.execute(delete(table).where(table.c.document_id == document_id))
            kept = {"document_id": document_id, "text": compressed, "extras": json.dumps(extras or {})}
            connection.execute(insert(document_texts).values(kept))
            if pages_read:
                rows = [{"document_id": document_id} | vars(page) for page in pages_read]
                connection.execute(insert(pages), rows)
            return one_document(connection, document_id)

    def extracted_text(self, document_id: str) -> ExtractedText:
        """The text and extras that `save_extracted` kept. Raises `NotFound`."""
        with self.database.read() as connection:
            row = connection.execute(select(document_texts).where(document_texts.c.document_id == document_id)).first()
        if row is None:
            raise NotFound("text of document", document_id)
        return ExtractedText(zlib.decompress(row.text).decode("utf-8", "surrogatepass"), json.loads(row.extras))

    def pages(self, document_id: str) -> list[Page]:
        """The document's pages in order; empty if none were kept."""
        with self.database.read() as connection:
            rows = connection.execute(select(pages).where(pages.c.document_id == document_id).order_by(pages.c.number))
            return [page_of(row) for row in rows]

    def set_document_state(self, document_id: str, state: DocumentState, *, notes: Sequence[str] | None = None) -> None:
        """Raises `NotFound`. Use `finish_document` for "ready"."""
        assert state != "ready", "finish_document checks that the memory is whole"
        values: dict[str, Any] = {"state": state} | ({} if notes is None else {"notes": json.dumps(list(notes))})
        with self.database.write() as connection:
            if connection.execute(update(documents).where(documents.c.id == document_id).values(values)).rowcount == 0:
                raise NotFound("document", document_id)

    def delete_documents(self, document_ids: Iterable[str], *, deleter: str | None = None) -> DeletedDocuments:
        """Delete documents with their pages, text, blocks, shards, jobs, and every answer that used one of them.

        Afterwards remove the files named in the result; a crash in between leaves orphans that `gc` removes. Documents
        that are gone already are left out of the result. `deleter`: of the answers, only this user's own are counted.
        """
        with self.database.write() as connection:
            deleted = delete_document_rows(connection, list(dict.fromkeys(document_ids)), deleter)
        self.database.erase_deleted()
        return deleted


def delete_document_rows(
    connection: Connection, document_ids: Sequence[str], deleter: str | None = None
) -> DeletedDocuments:
    """The deletion itself, inside the caller's transaction."""
    found: list[Any] = []
    shard_names: list[str] = []
    num_blocks = num_answers = 0
    mark_memory_changed(connection)
    for batch in batches(document_ids):
        wanted = documents.c.id.in_(batch)
        found += connection.execute(select(documents.c.id, documents.c.stored_file).where(wanted)).all()
        shard_names += connection.execute(select(shards.c.name).where(shards.c.document_id.in_(batch))).scalars()
        counted = select(func.count()).select_from(blocks).where(blocks.c.document_id.in_(batch))
        num_blocks += connection.execute(counted).scalar_one()
        quoting = select(answer_documents.c.answer_id).where(answer_documents.c.document_id.in_(batch))
        own = select(func.count()).select_from(answers).where(answers.c.id.in_(quoting))
        num_answers += connection.execute(own.where(owned(answers.c.owner_id, deleter))).scalar_one()
        connection.execute(delete(answers).where(answers.c.id.in_(quoting)))
        connection.execute(delete(documents).where(wanted))
    return DeletedDocuments(
        document_ids=tuple(row.id for row in found),
        num_blocks=num_blocks,
        num_answers=num_answers,
        shards=tuple(shard_names),
        stored_files=tuple(row.stored_file for row in found if row.stored_file),
    )


def _filtered(chosen: Select[Any], search: str, collection_id: str | None, state: str | None) -> Select[Any]:
    for word in search.casefold().split():
        chosen = chosen.where(documents.c.search_text.contains(word, autoescape=True))
    if collection_id is not None:
        chosen = chosen.where(documents.c.collection_id == collection_id)
    if state is not None:
        chosen = chosen.where(documents.c.state == state)
    return chosen


def _move(connection: Connection, document_id: str, collection_id: str | None) -> None:
    _require_collection(connection, collection_id)
    shelf_owner = select(collections.c.owner_id).where(collections.c.id == collection_id).scalar_subquery()
    owner_id = func.coalesce(documents.c.owner_id, shelf_owner)
    moved = update(documents).where(documents.c.id == document_id)
    connection.execute(moved.values(collection_id=collection_id, owner_id=owner_id))


def _require_collection(connection: Connection, collection_id: str | None) -> None:
    if collection_id is not None:
        known = connection.execute(select(collections.c.id).where(collections.c.id == collection_id)).first()
        if known is None:
            raise NotFound("collection", collection_id)


def one_document(connection: Connection, document_id: str, reader: str | None = None) -> Document:
    chosen = select(documents).where(documents.c.id == document_id, readable_documents(reader))
    row = connection.execute(chosen).first()
    if row is None:
        raise NotFound("document", document_id)
    return document_of(row)
