"""Who may read which rows: the conditions that every list and look-up for one user goes through.

- A collection is read by its owner, by the users it is shared with, and by all if it has no owner or is for everyone.
- A document is read by its owner and by whoever may read its collection; with neither owner nor collection, by all.
- Changing is the owner's alone. `None` in place of a user's id means the administrator: no condition at all.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_, exists, not_, or_, select, true

from storage.catalogue.schema import answer_documents, answers, collection_readers, collections, documents


def readable_collections(user_id: str | None) -> ColumnElement[Any]:
    if user_id is None:
        return true()
    mine = collection_readers.c.user_id == user_id
    return or_(
        collections.c.owner_id.is_(None),
        collections.c.owner_id == user_id,
        collections.c.everyone,
        collections.c.id.in_(select(collection_readers.c.collection_id).where(mine)),
    )


def readable_documents(user_id: str | None) -> ColumnElement[Any]:
    if user_id is None:
        return true()
    return or_(
        documents.c.owner_id == user_id,
        and_(documents.c.owner_id.is_(None), documents.c.collection_id.is_(None)),
        documents.c.collection_id.in_(select(collections.c.id).where(readable_collections(user_id))),
    )


def readable_answers(user_id: str | None) -> ColumnElement[Any]:
    """An answer quotes documents: who asked for it loses it from sight with the last of the right to read them."""
    if user_id is None:
        return true()
    used = select(answer_documents.c.document_id).join(documents, documents.c.id == answer_documents.c.document_id)
    used = used.where(answer_documents.c.answer_id == answers.c.id, not_(readable_documents(user_id)))
    return and_(answers.c.owner_id == user_id, not_(exists(used.correlate(answers))))


def owned(column: ColumnElement[Any], user_id: str | None) -> ColumnElement[Any]:
    """Rows whose owner is this user; the administrator's are all."""
    return true() if user_id is None else column == user_id
