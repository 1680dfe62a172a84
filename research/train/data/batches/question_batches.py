"""Micro-batches for question training: rows of blocks from many documents, and questions about some of them.

Every batch is a pure function of its number. Rows stand on the block grid; padding only behind a document's end.
Axes: R rows, N blocks (R x W), L tokens in a block, Q questions, T tokens of a question window, C blocks read for an
answer.
"""

import random
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from model.checkpoint.landmark_model import LandmarkModel
from research.train.data.batches.batch_blocks import EMPTY, block_grid_rows
from research.train.data.batches.batch_types import QuestionBatch
from research.train.data.examples import TokenDocuments, title_numbers
from research.train.data.packing import IGNORED
from research.train.data.questions.fact_insertion import tokenize_fact
from research.train.data.questions.facts import Facts
from research.train.data.questions.pseudo_queries import pseudo_query

SOURCE_WEIGHT = {
    "squad11": 1.3,
    "squad20": 0.8,
    "disflqa": 0.5,
    "qed_nq": 2.2,
    "nq_openbook": 1.5,
    "policyqa": 0.7,
    "factbook_templated": 0.9,
    "quac": 1.0,
    "medquad": 0.5,
    "openstax_glossary": 0.6,
    "openstax_exercises": 0.6,
    "boolq": 0.8,
    "clapnq": 1.0,
    "conditionalqa": 0.5,
    "pubmedqa": 1.0,
}
"""How often a question of a source is drawn, relative to the number of its questions."""


@dataclass(frozen=True, kw_only=True)
class QuestionShape:
    """Sizes of a micro-batch."""

    rows: int = 12
    blocks: int = 3
    questions: int = 20
    asked_tokens: int = 32
    window_tokens: int = 64
    text_share: float = 0.15
    fact_share: float = 0.1


@dataclass
class _Row:
    ids: NDArray[np.int64]
    document: int
    title: int
    start: int


@dataclass
class _Asked:
    row: int
    ids: tuple[int, ...]
    answer: tuple[int, ...]
    start: int  # gold raw tokens, within the row
    stop: int


