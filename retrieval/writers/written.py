"""Ask with a writer: find passages, let the writer word the answer, check its sentences, store it with its evidence.

- The finder gives its slot at the model back before the writer begins, so that a slow writer holds up nobody.
- If the writer fails, the answer keeps its passages and says what happened.
- The sentence that search would have quoted stands next to the answer, and in its place where the documents support
  none of it (`retrieval.writers.claims`).
- Text of documents decides nothing here: which passages there are, what is cited and what is checked follow from
  search, and from the numbers in the answer. A writer has no tools.
- After the check the writer's words stay, get the citations that the check found, or are replaced by the quotation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from retrieval.engine.workspace import Workspace
from retrieval.errors import WriterError
from retrieval.index.snapshot import MemoryIndex
from retrieval.index.terms import function_words
from retrieval.query.answer import store_answer
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.question import Question
from retrieval.query.retrieve import earlier_turns
from retrieval.types.answers import (
    NOTHING_FOUND,
    Answer,
    AnswerToken,
    Citation,
    Claim,
    Outcome,
    Passage,
    PassageBlock,
    Progress,
    QuotedSentence,
    Timings,
    WriterUse,
)
from retrieval.types.records import Scope
from retrieval.types.writer import Writer, WriterRequest, WriterToken, Written
from retrieval.writers.citations import citations_in
from retrieval.writers.claims import ClaimChecker, SearchQuotation, is_supported, search_quotation, without_unfinished
from retrieval.writers.output_filter import filtered, refuses, without_repetition
from retrieval.writers.passages import (
    ContextBudget,
    all_segments,
    context_budget,
    find_passages,
    full_budget,
    writer_passages,
)
from retrieval.writers.prompt import HINT, TURNS, standalone_question, without_marks
from retrieval.writers.whole_documents import WholeDocuments, is_whole_document_task


@dataclass(frozen=True)
class Wording:
    """The text of an answer with all that refers to places in it. `set_aside`: what the writer wrote, if the text is
    not its own."""

    text: str
    tokens: tuple[AnswerToken, ...]
    citations: tuple[Citation, ...]
    claims: tuple[Claim, ...]
    passages: tuple[Passage, ...]
    outcome: Outcome = "found"
    set_aside: str = ""


def in_its_place(wording: Wording, by_search: SearchQuotation) -> Wording:
    """The quotation in place of the writer's words, or that there is none."""
    if by_search.quotation is None:
        nothing = AnswerToken(NOTHING_FOUND, None, 0.0, ())
        return Wording(NOTHING_FOUND, (nothing,), (), (), wording.passages, "not_found", wording.text)
    sentence = by_search.quotation.passage
    passages = list(wording.passages)
    place = next((at for at, one in enumerate(passages) if one.holds(sentence)), len(passages))
    if place == len(passages):
        passages.append(sentence)
    quoted = sentence.text.rstrip()
    text = f"{quoted} [{place + 1}]"
    citation = Citation(place + 1, place, len(quoted) + 1, len(text))
    claim = Claim(" ".join(quoted.split()), "supported", place, sentence.text, 1.0, 0, len(text))
    tokens = _tokens_of(by_search.quotation, f" [{place + 1}]")
    return Wording(text, tokens, (citation,), (claim,), tuple(passages), by_search.outcome, wording.text)


def cited_by_check(wording: Wording, given: Sequence[Passage]) -> Wording:
    """With the number of a passage behind each sentence that it supports. `given`: what the writer was given, in the
    order of its numbers; further passages get the number of their place in the answer."""
    text, added = wording.text, 0
    passages, citations, claims = list(wording.passages), [], []
    for claim in sorted(wording.claims, key=lambda one: one.start):
        moved = _moved(claim, added)
        if claim.passage is not None and claim.verdict == "supported":
            number, place = _number_of(wording.passages[claim.passage], claim.passage, given, passages)
            at = _behind_words(text, moved.start, moved.end)
            mark = f" [{number}]"
            text = text[:at] + mark + text[at:]
            citations.append(Citation(number, place, at + 1, at + len(mark)))
            added += len(mark)
            moved = replace(moved, end=moved.end + len(mark))
        claims.append(moved)
    return replace(wording, text=text, citations=tuple(citations), claims=tuple(claims), passages=tuple(passages))


