"""Micro-batches for `losses/retriever_loss.py`: rows of documents with the teacher's states, and questions about them.

Every batch is a pure function of its number. Axes: R rows, T tokens, N blocks (R x W), L tokens in a block, J raw
tokens in a block, Q questions, E the teacher's width.
"""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoint.landmark_model import LandmarkModel
from model.inference.prefill import title_ids
from model.scoring.sentences import may_answer, sentence_borders
from research.train.convert.init_from_encoder import Encoder
from research.train.data.batches.batch_blocks import EMPTY, BatchBlocks, block_grid_rows
from research.train.data.batches.batch_types import DistillationBatch
from research.train.data.batches.question_batches import SOURCE_WEIGHT
from research.train.data.batches.text_batches import TextRows, TextRowShape
from research.train.data.examples import TokenDocuments, TokenQuestion, title_numbers
from research.train.data.questions.facts import Facts
from research.train.data.teacher_states import TeacherStates

NO_SENTENCE = -1
FIRST_TEXT = -2
"""Document numbers of rows of plain text count down from here."""


@dataclass(frozen=True, kw_only=True)
class DistillationShape:
    """Sizes of a micro-batch."""

    rows: int = 36
    blocks: int = 4
    text_rows: int = 15
    """Rows of plain text among them."""
    plain: TextRowShape = TextRowShape()
    questions_a_row: int = 5
    questions: int = 64
    """Always as many, so that all tensors keep their shapes when layers are compiled."""
    hard: float = 0.5
    """How often a hard negative joins a question: a row that search mistakes for the answer (`hard_negatives.py`), or
    else another one of the same document or of one with the same title."""
    unanswerable: float = 0.15
    """Largest share of questions that their passage does not answer."""
    untitled: float = 0.3
    """How often the title of a row's document is hidden."""
    longest_question: int = 29
    """Tokens; the prompt, which repeats the question, fits into a block."""


QuestionKey = tuple[int, tuple[int, ...]]
"""A question: its document and its tokens."""


@dataclass(frozen=True)
class _Row:
    ids: NDArray[np.uint16]
    document: int
    start: int
    """Place of the first token in the document."""
    title: str


