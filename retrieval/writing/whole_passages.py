"""All segments of the chosen documents, as passages."""

from __future__ import annotations

from retrieval.engine.workspace import Workspace
from retrieval.index.snapshot import scope_documents
from retrieval.query.passage_builder import PassageBuilder
from retrieval.types.passages import Passage
from retrieval.types.records import Scope
from retrieval.writers.segments import segments_of
from retrieval.writing.found_passages import segment_passage


def all_segments(workspace: Workspace, builder: PassageBuilder, scope: Scope | None) -> tuple[Passage, ...]:
    """Of every ready document in scope, in the order of titles; all documents without a scope. Raises
    `storage.errors.NotFound` for unknown documents and collections."""
    wanted = scope_documents(workspace.catalogue, scope or Scope())
    found: list[Passage | None] = []
    for document in workspace.catalogue.documents(sort="title"):
        if document.state == "ready" and document.id in wanted:
            places = segments_of(builder.text(document.id))
            found += [segment_passage(workspace, builder, document.id, start, end, {}) for start, end in places]
    return tuple(passage for passage in found if passage is not None)