def with_cited_passages_only(wording: Wording) -> Wording:
    """Without passages that are neither cited nor support a sentence."""
    used = {one.passage for one in wording.citations} | {one.passage for one in wording.claims}
    kept = [place for place in range(len(wording.passages)) if place in used]
    place_of = {place: at for at, place in enumerate(kept)}
    return replace(
        wording,
        passages=tuple(wording.passages[place] for place in kept),
        citations=tuple(replace(one, passage=place_of[one.passage]) for one in wording.citations),
        claims=tuple(
            one if one.passage is None else replace(one, passage=place_of[one.passage]) for one in wording.claims
        ),
    )


def _number_of(sentence: Passage, place: int, given: Sequence[Passage], passages: list[Passage]) -> tuple[int, int]:
    """(number, place among `passages`) as which `sentence`, the passage at `place`, is cited. May add to `passages`."""
    at = next((at for at, one in enumerate(given) if one.holds(sentence)), None)
    if at is None:
        return place + 1, place
    for other, passage in enumerate(passages):
        if (passage.document_id, passage.start_index) == (given[at].document_id, given[at].start_index):
            return at + 1, other
    passages.append(given[at])
    return at + 1, len(passages) - 1


def _moved(claim: Claim, by: int) -> Claim:
    unfounded = tuple((start + by, end + by) for start, end in claim.unfounded)
    return replace(claim, start=claim.start + by, end=claim.end + by, unfounded=unfounded)


def _behind_words(text: str, start: int, end: int) -> int:
    """Before the full stop, and before the last border of a table's row."""
    return start + len(text[start:end].rstrip(" \n.!?…|"))


def _tokens_of(quotation: QuotedSentence, behind: str) -> tuple[AnswerToken, ...]:
    """The sentence, its answer span apart, as tokens of which no attention is known."""
    before, span, after = quotation.parts
    parts: Sequence[tuple[str, bool]] = ((before, False), (span, True), (after.rstrip() + behind, False))
    return tuple(AnswerToken(part, None, 0.0, (), pointed=pointed) for part, pointed in parts if part)


# The answer was cut, not finished.
CUT_OFF = "The answer was cut off at its greatest length. Allow longer answers and ask again."
UNSUPPORTED = "The documents support none of these sentences. Do not rely on them."


@dataclass(eq=False)
class _Draft:
    """What the writer has written so far."""

    tokens: list[AnswerToken] = field(default_factory=list)
    attention: list[tuple[float, ...]] = field(default_factory=list)
    first_token_at: float | None = None
    written: Written = Written()
    problem: str = ""

    @property
    def text(self) -> str:
        text = "".join(token.text for token in self.tokens).strip()
        return without_repetition(text) if self.written.finish == "repeated" else text


@dataclass(frozen=True)
class _Asked:
    """A question that stands alone, with what was found for it. `whole`: its passages are whole documents."""

    text: str
    passages: tuple[Passage, ...]
    confidence: float
    by_search: SearchQuotation | None
    budget: ContextBudget
    whole: bool


