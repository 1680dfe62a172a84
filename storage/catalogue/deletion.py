"""Deletes documents with everything that was made from them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, select

from storage.catalogue.database import batches, mark_memory_changed
from storage.catalogue.permissions import owned, readable_documents
from storage.catalogue.schema import answer_documents, answers, blocks, documents, shards
from storage.errors import PermissionDenied
from storage.records import DeletedDocuments, Principal


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
