"""Search, answers and their evidence of the fake library: made up, rich, and the same for the same question."""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from retrieval.errors import InvalidRequest, NotFound
from retrieval.types.defaults import DEFAULT_K, DEFAULT_MAX_TOKENS, DEFAULT_QUOTE, DEFAULT_VOTERS
from retrieval.types.passages import (
    Answer,
    AnswerHead,
    AnswerToken,
    BlockEffect,
    OtherSentence,
    PageBox,
    Passage,
    PassageBlock,
    Timings,
)
from retrieval.types.records import Document, Scope
from tests.app.fake_words import BLOCK_CHARACTERS, LINES_A_BLOCK, NOW, get, hash_of

LAYERS, HEADS = tuple(range(1, 12)), 9


class FakeAnswers:
    """The half of `FakeLibrary` that answers."""

    _lock: threading.RLock
    token_seconds: float
    document_rows: dict[str, Document]
    page_texts: dict[str, list[str]]
    block_rows: dict[int, tuple[str, int, int, int]]
    answer_rows: dict[str, Answer]
    heads: list[AnswerHead]
    asked: list[dict[str, Any]]

    def _boxes(self, block: int) -> tuple[PageBox, ...]:
        identity, page, start, _end = self.block_rows[block]
        ordinal = (start - sum(len(text) for text in self.page_texts[identity][:page])) // BLOCK_CHARACTERS
        tops = [0.08 + ordinal * 0.094 + line * 0.0225 for line in range(LINES_A_BLOCK)]
        return tuple(PageBox(page + 1, 0.11, top, 0.55 if top == tops[-1] else 0.89, top + 0.019) for top in tops)

    def search(self, query: str, k: int = DEFAULT_K, *, within: Scope | None = None) -> list[Passage]:
        ranked = self._rank(query, within)
        return [self._passage(block, score) for block, score in ranked[:k]]

    def _rank(self, query: str, within: Scope | None) -> list[tuple[int, float]]:
        words = set(query.lower().split())
        scored = []
        with self._lock:
            for block, (identity, _page, start, end) in self.block_rows.items():
                document = self.document_rows.get(identity)
                if document is None or document.state != "ready" or not _visible(document, within):
                    continue
                text = self._text(identity, start, end).lower()
                score = sum(word in text for word in words) + random.Random(hash_of(f"{query}{block}")).random()
                scored.append((block, score))
        scored.sort(key=lambda item: -item[1])
        total = sum(2.0**score for _, score in scored[:24]) or 1.0
        return [(block, 2.0**score / total) for block, score in scored]

    def _text(self, identity: str, start: int, end: int) -> str:
        return "".join(self.page_texts[identity])[start:end]

    def _passage(self, block: int, score: float) -> Passage:
        identity, page, start, end = self.block_rows[block]
        document = self.document_rows[identity]
        return Passage(
            identity, document.source, document.title, (page + 1,), (str(page + 1),), start, end,
            self._text(identity, start, end), score, (block,),
            (PassageBlock(block, score, start, end, self._boxes(block)),), document.pages,
        )  # fmt: skip

    def ask(
        self,
        question: str,
        *,
        k: int = DEFAULT_K,
        within: Scope | None = None,
        quote: bool | None = DEFAULT_QUOTE,
        max_tokens: int | None = DEFAULT_MAX_TOKENS,
        voters: str = DEFAULT_VOTERS,
        conversation_id: str | None = None,
        whole: bool | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[AnswerToken | Answer]:
        self.asked.append({"question": question, "k": k, "within": within, "quote": quote, "max_tokens": max_tokens,
                           "voters": voters, "conversation_id": conversation_id})  # fmt: skip
        if not question.strip():
            raise InvalidRequest("The question is empty.")
        begun = time.monotonic()
        ranked = self._rank(question, within)
        chosen, missed = ranked[:k], ranked[k : k + 4]
        found = "unicorn" not in question.lower() and bool(chosen)
        text = self._text(*self._span(chosen[0][0])) if found else ""
        sentence = (max(text.split(". "), key=len).strip() + ".")[:220] if text else "The documents do not say."
        pieces = [piece if at == 0 else " " + piece for at, piece in enumerate(sentence.split(" "))][:max_tokens]
        dice = random.Random(hash_of(question))
        tokens: list[AnswerToken] = []
        for at, piece in enumerate(pieces):
            if cancelled():
                break
            if self.token_seconds:
                time.sleep(self.token_seconds)
            token = self._token(piece, at, len(pieces), chosen, found, dice)
            tokens.append(token)
            yield token
        settings = {"k": k, "voters": voters, "quote": quote is not False, "max_tokens": max_tokens}
        yield self._finish(question, sentence, tokens, chosen, missed, found, begun, dice, conversation_id, settings)

    def _span(self, block: int) -> tuple[str, int, int]:
        identity, _page, start, end = self.block_rows[block]
        return identity, start, end

    def _token(
        self, piece: str, at: int, count: int, chosen: Sequence[tuple[int, float]], found: bool, dice: random.Random
    ) -> AnswerToken:
        masses = []
        for rank, (block, score) in enumerate(chosen):
            centre = (rank + 0.5) / max(1, len(chosen)) * count
            near = math.exp(-((at - centre) ** 2) / (2 * (count / 4) ** 2))
            mass = (0.75 if found else 0.12) * (score * 1.4 + 0.22 * near) * (0.7 + 0.6 * dice.random()) / 2
            if mass > 0.035:
                masses.append((block, round(mass, 4)))
        masses.sort(key=lambda item: -item[1])
        share = min(0.97, sum(mass for _, mass in masses))
        return AnswerToken(piece, -0.05 - 1.4 * dice.random(), share, tuple(masses))

    def _finish(
        self, question: str, sentence: str, tokens: list[AnswerToken], chosen: Sequence[tuple[int, float]],
        missed: Sequence[tuple[int, float]], found: bool, begun: float, dice: random.Random,
        conversation_id: str | None, settings: dict[str, Any],
    ) -> Answer:  # fmt: skip
        totals = {
            block: sum(dict(token.blocks).get(block, 0.0) for token in tokens) / max(1, len(tokens))
            for block, _ in chosen
        }
        heat = {
            block: tuple(
                tuple(round(total * 3 * dice.random() ** (1 + abs(row - 6)), 4) for _ in range(HEADS))
                for row in range(len(LAYERS))
            )
            for block, total in totals.items()
        }
        passages = sorted((self._passage(block, total) for block, total in totals.items()), key=lambda one: -one.score)
        spent = time.monotonic() - begun
        answer = Answer(
            uuid.uuid4().hex, conversation_id, question, sentence if len(tokens) else "", found,
            0.82 if found else 0.07, settings["quote"], tuple(tokens), tuple(passages),
            tuple(self._passage(block, score * 0.6) for block, score in missed),
            sum(token.memory_share for token in tokens) / max(1, len(tokens)), LAYERS, HEADS, heat,
            Timings(0.012, 0.09, max(0.2, spent)), "cairn-small (sha256 5b1c…)", "9f3d2a", settings, NOW,
            tuple(self._other(block, score) for block, score in missed[:2] if found and settings["quote"]),
        )  # fmt: skip
        with self._lock:
            self.answer_rows[answer.id] = answer
            self.heads.insert(0, AnswerHead(answer.id, question, answer.text, NOW, conversation_id, found))
        return answer

    def _other(self, block: int, score: float) -> OtherSentence:
        """The first words of a block, the first of them pointed at."""
        passage = self._passage(block, score * 0.6)
        text = passage.text[:60].rsplit(" ", 1)[0]
        first, start = len(text.split(" ", 1)[0]), passage.start_index
        return OtherSentence(replace(passage, text=text, end_index=start + len(text)), (start, start + first))

    def answers(
        self, *, limit: int = 100, offset: int = 0, search: str = "", conversation_id: str | None = None
    ) -> list[AnswerHead]:
        words = search.lower()
        rows = (
            head
            for head in self.heads
            if words in f"{head.question} {head.text}".lower() and conversation_id in (None, head.conversation_id)
        )
        return list(itertools.islice(rows, offset, offset + limit))

    def answer(self, answer_id: str) -> Answer:
        return get(self.answer_rows, "answer", answer_id)

    def delete_answer(self, answer_id: str) -> None:
        self.answer(answer_id)
        del self.answer_rows[answer_id]
        self.heads = [head for head in self.heads if head.id != answer_id]

    def effect_of_block(self, answer_id: str, block_id: int) -> BlockEffect:
        answer = self.answer(answer_id)
        if block_id not in answer.heat:
            raise NotFound("block", block_id)
        whole = sum(token.logprob for token in answer.tokens)
        mass = sum(sum(row) for row in answer.heat[block_id])
        return BlockEffect(block_id, whole, whole - 0.4 * mass, -0.4 * mass)


def _visible(document: Document, within: Scope | None) -> bool:
    if within is None or not (within.document_ids or within.collection_ids):
        return True
    return document.id in within.document_ids or document.collection_id in within.collection_ids
