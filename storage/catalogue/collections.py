"""Collections: named shelves of documents, and who may read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from storage.catalogue.documents import delete_document_rows
from storage.catalogue.names import checked_name, collection_row
from storage.catalogue.rows import Tables
from storage.catalogue.schema import collection_readers, collections, documents
from storage.catalogue.sharing import owned, readable_collections
from storage.errors import NameTaken, NotFound
from storage.records import Collection, DeletedDocuments


class CollectionTables(Tables):
    def collections(self, *, reader: str | None = None) -> list[Collection]:
        """All collections (that this user may read), by name, with how many documents each holds."""
        with self.database.read() as connection:
            rows = connection.execute(_counted().where(readable_collections(reader))).all()
            return sorted(_collections(connection, rows), key=lambda each: each.name.casefold())

    def collection(self, collection_id: str, *, reader: str | None = None) -> Collection:
        """Raises `NotFound`."""
        with self.database.read() as connection:
            return _one(connection, collection_id, reader)

    def create_collection(self, name: str, *, owner_id: str | None = None) -> Collection:
        """Raises `NameTaken`, and `ValueError` for an empty name."""
        name = checked_name(name)
        row = collection_row(name, owner_id)
        try:
            with self.database.write() as connection:
                connection.execute(insert(collections).values(row))
        except IntegrityError as error:
            raise NameTaken(f"There is a collection named {name!r} already.") from error
        return Collection(row["id"], name, 0, row["created_at"], owner_id)

    def rename_collection(self, collection_id: str, name: str) -> Collection:
        """Raises `NotFound`, `NameTaken`, and `ValueError` for an empty name."""
        name = checked_name(name)
        try:
            with self.database.write() as connection:
                _one(connection, collection_id)
                connection.execute(update(collections).where(collections.c.id == collection_id).values(name=name))
                return _one(connection, collection_id)
        except IntegrityError as error:
            raise NameTaken(f"There is a collection named {name!r} already.") from error

    def share_collection(self, collection_id: str, *, everyone: bool, readers: Iterable[str]) -> Collection:
        """From now on these users may read it, or everyone; who else could, cannot any more. Raises `NotFound`."""
        rows = [{"collection_id": collection_id, "user_id": user_id} for user_id in dict.fromkeys(readers)]
        try:
            with self.database.write() as connection:
                _one(connection, collection_id)
                mine = update(collections).where(collections.c.id == collection_id)
                connection.execute(mine.values(everyone=everyone))
                former = collection_readers.c.collection_id == collection_id
                connection.execute(collection_readers.delete().where(former))
                if rows:
                    connection.execute(insert(collection_readers), rows)
                return _one(connection, collection_id)
        except IntegrityError as error:
            raise NotFound("user among those to share with", collection_id) from error

    def delete_collection(
        self, collection_id: str, *, with_documents: bool = False, deleter: str | None = None
    ) -> DeletedDocuments:
        """Remove the collection; its documents stay, in no collection, unless `with_documents`. Raises `NotFound`.

        `deleter` as in `delete_documents`; of the documents, only this user's own go with it.
        """
        with self.database.write() as connection:
            _one(connection, collection_id)
            inside = (documents.c.collection_id == collection_id) & owned(documents.c.owner_id, deleter)
            ids = list(connection.execute(select(documents.c.id).where(inside)).scalars()) if with_documents else []
            deleted = delete_document_rows(connection, ids, deleter)
            connection.execute(collections.delete().where(collections.c.id == collection_id))
        self.database.erase_deleted()
        return deleted


def _counted() -> Select[Any]:
    numbers = select(documents.c.collection_id, func.count().label("number"))
    counts = numbers.group_by(documents.c.collection_id).subquery()
    return select(collections, func.coalesce(counts.c.number, 0).label("number")).select_from(
        collections.outerjoin(counts, counts.c.collection_id == collections.c.id)
    )


def _one(connection: Connection, collection_id: str, reader: str | None = None) -> Collection:
    chosen = _counted().where(collections.c.id == collection_id, readable_collections(reader))
    found = _collections(connection, connection.execute(chosen).all())
    if not found:
        raise NotFound("collection", collection_id)
    return found[0]


def _collections(connection: Connection, rows: Sequence[Row[Any]]) -> list[Collection]:
    readers: dict[str, list[str]] = {}
    if any(row.owner_id is not None for row in rows):
        shared = select(collection_readers).order_by(collection_readers.c.user_id)
        for collection_id, user_id in connection.execute(shared):
            readers.setdefault(collection_id, []).append(user_id)
    return [
        Collection(
            row.id, row.name, row.number, row.created_at, row.owner_id, row.everyone, tuple(readers.get(row.id, ()))
        )
        for row in rows
    ]
