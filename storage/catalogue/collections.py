"""Collections: named sets of documents, and who may read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from storage.catalogue.database import record_of, update_row
from storage.catalogue.permissions import Repository, for_any_principal, readable_collections
from storage.catalogue.schema import collection_groups, collection_readers, collections, documents, user_groups
from storage.errors import NameTaken, NotFound, PermissionDenied
from storage.names import clean_name
from storage.records import Collection, Principal


class CollectionRepository(Repository):
    @for_any_principal
    def collections(self) -> list[Collection]:
        """All collections, by name."""
        with self._database.read() as connection:
            rows = connection.execute(_counted().where(readable_collections(self.principal))).all()
            return sorted(_with_readers(connection, rows), key=lambda each: each.name.casefold())

    @for_any_principal
    def collection(self, collection_id: str) -> Collection:
        """Raises `NotFound`."""
        with self._database.read() as connection:
            return one_collection(connection, self.principal, collection_id)

    @for_any_principal
    def create_collection(self, name: str) -> Collection:
        """Raises `NameTaken`, and `ValueError` for an empty name."""
        name = checked_name(name)
        with _unique(name), self._database.write() as connection:
            collection_id = insert_collection(connection, name, self.principal.user_id)
            return one_collection(connection, self.principal, collection_id)

    @for_any_principal
    def rename_collection(self, collection_id: str, name: str) -> Collection:
        """Raises `NotFound`, `PermissionDenied`, `NameTaken`, and `ValueError` for an empty name."""
        name = checked_name(name)
        with _unique(name), self._database.write() as connection:
            one_collection(connection, self.principal, collection_id, to_change=True)
            update_row(connection, collections, collection_id, name=name)
            return one_collection(connection, self.principal, collection_id)

    @for_any_principal
    def share_collection(
        self, collection_id: str, *, everyone: bool, readers: Iterable[str], groups: Iterable[str] = ()
    ) -> Collection:
        """Share it with exactly these users and groups, or with everyone. Users name groups that they are in, or that
        it is shared with already. Raises `NotFound`, `PermissionDenied`."""
        users = [{"collection_id": collection_id, "user_id": user_id} for user_id in dict.fromkeys(readers)]
        members = [{"collection_id": collection_id, "name": name} for name in dict.fromkeys(groups)]
        try:
            with self._database.write() as connection:
                before = one_collection(connection, self.principal, collection_id, to_change=True)
                self._check_groups(connection, {one["name"] for one in members} - set(before.groups))
                update_row(connection, collections, collection_id, everyone=everyone)
                for table, rows in ((collection_readers, users), (collection_groups, members)):
                    connection.execute(delete(table).where(table.c.collection_id == collection_id))
                    if rows:
                        connection.execute(insert(table), rows)
                return one_collection(connection, self.principal, collection_id)
        except IntegrityError as error:
            raise NotFound("user among those to share with", collection_id) from error

    def _check_groups(self, connection: Connection, names: set[str]) -> None:
        known = select(user_groups.c.name)
        if not self.principal.is_administrator:
            known = known.where(user_groups.c.user_id == self.principal.user_id)
        for name in sorted(names - set(connection.execute(known).scalars())):
            raise NotFound("group", name)

    @for_any_principal
    def delete_collection(self, collection_id: str) -> None:
        """Its documents stay, outside any collection. Raises `NotFound`, `PermissionDenied`."""
        with self._database.write_to_delete() as connection:
            one_collection(connection, self.principal, collection_id, to_change=True)
            connection.execute(delete(collections).where(collections.c.id == collection_id))


def checked_name(name: str) -> str:
    """The name as it is kept (`clean_name`). Raises `ValueError` if nothing is left."""
    name = clean_name(name)
    if not name:
        raise ValueError("A collection needs a name.")
    return name


def one_collection(
    connection: Connection, principal: Principal, collection_id: str, *, to_change: bool = False
) -> Collection:
    """The collection. Raises `NotFound`, and `PermissionDenied` if the principal may only read what is to be
    changed."""
    chosen = _counted().where(collections.c.id == collection_id, readable_collections(principal))
    found = _with_readers(connection, connection.execute(chosen).all())
    if not found:
        raise NotFound("collection", collection_id)
    if to_change and not principal.may_change(found[0].owner_id):
        raise PermissionDenied("collection")
    return found[0]


def insert_collection(connection: Connection, name: str, owner_id: str | None) -> str:
    """Inside the caller's transaction. Returns the id."""
    inserted = insert(collections).values(name=name, owner_id=owner_id).returning(collections.c.id)
    return str(connection.execute(inserted).scalar_one())


def find_or_insert_collection(connection: Connection, name: str, owner_id: str | None) -> str:
    """The id of the owner's collection of that name, which is created if it does not exist."""
    mine = (collections.c.name == name) & collections.c.owner_id.is_not_distinct_from(owner_id)
    found = connection.execute(select(collections.c.id).where(mine)).scalar()
    return insert_collection(connection, name, owner_id) if found is None else str(found)


@contextmanager
def _unique(name: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise NameTaken(f"There is already a collection named {name!r}.") from error


def _counted() -> Select[Any]:
    number = select(func.count()).where(documents.c.collection_id == collections.c.id)
    return select(collections, number.scalar_subquery().label("num_documents"))


def _with_readers(connection: Connection, rows: Sequence[Row[Any]]) -> list[Collection]:
    readers: dict[str, list[str]] = {}
    groups: dict[str, list[str]] = {}
    if any(row.owner_id is not None for row in rows):
        for table, found in ((collection_readers, readers), (collection_groups, groups)):
            for collection_id, one in connection.execute(select(table).order_by(*table.primary_key)):
                found.setdefault(collection_id, []).append(one)
    return [
        record_of(Collection, row, readers=tuple(readers.get(row.id, ())), groups=tuple(groups.get(row.id, ())))
        for row in rows
    ]