class DistillationBatchMaker:
    """make(i) -> DistillationBatch."""

    def __init__(
        self,
        data: TokenDocuments,
        texts: list[NDArray[np.uint16]],
        model: LandmarkModel,
        encoder: Encoder,
        shape: DistillationShape,
        *,
        text_titles: Sequence[str] = (),
        hard_negatives: Mapping[QuestionKey, Sequence[tuple[int, int]]] | None = None,
        seed: int = 0,
    ) -> None:
        self._data, self._shape, self._seed = data, shape, seed
        self._hard_negatives = hard_negatives or {}
        self._model, self._config = model, model.config
        self._teacher = TeacherStates(encoder, model.tokenizer)
        self._length = shape.blocks * model.config.tokens_per_block
        self._text_rows = TextRows(
            model,
            texts,
            text_titles or [""] * len(texts),
            shape.plain,
            length=self._length,
            longest_question=shape.longest_question,
        )
        self._prompt_tokens = len(self._prompt((0,) * shape.longest_question)[0])
        assert self._prompt_tokens < model.config.block_size, "a prompt fits into a block, so it has no landmark"
        self._by_document: dict[int, list[TokenQuestion]] = defaultdict(list)
        self._unanswerable: dict[int, list[TokenQuestion]] = defaultdict(list)
        for question in data.questions:
            if len(question.ids) <= shape.longest_question:
                (self._by_document if question.answerable else self._unanswerable)[question.document].append(question)
        self._questions = [question for asked in self._by_document.values() for question in asked]
        weights = np.array([SOURCE_WEIGHT.get(question.source, 1.0) for question in self._questions])
        self._probabilities = weights / weights.sum()
        self._title = title_numbers(data.titles)
        self._titled: dict[int, list[int]] = defaultdict(list)
        for document in self._by_document:
            self._titled[self._title[document]].append(document)

    def make(self, number: int) -> DistillationBatch:
        """Micro-batch number `number`."""
        draw, shape = np.random.default_rng((self._seed, number)), self._shape
        pick = random.Random(int(draw.integers(2**31)))
        rows: list[_Row] = []
        asked: list[TokenQuestion] = []
        more: list[TokenQuestion] = []
        unanswerable: list[TokenQuestion] = []
        from_documents = shape.rows - shape.text_rows
        while len(rows) < from_documents:
            question = self._questions[int(draw.choice(len(self._questions), p=self._probabilities))]
            asked.append(question)
            places = [(question.document, self._row_start(question.document, question.start, question.stop, draw))]
            if pick.random() < shape.hard and len(rows) < from_documents - 1:
                places += self._hard_negative(question, places[0][1], pick, draw)
            for document, start in places:
                stop = start + self._length
                rows.append(
                    _Row(self._data.ids[document][start:stop], document, start, self._data.titles[document] or "")
                )
                inside = [
                    other
                    for other in self._by_document[document]
                    if other.start >= start and other.stop <= stop and other is not question
                ]
                more += pick.sample(inside, min(len(inside), shape.questions_a_row - 1))
                unanswerable += [
                    other
                    for other in self._unanswerable[document]
                    if other.passage[0] >= start and other.passage[1] <= stop
                ]
        for text in self._text_rows.draw(shape.rows - len(rows), FIRST_TEXT, Facts(pick), pick, draw):
            rows.append(_Row(text.ids, text.document, 0, text.title))
            asked += text.asked
        asked += pick.sample(unanswerable, min(len(unanswerable), int(shape.unanswerable * shape.questions)))
        asked = asked[: shape.questions] + pick.sample(more, min(len(more), max(0, shape.questions - len(asked))))
        asked += pick.choices(asked, k=shape.questions - len(asked))
        return self._collate(rows, asked, pick)

    def _row_start(self, document: int, first: int, stop: int, draw: np.random.Generator) -> int:
        """Where a row of a document starts that holds tokens [first, stop), or as many of them as fit."""
        start = max(0, first - int(draw.integers(0, self._length - self._config.tokens_per_block)))
        at_the_start = draw.random() < 0.3 and stop <= self._length
        return 0 if at_the_start else min(start, max(0, len(self._data.ids[document]) - self._length))

    def _hard_negative(
        self, question: TokenQuestion, start: int, pick: random.Random, draw: np.random.Generator
    ) -> list[tuple[int, int]]:
        """(document, first token) of a row easily mistaken for the one at `start`, if there is one."""
        per_block = self._config.tokens_per_block
        found = [
            (document, token)
            for document, token in self._hard_negatives.get((question.document, question.ids), ())
            if document != question.document or not start - per_block < token < start + self._length
        ] or [(other.document, other.start) for other in self._siblings(question, pick)]
        if not found:
            return []
        document, token = pick.choice(found)
        return [(document, self._row_start(document, token, token + per_block, draw))]

    def _siblings(self, question: TokenQuestion, pick: random.Random) -> list[TokenQuestion]:
        """Questions about other parts of the same document, or about others with its title."""
        documents = self._titled[self._title[question.document]]
        return [
            other
            for document in pick.sample(documents, min(len(documents), 3))
            for other in self._by_document[document]
            if document != question.document or abs(other.start - question.start) > self._length
        ]

    def _collate(self, rows: Sequence[_Row], asked: Sequence[TokenQuestion], pick: random.Random) -> DistillationBatch:
        per_block = self._config.tokens_per_block
        ids_RWL, valid_RWL = block_grid_rows([row.ids for row in rows], self._shape.blocks, self._config)
        filled_RW = valid_RWL[:, :, -1]
        document_RW = np.where(filled_RW, [[row.document] for row in rows], EMPTY)
        first_RW = np.array([[row.start] for row in rows]) + np.arange(self._shape.blocks) * per_block
        places = list(zip(*filled_RW.nonzero(), strict=True))
        pieces = [ids_RWL[place][valid_RWL[place]][:-1].tolist() for place in places]
        taught = self._teacher.of([*pieces, *(list(question.ids) for question in asked)])
        states_RWLE = torch.zeros(*ids_RWL.shape, self._teacher.width, dtype=torch.bfloat16)
        pooled_RWE = torch.zeros(*filled_RW.shape, self._teacher.width)
        for (row, block), (by_token, mean) in zip(places, taught, strict=False):
            states_RWLE[row, block, : len(by_token)] = by_token
            pooled_RWE[row, block] = mean
        question_ids_QT, question_mask_QT, question_states_QTE = self._questions_of(
            asked, [by_token for by_token, _ in taught[len(pieces) :]]
        )
        titles_RT, title_mask_RT = self._titles([row.title for row in rows], pick)
        blocks = BatchBlocks(document_RW.ravel(), first_RW.ravel(), ids_RWL[:, :, :-1].reshape(-1, per_block))
        gold_QN, elsewhere_QNJ, ignored_QN = blocks.marks(asked, self._title_of)
        return DistillationBatch(
            torch.from_numpy(ids_RWL).flatten(1),
            torch.from_numpy(valid_RWL).flatten(1),
            states_RWLE.flatten(1, 2),
            pooled_RWE.flatten(0, 1),
            titles_RT,
            title_mask_RT,
            question_ids_QT,
            question_mask_QT,
            question_states_QTE,
            torch.from_numpy(gold_QN),
            torch.from_numpy(ignored_QN),
            torch.from_numpy(blocks.spans(asked, self._shape.blocks)),
            self._sentences(rows),
            torch.from_numpy(elsewhere_QNJ),
        )

    def _questions_of(self, asked: Sequence[TokenQuestion], states: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """ids_QT of the prompts, mask_QT of the questions in them, and their states_QTE."""
        ids_QT = torch.zeros(len(asked), self._prompt_tokens, dtype=torch.long)
        mask_QT = torch.zeros(ids_QT.shape, dtype=torch.bool)
        states_QTE = torch.zeros(*ids_QT.shape, self._teacher.width, dtype=torch.bfloat16)
        for row, (question, by_token) in enumerate(zip(asked, states, strict=True)):
            prompt, inside = self._prompt(question.ids)
            ids_QT[row, : len(prompt)] = torch.tensor(prompt)
            mask_QT[row, inside] = True
            states_QTE[row, inside] = by_token.bfloat16()
        return ids_QT, mask_QT, states_QTE

    def _titles(self, titles: Sequence[str], pick: random.Random) -> tuple[Tensor, Tensor]:
        """ids_RT and mask_RT of the titles, some of them hidden."""
        ids_RT = torch.zeros(len(titles), self._config.tokens_per_block, dtype=torch.long)
        mask_RT = torch.zeros(ids_RT.shape, dtype=torch.bool)
        for row, title in enumerate(titles):
            ids, title_itself = title_ids(self._model, "" if pick.random() < self._shape.untitled else title)
            ids_RT[row, : len(ids)] = torch.tensor(ids)
            mask_RT[row, title_itself] = True
        return ids_RT, mask_RT

    def _prompt(self, question: Sequence[int]) -> tuple[list[int], slice]:
        """The prompt and an end token (the answer token's query looks for the first token of the answer, the end
        token's for the last), and where the question is."""
        prompt = self._model.prompt_of(question)
        return [*prompt.ids, int(self._model.tokenizer.eos_token_id)], prompt.question

    def _sentences(self, rows: Sequence[_Row]) -> Tensor:
        """sentence_NJ: for each raw token the number of its sentence in the batch, if that may be an answer."""
        sentence_RP = np.full((len(rows), self._length), NO_SENTENCE, np.int64)
        next_number = 0
        for row, drawn in enumerate(rows):
            ids = drawn.ids.tolist()
            text, ends = self._model.decode(ids), np.array(self._model.token_text.ends(ids))
            starts = np.concatenate(([0], ends[:-1]))
            first_number = next_number
            for number, (start, stop) in enumerate(sentence_borders(text), first_number):
                inside = (starts < stop) & (ends > start)
                if may_answer(text[start:stop]) and inside.any():
                    sentence_RP[row, : len(ids)][inside] = number
            next_number = int(sentence_RP.max()) + 1
        return torch.from_numpy(sentence_RP.reshape(-1, self._config.tokens_per_block))

    def _title_of(self, document: int) -> int:
        return self._title[document] if document >= 0 else -(10**9) + document
