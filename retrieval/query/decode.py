"""Decoding: a landmark language model writes the answer, or the sentence that answers best is quoted as it stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from retrieval.engine.workspace import Workspace
from retrieval.index.snapshot import MemoryIndex
from retrieval.query.decide import outcome_of_reading, outcome_of_search, p_right_of_search
from retrieval.query.landmark_reader import LandmarkReader
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.question import Question
from retrieval.query.rank import OTHER_SENTENCES, candidate_sentences, choose, quotable_blocks, score_sentences
from retrieval.query.read import Ranked, Reading
from retrieval.query.retrieve import Retrieved
from retrieval.query.sentences import Hit, QuotableBlocks, Quotation
from retrieval.types.answers import AnswerToken, DecidedBy, Outcome

_CHARACTERS_A_TOKEN = 4
"""A quotation is bounded in characters: a letter of Japanese or Hebrew may take several tokens."""


@dataclass(eq=False)
class Decoded:
    """The answer's tokens, and who chose them."""

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
    outcome: Outcome = "not_found"
    rows: Sequence[Hit] = ()
    """Where the answer was computed: the blocks of its rows."""
    interrupted: bool = False
    """Whether it was stopped before its end."""
    reading: Reading | None = None
    """Where the model wrote the answer, with what attention read."""

    @property
    def decided_by(self) -> DecidedBy:
        """Who chose the words: attention where they were generated, a reader or search where a sentence is quoted, rows
        where they were computed."""
        if self.rows:
            return "rows"
        if self.reading is not None:
            return "attention"
        read = any(quotation.probability is not None for quotation in self.quotations)
        return "reader" if read else "search"

    def probability(self, share: float) -> float | None:
        """Probability that a sentence of that share answers; None without a reader."""
        return (1 - self.p_none) * share if self.decided_by == "reader" else None

    @property
    def quoted(self) -> set[int]:
        """Candidates that hold the quoted sentence."""
        return {c for quotation in self.quotations[:1] for c, _ in quotation.places}


class Decoder:
    """Decodes the answer to one question. Raises `InvalidRequest` for what the model cannot do."""

    def __init__(self, workspace: Workspace, index: MemoryIndex, passages: PassageBuilder, question: Question):
        self._workspace, self._index, self._passages = workspace, index, passages
        self._model = workspace.opened.model
        self._question, self._sampling = question, question.sampling(self._model)

    def decide(self, retrieved: Retrieved) -> Decoded:
        """Rank the sentences that may be quoted, and decide the outcome; nothing is generated."""
        model, candidates, decoded = self._model, retrieved.candidates, Decoded()
        if not retrieved.answerable:
            return decoded
        if retrieved.quote:
            decoded.quotable = quotable_blocks(self._workspace, self._passages, candidates)
            if model.config.quotes_sentences:
                self._rank(retrieved, decoded, decoded.quotable)
        decoded.outcome = self._outcome(retrieved, decoded)
        return decoded

    def _rank(self, retrieved: Retrieved, decoded: Decoded, quotable: QuotableBlocks) -> None:
        """Sets the quotations, and the shares of the candidates where a reader read them."""
        opened, candidates = self._workspace.opened, retrieved.candidates
        read = None
        if opened.reader is not None:
            read = partial(opened.reader.read, retrieved.corrected_question, points_of=self._workspace.read_together)
        parts = (self._workspace, self._index, self._passages)
        sentences = candidate_sentences(*parts, retrieved.found, candidates, quotable, read)
        if not sentences.items:
            decoded.quotations = [Quotation([], range(0))]
            return
        scored = score_sentences(sentences, opened.ranker)
        decoded.quotations = choose(scored, 1 + OTHER_SENTENCES)
        if sentences.spans is not None:
            decoded.shares_C = scored.shares_of_blocks(len(candidates))

    def decode(self, retrieved: Retrieved, cancelled: Callable[[], bool]) -> Generator[AnswerToken, None, Decoded]:
        """Yields the tokens as they come; returns all of them with their evidence."""
        decoded = self.decide(retrieved)
        if decoded.outcome == "not_found":
            return decoded
        if decoded.quotations:
            yield from self._quoted(decoded, cancelled)
            return decoded
        reader = LandmarkReader(self._workspace, self._index, self._question, decoded.quotable)
        tokens = reader.read(retrieved.found.question, Ranked(retrieved.candidates, (), torch.zeros(0), ()), cancelled)
        try:
            while True:
                decoded.tokens.append(next(tokens))
                decoded.first_token_at = decoded.first_token_at or time.perf_counter()
                yield decoded.tokens[-1]
        except StopIteration as end:
            decoded.reading, decoded.interrupted = end.value, end.value.interrupted
        return decoded

    def _quoted(self, decoded: Decoded, cancelled: Callable[[], bool]) -> Iterator[AnswerToken]:
        """The sentence as it stands in the document: the model reads nothing, and attention decides nothing."""
        assert decoded.quotable is not None, "a sentence is quoted from somewhere"
        quotation = decoded.quotations[0]
        places = decoded.quotable.within(quotation.places, _CHARACTERS_A_TOKEN * self._sampling.max_tokens)
        for number, (text, quoted) in enumerate(decoded.quotable.words(places)):
            if cancelled():
                decoded.interrupted = True
                return
            decoded.first_token_at = decoded.first_token_at or time.perf_counter()
            token_id = decoded.quotable.source.token_at(places[number])
            token = AnswerToken(text, None, 0.0, (), quoted, token_id, number in quotation.answer_span)
            decoded.tokens.append(token)
            yield token

    def _outcome(self, retrieved: Retrieved, decoded: Decoded) -> Outcome:
        """Sets `p_none` where a reader says."""
        quotations = decoded.quotations
        reader, found = self._workspace.opened.reader, retrieved.found
        best = quotations[0] if quotations else None
        ranker = self._workspace.opened.ranker
        outcome: Outcome = "not_found"
        if reader is not None and best is not None and best.probability is not None and best.p_none is not None:
            decoded.p_none = ranker.decision.p_none(best.features) if ranker.weighs_reading else best.p_none
            outcome = outcome_of_reading(ranker, reader, best)
        elif retrieved.sure:
            p_right = found.confidence
            if best is not None:
                p_right = p_right_of_search(found.matched, [quotation.score for quotation in quotations])
            by_tokens = self._model.config.ranks_by_tokens
            outcome = outcome_of_search(ranker.decision, p_right, found.in_scope, by_tokens=by_tokens)
        forced = retrieved.forced or (self._question.anyway and outcome == "not_found")
        return "perhaps" if forced else outcome