class QuestionBatchMaker:
    """make(i) -> QuestionBatch: the same batch for the same number, whatever came before."""

    def __init__(
        self,
        data: TokenDocuments,
        texts: list[NDArray[np.uint16]],
        model: LandmarkModel,
        idf_V: NDArray[np.float32],
        shape: QuestionShape,
        *,
        seed: int = 0,
    ) -> None:
        self._data, self._texts, self._idf_V, self._shape, self._seed = data, texts, idf_V, shape, seed
        self._model, self._tokenizer, self._config = model, model.tokenizer, model.config
        self._longest = (shape.asked_tokens - len(model.prompt_of(()).ids)) // model.config.prompt.count("{question}")
        self._by_document: dict[int, list[int]] = defaultdict(list)
        for number, question in enumerate(data.questions):
            self._by_document[question.document].append(number)
        weights = np.array([SOURCE_WEIGHT.get(q.source, 1.0) for q in data.questions])
        self._cumulative = np.cumsum(weights / weights.sum())
        self._title = title_numbers(data.titles)

    def make(self, index: int) -> QuestionBatch:
        """Batch number `index`. Every fourth has half the rows, each twice as long."""
        random_ = random.Random(f"{self._seed}-{index}")
        shape, facts = self._shape, Facts(random_)
        wide = index % 4 == 3
        rows_wanted, blocks = (shape.rows // 2, shape.blocks * 2) if wide else (shape.rows, shape.blocks)
        rows: list[_Row] = []
        asked: list[_Asked] = []
        while len(rows) < rows_wanted:
            if random_.random() < shape.text_share:
                self._add_text_row(rows, asked, blocks, facts, random_)
            else:
                self._add_question_row(rows, asked, blocks, random_)
        random_.shuffle(asked)
        return self._collate(rows, asked[: shape.questions], blocks)

    def _add_question_row(self, rows: list[_Row], asked: list[_Asked], blocks: int, random_: random.Random) -> None:
        room = blocks * self._config.tokens_per_block
        number = int(np.searchsorted(self._cumulative, random_.random()))
        question = self._data.questions[min(number, len(self._data.questions) - 1)]
        document = self._data.ids[question.document]
        latest = max(0, min(question.start, len(document) - room))
        start = (
            random_.randrange(max(0, question.stop - room), latest + 1)
            if latest > max(0, question.stop - room)
            else latest
        )
        ids = document[start : start + room].astype(np.int64)
        rows.append(_Row(ids, question.document, self._title[question.document], start))
        others = [self._data.questions[n] for n in self._by_document[question.document]]
        others = [q for q in others if q.start >= start and q.stop <= start + len(ids) and q is not question]
        for chosen in [question, *random_.sample(others, min(2 if blocks > self._shape.blocks else 1, len(others)))]:
            said = tuple(int(token) for token in document[chosen.start : chosen.start + len(chosen.answer)])
            extractive = chosen.answerable and said[: len(chosen.answer) - 1] == chosen.answer[:-1]
            answer = chosen.answer if extractive else ()
            asked.append(_Asked(len(rows) - 1, chosen.ids, answer, chosen.start - start, chosen.stop - start))

    def _add_text_row(
        self, rows: list[_Row], asked: list[_Asked], blocks: int, facts: Facts, random_: random.Random
    ) -> None:
        per_block = self._config.tokens_per_block
        room = blocks * per_block
        number = random_.randrange(len(self._texts))
        text = self._texts[number]
        start = random_.randrange(max(1, len(text) - room))
        ids = text[start : start + room].astype(np.int64)
        row, document = len(rows), -2 - number
        if random_.random() < self._shape.fact_share / self._shape.text_share:
            fact = tokenize_fact(self._tokenizer, facts.draw())
            at = random_.randrange(max(1, len(ids) - len(fact.ids)))
            ids = np.concatenate((ids[:at], fact.ids, ids[at:]))[:room]
            end = int(self._tokenizer.eos_token_id)
            asked.append(
                _Asked(row, fact.question, (*fact.ids[fact.value], end), at + fact.value.start, at + fact.value.stop)
            )
        elif len(ids) > per_block:
            block = random_.randrange(len(ids) // per_block)
            piece = ids[block * per_block : (block + 1) * per_block]
            asked.append(
                _Asked(
                    row,
                    pseudo_query([int(t) for t in piece], self._idf_V, random_),
                    (),
                    block * per_block + 8,
                    block * per_block + per_block - 8,
                )
            )
        rows.append(_Row(ids, document, document, start))

    def _collate(self, rows: list[_Row], asked: list[_Asked], blocks: int) -> QuestionBatch:
        shape, per_block = self._shape, self._config.tokens_per_block
        ids_RWL, valid_RWL = block_grid_rows([row.ids for row in rows], blocks, self._config)
        title_R = np.array([row.title for row in rows])
        document_RW = np.where(valid_RWL[:, :, -1], [[row.document] for row in rows], EMPTY)
        gold_QRW = np.zeros((shape.questions, len(rows), blocks), bool)
        ignored_QRW = gold_QRW | (document_RW == EMPTY)
        asked_QT = torch.zeros((shape.questions, shape.asked_tokens), dtype=torch.long)
        mean_QT = torch.zeros((shape.questions, shape.asked_tokens))
        window_QT = torch.zeros((shape.questions, shape.window_tokens), dtype=torch.long)
        window_QT[:, -1] = self._config.landmark_token_id
        targets_QT = torch.full((shape.questions, shape.window_tokens), IGNORED)
        reads_Q = torch.zeros(shape.questions, dtype=torch.bool)
        for number, question in enumerate(asked):
            words = question.ids[: self._longest]
            prompt = self._model.prompt_of(words)
            length = len(prompt.ids)
            asked_QT[number, :length] = torch.tensor(prompt.ids)
            mean_QT[number, prompt.question] = 1 / len(words)
            first, last = max(0, question.start) // per_block, (question.stop - 1) // per_block
            gold_QRW[number, question.row, first : last + 1] = True
            others_R = title_R == title_R[question.row]
            others_R[question.row] = False
            ignored_QRW[number, others_R] = True
            window = [*prompt.ids, *question.answer][:per_block]
            reads_Q[number] = bool(question.answer) and length < per_block - 1
            window_QT[number, : len(window)] = torch.tensor(window)
            targets_QT[number, length - 1 : len(window) - 1] = torch.tensor(window[length:])
        return QuestionBatch(
            torch.from_numpy(ids_RWL).flatten(1),
            torch.from_numpy(valid_RWL).flatten(1),
            blocks,
            asked_QT,
            mean_QT,
            window_QT,
            targets_QT,
            torch.from_numpy(gold_QRW).flatten(1),
            torch.from_numpy(ignored_QRW & ~gold_QRW).flatten(1),
            reads_Q,
        )
