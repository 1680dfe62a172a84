"""Ask with a writer: find passages, let the writer word the answer, look its sentences up, keep it with its evidence.

- The finder's turn at the model ends before the writer begins, so that a slow writer holds nobody up.
- Whatever keeps the writer from its end, the question keeps its passages and says what happened.
- What a document says decides nothing here: which passages there are, what is cited and what is checked follow from
  search, and from the numbers in the answer. A writer has no tools.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

from retrieval.engine.workspace import Workspace
from retrieval.errors import WriterError
from retrieval.index.snapshot import MemoryIndex
from retrieval.query.answer import store_answer
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.question import Question
from retrieval.types.outcomes import NOTHING_FOUND
from retrieval.types.passages import Answer, AnswerToken, Passage, PassageBlock, Timings
from retrieval.types.records import Scope
from retrieval.types.written import Progress, WriterUse
from retrieval.writers.protocol import Turn, Writer, WriterOptions, WriterRequest, WriterToken, Written
from retrieval.writing.citations import citations_in
from retrieval.writing.claims import ClaimChecker
from retrieval.writing.follow_ups import TURNS, standalone_question
from retrieval.writing.found_passages import FoundPassages, find_passages, writer_passages
from retrieval.writing.instructions import ANSWER
from retrieval.writing.whole_documents import WholeDocuments, is_whole_document_task
from retrieval.writing.whole_passages import all_segments

# The answer was cut, not finished.
CUT_OFF = "The answer was cut off at its greatest length. Allow longer answers and ask again."


@dataclass(eq=False)
class _Draft:
    """What the writer has written so far."""

    tokens: list[AnswerToken] = field(default_factory=list)
    attention: list[tuple[float, ...]] = field(default_factory=list)
    first_token_at: float | None = None
    written: Written = Written()
    problem: str = ""


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
            asked = standalone_question(self._writer, asked, self._earlier(), cancelled)
        except WriterError as error:
            draft.problem = str(error)
        whole = self._question.whole
        if whole is None:
            whole = self._question.scope is not None and is_whole_document_task(asked)
        if whole:
            found = FoundPassages(all_segments(self._workspace, self._builder, self._question.scope), 1.0)
        else:
            found = find_passages(
                self._workspace, self._index, self._builder, asked, self._question.k, self._question.scope
            )
        self._searched_at = time.perf_counter()
        if found.passages and not draft.problem:
            yield from self._draft(draft, self._steps(asked, found, whole, cancelled), found.passages)
        yield self._finish(draft, asked, found, whole, cancelled)

    def _earlier(self) -> list[Turn]:
        """The conversation's last turns, oldest first."""
        if self._question.conversation_id is None:
            return list(self._question.earlier)
        heads = self._workspace.catalogue.answers(conversation_id=self._question.conversation_id, limit=TURNS)
        return [Turn(head.question, head.text) for head in reversed(heads)]

    def _steps(
        self, asked: str, found: FoundPassages, whole: bool, cancelled: Callable[[], bool]
    ) -> Generator[Progress | WriterToken, None, Written]:
        passages, options = writer_passages(found.passages), WriterOptions(max_tokens=self._question.max_tokens)
        if whole:
            return (yield from WholeDocuments(self._writer, asked, passages, options, cancelled).run())
        return (yield from self._writer.write(WriterRequest(ANSWER, asked, passages, options=options), cancelled))

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

    def _finish(
        self, draft: _Draft, asked: str, found: FoundPassages, whole: bool, cancelled: Callable[[], bool]
    ) -> Answer:
        text = "".join(token.text for token in draft.tokens).strip()
        passages = _attended(found.passages, draft.attention)
        citations = citations_in(text, {number: number - 1 for number in range(1, len(passages) + 1)})
        if whole:  # of all segments, those that are cited
            kept = sorted({citation.passage for citation in citations})
            passages = tuple(passages[number] for number in kept)
            citations = tuple(replace(one, passage=kept.index(one.passage)) for one in citations)
        checker = ClaimChecker(self._workspace, self._index, self._builder, self._question.scope)
        claims, shown = checker.check(text, passages, citations, cancelled)
        interrupted = cancelled()
        silent = not text and not draft.problem and not interrupted
        refused = text.casefold().startswith(NOTHING_FOUND.rstrip(".").casefold()) and not citations
        empty = self._empty(asked, found, whole)
        answer = replace(
            empty,
            settings={**empty.settings, "interrupted": interrupted},
            text=NOTHING_FOUND if silent else text,
            found=not (silent or refused),
            outcome="not_found" if silent or refused else "found",
            tokens=tuple(draft.tokens),
            passages=shown,
            memory_share=_mean_share(draft),
            timings=self._timings(draft),
            writer=self._use(draft.written),
            citations=citations,
            claims=claims,
            problem=draft.problem,
        )
        store_answer(self._workspace, answer, [passage.document_id for passage in found.passages])
        return answer

    def _empty(self, asked: str, found: FoundPassages, whole: bool) -> Answer:
        """What is known of the answer before it is written."""
        question = self._question
        return Answer(
            id=uuid4().hex,
            conversation_id=question.conversation_id,
            question=question.text,
            text="",
            found=True,
            confidence=found.confidence,
            quote=False,
            tokens=(),
            passages=(),
            near_misses=(),
            memory_share=0.0,
            layers=(),
            heads=0,
            heat={},
            timings=Timings(0.0, 0.0, 0.0),
            model=self._writer.name,
            memory=self._workspace.loaded().fingerprint.digest,
            settings={
                "k": question.k,
                "max_tokens": question.max_tokens,
                "quote": False,
                "whole": whole,
                "scope": (question.scope or Scope()).to_dict(),
                "asked": asked,
                "token_ids": [],
                "candidates": [],
                "index": self._index.kind,
            },
            created_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        )

    def _timings(self, draft: _Draft) -> Timings:
        first = draft.first_token_at - self._began if draft.first_token_at else 0.0
        return Timings(self._searched_at - self._began, first, time.perf_counter() - self._began)

    def _use(self, written: Written) -> WriterUse:
        writer = self._writer
        return WriterUse(writer.name, writer.kind, written.stored_share, written.repair, writer.leaves_machine)


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
