"""Who may see and change which rows, decided here and nowhere else.

- A catalogue always acts for a principal. Every statement run for a user includes one of the conditions below.
- A collection can be read by its owner, by the users and members of groups it is shared with, and by everyone if it is
  public or unowned.
- A document can be read by its owner and by anyone who may read its collection; with neither, by everyone.
- Only the owner may change a thing. Unowned things can be changed by the administrator only.
- What a principal may not read does not exist for them (`NotFound`). Changing what they may only read raises
  `PermissionDenied`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Row, Select, Table, and_, exists, func, not_, or_, select, true

from storage.catalogue.database import Database, one_row
from storage.catalogue.schema import (
    answer_documents,
    answers,
    collection_groups,
    collection_readers,
    collections,
    documents,
    user_groups,
)
from storage.errors import PermissionDenied
from storage.records import Principal

Method = TypeVar("Method", bound=Callable[..., Any])
_FOR_ANY_PRINCIPAL = "_for_any_principal"


def for_any_principal(method: Method) -> Method:
    """Mark a repository method that applies the permission rule itself, or that concerns nobody's documents."""
    setattr(method, _FOR_ANY_PRINCIPAL, True)
    return method


def _administrator_only(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def guarded(self: Repository, *args: Any, **kwargs: Any) -> Any:
        self.require_administrator()
        return method(self, *args, **kwargs)

    return guarded


class Repository:
    """Base of each part of the catalogue. Access is denied by default: a public method without `@for_any_principal`
    raises `PermissionDenied` for everyone but the administrator."""

    def __init__(self, database: Database, principal: Principal):
        self._database, self.principal = database, principal

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            is_open = name.startswith("_") or getattr(method, _FOR_ANY_PRINCIPAL, False)
            if isinstance(method, FunctionType) and not is_open:
                setattr(cls, name, _administrator_only(method))

    def require_administrator(self) -> None:
        """Raises `PermissionDenied`."""
        if not self.principal.is_administrator:
            raise PermissionDenied("library")

    def _rows(self, chosen: Select[Any]) -> Sequence[Row[Any]]:
        """All rows, read in one transaction."""
        with self._database.read() as connection:
            return connection.execute(chosen).all()

    def _row(self, chosen: Select[Any], kind: str, key: object) -> Row[Any]:
        """The first row. Raises `NotFound`, which names `kind` and `key`."""
        with self._database.read() as connection:
            return one_row(connection, chosen, kind, key)

    def _count(self, table: Table, condition: ColumnElement[bool]) -> int:
        with self._database.read() as connection:
            return connection.execute(select(func.count()).select_from(table).where(condition)).scalar_one()


def readable_collections(principal: Principal) -> ColumnElement[bool]:
    if principal.is_administrator:
        return true()
    shared = select(collection_readers.c.collection_id).where(collection_readers.c.user_id == principal.user_id)
    return or_(
        collections.c.owner_id.is_(None),
        collections.c.owner_id == principal.user_id,
        collections.c.everyone,
        collections.c.id.in_(shared),
        collections.c.id.in_(_shared_with_groups_of(principal)),
    )


def _shared_with_groups_of(principal: Principal) -> Select[Any]:
    theirs = select(user_groups.c.name).where(user_groups.c.user_id == principal.user_id)
    return select(collection_groups.c.collection_id).where(collection_groups.c.name.in_(theirs))


def readable_documents(principal: Principal) -> ColumnElement[bool]:
    if principal.is_administrator:
        return true()
    return or_(
        documents.c.owner_id == principal.user_id,
        and_(documents.c.owner_id.is_(None), documents.c.collection_id.is_(None)),
        documents.c.collection_id.in_(select(collections.c.id).where(readable_collections(principal))),
    )


def in_readable_document(document_id: ColumnElement[Any], principal: Principal) -> ColumnElement[bool]:
    """For the pages, text, blocks and shards of a document."""
    if principal.is_administrator:
        return true()
    readable = select(documents.c.id).where(documents.c.id == document_id, readable_documents(principal))
    return exists(readable.correlate_except(documents, collections))


def readable_answers(principal: Principal) -> ColumnElement[bool]:
    """An answer quotes documents, so it is hidden from its owner once they may no longer read one of these."""
    if principal.is_administrator:
        return true()
    used = select(answer_documents.c.document_id).join(documents, documents.c.id == answer_documents.c.document_id)
    used = used.where(answer_documents.c.answer_id == answers.c.id, not_(readable_documents(principal)))
    return and_(answers.c.owner_id == principal.user_id, not_(exists(used.correlate(answers))))


def owned(owner_id: ColumnElement[Any], principal: Principal) -> ColumnElement[bool]:
    """Rows that the principal owns; the administrator owns everything."""
    return true() if principal.is_administrator else owner_id == principal.user_id


def in_owned_document(document_id: ColumnElement[Any], principal: Principal) -> ColumnElement[bool]:
    if principal.is_administrator:
        return true()
    return document_id.in_(select(documents.c.id).where(documents.c.owner_id == principal.user_id))
