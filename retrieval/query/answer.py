"""Ask: search narrows the memory to candidates, the model answers while reading them, and what it read becomes the
evidence.

- Everything that was shown is stored with the answer, so that it can be reopened and exported as it was.
- A memory that does not hold the answer is said so: by the calibrated search confidence, before a word is generated.
- Each step takes its own turn at the model, so that several people are answered side by side.

Axes: C candidates (ascending positions), Y memory layers, H query heads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor

from model.attention.selection import SelectionPolicy, Voters
from model.checkpoint.landmark_model import LandmarkModel
from model.errors import ModelError
from model.inference.generate import GeneratedToken, Sampling, answer_logprob, generate
from model.scoring.late_interaction import points, span_head_logits, token_matches
from retrieval.engine.workspace import Workspace
from retrieval.errors import CairnError, InvalidRequest
from retrieval.index.snapshot import MemoryIndex, MemorySnapshot, naming_damage
from retrieval.query.evidence import AnswerMass
from retrieval.query.follow_up import with_conversation
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.passage_spans import join_neighbours
from retrieval.query.quoting import Quotation, Quoting, with_neighbours
from retrieval.query.search import Found, check_count, find_blocks, hits_of, titles_of
from retrieval.types.passages import Answer, AnswerToken, BlockEffect, OtherSentence, Passage, Timings, to_plain
from retrieval.types.records import Scope
from storage.errors import NotFound as NoRow

NOT_IN_DOCUMENTS = "The documents do not say."
CANDIDATES_PER_PASSAGE = 4
NEAR_MISSES = 5
# Below this many blocks the confidence of a search by landmarks says nothing.
FEW_BLOCKS = 16
# An answer's record keeps this many blocks for each token; a question has at most a few dozen candidates.
BLOCKS_PER_TOKEN = 16
OTHER_SENTENCES = 3


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to answer and how."""

    text: str
    k: int
    scope: Scope | None = None
    quote: bool | None = None
    """Word for word from the documents; None: as the model's settings say."""
    max_tokens: int = 128
    voters: str = "group"
    conversation_id: str | None = None

    def policy(self) -> SelectionPolicy:
        """Raises `InvalidRequest`."""
        check_count(self.k)
        try:
            return SelectionPolicy(top_k=self.k, voters=cast(Voters, self.voters), positions="library")
        except ModelError as error:
            raise InvalidRequest(str(error)) from error

    def sampling(self, model: LandmarkModel) -> Sampling:
        """Raises `InvalidRequest`."""
        try:
            return Sampling(max_tokens=self.max_tokens, stop=model.config.stop)
        except ModelError as error:
            raise InvalidRequest(str(error)) from error


