"""Describes documents one after the other, when there is nothing else to do.

Opening a library imports this: what needs the model's libraries is imported where it is needed.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

from retrieval.engine.workspace import Workspace
from retrieval.errors import CairnError
from retrieval.index.snapshot import MemoryIndex
from retrieval.query.passage_builder import PassageBuilder
from retrieval.suggestions.questions import describe, keep, kept, ranked_candidates
from retrieval.types.records import Description, Document

log = logging.getLogger("cairn.describing")

QUESTIONS = 3
_MOST_ASKED = 18
"""Questions that are tried for a document: about a second each."""


@dataclass(eq=False)
class Describer:
    """For the whole library; what it makes is read by everybody who may see the document."""

    workspace: Workspace
    index: MemoryIndex
    passages: PassageBuilder
    made: int = 0
    """Descriptions made since the library was opened."""
    _failed: set[str] = field(default_factory=set)

    def description(self, document: Document, text: Callable[[], str]) -> Description:
        """What is kept, else what can be said at once."""
        return self.kept(document.id) or describe(document, text())

    def kept(self, document_id: str) -> Description | None:
        return kept(self.workspace.pages_folder / document_id)

    def next(self, documents: list[Document]) -> bool:
        """Describe one of these that has none yet; False if all have."""
        for document in documents:
            if document.state != "ready" or document.id in self._failed or self.kept(document.id) is not None:
                continue
            try:
                self._describe(document)
            except CairnError as error:
                log.warning("%s has no description: %s", document.source, error)
                self._failed.add(document.id)
            return True
        return False

    def _describe(self, document: Document) -> None:
        text = self.passages.text(document.id)
        plain = describe(document, text)
        questions: list[str] = []
        if self.workspace.loaded().model.config.quotes_sentences:
            from retrieval.suggestions.answered import Asker, best_questions

            asker = Asker(self.workspace, self.index, self.passages, document.id)
            found = ranked_candidates(text, plain.key_terms)
            questions = best_questions(asker, found, QUESTIONS, most_asked=_MOST_ASKED)
        folder = self.workspace.pages_folder / document.id
        keep(folder, describe(document, text, questions))
        self.made += 1
        if document.id not in self.workspace.catalogue.document_ids():  # deleted meanwhile
            shutil.rmtree(folder, ignore_errors=True)
