"""Ask: retrieve the candidates, decode an answer that reads them, assemble it with its evidence.

- Everything that was shown is stored with the answer, so that it can be reopened and exported as it was.
- Whether the memory holds an answer at all is decided by the calibrated confidence of the search, before a word is
  generated.

Axes: C candidates (see `retrieval.query.retrieve`), Y memory layers, H query heads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from model.inference.generate import answer_logprob
from retrieval.engine.workspace import Workspace
from retrieval.errors import DeletedMeanwhile, InvalidRequest
from retrieval.index.snapshot import MemoryIndex, naming_damage
from retrieval.query.decode import Decoded, Decoder
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.passage_spans import join_neighbours
from retrieval.query.question import Question
from retrieval.query.retrieve import Retrieved, retrieve
from retrieval.query.search import hits_of
from retrieval.query.sentences import Quotation
from retrieval.query.whole_lists import with_whole_lists
from retrieval.types.outcomes import NOTHING_FOUND, asks_for_a_survey
from retrieval.types.passages import Answer, AnswerToken, BlockEffect, Passage, QuotedSentence, Timings
from retrieval.types.records import Scope
from storage.errors import NotFound as NoRow

NEAR_MISSES = 5


class Answerer:
    """Answers one question."""

    def __init__(self, workspace: Workspace, index: MemoryIndex, passages: PassageBuilder, question: Question):
        self._workspace, self._index, self._question = workspace, index, question
        self._passages = passages.for_one_question()
        self._began = time.perf_counter()

    def run(self, cancelled: Callable[[], bool] = lambda: False) -> Iterator[AnswerToken | Answer]:
        """The answer's tokens, then the stored answer. Cancelled: the answer so far."""
        self._question.policy()  # an invalid request is refused before the model is loaded
        with (
            self._workspace.scheduler.question_open(),
            self._index.open_snapshot(self._workspace.catalogue) as snapshot,
        ):
            decoder = Decoder(self._workspace, self._index, self._passages, self._question)
            found = retrieve(self._workspace, self._index, snapshot, self._question, self._passages.blocks)
            retrieved = with_whole_lists(self._passages, found)
            decoded = yield from decoder.decode(retrieved, cancelled)
            evidence = self._read(retrieved, decoded) if decoded.tokens else self._only_found(retrieved)
            answer = self._assemble(retrieved, decoded, evidence)
            store_answer(self._workspace, answer, evidence.document_ids)
        yield answer

    def _assemble(self, retrieved: Retrieved, decoded: Decoded, evidence: _Evidence) -> Answer:
        question, loaded = self._question, self._workspace.opened
        tokens = decoded.tokens
        text = "".join(token.text for token in tokens).strip()
        shares = [token.memory_share for token in tokens if token.blocks]
        return Answer(
            id=uuid4().hex,
            conversation_id=question.conversation_id,
            question=question.text,
            text=text or ("" if decoded.interrupted else NOTHING_FOUND),
            found=bool(text) or decoded.interrupted,
            confidence=retrieved.found.confidence,
            quote=retrieved.quote,
            tokens=tuple(tokens),
            passages=tuple(evidence.passages),
            near_misses=tuple(evidence.near_misses),
            memory_share=sum(shares) / len(shares) if shares else 0.0,
            layers=loaded.model.memory_layers if evidence.heat else (),
            heads=loaded.model.num_heads if evidence.heat else 0,
            heat=evidence.heat,
            timings=Timings(
                retrieved.finished_at - self._began,
                decoded.first_token_at - self._began if decoded.first_token_at else 0.0,
                time.perf_counter() - self._began,
            ),
            model=loaded.model.source or "model",
            memory=loaded.fingerprint.digest,
            settings={
                "k": question.k,
                "voters": question.voters,
                "max_tokens": question.max_tokens,
                "quote": retrieved.quote,
                "survey": bool(retrieved.quote) and asks_for_a_survey(question.text),
                "anyway": question.anyway,
                "interrupted": decoded.interrupted,
                "scope": (question.scope or Scope()).to_dict(),
                "asked": retrieved.asked,
                "token_ids": [token.token_id for token in tokens if token.token_id >= 0],
                "candidates": retrieved.candidates.block_ids,
                "index": self._index.kind,
            },
            created_at=datetime.now(UTC).isoformat(timespec="microseconds"),
            other_sentences=tuple(quoted_sentences(self._passages, decoded, decoded.quotations[1:])) if tokens else (),
            quotation=next(quoted_sentences(self._passages, decoded, decoded.quotations[:1]), None) if tokens else None,
            outcome=decoded.outcome if text or decoded.interrupted else "not_found",
            decided_by=decoded.decided_by,
        )

    def _read(self, retrieved: Retrieved, decoded: Decoded) -> _Evidence:
        """Passages by attention where it decided, else what the quoted sentence stands in and then by search. Near
        misses by search."""
        candidates, mass_C = retrieved.candidates, decoded.mass.mass_C
        mass, quoted = mass_C.tolist(), decoded.quoted
        order = sorted(range(len(candidates)), key=lambda c: (c not in quoted, -mass[c], candidates.rank_C[c]))
        heat_YHC = decoded.mass.heat_YHC
        heat = {
            candidates.block_ids[c]: tuple(tuple(round(cell, 6) for cell in row) for row in heat_YHC[:, :, c].tolist())
            for c in order
            if mass[c] > 0
        }
        quoted_ids = {candidates.block_ids[c] for c in quoted}
        attends = decoded.decided_by == "attention"
        scores_C = mass_C if attends else candidates.found_scores(retrieved.found.scores_C)
        groups = join_neighbours(candidates.hits(order, scores_C), self._question.k)
        groups.sort(key=lambda group: not any(hit.block_id in quoted_ids for hit in group))
        passages = self._passages.passages(groups, sum if attends else retrieved.found.joined)
        shown = {block_id for passage in passages for block_id in passage.block_ids}
        searched = hits_of(candidates.snapshot, retrieved.found.positions_C, retrieved.found.scores_C)
        missed = [[hit] for hit in searched if hit.block_id not in shown][:NEAR_MISSES]
        read = tuple({candidates.document_ids[c] for c in order if mass[c] > 0})
        return _Evidence(passages, self._passages.passages(missed), heat, read)

    def _only_found(self, retrieved: Retrieved) -> _Evidence:
        """Nothing was generated: the best search results are near misses."""
        found = retrieved.found
        hits = hits_of(retrieved.candidates.snapshot, found.positions_C, found.scores_C)
        near = self._passages.passages(join_neighbours(hits, NEAR_MISSES, found.joined), found.joined)
        return _Evidence([], near, {}, tuple(passage.document_id for passage in near))


