"""Answers a question: search, read, assemble the answer with its evidence.

- All that was shown is stored with the answer, so that it can be reopened and exported unchanged.
- The outcome is decided before a word is generated (`retrieval.query.decide`).

Axes: C candidates (see `retrieval.query.retrieve`), Y memory layers, H query heads.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import uuid4

import torch

from retrieval.engine.workspace import Workspace
from retrieval.errors import DeletedMeanwhile
from retrieval.index.blocks import MemorySnapshot
from retrieval.index.snapshot import MemoryIndex
from retrieval.query.answer_generator import AnswerGenerator
from retrieval.query.attention_mass import AnswerMass
from retrieval.query.computed import draft_from_rows
from retrieval.query.draft import AnswerSelector, DraftAnswer
from retrieval.query.follow_up import with_subject
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.passage_spans import join_neighbours
from retrieval.query.question import Question
from retrieval.query.retrieve import Retrieved, earlier_questions, retrieve
from retrieval.query.search import hits_of
from retrieval.query.sentences import Quotation
from retrieval.types.answers import (
    NOTHING_FOUND,
    Answer,
    AnswerToken,
    EvidenceCheck,
    Passage,
    QuotedSentence,
    Timings,
    asks_for_a_survey,
)
from retrieval.types.records import Scope
from storage.errors import NotFound as NoRow

NEAR_MISSES = 5
OTHERS_LEFT_OUT = 3
"""Other blocks read that are left out one at a time, to know the effect of leaving out any block."""
MAPPED_BLOCKS = 64
"""The attention map keeps so many blocks, those that were read most."""


class Answerer:
    """Answers one question."""

    def __init__(self, workspace: Workspace, index: MemoryIndex, passages: PassageBuilder, question: Question):
        self._workspace, self._index, self._question = workspace, index, question
        self._passages = passages.for_one_question()
        self._began = time.perf_counter()

    def run(self, cancelled: Callable[[], bool] = lambda: False) -> Iterator[AnswerToken | Answer]:
        """The answer's tokens, then the stored answer. Cancelled: the answer so far."""
        self._question.policy()  # an invalid request is refused before the model is loaded
        with self._index.open_for_question(self._workspace.catalogue) as snapshot:
            selector = AnswerSelector(self._workspace, self._index, self._passages, self._question)
            retrieved = retrieve(self._workspace, self._index, snapshot, self._question)
            self._passages.blocks(retrieved.block_ids)  # read once and kept, for all that follows
            draft = draft_from_rows(self._workspace, self._passages, retrieved)
            if draft is not None:
                yield from draft.tokens
            else:
                retrieved, draft = self._decide(selector, snapshot, retrieved)
                draft = yield from selector.tokens(retrieved, draft, cancelled)
            evidence = self._evidence(retrieved, draft)
            answer = self._assemble(retrieved, draft, evidence)
            store_answer(self._workspace, answer, evidence.document_ids)
        yield answer

    def _decide(
        self, selector: AnswerSelector, snapshot: MemorySnapshot, retrieved: Retrieved
    ) -> tuple[Retrieved, DraftAnswer]:
        """A question of a conversation may stand alone or go on with its subject, which words alone do not tell. Where
        it is not answered for sure by itself, search is asked with the subject as well, and the answer that is more
        likely right counts (benchmarks/results/2026-11-28-follow-ups.md)."""
        draft = selector.decide(retrieved)
        weighed = retrieved.quote and self._workspace.opened.ranker.weighs_reading
        if not weighed or draft.outcome == "found":
            return retrieved, draft
        asked = with_subject(self._question.text, earlier_questions(self._workspace, self._question))
        if asked == retrieved.standalone_question:
            return retrieved, draft
        other = retrieve(self._workspace, self._index, snapshot, self._question, asked)
        self._passages.blocks(other.block_ids)
        of_subject = selector.decide(other)
        return (other, of_subject) if of_subject.p_right > draft.p_right else (retrieved, draft)

    def _assemble(self, retrieved: Retrieved, draft: DraftAnswer, evidence: _Evidence) -> Answer:
        question, loaded = self._question, self._workspace.opened
        tokens, generated = draft.tokens, draft.generated
        text = "".join(token.text for token in tokens).strip()
        quotations = draft.quotations if tokens else ()
        before = [one for one in quotations if one.earlier_version]
        return Answer(
            id=uuid4().hex,
            conversation_id=question.conversation_id,
            question=question.text,
            text=text or ("" if draft.interrupted else NOTHING_FOUND),
            found=bool(text) or draft.interrupted,
            confidence=retrieved.search_result.confidence,
            quote=retrieved.quote and not draft.rows,
            tokens=tuple(tokens),
            passages=tuple(evidence.passages),
            near_misses=tuple(evidence.near_misses),
            memory_share=generated.mass.memory_share if generated else 0.0,
            layers=loaded.model.memory_layers if evidence.attention_map else (),
            heads=loaded.model.num_heads if evidence.attention_map else 0,
            heat=evidence.attention_map,
            timings=Timings(
                retrieved.finished_at - self._began,
                draft.first_token_at - self._began if draft.first_token_at else 0.0,
                time.perf_counter() - self._began,
            ),
            model=loaded.model.source or "model",
            memory=loaded.fingerprint.digest,
            settings={
                "k": question.k,
                "voters": question.voters,
                "positions": question.positions,
                "space": generated.space if generated else None,
                "max_tokens": question.max_tokens,
                "quote": retrieved.quote,
                "survey": retrieved.quote and not draft.rows and asks_for_a_survey(question.text),
                "anyway": question.anyway,
                "interrupted": draft.interrupted,
                "scope": (question.scope or Scope()).to_dict(),
                "asked": retrieved.standalone_question,
                "token_ids": [token.token_id for token in tokens if token.token_id >= 0],
                "candidates": _readable(retrieved, evidence),
                "index": self._index.kind,
            },
            created_at=datetime.now(UTC).isoformat(timespec="microseconds"),
            other_sentences=self._quoted(draft, [one for one in quotations[1:] if not one.earlier_version]),
            quotation=next(iter(self._quoted(draft, quotations[:1])), None),
            outcome=draft.outcome if text or draft.interrupted else "not_found",
            decided_by=draft.decided_by,
            probability=draft.probability(draft.quotations[0].share) if text and draft.quotations else None,
            check=self._check(retrieved, draft),
            earlier_version=next(iter(self._quoted(draft, before)), None),
        )

    def _quoted(self, draft: DraftAnswer, quotations: Sequence[Quotation]) -> tuple[QuotedSentence, ...]:
        return tuple(quoted_sentences(self._passages, draft, quotations))

    def _check(self, retrieved: Retrieved, draft: DraftAnswer) -> EvidenceCheck | None:
        """The effect of leaving out the block read most, compared with that of some others."""
        mass = draft.generated.mass if draft.generated is not None else None
        masses = {} if mass is None or draft.interrupted else mass.masses
        if not masses:
            return None
        best = max(masses, key=lambda c: (masses[c], c))
        # Of all that was read, but for the neighbours of the best in the text, which may hold the rest of its answer.
        others = sorted(c for c in masses if abs(c - best) > 1)
        drawn = random.Random(0).sample(others, min(OTHERS_LEFT_OUT, len(others)))
        generator = AnswerGenerator(self._workspace, self._index, self._question)
        candidates, model = retrieved.candidates, self._workspace.opened.model
        answer_ids = [token.token_id for token in draft.tokens if token.token_id >= 0]
        prompt_ids = model.prompt(retrieved.standalone_question).ids
        _, effects = generator.effects(prompt_ids, answer_ids, candidates.memory, [(c,) for c in (best, *drawn)])
        effect, of_others = effects[best,], tuple(effects[c,] for c in drawn)
        return EvidenceCheck(candidates.block_ids[best], effect, of_others, effect < min((0.0, *of_others)))

    def _evidence(self, retrieved: Retrieved, draft: DraftAnswer) -> _Evidence:
        if not draft.tokens:
            return self._only_found(retrieved)
        if draft.rows:
            passages = self._passages.passages(join_neighbours(draft.rows, self._question.k, max), max)
            return _Evidence(passages, self._near_misses(retrieved, passages), {}, ())
        if draft.generated is not None:
            return self._attended(retrieved, draft.generated.mass)
        return self._found(retrieved, draft)

    def _found(self, retrieved: Retrieved, draft: DraftAnswer) -> _Evidence:
        """The passages of the quoted sentence, then passages by their probability, or by search where nobody read."""
        candidates, quoted = retrieved.candidates, draft.quoted
        scores_C, joined = candidates.retrieval_scores(retrieved.search_result.scores_C), retrieved.search_result.joined
        likely_C: Sequence[float] = [0.0] * len(candidates)
        if draft.shares_C:
            likely_C, joined = [draft.probability(share) or 0.0 for share in draft.shares_C], max
            scores_C = torch.tensor(likely_C)
        order = sorted(range(len(candidates)), key=lambda c: (c not in quoted, -likely_C[c], candidates.rank_C[c]))
        hits = candidates.hits(order, scores_C)
        quoted_ids = {candidates.block_ids[c] for c in quoted}
        groups = join_neighbours(hits, self._question.k, joined)
        groups.sort(key=lambda group: not any(hit.block_id in quoted_ids for hit in group))
        passages = self._passages.passages(groups, joined)
        return _Evidence(passages, self._near_misses(retrieved, passages), {}, ())

    def _attended(self, retrieved: Retrieved, mass: AnswerMass) -> _Evidence:
        """Passages by attention, as many as were asked for."""
        candidates, masses = retrieved.candidates, mass.masses
        order = sorted(masses, key=lambda c: (-masses[c], -c))
        ids = candidates.snapshot.blocks.ids_N[candidates.indices_C[order].numpy()].tolist()
        attention_map = {
            block_id: tuple(tuple(round(cell, 6) for cell in row) for row in mass.mean_mass_YH(c).tolist())
            for block_id, c in list(zip(ids, order, strict=True))[:MAPPED_BLOCKS]
        }
        scores = torch.tensor([masses[c] for c in order])
        hits = hits_of(candidates.snapshot, candidates.indices_C[order], scores)
        passages = self._passages.passages(join_neighbours(hits, self._question.k), sum)
        documents = tuple(set(candidates.snapshot.documents_of(candidates.indices_C[order])))
        return _Evidence(passages, self._near_misses(retrieved, passages), attention_map, documents, tuple(ids))

    def _near_misses(self, retrieved: Retrieved, shown: Sequence[Passage]) -> list[Passage]:
        """The best of the search that are not shown already."""
        known = {block_id for passage in shown for block_id in passage.block_ids}
        found = retrieved.search_result
        hits = hits_of(retrieved.candidates.snapshot, found.indices_C, found.scores_C)
        return self._passages.passages([[hit] for hit in hits if hit.block_id not in known][:NEAR_MISSES])

    def _only_found(self, retrieved: Retrieved) -> _Evidence:
        """Nothing was generated: the best search results are near misses."""
        found = retrieved.search_result
        hits = hits_of(retrieved.candidates.snapshot, found.indices_C, found.scores_C)
        near = self._passages.passages(join_neighbours(hits, NEAR_MISSES, found.joined), found.joined)
        return _Evidence([], near, {}, tuple(passage.document_id for passage in near))


