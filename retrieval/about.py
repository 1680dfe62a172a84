"""What a library says about its documents: descriptions, questions that they can answer, pages. Part of `Library`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from retrieval.errors import PermissionDenied, catalogue_errors
from retrieval.index.exact_text import TextMatch, Wanted, matches
from retrieval.index.snapshot import scope_documents
from retrieval.ingest import pages
from retrieval.ingest.file_store import free_bytes
from retrieval.replicas import Replicas
from retrieval.types.answers import PageBox
from retrieval.types.records import (
    Description,
    Document,
    Figures,
    PageText,
    Scope,
    SetAside,
    Suggestion,
    TextHit,
    page_number,
    page_of,
    page_text_view,
)

if TYPE_CHECKING:
    from retrieval.engine.workspace import Workspace
    from retrieval.index.snapshot import MemoryIndex
    from retrieval.query.passage_builder import PassageBuilder
    from retrieval.suggestions.describer import Describer
    from retrieval.types.records import Views
    from storage.catalogue import Catalogue
    from storage.records import Principal

_LOOKED_AT = 24
"""Documents among which suggested questions are looked for."""


class About:
    """Descriptions of documents."""

    _workspace: Workspace
    _catalogue: Catalogue
    _passages: PassageBuilder
    _views: Views
    _describer: Describer
    _index: MemoryIndex
    principal: Principal

    def check_administrator(self) -> None:
        """Raises PermissionDenied for a user."""
        if not self.principal.is_administrator:
            raise PermissionDenied("library")

    def note_terms(self, go_on: Callable[[], bool] = lambda: True) -> int:
        """Record the words of stored blocks that lack them, as in a library of an older release, for as long as `go_on`
        says so. Returns the number of shards done. Raises PermissionDenied for a user."""
        from retrieval.index.rare_terms import note_terms  # the model's libraries take seconds to import

        self.check_administrator()
        with catalogue_errors():
            return note_terms(self._workspace, go_on=go_on)

    @property
    def replicas(self) -> Replicas:
        """What the servers of this library share. Raises PermissionDenied for a user."""
        self.check_administrator()
        return Replicas(self._catalogue, self._workspace.blobs)

    @catalogue_errors()
    def figures(self) -> Figures:
        """What whoever runs this watches; cheap. Raises PermissionDenied for a user."""
        self.check_administrator()
        totals = self._catalogue.totals()
        return Figures(
            jobs=self._catalogue.num_jobs_by_state(),
            num_documents=totals.num_documents,
            num_tokens=totals.num_tokens,
            stored_bytes=totals.size_bytes,
            resident_bytes=self._index.size_bytes,
            free_bytes=free_bytes(self._workspace),
        )

    @catalogue_errors()
    def description(self, document_id: str) -> Description:
        """What a document is about. Its questions are made later, see `describe_next`. Raises NotFound."""
        document = self._views.document(self._catalogue.document(document_id))
        return self._describer.description(document, lambda: self._passages.text(document_id))

    def descriptions(self, documents: Sequence[Document]) -> dict[str, Description]:
        """By document id, of those that have been described."""
        found = {one.id: self._describer.kept(one.id) for one in documents}
        return {document_id: one for document_id, one in found.items() if one is not None}

    @catalogue_errors()
    def suggestions(self, count: int = 3, *, within: Scope | None = None) -> list[Suggestion]:
        """Questions that the newest documents in scope can answer, of as many documents as possible. Raises NotFound
        and InvalidRequest for a scope that a question could not have either."""
        wanted = scope_documents(self._catalogue, within) if within not in (None, Scope()) else None
        newest = [
            one
            for one in self._views.documents(self._catalogue.documents(sort="added"))
            if one.state == "ready" and (wanted is None or one.id in wanted)
        ][:_LOOKED_AT]
        described = self.descriptions(newest)
        each = [
            [Suggestion(question, one.id, one.title or one.source) for question in described[one.id].questions]
            for one in newest
            if one.id in described
        ]
        rounds = (one for row in zip_longest(*each) for one in row if one is not None)
        return list(islice(rounds, count))

    @catalogue_errors()
    def describe_next(self) -> bool:
        """Describe one document that has no description yet, when there is nothing else to do. False if all have one.

        The questions of a description are tried at the model, behind everybody's own. Raises PermissionDenied for a
        user.
        """
        if not self.principal.is_administrator:
            raise PermissionDenied("library")
        return self._describer.next(self._views.documents(self._catalogue.documents(sort="added")))

    @catalogue_errors()
    def page_text(self, document_id: str, page: int) -> PageText:
        """Text of one page (from 1) with its blocks. Raises NotFound."""
        return pages.page_text(
            self._workspace,
            self._views.document(self._catalogue.document(document_id)),
            self._passages.text(document_id),
            page,
        )

    @catalogue_errors()
    def page_labels(self, document_id: str) -> list[str]:
        """The printed number of each page, or what each part is called. Raises NotFound."""
        self._catalogue.document(document_id)
        return [page.label for page in self._catalogue.pages(document_id)]

    @catalogue_errors()
    def set_aside(self, document_id: str) -> list[SetAside]:
        """What was set aside when the document was read. Raises NotFound."""
        kept = self._catalogue.extras(document_id).get("asides", ())
        return [SetAside(str(kind), page_of(int(page)), str(text)) for kind, page, text in kept]

    @catalogue_errors()
    def boxes(self, document_id: str, start: int, end: int) -> list[PageBox]:
        """Where these characters of the text stand: a box a line; none without pages. Raises NotFound, ExtractError."""
        return pages.boxes_of(
            self._workspace,
            self._views.document(self._catalogue.document(document_id)),
            self._passages.text(document_id),
            start,
            end,
        )

    @catalogue_errors()
    def find(self, document_id: str, words: str) -> list[TextHit]:
        """Where these words stand in a document, in any case. Raises NotFound."""
        return pages.find(
            self._workspace,
            self._views.document(self._catalogue.document(document_id)),
            self._passages.text(document_id),
            words,
        )

    @catalogue_errors()
    def grep(
        self, pattern: str, *, expression: bool = False, within: Scope | None = None, limit: int = 100, each: int = 20
    ) -> list[TextMatch]:
        """Where these words stand in the documents in scope, or with `expression` what matches a regular expression:
        at most `limit` places, `each` of one document, newest documents first. Raises NotFound, InvalidRequest."""
        wanted = Wanted.of_expression(pattern) if expression else Wanted.of_words(pattern)
        rows = self._catalogue.documents(sort="added")
        if within not in (None, Scope()):
            ids = scope_documents(self._catalogue, within)
            rows = [row for row in rows if row.id in ids]
        return list(islice(matches(self._catalogue, rows, wanted, each=each), limit))

    @catalogue_errors()
    def read(self, document_id: str, first: int = 1, last: int | None = None) -> list[PageText]:
        """Text of the pages from `first` to `last` (from 1; default: to the end), without their blocks. Raises NotFound
        for a document or a first page that is not there."""
        document = self._views.document(self._catalogue.document(document_id))
        rows = self._catalogue.pages(document_id)
        number = page_number(first, document, len(rows))
        text = self._passages.text(document_id)
        return [page_text_view(document_id, row, text, {}) for row in rows[number:last]]

    @property
    def num_described(self) -> int:
        """Descriptions made since the library was opened."""
        return self._describer.made
