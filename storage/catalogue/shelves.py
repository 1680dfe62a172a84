"""Collections: named shelves of documents."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Select, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from storage.catalogue.documents import delete_document_rows
from storage.catalogue.rows import Tables, now
from storage.errors import NameTaken, NotFound
from storage.records import Collection, DeletedDocuments
from storage.schema import collections, documents


class CollectionTables(Tables):
    def collections(self) -> list[Collection]:
        """All collections, by name, with how many documents each holds."""
        with self.database.read() as connection:
            return _list(connection)

    def collection(self, collection_id: str) -> Collection:
        """Raises `NotFound`."""
        with self.database.read() as connection:
            return _one(connection, collection_id)

    def create_collection(self, name: str, *, owner_id: str | None = None) -> Collection:
        """Raises `NameTaken`, and `ValueError` for an empty name."""
        name = _checked(name)
        row = {"id": uuid4().hex, "name": name, "owner_id": owner_id, "created_at": now()}
        try:
            with self.database.write() as connection:
                connection.execute(insert(collections).values(row))
        except IntegrityError as error:
            raise NameTaken(f"There is a collection named {name!r} already.") from error
        return Collection(row["id"] or "", name, 0, row["created_at"] or "")

    def collection_named(self, name: str) -> Collection:
        """The collection of that name, made if there is none."""
        name = _checked(name)
        with self.database.write() as connection:
            found = connection.execute(select(collections.c.id).where(collections.c.name == name)).scalar()
            if found is None:
                found = uuid4().hex
                connection.execute(insert(collections).values(id=found, name=name, created_at=now()))
            return _one(connection, found)

    def rename_collection(self, collection_id: str, name: str) -> Collection:
        """Raises `NotFound`, `NameTaken`, and `ValueError` for an empty name."""
        name = _checked(name)
        try:
            with self.database.write() as connection:
                _one(connection, collection_id)
                connection.execute(update(collections).where(collections.c.id == collection_id).values(name=name))
                return _one(connection, collection_id)
        except IntegrityError as error:
            raise NameTaken(f"There is a collection named {name!r} already.") from error

    def delete_collection(self, collection_id: str, *, with_documents: bool = False) -> DeletedDocuments:
        """Remove the collection; its documents stay, in no collection, unless `with_documents`. Raises `NotFound`."""
        with self.database.write() as connection:
            _one(connection, collection_id)
            inside = documents.c.collection_id == collection_id
            ids = list(connection.execute(select(documents.c.id).where(inside)).scalars()) if with_documents else []
            deleted = delete_document_rows(connection, ids)
            connection.execute(collections.delete().where(collections.c.id == collection_id))
        self.database.erase_deleted()
        return deleted


def _checked(name: str) -> str:
    if not name.strip():
        raise ValueError("A collection needs a name.")
    return name.strip()


def _counted() -> Select[Any]:
    numbers = select(documents.c.collection_id, func.count().label("number"))
    counts = numbers.group_by(documents.c.collection_id).subquery()
    return select(
        collections.c.id, collections.c.name, func.coalesce(counts.c.number, 0), collections.c.created_at
    ).select_from(collections.outerjoin(counts, counts.c.collection_id == collections.c.id))


def _list(connection: Connection) -> list[Collection]:
    rows = connection.execute(_counted())
    return sorted((Collection(*row) for row in rows), key=lambda each: each.name.casefold())


def _one(connection: Connection, collection_id: str) -> Collection:
    row = connection.execute(_counted().where(collections.c.id == collection_id)).first()
    if row is None:
        raise NotFound("collection", collection_id)
    return Collection(*row)
