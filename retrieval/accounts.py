"""Accounts of the people who share one library. Secrets arrive as hashes, which the app makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from retrieval.errors import InvalidRequest, NotFound, catalogue_errors
from storage.catalogue import Catalogue
from storage.errors import NotFound as NoRow
from storage.records import User

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Accounts:
    """Who may sign in. Without accounts the library has a single owner, who need not sign in."""

    def __init__(self, catalogue: Catalogue):
        self._catalogue = catalogue

    @property
    def any(self) -> bool:
        return self._catalogue.has_users()

    def get(self, name: str) -> User:
        """Raises NotFound."""
        with catalogue_errors():
            return self._catalogue.user_named(name.strip().lower())

    def named(self, name: str) -> User | None:
        """None if there is no such account."""
        try:
            return self.get(name)
        except NotFound:
            return None

    def by_id(self, user_id: str) -> User | None:
        """None if the account is gone."""
        try:
            return self._catalogue.user(user_id)
        except NoRow:
            return None

    def of_token(self, token_digest: str) -> User | None:
        return self._catalogue.user_of_token(token_digest)

    def of_identity(self, issuer: str, subject: str) -> User | None:
        """The user whom this issuer calls `subject` (OpenID Connect)."""
        return self._catalogue.user_of_identity(issuer, subject)

    def link(self, user: User, issuer: str, subject: str) -> None:
        """Link the issuer's `subject` to this user. Raises InvalidRequest if it is linked to somebody else, or the user
        has a link already."""
        if not subject:
            raise InvalidRequest("The subject is empty: give what the provider calls this person (sub).")
        if user.subject is not None and (user.issuer, user.subject) != (issuer, subject):
            raise InvalidRequest(f"{user.name} is linked already. `cairn user unlink {user.name}` ends that.")
        with catalogue_errors():
            self._catalogue.set_identity(user.id, issuer, subject)

    def unlink(self, user: User) -> None:
        """End a user's link: sessions opened through it end, and its groups no longer count."""
        self._catalogue.set_identity(user.id, None, None)
        self._catalogue.set_groups(user.id, ())

    def set_groups(self, user: User, names: Sequence[str]) -> None:
        self._catalogue.set_groups(user.id, names)

    def create(self, name: str, password_hash: str, *, issuer: str | None = None, subject: str | None = None) -> User:
        """Names are kept in lower case; `password_hash` "" for an account that only its identity opens. Raises
        InvalidRequest for a name that is taken or not valid."""
        name = name.strip().lower()
        if not NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} cannot be a user's name: use letters a-z, digits, dots, dashes and underscores, at most 64."
            )
        with catalogue_errors():
            return self._catalogue.add_user(name, password_hash, issuer=issuer, subject=subject)

    def set_password_hash(self, user: User, password_hash: str) -> None:
        self._catalogue.set_password_hash(user.id, password_hash)

    def set_token_digest(self, user: User, token_digest: str | None) -> None:
        """A user has one token; None removes it."""
        self._catalogue.set_token_digest(user.id, token_digest)

    def transfer_ownership(self, new_owner: User, owner: User | None = None) -> int:
        """Give all documents and collections of `owner` to another user; without `owner`, all that nobody owns, answers
        included. Returns the number of documents."""
        return self._catalogue.transfer_ownership(new_owner.id, owner.id if owner else None)

    def delete(self, user: User, delete_documents: Callable[[list[str]], object] | None = None) -> None:
        """Delete the account with its answers. Its documents are deleted by `delete_documents`; without that function,
        raises InvalidRequest while it owns some."""
        owned = self._catalogue.owned_document_ids(user.id)
        if owned:
            if delete_documents is None:
                raise InvalidRequest(
                    f"{user.name} owns {len(owned)} documents. Give them to another user (--give-to NAME) or delete "
                    "them with the account (--delete-documents)."
                )
            delete_documents(owned)
        self._catalogue.delete_user(user.id)

    def list(self) -> list[User]:
        """By name."""
        return self._catalogue.users()
