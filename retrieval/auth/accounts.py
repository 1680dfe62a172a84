"""Accounts of the people who share one library. Secrets arrive as hashes: how they are made is the app's business."""

from __future__ import annotations

import re
from collections.abc import Callable

from retrieval.errors import InvalidRequest, catalogue_errors
from storage.catalogue import Catalogue
from storage.errors import NotFound as NoRow
from storage.records import User

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Accounts:
    """Who may sign in. While there are no accounts the library has one owner, who needs none."""

    def __init__(self, catalogue: Catalogue):
        self._catalogue = catalogue

    @property
    def any(self) -> bool:
        return self._catalogue.has_users()

    def all(self) -> list[User]:
        """By name."""
        return self._catalogue.users()

    def named(self, name: str) -> User:
        """Raises NotFound."""
        with catalogue_errors():
            return self._catalogue.user_named(name.strip().lower())

    def by_id(self, user_id: str) -> User | None:
        """None if the account is gone."""
        try:
            return self._catalogue.user(user_id)
        except NoRow:
            return None

    def of_token(self, token_digest: str) -> User | None:
        return self._catalogue.user_of_token(token_digest)

    def add(self, name: str, password_hash: str) -> User:
        """Names are kept in small letters. Raises InvalidRequest for a name that is taken or cannot be one."""
        name = name.strip().lower()
        if not NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} cannot be a user's name: letters a-z, digits, dot, dash and underscore, at most 64."
            )
        with catalogue_errors():
            return self._catalogue.add_user(name, password_hash)

    def set_password_hash(self, user: User, password_hash: str) -> None:
        self._catalogue.set_password_hash(user.id, password_hash)

    def set_token_digest(self, user: User, token_digest: str | None) -> None:
        """One token a user; None ends it."""
        self._catalogue.set_token_digest(user.id, token_digest)

    def adopt(self, heir: User, former: User | None = None) -> int:
        """The heir gets all documents and collections of `former`; without one, all that has no owner, answers
        included. Returns the number of documents."""
        return self._catalogue.give(heir.id, former.id if former else None)

    def remove(self, user: User, delete_documents: Callable[[list[str]], object] | None = None) -> None:
        """The account with its answers. Its documents go through `delete_documents`; without that, raises
        InvalidRequest while it owns some."""
        owned = self._catalogue.owned_document_ids(user.id)
        if owned and delete_documents is None:
            raise InvalidRequest(
                f"{user.name} owns {len(owned)} documents. Give them to somebody (--give-to NAME) or delete them with "
                "the account (--delete-documents)."
            )
        if owned and delete_documents is not None:
            delete_documents(owned)
        self._catalogue.delete_user(user.id)
