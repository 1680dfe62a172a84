"""Collections: named sets of documents, which can be shared."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.errors import catalogue_errors
from retrieval.types.records import Collection
from retrieval.view import View


class Collections:
    """Those that one user may see. Methods that take a collection's id raise `NotFound` for any other."""

    def __init__(self, view: View):
        self.view, self._catalogue = view, view.catalogue

    @catalogue_errors()
    def create(self, name: str) -> Collection:
        return self.view.collection(self._catalogue.create_collection(name))

    @catalogue_errors()
    def rename(self, collection_id: str, name: str) -> Collection:
        return self.view.collection(self._catalogue.rename_collection(collection_id, name))

    @catalogue_errors()
    def share(
        self, collection_id: str, *, everyone: bool = False, people: Sequence[str] = (), groups: Sequence[str] = ()
    ) -> Collection:
        """Let exactly these `people` and the members of `groups` (names) read it, or everyone with an account."""
        readers = [self._catalogue.user_named(name).id for name in people]
        row = self._catalogue.share_collection(collection_id, everyone=everyone, readers=readers, groups=groups)
        return self.view.collection(row)

    @catalogue_errors()
    def delete(self, collection_id: str) -> None:
        """Its documents stay, in no collection."""
        self._catalogue.delete_collection(collection_id)

    def people(self) -> list[str]:
        """Names of all with whom one can be shared."""
        return [user.name for user in self._catalogue.users()]

    def groups(self) -> list[str]:
        """Names of the caller's groups, as single sign-on said; all of them for the administrator."""
        return self._catalogue.own_groups()

    def list(self) -> list[Collection]:
        return self.view.collections(self._catalogue.collections())
