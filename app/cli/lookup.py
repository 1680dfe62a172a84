"""What a person typed -> the document, collection or answer that is meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retrieval.errors import InvalidRequest, NotFound
from retrieval.types.records import Document, Scope

if TYPE_CHECKING:
    from retrieval.library import Library

SHORTEST_PREFIX = 4


def find_document(library: Library, key: str) -> Document:
    """By id, by file name, or by the start of an id (4 characters or more).

    Raises NotFound, or InvalidRequest if several fit.
    """
    documents = library.documents()
    for fits in (
        [one for one in documents if one.id == key],
        [one for one in documents if one.source == key],
        [one for one in documents if len(key) >= SHORTEST_PREFIX and one.id.startswith(key)],
    ):
        if len(fits) > 1:
            ids = ", ".join(one.id for one in fits[:5])
            raise InvalidRequest(f"{key!r} matches {len(fits)} documents; give one of these ids: {ids}")
        if fits:
            return fits[0]
    raise NotFound("document", key)


def find_answer_id(library: Library, key: str) -> str:
    """By id, by the start of an id (4 characters or more), or `last`."""
    heads = library.answers(limit=10_000)
    if key == "last" and heads:
        return heads[0].id
    fits = [one.id for one in heads if one.id == key or (len(key) >= SHORTEST_PREFIX and one.id.startswith(key))]
    if len(fits) > 1:
        raise InvalidRequest(f"{key!r} matches {len(fits)} answers; give more of the id.")
    if not fits:
        raise NotFound("answer", key)
    return fits[0]


def scope_of(
    library: Library,
    documents: Sequence[str] | None,
    collections: Sequence[str] | None,
    where: Sequence[str] | None = None,
) -> Scope | None:
    """--document, --collection and --where -> what a question may see; None if none was given."""
    if not documents and not collections and not where:
        return None
    chosen = tuple(find_document(library, key).id for key in documents or ())
    known = {key: one.id for one in library.collections() for key in (one.id, one.name)} if collections else {}
    for name in collections or ():
        if name not in known:
            raise NotFound("collection", name)
    return Scope(chosen, tuple(known[name] for name in collections or ()), tuple(where or ()))
