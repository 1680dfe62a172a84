"""Finds out which questions a document answers, by asking them. No answer is stored."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.query.draft import AnswerSelector
from retrieval.query.question import Question
from retrieval.query.retrieve import retrieve
from retrieval.suggestions.questions import Candidate
from retrieval.types.answers import DEFAULT_K
from retrieval.types.records import Scope
from retrieval.view import View

QUESTIONS = 3
"""Questions that a description has at most."""
_TRIED = 18
"""Questions that are tried for a document: about a second each."""
_ENOUGH = 2 * QUESTIONS
_BEHIND_HEADING = 1500


def best_questions(view: View, document_id: str, found: Sequence[Candidate]) -> list[str]:
    """Questions that the document answers, of different subjects and from different parts."""
    answered: list[tuple[float, Candidate]] = []
    for candidate in found[:_TRIED]:
        sure = _probability(view, document_id, candidate)
        if sure > 0:
            answered.append((sure * candidate.worth, candidate))
        if len(answered) == _ENOUGH:
            break
    chosen: list[Candidate] = []
    for _, candidate in sorted(answered, key=lambda each: -each[0]):
        if not any(_alike(candidate, other) for other in chosen):
            chosen.append(candidate)
    return [candidate.question for candidate in chosen[:QUESTIONS]]


def _probability(view: View, document_id: str, candidate: Candidate) -> float:
    """Probability that the document answers with the very sentence that the question was made from; 0 if it quotes
    another, or only perhaps. Questions of users go first."""
    question = Question(text=candidate.question, k=DEFAULT_K, quote=True, scope=Scope(document_ids=(document_id,)))
    view.workspace.scheduler.wait_for_queries()
    with view.index.open_snapshot(view.catalogue) as snapshot:
        retrieved = retrieve(view.workspace, view.index, snapshot, question)
        decided = AnswerSelector(view.workspace, view.index, view.passages, question).decide(retrieved)
    if decided.outcome != "found" or decided.quotable is None or not decided.quotations:
        return 0.0
    quotation = decided.quotations[0]
    start, stop = quotation.start, quotation.stop
    if start == stop:
        return 0.0
    same = start < candidate.stop and candidate.start < stop
    if candidate.kind == "heading":  # answered by what follows it
        same = candidate.stop <= start < candidate.stop + _BEHIND_HEADING
    sure = quotation.probability if quotation.probability is not None else retrieved.search_result.confidence
    return sure if same else 0.0


def _alike(one: Candidate, other: Candidate) -> bool:
    first, second = ({word.rstrip("s") for word in each.subject.casefold().split()} for each in (one, other))
    return bool(first & second - {"the", "of", "and", "a", "an", "in"})
