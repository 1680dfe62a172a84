"""Accounts: who may sign in. Secrets arrive as hashes; this module cannot read them back."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from storage.catalogue.permissions import Repository, for_any_principal
from storage.catalogue.rows import now, update_row
from storage.catalogue.schema import answers, collections, conversations, documents, users
from storage.errors import NameTaken, NotFound
from storage.records import User


class UserRepository(Repository):
    @for_any_principal
    def users(self) -> list[User]:
        """All accounts, by name: everyone may see whose a document is and choose whom to share with."""
        with self._database.read() as connection:
            return [_user(row) for row in connection.execute(select(users).order_by(users.c.name))]

    def has_users(self) -> bool:
        with self._database.read() as connection:
            return connection.execute(select(users.c.id).limit(1)).first() is not None

    def user(self, user_id: str) -> User:
        """Raises `NotFound`."""
        return self._one(users.c.id == user_id, user_id)

    @for_any_principal
    def user_named(self, name: str) -> User:
        """Raises `NotFound`."""
        return self._one(users.c.name == name, name)

    def user_of_token(self, token_digest: str) -> User | None:
        with self._database.read() as connection:
            row = connection.execute(select(users).where(users.c.token_digest == token_digest)).first()
            return None if row is None else _user(row)

    def _one(self, condition: ColumnElement[bool], key: str) -> User:
        with self._database.read() as connection:
            row = connection.execute(select(users).where(condition)).first()
            if row is None:
                raise NotFound("user", key)
            return _user(row)

    def add_user(self, name: str, password_hash: str) -> User:
        """Raises `NameTaken`."""
        row = {"id": uuid4().hex, "name": name, "password_hash": password_hash, "created_at": now()}
        try:
            with self._database.write() as connection:
                connection.execute(insert(users).values(row))
        except IntegrityError as error:
            raise NameTaken(f"There is already a user named {name!r}.") from error
        return self.user(row["id"])

    def set_password_hash(self, user_id: str, password_hash: str) -> None:
        """Raises `NotFound`."""
        self._change(user_id, password_hash=password_hash)

    def set_token_digest(self, user_id: str, token_digest: str | None) -> None:
        """A user has one token: a new one replaces the old one, None removes it. Raises `NotFound`."""
        self._change(user_id, token_digest=token_digest)

    def _change(self, user_id: str, **values: str | None) -> None:
        with self._database.write() as connection:
            if not update_row(connection, users, user_id, **values):
                raise NotFound("user", user_id)

    def transfer_ownership(self, new_owner_id: str, owner_id: str | None) -> int:
        """Give all documents and collections of a user to another; with `owner_id` None, those of nobody, with their
        answers and conversations. Returns the number of documents."""
        with self._database.write() as connection:
            theirs = select(collections).where(collections.c.owner_id.is_not_distinct_from(owner_id))
            for row in connection.execute(theirs).all():
                name = _free_name(connection, row.name, new_owner_id)
                update_row(connection, collections, row.id, owner_id=new_owner_id, name=name)
            if owner_id is None:
                for table in (conversations, answers):
                    connection.execute(update(table).where(table.c.owner_id.is_(None)).values(owner_id=new_owner_id))
            given = update(documents).where(documents.c.owner_id.is_not_distinct_from(owner_id))
            return connection.execute(given.values(owner_id=new_owner_id)).rowcount

    def delete_user(self, user_id: str) -> None:
        """Delete the account with its answers, conversations and collections; transfer or delete its documents first.

        Raises `NotFound`, and `ValueError` while the user owns documents.
        """
        with self._database.write() as connection:
            if connection.execute(select(documents.c.id).where(documents.c.owner_id == user_id).limit(1)).first():
                raise ValueError("The user still owns documents.")
            for table in (answers, conversations, collections):
                connection.execute(delete(table).where(table.c.owner_id == user_id))
            if connection.execute(delete(users).where(users.c.id == user_id)).rowcount == 0:
                raise NotFound("user", user_id)
        self._database.erase_deleted()


def _free_name(connection: Connection, name: str, owner_id: str) -> str:
    """The name, with a number appended if the owner already has a collection of that name."""
    taken = set(connection.execute(select(collections.c.name).where(collections.c.owner_id == owner_id)).scalars())
    free, number = name, 2
    while free in taken:
        free, number = f"{name} ({number})", number + 1
    return free


def _user(row: Row[Any]) -> User:
    return User(row.id, row.name, row.password_hash, row.token_digest is not None, row.created_at)