class Asker:
    """Answers one question; one instance a question."""

    def __init__(self, workspace: Workspace, resident: MemoryIndex, sources: PassageBuilder, question: Question):
        self._workspace, self._resident, self._sources = workspace, resident, sources
        self._question = question
        self._began = time.perf_counter()
        self._first_token_seconds = 0.0
        self._quote = False

    def run(self, cancelled: Callable[[], bool] = lambda: False) -> Iterator[AnswerToken | Answer]:
        """The answer's tokens, then the stored answer. Cancelled: the answer so far."""
        question, workspace = self._question, self._workspace
        policy = question.policy()
        with workspace.scheduler.question_open(), self._resident.open_snapshot(workspace.catalogue) as snapshot:
            model = workspace.loaded().model
            sampling, asked = question.sampling(model), self._asked()
            with naming_damage(self._resident):
                found = find_blocks(workspace, snapshot, asked, CANDIDATES_PER_PASSAGE * question.k, question.scope)
            search_seconds = self._seconds()
            # Every layer chooses again by landmarks, among many blocks; tokens that decided are not overruled.
            best_C = found.positions_C[: question.k] if model.config.ranks_by_tokens else found.positions_C
            positions_C = best_C.sort().values
            self._quote = model.config.quotes if question.quote is None else question.quote
            by_sentence = self._quote and model.config.quotes_sentences
            quotable_C = self._with_neighbours(snapshot, found) if by_sentence else positions_C
            positions_C = torch.cat((positions_C, quotable_C)).unique()
            mass = AnswerMass(model.memory_layers, model.num_heads, len(positions_C), model.search_weights_YH)
            tokens: list[AnswerToken] = []
            token_ids: list[int] = []
            answerable = len(positions_C) > 0 and _above_threshold(model, found)
            quoted: set[int] = set()
            quoting, quotation, others = None, None, list[Quotation]()
            if answerable:
                reader = snapshot.reader(positions_C)
                quoting = self._quoting(model, snapshot, positions_C, quotable_C) if self._quote else None
                if quoting and by_sentence:
                    quotation, *others = self._sentences(snapshot, found, quoting, positions_C)
                    ids_C = reader.block_ids()
                    quoted = {int(ids_C[index]) for index, _ in quotation.places}
                steps = generate(
                    model,
                    model.prompt(asked).ids,
                    memory=reader,
                    policy=policy,
                    sampling=sampling,
                    quote_from=quoting.source if quoting else None,
                    quotation=quotation.places if quotation else None,
                    cancelled=cancelled,
                )
                for number, step in enumerate(self._in_turns(steps)):
                    pointed = quotation is not None and number in quotation.pointed
                    token = self._token(step, mass, reader.block_ids(), quoting, pointed)
                    tokens.append(token)
                    token_ids += [step.id] if step.id >= 0 else []
                    yield token
            evidence = (
                self._evidence(snapshot, found, positions_C, mass, quoted)
                if tokens
                else self._only_search(snapshot, found)
            )
            other_sentences = self._other_sentences(quoting, others) if quoting and tokens else ()
            text = "".join(token.text for token in tokens).strip()
            answer = Answer(
                id=uuid4().hex,
                conversation_id=question.conversation_id,
                question=question.text,
                text=text if text else NOT_IN_DOCUMENTS,
                found=bool(text),
                confidence=found.confidence,
                quote=self._quote,
                tokens=tuple(tokens),
                passages=tuple(evidence.passages),
                near_misses=tuple(evidence.near_misses),
                memory_share=_mean([token.memory_share for token in tokens if token.blocks]),
                layers=model.memory_layers,
                heads=model.num_heads,
                heat=evidence.heat,
                timings=Timings(search_seconds, self._first_token_seconds, self._seconds()),
                model=model.source or "model",
                memory=workspace.loaded().fingerprint.digest,
                settings=self._settings(asked, token_ids, snapshot, positions_C),
                created_at=datetime.now(UTC).isoformat(timespec="microseconds"),
                other_sentences=other_sentences,
            )
            store_answer(workspace, answer, evidence.document_ids)
        yield answer

    def _seconds(self) -> float:
        return time.perf_counter() - self._began

    def _asked(self) -> str:
        """The question with what it needs of the conversation before it."""
        if self._question.conversation_id is None:
            return self._question.text.strip()
        heads = self._workspace.catalogue.answers(conversation_id=self._question.conversation_id, limit=1)
        return with_conversation(self._question.text, [head.question for head in heads])

    def _in_turns(self, steps: Iterator[GeneratedToken]) -> Iterator[GeneratedToken]:
        while True:
            try:
                with naming_damage(self._resident), self._workspace.scheduler.for_question():
                    step = next(steps, None)
            except ModelError as error:
                raise InvalidRequest(f"The question cannot be answered: {error}") from error
            if step is None:
                return
            if not self._first_token_seconds:
                self._first_token_seconds = self._seconds()
            yield step

    def _token(
        self, step: GeneratedToken, mass: AnswerMass, ids_C: np.ndarray, quoting: Quoting | None, pointed: bool
    ) -> AnswerToken:
        if step.id < 0:  # text that was held back; no token of its own
            return AnswerToken(step.text, 0.0, 0.0, (), token_id=-1)
        token_mass = mass.add(step.selections)
        blocks = tuple((int(ids_C[block]), share) for block, share in token_mass.strongest(BLOCKS_PER_TOKEN))
        quoted = quoting.place(*step.quote) if quoting and step.quote else None
        return AnswerToken(step.text, step.logprob, token_mass.memory_share, blocks, quoted, step.id, pointed)

    def _quoting(
        self, model: LandmarkModel, snapshot: MemorySnapshot, positions_C: Tensor, quotable_C: Tensor
    ) -> Quoting:
        rows = self._workspace.catalogue.blocks_by_id(snapshot.blocks.ids_N[quotable_C.numpy()].tolist())
        ids = snapshot.blocks.ids_N[positions_C.numpy()].tolist()
        return Quoting(model, [rows.get(block_id) for block_id in ids])

    def _with_neighbours(self, snapshot: MemorySnapshot, found: Found) -> Tensor:
        """The best blocks with those beside them, so that a sentence that crosses blocks can be quoted whole."""
        best = found.positions_C[: self._question.k]
        document_N, ordinal_N = torch.from_numpy(snapshot.document_N), torch.from_numpy(snapshot.ordinal_N)
        return with_neighbours(best, document_N, ordinal_N)

    def _sentences(
        self, snapshot: MemorySnapshot, found: Found, quoting: Quoting, positions_C: Tensor
    ) -> list[Quotation]:
        """The sentence to quote, and the next best. Takes its own turn at the model."""
        documents = {snapshot.document_ids[number] for number in snapshot.document_N[positions_C.numpy()].tolist()}
        text_of = {document_id: self._sources.text(document_id) for document_id in documents}
        with naming_damage(self._resident), self._workspace.scheduler.for_question():
            keys = snapshot.token_keys(positions_C)
            titles_QC = titles_of(self._workspace, snapshot, found.queries_QWGD, positions_C)
            matches_QCL = token_matches(found.queries_QWGD, *keys).cpu().maximum(titles_QC[..., None])
            points_2CL = self._points(found, keys)
            return quoting.best_sentences(matches_QCL, text_of, points_2CL, count=1 + OTHER_SENTENCES)

    def _other_sentences(self, quoting: Quoting, others: Sequence[Quotation]) -> tuple[OtherSentence, ...]:
        """The next best sentences with their places; what was deleted meanwhile is left out."""
        found = []
        for other in others:
            passage = self._sources.sentence(quoting.hits(other), *quoting.span(other.places))
            if passage is not None:
                pointed = other.places[other.pointed.start : other.pointed.stop]
                start, end = quoting.span(pointed) if pointed else (passage.start_index,) * 2
                found.append(OtherSentence(passage, (start, end)))
        return tuple(found)

    def _points(self, found: Found, keys: tuple[list[Tensor], Tensor]) -> Tensor | None:
        """points_2CL of the candidates; None if the model does not point."""
        head = self._workspace.loaded().model.span_head
        if head is not None:
            return span_head_logits(head, found.queries_QWGD, found.pointers_2WGD, *keys).cpu()
        return points(found.pointers_2WGD, *keys).cpu() if len(found.pointers_2WGD) else None

    def _evidence(
        self, snapshot: MemorySnapshot, found: Found, positions_C: Tensor, mass: AnswerMass, quoted: set[int]
    ) -> _Evidence:
        """What the quoted sentence stands in, then passages by attention; of equal attention (none) the better search
        result first. Near misses by search."""
        rank = {int(position): index for index, position in enumerate(found.positions_C)}
        mass_C = mass.mass_C
        ids = snapshot.blocks.ids_N[positions_C.numpy()].tolist()
        order = sorted(
            range(len(positions_C)),
            key=lambda c: (ids[c] not in quoted, -float(mass_C[c]), rank.get(int(positions_C[c]), len(rank))),
        )
        hits = hits_of(snapshot, positions_C[order], mass_C[order])
        heat = {
            hit.block_id: tuple(tuple(round(float(cell), 6) for cell in row) for row in mass.heat_YHC[:, :, c])
            for hit, c in zip(hits, order, strict=True)
            if float(mass_C[c]) > 0
        }
        groups = join_neighbours(hits, self._question.k)
        groups.sort(key=lambda group: not any(hit.block_id in quoted for hit in group))
        passages = self._sources.passages(groups)
        shown = {block_id for passage in passages for block_id in passage.block_ids}
        searched = hits_of(snapshot, found.positions_C, found.scores_C)
        missed = [[hit] for hit in searched if hit.block_id not in shown][:NEAR_MISSES]
        read = tuple({hit.document_id for hit in hits if hit.block_id in heat})
        return _Evidence(passages, self._sources.passages(missed), heat, read)

    def _only_search(self, snapshot: MemorySnapshot, found: Found) -> _Evidence:
        """Nothing was generated: the best search results are near misses."""
        hits = hits_of(snapshot, found.positions_C, found.scores_C)
        near = self._sources.passages(join_neighbours(hits, NEAR_MISSES, found.joined), found.joined)
        return _Evidence([], near, {}, tuple(passage.document_id for passage in near))

    def _settings(
        self, asked: str, token_ids: Sequence[int], snapshot: MemorySnapshot, positions_C: Tensor
    ) -> dict[str, Any]:
        question = self._question
        return {
            "k": question.k,
            "voters": question.voters,
            "max_tokens": question.max_tokens,
            "quote": self._quote,
            "scope": to_plain(question.scope or Scope()),
            "asked": asked,
            "token_ids": list(token_ids),
            "candidates": snapshot.blocks.ids_N[positions_C.numpy()].tolist(),
            "index": self._resident.kind,
        }