class WrittenAnswerer:
    """Answers one question with a writer."""

    def __init__(
        self, workspace: Workspace, index: MemoryIndex, builder: PassageBuilder, question: Question, writer: Writer
    ):
        self._workspace, self._index, self._builder = workspace, index, builder
        self._question, self._writer = question, writer
        self._began = time.perf_counter()
        self._searched_at = self._began

    def run(self, cancelled: Callable[[], bool] = lambda: False) -> Iterator[Progress | AnswerToken | Answer]:
        """Progress where whole documents are read, the answer's tokens, then the stored answer. Cancelled: the answer
        so far."""
        self._question.policy()  # an invalid request is refused before anything is loaded
        draft, asked = _Draft(), self._question.text.strip()
        try:
            earlier = earlier_turns(self._workspace, self._question, TURNS)
            asked = standalone_question(self._writer, asked, earlier, cancelled)
        except WriterError as error:
            draft.problem = str(error)
        question = self._look_up(asked, draft, cancelled)
        self._searched_at = time.perf_counter()
        if question.passages and not draft.problem:
            yield from self._draft(draft, self._steps(question, cancelled), question.passages)
        yield self._finish(draft, question, cancelled)

    def _look_up(self, asked: str, draft: _Draft, cancelled: Callable[[], bool]) -> _Asked:
        budget = full_budget(self._question.k)
        try:
            budget = context_budget(self._writer, self._question.k)
        except WriterError as error:
            draft.problem = draft.problem or str(error)
        parts, scope = (self._workspace, self._index, self._builder), self._question.scope
        whole = self._question.whole
        if whole is None:
            whole = scope is not None and is_whole_document_task(asked)
        if whole:
            passages = all_segments(self._workspace, self._builder, scope, cancelled)
            return _Asked(asked, passages, 1.0, None, budget, True)
        by_search = search_quotation(*parts, self._question, asked)
        sentence = by_search.quotation.passage if by_search and by_search.quotation else None
        found, confidence = find_passages(*parts, asked, budget.passages, scope, with_sentence=sentence)
        return _Asked(asked, found, confidence, by_search, budget, False)

    def _steps(self, asked: _Asked, cancelled: Callable[[], bool]) -> Generator[Progress | WriterToken, None, Written]:
        passages, most = writer_passages(asked.passages), self._question.max_tokens
        if asked.whole:
            task = WholeDocuments(self._writer, asked.text, passages, most, cancelled, asked.budget)
            return (yield from task.run())
        request = WriterRequest(asked.budget.instruction, asked.text, passages, notes=_hint(asked), max_tokens=most)
        return (yield from filtered(self._writer, request, cancelled))

    def _draft(
        self,
        draft: _Draft,
        steps: Generator[Progress | WriterToken, None, Written],
        passages: tuple[Passage, ...],
    ) -> Iterator[Progress | AnswerToken]:
        """Hands the writer's tokens on and keeps them in `draft`, with how it ended."""
        try:
            while True:
                step = next(steps)
                if isinstance(step, Progress):
                    yield step
                    continue
                draft.first_token_at = draft.first_token_at or time.perf_counter()
                draft.tokens.append(_answer_token(step, passages))
                draft.attention.append(step.passage_attention or ())
                yield draft.tokens[-1]
        except StopIteration as end:
            draft.written = end.value
            if draft.written.finish == "length":
                draft.problem = CUT_OFF
        except WriterError as error:
            draft.problem = str(error)
        finally:
            steps.close()

    def _finish(self, draft: _Draft, asked: _Asked, cancelled: Callable[[], bool]) -> Answer:
        wording = self._looked_up(draft, asked, cancelled)
        interrupted = cancelled()
        silent = not wording.text and not draft.problem and not interrupted
        outcome = "not_found" if silent or _refuses(wording) else wording.outcome
        quotation = asked.by_search.quotation if asked.by_search else None
        question, writer, written = self._question, self._writer, draft.written
        first = draft.first_token_at - self._began if draft.first_token_at else 0.0
        answer = Answer(
            id=uuid4().hex,
            conversation_id=question.conversation_id,
            question=question.text,
            text=NOTHING_FOUND if silent else wording.text,
            found=outcome != "not_found",
            confidence=asked.confidence,
            quote=False,
            tokens=wording.tokens,
            passages=wording.passages,
            near_misses=(),
            memory_share=_mean_share(draft),
            layers=(),
            heads=0,
            heat={},
            timings=Timings(self._searched_at - self._began, first, time.perf_counter() - self._began),
            model=writer.name,
            memory=self._workspace.loaded().fingerprint.digest,
            settings=self._settings(asked, interrupted),
            created_at=datetime.now(UTC).isoformat(timespec="microseconds"),
            quotation=quotation,
            writer=WriterUse(writer.name, writer.kind, written.stored_share, written.repair, writer.leaves_machine),
            citations=wording.citations,
            claims=wording.claims,
            problem=draft.problem,
            outcome=outcome,
            set_aside=wording.set_aside,
            decided_by="writer",
        )
        used = [passage.document_id for passage in asked.passages]
        store_answer(self._workspace, answer, [*used, quotation.passage.document_id] if quotation else used)
        return answer

    def _settings(self, asked: _Asked, interrupted: bool) -> dict[str, Any]:
        return {
            "k": self._question.k,
            "max_tokens": self._question.max_tokens,
            "quote": False,
            "whole": asked.whole,
            "scope": (self._question.scope or Scope()).to_dict(),
            "asked": asked.text,
            "quoted_outcome": asked.by_search.outcome if asked.by_search else None,
            "token_ids": [],
            "candidates": [],
            "index": self._index.kind,
            "interrupted": interrupted,
        }

    def _looked_up(self, draft: _Draft, asked: _Asked, cancelled: Callable[[], bool]) -> Wording:
        """What was written, with citations and claims; or what takes its place."""
        text, passages = draft.text, _attended(asked.passages, draft.attention)
        citations = citations_in(text, {number: number - 1 for number in range(1, len(passages) + 1)})
        wording = Wording(text, tuple(draft.tokens), citations, (), passages)
        if asked.whole and citations:
            wording = with_cited_passages_only(wording)
        passages, citations = wording.passages, wording.citations
        checker = ClaimChecker(self._workspace, self._index, self._builder, self._question.scope)
        claims, shown = checker.check(text, passages, citations, cancelled)
        if draft.problem not in ("", CUT_OFF):
            claims = without_unfinished(claims, text)
        wording = replace(wording, claims=claims, passages=shown)
        if _refuses(wording) or draft.problem not in ("", CUT_OFF) or cancelled():
            return wording
        nothing_supported = bool(claims) and all(claim.verdict == "not_found" for claim in claims)
        nothing_supported &= _in_one_language(text, passages)  # the check compares words
        if citations and not nothing_supported:
            return wording
        by_search, small = asked.by_search, asked.budget.hinted
        if by_search is not None and not is_supported(asked.text, text, claims, by_search, small=small):
            draft.problem = ""  # it is not the answer that was cut off
            return in_its_place(replace(wording, passages=passages), by_search)
        if text and not any(claim.verdict == "supported" for claim in claims) and (asked.whole or citations):
            draft.problem = f"{UNSUPPORTED} {draft.problem}".strip()
        if citations and not asked.whole:
            return wording
        cited = cited_by_check(wording, asked.passages)
        return with_cited_passages_only(cited) if asked.whole else cited


