"""Finds out which questions a document answers, by asking them. No answer is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retrieval.engine.workspace import Workspace
from retrieval.index.blocks import MemorySnapshot
from retrieval.index.snapshot import MemoryIndex
from retrieval.query.draft import AnswerSelector
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.question import Question
from retrieval.query.retrieve import retrieve
from retrieval.suggestions.questions import Candidate
from retrieval.types.answers import DEFAULT_K
from retrieval.types.records import Scope


@dataclass(frozen=True)
class Asker:
    """Asks about one document."""

    workspace: Workspace
    index: MemoryIndex
    passages: PassageBuilder
    document_id: str

    def probability(self, candidate: Candidate) -> float:
        """Probability that the document answers with the very sentence that the question was made from; 0 if it quotes
        another, or only perhaps. Questions of users go first."""
        question = Question(
            text=candidate.question, k=DEFAULT_K, quote=True, scope=Scope(document_ids=(self.document_id,))
        )
        self.workspace.scheduler.wait_for_queries()
        with self.index.open_snapshot(self.workspace.catalogue) as snapshot:
            return self._probability(question, snapshot, candidate)

    def _probability(self, question: Question, snapshot: MemorySnapshot, candidate: Candidate) -> float:
        retrieved = retrieve(self.workspace, self.index, snapshot, question)
        selector = AnswerSelector(self.workspace, self.index, self.passages, question)
        decided = selector.decide(retrieved)
        if decided.outcome != "found" or decided.quotable is None or not decided.quotations:
            return 0.0
        quotation = decided.quotations[0]
        if not quotation.places:
            return 0.0
        start, end = decided.quotable.span(quotation.places)
        same = start < candidate.stop and candidate.start < end
        if candidate.kind == "heading":  # answered by what follows it
            same = candidate.stop <= start < candidate.stop + _BEHIND_HEADING
        sure = quotation.probability if quotation.probability is not None else retrieved.search_result.confidence
        return sure if same else 0.0


_BEHIND_HEADING = 1500
_ENOUGH = 2  # times as many as are wanted


def best_questions(asker: Asker, found: Sequence[Candidate], count: int, *, most_asked: int) -> list[str]:
    """Questions that the document answers, of different subjects and from different parts, at most `count`."""
    answered: list[tuple[float, Candidate]] = []
    for candidate in found[:most_asked]:
        sure = asker.probability(candidate)
        if sure > 0:
            answered.append((sure * candidate.worth, candidate))
        if len(answered) == _ENOUGH * count:
            break
    chosen: list[Candidate] = []
    for _, candidate in sorted(answered, key=lambda each: -each[0]):
        if not any(_alike(candidate, other) for other in chosen):
            chosen.append(candidate)
    return [candidate.question for candidate in chosen[:count]]


def _alike(one: Candidate, other: Candidate) -> bool:
    first, second = ({word.rstrip("s") for word in each.subject.casefold().split()} for each in (one, other))
    return bool(first & second - {"the", "of", "and", "a", "an", "in"})