@dataclass(frozen=True)
class _Evidence:
    passages: list[Passage]
    near_misses: list[Passage]
    heat: dict[int, tuple[tuple[float, ...], ...]]
    document_ids: tuple[str, ...]
    """Of everything that was read or is shown."""


def _above_threshold(model: LandmarkModel, found: Found) -> bool:
    """Whether to write an answer. A handful of landmarks gives nothing to compare with: then the model decides."""
    threshold, comparing = model.config.answer_threshold, not model.config.ranks_by_tokens
    return threshold is None or (comparing and found.in_scope < FEW_BLOCKS) or found.confidence >= threshold


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def store_answer(workspace: Workspace, answer: Answer, document_ids: Sequence[str]) -> None:
    """Keep the answer with its evidence. Raises `CairnError` if a document that it used was deleted meanwhile."""
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
        raise CairnError(
            "A document that this answer rests on was deleted while it was written, so it was not kept. Ask again."
        ) from error


def effect_of_block(workspace: Workspace, resident: MemoryIndex, answer: Answer, block_id: int) -> BlockEffect:
    """Log-probability of a stored answer with and without one of the blocks that it could read.

    Raises `InvalidRequest` for any other block.
    """
    token_ids, candidates = answer.settings["token_ids"], answer.settings["candidates"]
    if not token_ids or block_id not in candidates:
        raise InvalidRequest("This block was not among those that the answer could read, so it had no effect on it.")
    policy = Question(text=answer.question, k=answer.settings["k"], voters=answer.settings["voters"]).policy()
    model, logprobs = workspace.loaded().model, []
    with workspace.scheduler.question_open(), resident.open_snapshot(workspace.catalogue) as snapshot:
        for ids in (candidates, [other for other in candidates if other != block_id]):
            reader = snapshot.reader(snapshot.positions_of_blocks(ids))
            with naming_damage(resident), workspace.scheduler.for_question():
                prompt = model.prompt(answer.settings["asked"]).ids
                each = answer_logprob(model, prompt, token_ids, memory=reader, policy=policy)
            logprobs.append(float(each.sum()))
    return BlockEffect(block_id, logprobs[0], logprobs[1], logprobs[1] - logprobs[0])
