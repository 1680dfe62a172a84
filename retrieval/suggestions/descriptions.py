"""Describes documents one by one when there is nothing else to do, and suggests questions.

Opening a library imports this module: it imports the model's libraries where they are needed.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest

from retrieval.errors import CairnError, catalogue_errors
from retrieval.index.snapshot import scope_documents
from retrieval.suggestions.questions import describe, keep, kept, ranked_candidates
from retrieval.types.records import Description, Document, Scope, Suggestion
from retrieval.view import View
from storage.errors import NotFound as NoRow

log = logging.getLogger("cairn.suggestions")

_LOOKED_AT = 24
"""Documents among which suggested questions are looked for."""


@dataclass(eq=False)
class _Tally:
    """Of the whole library, since it was opened."""

    made: int = 0
    failed: set[str] = field(default_factory=set)


class Descriptions:
    """Of the documents that one user may see. A description is shared by all who may see the document."""

    def __init__(self, view: View, tally: _Tally | None = None):
        self.view, self._tally = view, tally or _Tally()

    def as_seen_by(self, view: View) -> Descriptions:
        return Descriptions(view, self._tally)

    @property
    def num_made(self) -> int:
        """Since the library was opened."""
        return self._tally.made

    @catalogue_errors()
    def get(self, document_id: str) -> Description:
        """What a document is about. Its questions are made later, see `make_next`. Raises NotFound."""
        document = self.view.document(self.view.catalogue.document(document_id))
        return self._kept(document.id) or describe(document, self.view.passages.text(document_id))

    def made_for(self, documents: Sequence[Document]) -> dict[str, Description]:
        """The descriptions of those of the documents that have one, by document id."""
        found = {one.id: self._kept(one.id) for one in documents}
        return {document_id: one for document_id, one in found.items() if one is not None}

    @catalogue_errors()
    def suggestions(self, count: int = 3, *, within: Scope | None = None) -> list[Suggestion]:
        """Questions that the newest documents in scope can answer, of as many documents as possible. Raises NotFound
        and InvalidRequest for a scope that is wrong for a question too."""
        wanted = scope_documents(self.view.catalogue, within) if within not in (None, Scope()) else None
        ready = [one for one in self._newest() if one.state == "ready" and (wanted is None or one.id in wanted)]
        newest = ready[:_LOOKED_AT]
        described = self.made_for(newest)
        each = [
            [Suggestion(question, one.id, one.title or one.source) for question in described[one.id].questions]
            for one in newest
            if one.id in described
        ]
        rounds = (one for row in zip_longest(*each) for one in row if one is not None)
        return list(islice(rounds, count))

    @catalogue_errors()
    def make_next(self) -> bool:
        """Describe one document that has no description yet, when there is nothing else to do. False if all have one.

        The questions of a description are tried at the model, behind those of users. Raises PermissionDenied for a
        user.
        """
        self.view.check_administrator()
        for document in self._newest():
            if document.state != "ready" or document.id in self._tally.failed or self._kept(document.id) is not None:
                continue
            try:
                self._make(document)
            except NoRow:
                log.info("%s was deleted while it was described", document.source)
            except CairnError as error:
                log.warning("%s has no description: %s", document.source, error)
                self._tally.failed.add(document.id)
            return True
        return False

    def _newest(self) -> list[Document]:
        return self.view.documents(self.view.catalogue.documents(sort="added"))

    def _kept(self, document_id: str) -> Description | None:
        return kept(self.view.workspace.pages_folder / document_id)

    def _make(self, document: Document) -> None:
        view = self.view
        text = view.passages.text(document.id)
        plain = describe(document, text)
        questions: list[str] = []
        if view.workspace.loaded().model.config.quotes_sentences:
            from retrieval.suggestions.answered import best_questions

            questions = best_questions(view, document.id, ranked_candidates(text, plain.key_terms))
        folder = view.workspace.pages_folder / document.id
        keep(folder, describe(document, text, questions))
        self._tally.made += 1
        if document.id not in view.catalogue.document_ids():  # deleted meanwhile
            shutil.rmtree(folder, ignore_errors=True)