@dataclass(frozen=True)
class _Evidence:
    passages: list[Passage]
    near_misses: list[Passage]
    heat: dict[int, tuple[tuple[float, ...], ...]]
    document_ids: tuple[str, ...]
    """Of everything that was read or is shown."""


def quoted_sentences(
    builder: PassageBuilder, decoded: Decoded, quotations: Sequence[Quotation]
) -> Iterator[QuotedSentence]:
    """These sentences with their places; those deleted meanwhile are left out."""
    quoting = decoded.quoting
    for one in quotations:
        assert quoting is not None
        passage = builder.sentence(quoting.hits(one), *quoting.span(one.places))
        if passage is not None:
            pointed = one.places[one.pointed.start : one.pointed.stop]
            start, end = quoting.span(pointed) if pointed else (passage.start_index,) * 2
            yield QuotedSentence(passage, (start, end))


def store_answer(workspace: Workspace, answer: Answer, document_ids: Sequence[str]) -> None:
    """Keep the answer with its evidence. Raises `DeletedMeanwhile` if a document that it used is gone."""
    if answer.conversation_id is not None:
        workspace.catalogue.ensure_conversation(answer.conversation_id, answer.question)
    others = [other.passage for other in answer.other_sentences]
    shown = [passage.document_id for passage in (*answer.passages, *answer.near_misses, *others)]
    try:
        workspace.catalogue.save_answer(
            answer_id=answer.id,
            conversation_id=answer.conversation_id,
            question=answer.question,
            text=answer.text,
            body=json.dumps(answer.to_dict(), separators=(",", ":")),
            document_ids=[*document_ids, *shown],
            created_at=answer.created_at,
        )
    except NoRow as error:
        raise DeletedMeanwhile from error


def effect_of_block(workspace: Workspace, index: MemoryIndex, answer: Answer, block_id: int) -> BlockEffect:
    """Log-probability of a stored answer with and without one of the blocks that it could read.

    Raises `InvalidRequest` for any other block.
    """
    if answer.decided_by != "attention":
        raise InvalidRequest("Attention did not choose this answer: leaving a block out would not change it.")
    token_ids, candidates = answer.settings["token_ids"], answer.settings["candidates"]
    if not token_ids or block_id not in candidates:
        raise InvalidRequest("This block was not among those that the answer could read, so it had no effect on it.")
    policy = Question(text=answer.question, k=answer.settings["k"], voters=answer.settings["voters"]).policy()
    model, logprobs = workspace.loaded().model, []
    with workspace.scheduler.question_open(), index.open_snapshot(workspace.catalogue) as snapshot:
        for ids in (candidates, [other for other in candidates if other != block_id]):
            reader = snapshot.reader(snapshot.positions_of_blocks(ids))
            with naming_damage(index), workspace.scheduler.for_question():
                prompt = model.prompt(answer.settings["asked"]).ids
                each = answer_logprob(model, prompt, token_ids, memory=reader, policy=policy)
            logprobs.append(float(each.sum()))
    return BlockEffect(block_id, logprobs[0], logprobs[1], logprobs[1] - logprobs[0])
