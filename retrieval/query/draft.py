"""A draft of the answer: the sentence that answers best, as it stands, or what a landmark language model writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from retrieval.engine.workspace import Workspace
from retrieval.index.snapshot import MemoryIndex
from retrieval.query.answer_generator import AnswerGenerator, GeneratedAnswer
from retrieval.query.decide import match_margin, outcome_of_reading, outcome_of_search
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.passage_spans import Hit
from retrieval.query.question import Question
from retrieval.query.rank import (
    OTHER_SENTENCES,
    candidate_sentences,
    quotable_blocks,
    quote_best,
    score_sentences,
)
from retrieval.query.retrieve import Retrieved
from retrieval.query.sentences import QuotableBlocks, Quotation
from retrieval.types.answers import AnswerToken, DecidedBy, Outcome

_CHARACTERS_A_TOKEN = 4
"""A quotation is bounded in characters: a letter of Japanese or Hebrew may take several tokens."""


@dataclass(eq=False)
class DraftAnswer:
    """The answer's tokens, and who chose them; what is shown and stored is made of it."""

    tokens: list[AnswerToken] = field(default_factory=list)
    first_token_at: float | None = None
    """By `time.perf_counter`."""
    quotable: QuotableBlocks | None = None
    quotations: Sequence[Quotation] = ()
    """Where a sentence is quoted: that one, and the next best."""
    shares_C: Sequence[float] = ()
    """Where a reader read: for each candidate the probability of its best sentence, given that one of them answers."""
    p_none: float = 0.0
    """Probability that none answers."""
    p_right: float = 0.0
    """Probability that the quoted sentence is right, where the ranker was fitted with a reader."""
    outcome: Outcome = "not_found"
    rows: Sequence[Hit] = ()
    """Where the answer was computed: the blocks of its rows."""
    interrupted: bool = False
    """Whether it was stopped before its end."""
    generated: GeneratedAnswer | None = None
    """Where the model wrote the answer, with what attention read."""

    @property
    def decided_by(self) -> DecidedBy:
        """Who chose the words: attention where they were generated, a reader or search where a sentence is quoted, rows
        where they were computed."""
        if self.rows:
            return "rows"
        if self.generated is not None:
            return "attention"
        read = any(quotation.probability is not None for quotation in self.quotations)
        return "reader" if read else "search"

    def probability(self, share: float) -> float | None:
        """Probability that a sentence of that share answers; None without a reader."""
        return (1 - self.p_none) * share if self.decided_by == "reader" else None

    @property
    def quoted(self) -> set[int]:
        """Candidates that hold the quoted sentence."""
        if self.quotable is None:
            return set()
        return {c for quotation in self.quotations[:1] for c in self.quotable.holding(quotation)}


class AnswerSelector:
    """Selects the answer to one question. Raises `InvalidRequest` for what the model cannot do."""

    def __init__(self, workspace: Workspace, index: MemoryIndex, passages: PassageBuilder, question: Question):
        self._workspace, self._index, self._passages = workspace, index, passages
        self._model = workspace.opened.model
        self._question, self._sampling = question, question.sampling(self._model)

    def decide(self, retrieved: Retrieved) -> DraftAnswer:
        """Rank the sentences that may be quoted, and decide the outcome; nothing is generated."""
        model, candidates, draft = self._model, retrieved.candidates, DraftAnswer()
        if not retrieved.answerable:
            return draft
        if retrieved.quote:
            draft.quotable = quotable_blocks(self._workspace, self._passages, candidates)
            if model.config.quotes_sentences:
                self._quote(retrieved, draft, draft.quotable)
        draft.outcome = self._outcome(retrieved, draft)
        return draft

    def _quote(self, retrieved: Retrieved, draft: DraftAnswer, quotable: QuotableBlocks) -> None:
        """Sets the quotations, and the shares of the candidates where a reader read them."""
        opened, candidates = self._workspace.opened, retrieved.candidates
        read = None
        if opened.reader is not None:
            read = partial(opened.reader.read, self._question.text, points_of=self._workspace.read_together)
        parts = (self._workspace, self._index, self._passages)
        sentences = candidate_sentences(*parts, retrieved.search_result, candidates, quotable, read)
        if not sentences.items:
            draft.quotations = [Quotation()]
            return
        scored = score_sentences(sentences, opened.ranker)
        draft.quotations = quote_best(scored, 1 + OTHER_SENTENCES)
        if sentences.spans is not None:
            draft.shares_C = scored.shares_of_blocks(len(candidates))

    def tokens(
        self, retrieved: Retrieved, draft: DraftAnswer, cancelled: Callable[[], bool]
    ) -> Generator[AnswerToken, None, DraftAnswer]:
        """Yields the tokens of what was decided as they come; returns all of them with their evidence."""
        if draft.outcome == "not_found":
            return draft
        if draft.quotations:
            yield from self._quoted(draft, cancelled)
            return draft
        generator = AnswerGenerator(self._workspace, self._index, self._question, draft.quotable)
        tokens = generator.generate(retrieved.search_result.question, retrieved.candidates, cancelled)
        try:
            while True:
                draft.tokens.append(next(tokens))
                draft.first_token_at = draft.first_token_at or time.perf_counter()
                yield draft.tokens[-1]
        except StopIteration as end:
            draft.generated, draft.interrupted = end.value, end.value.interrupted
        return draft

    def _quoted(self, draft: DraftAnswer, cancelled: Callable[[], bool]) -> Iterator[AnswerToken]:
        """The sentence as it stands in the document: the model reads nothing, and attention decides nothing."""
        assert draft.quotable is not None, "a sentence is quoted from somewhere"
        most = _CHARACTERS_A_TOKEN * self._sampling.max_tokens
        for text, place, answers in draft.quotable.words(draft.quotations[0], most):
            if cancelled():
                draft.interrupted = True
                return
            draft.first_token_at = draft.first_token_at or time.perf_counter()
            draft.tokens.append(AnswerToken(text, None, 0.0, (), place, pointed=answers))
            yield draft.tokens[-1]

    def _outcome(self, retrieved: Retrieved, draft: DraftAnswer) -> Outcome:
        """Sets `p_none` and `p_right` where a reader says."""
        quotations = draft.quotations
        reader, found = self._workspace.opened.reader, retrieved.search_result
        best = quotations[0] if quotations else None
        ranker = self._workspace.opened.ranker
        outcome: Outcome = "not_found"
        if reader is not None and best is not None and best.probability is not None and best.p_none is not None:
            draft.p_none = best.p_none
            if ranker.weighs_reading:
                draft.p_none = ranker.decision.p_none(best.features)
                draft.p_right = ranker.decision.p_right(best.features)
            outcome = outcome_of_reading(ranker, reader, best)
        elif retrieved.sure:
            margin = found.confidence
            if best is not None:
                margin = match_margin(found.matched, [quotation.score for quotation in quotations])
            by_tokens = self._model.config.ranks_by_tokens
            outcome = outcome_of_search(ranker.decision, margin, found.in_scope, by_tokens=by_tokens)
        forced = retrieved.forced or (self._question.anyway and outcome == "not_found")
        return "perhaps" if forced else outcome
