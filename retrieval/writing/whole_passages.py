"""All segments of the chosen documents, as passages."""

from __future__ import annotations

from retrieval.engine.workspace import Workspace
from retrieval.query.passage_builder import PassageBuilder
from retrieval.types.passages import Passage
from retrieval.types.records import Scope
from retrieval.writers.segments import segments_of
from retrieval.writing.found_passages import segment_passage


def all_segments(workspace: Workspace, builder: PassageBuilder, scope: Scope | None) -> tuple[Passage, ...]:
    """Of every ready document in scope, in the order of titles; all documents without a scope. Raises
    `storage.errors.NotFound` for unknown documents and collections."""
    chosen = scope or Scope()
    for document_id in chosen.document_ids:
        workspace.catalogue.document(document_id)
    for collection_id in chosen.collection_ids:
        workspace.catalogue.collection(collection_id)
    everything = chosen == Scope()
    found: list[Passage | None] = []
    for document in workspace.catalogue.documents(sort="title"):
        wanted = document.id in chosen.document_ids or document.collection_id in chosen.collection_ids
        if document.state == "ready" and (everything or wanted):
            places = segments_of(builder.text(document.id))
            found += [segment_passage(workspace, builder, document.id, start, end, {}) for start, end in places]
    return tuple(passage for passage in found if passage is not None)