def _hint(asked: _Asked) -> tuple[str, ...]:
    """For a small writer, the sentence that would be quoted, where the search is sure of it."""
    by_search = asked.by_search
    if not asked.budget.hinted or by_search is None or by_search.quotation is None or by_search.outcome != "found":
        return ()
    return (f"{HINT} {without_marks(by_search.quotation.passage.text)}",)


def _in_one_language(text: str, passages: Sequence[Passage]) -> bool:
    """As far as the function words of the text tell."""
    words = text.casefold().split()
    here = function_words(" ".join(passage.text for passage in passages))
    return sum(word in here for word in words) >= sum(word in function_words(text) for word in words)


def _refuses(wording: Wording) -> bool:
    """Whether it says that the documents do not say."""
    said = wording.text.casefold().startswith(NOTHING_FOUND.rstrip(".").casefold()) and not wording.citations
    return said or refuses(wording.text)


def _mean_share(draft: _Draft) -> float:
    """Over the tokens of which the writer told."""
    shares = [token.memory_share for token, told in zip(draft.tokens, draft.attention, strict=True) if told]
    return sum(shares) / len(shares) if shares else 0.0


def _answer_token(step: WriterToken, passages: tuple[Passage, ...]) -> AnswerToken:
    """A passage's share goes to its blocks in equal parts: a writer knows passages, not blocks."""
    weights = step.passage_attention or ()
    blocks = [
        (block_id, weight / len(passage.block_ids))
        for passage, weight in zip(passages, weights, strict=False)
        for block_id in passage.block_ids
        if weight > 0
    ]
    blocks.sort(key=lambda block: -block[1])
    return AnswerToken(step.text, step.logprob, min(1.0, sum(weights)), tuple(blocks))


def _attended(passages: tuple[Passage, ...], attention: list[tuple[float, ...]]) -> tuple[Passage, ...]:
    """The passages with the writer's mean attention as score, where it told of it."""
    told = [weights for weights in attention if weights]
    if not told:
        return passages
    means = [sum(column) / len(told) for column in zip(*told, strict=True)]
    return tuple(_scored(passage, mean) for passage, mean in zip(passages, means, strict=True))


def _scored(passage: Passage, score: float) -> Passage:
    each = score / max(1, len(passage.blocks))
    blocks: tuple[PassageBlock, ...] = tuple(replace(block, score=each) for block in passage.blocks)
    return replace(passage, score=min(1.0, score), blocks=blocks)
