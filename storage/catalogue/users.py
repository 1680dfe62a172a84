"""Accounts: who may sign in. Passwords and tokens arrive as hashes and cannot be recovered here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from storage.catalogue.database import one_row, record_of, update_row
from storage.catalogue.permissions import Repository, for_any_principal, readable_collections
from storage.catalogue.schema import answers, collections, conversations, documents, folders, user_groups, users
from storage.errors import NameTaken, NotFound
from storage.names import clean_name
from storage.records import User


class UserRepository(Repository):
    @for_any_principal
    def users(self) -> list[User]:
        """All accounts, by name: everyone may see who owns a document and whom they can share with."""
        return [_user(row) for row in self._rows(select(users).order_by(users.c.name))]

    def has_users(self) -> bool:
        return bool(self._rows(select(users.c.id).limit(1)))

    def user(self, user_id: str) -> User:
        """Raises `NotFound`."""
        return _user(self._row(select(users).where(users.c.id == user_id), "user", user_id))

    @for_any_principal
    def user_named(self, name: str) -> User:
        """Raises `NotFound`."""
        return _user(self._row(select(users).where(users.c.name == name), "user", name))

    def user_of_token(self, token_digest: str) -> User | None:
        found = self._rows(select(users).where(users.c.token_digest == token_digest))
        return _user(found[0]) if found else None

    def user_of_identity(self, issuer: str, subject: str) -> User | None:
        """Whom the issuer calls `subject`."""
        found = self._rows(select(users).where(users.c.issuer == issuer, users.c.subject == subject))
        return _user(found[0]) if found else None

    @for_any_principal
    def access(self) -> frozenset[str]:
        """Ids of the collections that the principal may read now. Raises `NotFound` if the account is gone."""
        with self._database.read() as connection:
            if not self.principal.is_administrator:
                account = select(users.c.id).where(users.c.id == self.principal.user_id)
                one_row(connection, account, "user", self.principal.user_id or "")
            readable = select(collections.c.id).where(readable_collections(self.principal))
            return frozenset(connection.execute(readable).scalars())

    @for_any_principal
    def own_groups(self) -> list[str]:
        """Groups that the principal had when they last signed in elsewhere, by name; of all for the administrator."""
        names = select(user_groups.c.name).distinct().order_by(user_groups.c.name)
        if not self.principal.is_administrator:
            names = names.where(user_groups.c.user_id == self.principal.user_id)
        return [row.name for row in self._rows(names)]

    def add_user(self, name: str, password_hash: str, *, issuer: str | None = None, subject: str | None = None) -> User:
        """Raises `NameTaken`, also for an identity that has an account; `ValueError` for a name that `clean_name` would
        change."""
        if not name or name != clean_name(name):
            raise ValueError(f"{name!r} cannot be a user's name.")
        try:
            with self._database.write() as connection:
                row = {"name": name, "password_hash": password_hash, "issuer": issuer, "subject": subject}
                connection.execute(insert(users).values(row))
        except IntegrityError as error:
            raise NameTaken(f"There is already a user named {name!r}.") from error
        return self.user_named(name)

    def set_password_hash(self, user_id: str, password_hash: str) -> None:
        """Raises `NotFound`."""
        self._change(user_id, password_hash=password_hash)

    def set_token_digest(self, user_id: str, token_digest: str | None) -> None:
        """A user has one token: a new one replaces the old one, None removes it. Raises `NotFound`."""
        self._change(user_id, token_digest=token_digest)

    def set_identity(self, user_id: str, issuer: str | None, subject: str | None) -> None:
        """From now on this identity is this user, None: none. Raises `NotFound`, and `NameTaken` if it is another's."""
        try:
            self._change(user_id, issuer=issuer, subject=subject)
        except IntegrityError as error:
            raise NameTaken("This identity belongs to another account.") from error

    def set_groups(self, user_id: str, names: Iterable[str]) -> None:
        """The groups that the user is in from now on. Raises `NotFound`."""
        rows = [{"user_id": user_id, "name": name} for name in dict.fromkeys(names)]
        with self._database.write() as connection:
            one_row(connection, select(users).where(users.c.id == user_id), "user", user_id)
            connection.execute(delete(user_groups).where(user_groups.c.user_id == user_id))
            if rows:
                connection.execute(insert(user_groups), rows)

    def _change(self, user_id: str, **values: str | None) -> None:
        with self._database.write() as connection:
            if not update_row(connection, users, user_id, **values):
                raise NotFound("user", user_id)

    def transfer_ownership(self, new_owner_id: str, owner_id: str | None) -> int:
        """Give all documents and collections of one user to another. `owner_id` None gives what has no owner, answers
        and conversations included. Returns the number of documents."""
        with self._database.write() as connection:
            theirs = select(collections).where(collections.c.owner_id.is_not_distinct_from(owner_id))
            for row in connection.execute(theirs).all():
                name = _free_name(connection, row.name, new_owner_id)
                update_row(connection, collections, row.id, owner_id=new_owner_id, name=name)
            if owner_id is None:
                for table in (conversations, answers):
                    connection.execute(update(table).where(table.c.owner_id.is_(None)).values(owner_id=new_owner_id))
            followed = update(folders).where(folders.c.owner_id.is_not_distinct_from(owner_id))
            connection.execute(followed.values(owner_id=new_owner_id))
            given = update(documents).where(documents.c.owner_id.is_not_distinct_from(owner_id))
            return connection.execute(given.values(owner_id=new_owner_id)).rowcount

    def delete_user(self, user_id: str) -> None:
        """Delete the account with its answers, conversations and collections. Transfer or delete its documents first.

        Raises `NotFound`, and `ValueError` while the user owns documents.
        """
        with self._database.write_to_delete() as connection:
            if connection.execute(select(documents.c.id).where(documents.c.owner_id == user_id).limit(1)).first():
                raise ValueError("The user still owns documents.")
            for table in (answers, conversations, collections, folders):
                connection.execute(delete(table).where(table.c.owner_id == user_id))
            if connection.execute(delete(users).where(users.c.id == user_id)).rowcount == 0:
                raise NotFound("user", user_id)


def _free_name(connection: Connection, name: str, owner_id: str) -> str:
    """The name, with a number appended if the owner already has a collection of that name."""
    taken = set(connection.execute(select(collections.c.name).where(collections.c.owner_id == owner_id)).scalars())
    free, number = name, 2
    while free in taken:
        free, number = f"{name} ({number})", number + 1
    return free


def _user(row: Row[Any]) -> User:
    return record_of(User, row, has_token=row.token_digest is not None)