def _readable(retrieved: Retrieved, evidence: _Evidence) -> Sequence[int]:
    """Ids of the candidates; of a whole memory only those that were read."""
    return list(evidence.read) if retrieved.candidates.space == "memory" else retrieved.candidates.block_ids


@dataclass(frozen=True)
class _Evidence:
    passages: list[Passage]
    near_misses: list[Passage]
    attention_map: dict[int, tuple[tuple[float, ...], ...]]
    document_ids: tuple[str, ...]
    """Of everything that attention read."""
    read: tuple[int, ...] = ()
    """Block ids of what attention read, the most first."""


def quoted_sentences(
    builder: PassageBuilder, draft: DraftAnswer, quotations: Sequence[Quotation]
) -> Iterator[QuotedSentence]:
    """These sentences with their places; those deleted meanwhile are left out."""
    quotable = draft.quotable
    for one in quotations:
        assert quotable is not None
        passage = builder.sentence(quotable.hits(one), one.start, one.stop)
        if passage is not None:
            if (likely := draft.probability(one.share)) is not None:
                passage = replace(passage, score=likely)
            yield QuotedSentence(passage, one.answer)


def quotation_of(
    workspace: Workspace, index: MemoryIndex, builder: PassageBuilder, question: Question
) -> tuple[DraftAnswer, QuotedSentence | None]:
    """What is decided about a question that is to be quoted for, and the best sentence, if there is any; nothing is
    stored. Raises like `retrieve`."""
    builder = builder.for_one_question()
    with index.open_for_question(workspace.catalogue) as snapshot:
        retrieved = retrieve(workspace, index, snapshot, question)
        draft = AnswerSelector(workspace, index, builder, question).decide(retrieved)
        return draft, next(quoted_sentences(builder, draft, draft.quotations[:1]), None)


def store_answer(workspace: Workspace, answer: Answer, document_ids: Sequence[str]) -> None:
    """Keep the answer with its evidence. Raises `DeletedMeanwhile` if a document that it used is gone."""
    if answer.conversation_id is not None:
        workspace.catalogue.ensure_conversation(answer.conversation_id, answer.question)
    others = [other.passage for other in (*answer.other_sentences, answer.earlier_version) if other is not None]
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
