"""Micro-batches for `teaching.py`: stretches of documents with the encoder's states, and questions about them.

Every batch is a pure function of its number. Axes: R rows, T tokens, N blocks (R x W), L tokens in a block, Q
questions, E the encoder's width.
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
from model.inference.titles import title_ids
from model.scoring.sentences import may_answer, sentence_borders
from model.training.convert.init_from_encoder import Encoder
from model.training.data.examples import TokenDocuments, TokenQuestion, places_of
from model.training.data.question_batches import SOURCE_WEIGHT
from model.training.data.questions.facts import Facts
from model.training.data.text_batches import TextRows, TextRowShape
from model.training.losses.retriever_loss import DistillationBatch

NO_SENTENCE = -1
NOTHING, FIRST_TEXT = -1, -2
"""Document numbers of empty blocks, and of rows of plain text (downwards)."""


@dataclass(frozen=True, kw_only=True)
class TaughtShape:
    """Sizes of a micro-batch."""

    rows: int = 36
    blocks: int = 4
    text_rows: int = 15
    """Rows of plain text among them."""
    plain: TextRowShape = TextRowShape()
    """What is made of them."""
    questions_a_row: int = 5
    questions: int = 64
    """Questions of a micro-batch: always as many, so that all tensors keep their shapes (see `torch.compile`)."""
    hard: float = 0.5
    """How often a hard wrong stretch comes along: one that search has taken for the answer (`lookalikes.py`), or else
    another of the same document or of one with the same title."""
    unanswerable: float = 0.15
    """Share of the questions, at most, that their passage does not answer."""
    untitled: float = 0.3
    """How often the title of a row's document is not known."""
    withheld: float = 0.1
    """How often the pointing head is not shown the blocks with the answer."""
    longest_question: int = 29
    """Tokens; the prompt, in which it stands twice, fits into a block."""


Asked = tuple[int, tuple[int, ...]]
"""A question: its document and its tokens."""


class TaughtRowMaker:
    """make(i) -> DistillationBatch."""

    def __init__(
        self,
        data: TokenDocuments,
        texts: list[NDArray[np.uint16]],
        model: LandmarkModel,
        encoder: Encoder,
        shape: TaughtShape,
        *,
        text_titles: Sequence[str] = (),
        lookalikes: Mapping[Asked, Sequence[tuple[int, int]]] | None = None,
        seed: int = 0,
    ) -> None:
        self._lookalikes = lookalikes or {}
        self._data, self._texts, self._encoder, self._shape, self._seed = data, texts, encoder, shape, seed
        self._model, self._config = model, model.config
        self._tokenizer = tokenizer = model.tokenizer
        self._strings = [tokenizer.decode([token]) for token in range(len(tokenizer))]
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
        assert self._prompt_tokens < model.config.block_size, "a prompt fits into a block, so no landmark stands in it"
        self._by_document: dict[int, list[TokenQuestion]] = defaultdict(list)
        for question in data.questions:
            if question.answerable and len(question.ids) <= shape.longest_question:
                self._by_document[question.document].append(question)
        self._silent: dict[int, list[TokenQuestion]] = defaultdict(list)
        for question in data.questions:
            if not question.answerable and len(question.ids) <= shape.longest_question:
                self._silent[question.document].append(question)
        self._questions = [question for asked in self._by_document.values() for question in asked]
        chance = np.array([SOURCE_WEIGHT.get(question.source, 1.0) for question in self._questions])
        self._chance = chance / chance.sum()
        names: dict[str, int] = {}
        self._title = [names.setdefault(t, len(names)) if t else -1 - n for n, t in enumerate(data.titles)]
        self._titled: dict[int, list[int]] = defaultdict(list)
        for document in self._by_document:
            self._titled[self._title[document]].append(document)

    def make(self, number: int) -> DistillationBatch:
        draw = np.random.default_rng((self._seed, number))
        pick = random.Random(int(draw.integers(2**31)))
        shape = self._shape
        length = self._length
        rows: list[tuple[NDArray[np.uint16], int, int]] = []  # tokens, document, first token
        asked: list[TokenQuestion] = []
        more: list[TokenQuestion] = []
        silent: list[TokenQuestion] = []
        while len(rows) < shape.rows - shape.text_rows:
            question = self._questions[int(draw.choice(len(self._questions), p=self._chance))]
            asked.append(question)
            drawn = [(question.document, self._begin(question.document, question.start, question.stop, length, draw))]
            if pick.random() < shape.hard and len(rows) < shape.rows - shape.text_rows - 1:
                drawn += self._hard(question, drawn[0][1], length, pick, draw)
            for document, start in drawn:
                rows.append((self._data.ids[document][start : start + length], document, start))
                inside = [
                    other
                    for other in self._by_document[document]
                    if other.start >= start and other.stop <= start + length and other is not question
                ]
                more += pick.sample(inside, min(len(inside), shape.questions_a_row - 1))
                silent += [
                    other
                    for other in self._silent[document]
                    if other.passage[0] >= start and other.passage[1] <= start + length
                ]
        titles = {document: self._data.titles[document] or "" for _, document, _ in rows}
        for text in self._text_rows.draw(shape.rows - len(rows), FIRST_TEXT, Facts(pick), pick, draw):
            rows.append((text.ids, text.document, 0))
            titles[text.document] = text.title
            asked += text.asked
        asked += pick.sample(silent, min(len(silent), int(shape.unanswerable * shape.questions)))
        asked = asked[: shape.questions] + pick.sample(more, min(len(more), max(0, shape.questions - len(asked))))
        asked += pick.choices(asked, k=shape.questions - len(asked))
        withheld = torch.tensor([pick.random() < shape.withheld for _ in asked])
        return self._batch(rows, asked, withheld, titles, pick)

    def _begin(self, document: int, first: int, stop: int, length: int, draw: np.random.Generator) -> int:
        """Where a row of a document begins that holds tokens [first, stop), or as many of them as fit."""
        start = max(0, first - int(draw.integers(0, length - self._config.tokens_per_block)))
        at_the_start = draw.random() < 0.3 and stop <= length
        return 0 if at_the_start else min(start, max(0, len(self._data.ids[document]) - length))

    def _hard(
        self, question: TokenQuestion, start: int, length: int, pick: random.Random, draw: np.random.Generator
    ) -> list[tuple[int, int]]:
        """(document, first token) of a stretch that is easily taken for the one at `start`, if there is one."""
        found = [
            (document, token)
            for document, token in self._lookalikes.get((question.document, question.ids), ())
            if document != question.document or not start - self._config.tokens_per_block < token < start + length
        ]
        if not found:
            found = [(other.document, other.start) for other in self._siblings(question, length, pick)]
        if not found:
            return []
        document, token = pick.choice(found)
        return [(document, self._begin(document, token, token + self._config.tokens_per_block, length, draw))]

    def _siblings(self, question: TokenQuestion, length: int, pick: random.Random) -> list[TokenQuestion]:
        """Questions about other stretches of the same document, or of others with its title."""
        documents = self._titled[self._title[question.document]]
        return [
            other
            for document in pick.sample(documents, min(len(documents), 3))
            for other in self._by_document[document]
            if document != question.document or abs(other.start - question.start) > length
        ]

    def _batch(
        self,
        rows: list[tuple[NDArray[np.uint16], int, int]],
        asked: list[TokenQuestion],
        withheld_Q: Tensor,
        title_of: Mapping[int, str],
        pick: random.Random,
    ) -> DistillationBatch:
        shape, size, per_block = self._shape, self._config.block_size, self._config.tokens_per_block
        width = self._encoder.width
        ids = np.zeros((len(rows), shape.blocks, size), np.int64)
        ids[:, :, -1] = self._config.landmark_token_id
        valid = np.zeros(ids.shape, bool)
        blocks: list[list[int]] = []
        places: list[tuple[int, int]] = []
        document = np.full(ids.shape[:2], NOTHING, np.int64)
        first = np.zeros(ids.shape[:2], np.int64)
        sentence = np.full((len(rows), shape.blocks * per_block), NO_SENTENCE, np.int64)
        for row, (tokens, owner, start) in enumerate(rows):
            numbers = self._sentences(tokens)
            sentence[row, : len(tokens)] = np.where(numbers < 0, NO_SENTENCE, numbers + 1 + sentence.max())
            for block in range(-(-len(tokens) // per_block)):
                piece = tokens[block * per_block : (block + 1) * per_block]
                ids[row, block, : len(piece)] = piece
                valid[row, block, : len(piece)] = valid[row, block, -1] = True
                document[row, block], first[row, block] = owner, start + block * per_block
                blocks.append(piece.tolist())
                places.append((row, block))
        taught = self._states([*blocks, *(list(question.ids) for question in asked)])
        states = torch.zeros(*ids.shape, width, dtype=torch.bfloat16)
        pooled = torch.zeros(*ids.shape[:2], width)
        for (row, block), (by_token, mean) in zip(places, taught, strict=False):
            states[row, block, : len(by_token)] = by_token
            pooled[row, block] = mean
        asked_ids = np.zeros((len(asked), self._prompt_tokens), np.int64)
        there = np.zeros(asked_ids.shape, bool)
        asked_states = torch.zeros(*asked_ids.shape, width, dtype=torch.bfloat16)
        for row, (question, (by_token, _)) in enumerate(zip(asked, taught[len(blocks) :], strict=True)):
            prompt, inside = self._prompt(question.ids)
            asked_ids[row, : len(prompt)] = prompt
            there[row, inside] = True
            asked_states[row, inside] = by_token
        titles, titled = self._titles([title_of[owner] for _, owner, _ in rows], pick)
        raw = ids[:, :, :-1].reshape(-1, per_block)
        gold, elsewhere, ignored = self._gold(asked, document.reshape(-1), first.reshape(-1), raw)
        spans = self._spans(asked, document.reshape(-1), first.reshape(-1))
        return DistillationBatch(
            torch.from_numpy(ids.reshape(len(rows), -1)),
            torch.from_numpy(valid.reshape(len(rows), -1)),
            states.flatten(1, 2),
            pooled.flatten(0, 1),
            titles,
            titled,
            torch.from_numpy(asked_ids),
            torch.from_numpy(there),
            asked_states,
            torch.from_numpy(gold),
            torch.from_numpy(ignored),
            spans,
            torch.from_numpy(sentence.reshape(-1, per_block)),
            torch.from_numpy(elsewhere),
            torch.tensor([not question.answerable for question in asked]),
            withheld_Q,
        )

    def _titles(self, titles: Sequence[str], pick: random.Random) -> tuple[Tensor, Tensor]:
        """titles_RT and titled_RT of rows of documents with these titles."""
        found = [title_ids(self._model, "" if pick.random() < self._shape.untitled else title) for title in titles]
        ids_RT = torch.zeros(len(found), self._config.tokens_per_block, dtype=torch.long)
        titled_RT = torch.zeros(ids_RT.shape, dtype=torch.bool)
        for row, (ids, title_itself) in enumerate(found):
            ids_RT[row, : len(ids)] = torch.tensor(ids)
            titled_RT[row, title_itself] = True
        return ids_RT, titled_RT

    def _prompt(self, question: Sequence[int]) -> tuple[list[int], slice]:
        """The prompt and an end token behind it (the answer token points at the first token of the answer, the end
        token at the last), and where the question stands."""
        prompt = self._model.prompt_of(question)
        return [*prompt.ids, int(self._tokenizer.eos_token_id)], prompt.question

    def _sentences(self, tokens: NDArray[np.uint16]) -> NDArray[np.int64]:
        """For each token of a row the number of its sentence, if that may be an answer."""
        ids = tokens.tolist()
        text, ends = self._model.decode(ids), np.array(self._model.token_text.ends(ids))
        starts = np.concatenate(([0], ends[:-1]))
        found = np.full(len(ids), NO_SENTENCE, np.int64)
        for number, (start, stop) in enumerate(sentence_borders(text)):
            if may_answer(text[start:stop]):
                found[(starts < stop) & (ends > start)] = number
        return found

    def _spans(self, asked: list[TokenQuestion], document_N: NDArray[np.int64], first_N: NDArray[np.int64]) -> Tensor:
        """spans_Q2: first and last answer token as places in the flattened N x (L - 1) tokens; -1 where unknown."""
        per_block = self._config.tokens_per_block
        spans = np.full((len(asked), 2), -1, np.int64)
        for row, question in enumerate(asked):
            if not question.exact:
                continue
            for column, token in enumerate((question.start, question.stop - 1)):
                holds = (document_N == question.document) & (first_N <= token) & (first_N + per_block > token)
                if holds.any():
                    block = int(np.flatnonzero(holds)[0])
                    spans[row, column] = block * per_block + token - first_N[block]
        rows = spans // (per_block * self._shape.blocks)
        spans[(spans < 0).any(1) | (rows[:, 0] != rows[:, 1])] = -1
        return torch.from_numpy(spans)

    def _gold(
        self,
        asked: list[TokenQuestion],
        document_N: NDArray[np.int64],
        first_N: NDArray[np.int64],
        tokens_NJ: NDArray[np.int64],
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """gold_QN; elsewhere_QNJ, where the answer is said in other places; ignored_QN.

        Other blocks that say an answer may be right, too; blocks of another document with the same title also where
        the answer is not known word for word, or does not stand whole in a block.
        """
        gold, ignored = (np.zeros((len(asked), len(document_N)), bool) for _ in range(2))
        elsewhere = np.zeros((len(asked), *tokens_NJ.shape), bool)
        title_N = np.array([self._title_of(int(document)) for document in document_N])
        for row, question in enumerate(asked):
            same = document_N == question.document
            ignored[row] = document_N == NOTHING
            if not question.answerable:
                continue
            gold[row] = same & (first_N < question.stop) & (first_N + self._config.tokens_per_block > question.start)
            related = title_N == self._title_of(question.document)
            said = self._said(question, document_N, first_N, tokens_NJ) if question.exact else None
            if said is None:
                ignored[row] |= related & ~same
                continue
            for block, token in places_of(said, tokens_NJ):
                elsewhere[row, block, token : token + len(said)] = True
            ignored[row] |= elsewhere[row].any(1) & ~gold[row]
        return gold, elsewhere, ignored

    def _said(
        self,
        question: TokenQuestion,
        document_N: NDArray[np.int64],
        first_N: NDArray[np.int64],
        tokens_NJ: NDArray[np.int64],
    ) -> NDArray[np.int64] | None:
        """The tokens of a known answer, if all of them stand in one block of the batch."""
        holds = (document_N == question.document) & (first_N <= question.start)
        blocks = np.flatnonzero(holds & (first_N + tokens_NJ.shape[1] >= question.stop))
        if not len(blocks):
            return None
        at = question.start - first_N[blocks[0]]
        return tokens_NJ[blocks[0], at : at + question.stop - question.start]

    def _title_of(self, document: int) -> int:
        return self._title[document] if document >= 0 else -(10**9) + document

    def _states(self, pieces: list[list[int]]) -> list[tuple[Tensor, Tensor]]:
        """(state of every token, mean state) of token lists as the encoder reads their text."""
        found: list[tuple[Tensor, Tensor]] = [(torch.empty(0), torch.empty(0))] * len(pieces)
        order = sorted(range(len(pieces)), key=lambda index: len(pieces[index]))
        for begin in range(0, len(order), 16):
            chosen = order[begin : begin + 16]
            words = [[self._strings[token] for token in pieces[index]] for index in chosen]
            states_BTE, real_BT, characters_BT2 = self._encoder.states(["".join(parts) for parts in words])
            for index, parts, states, real, characters in zip(
                chosen, words, states_BTE, real_BT, characters_BT2.numpy(), strict=True
            ):
                found[index] = _by_token(parts, states[real], characters[real.numpy()])
        return found


def _by_token(parts: list[str], states_TE: Tensor, characters_T2: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """The encoder's states by token: of the pieces that hold its first and its last letter; and their mean."""
    out = torch.zeros(len(parts), states_TE.shape[1])
    if not len(states_TE):
        return out, torch.zeros(states_TE.shape[1])
    ends = np.cumsum([len(part) for part in parts])
    starts = ends - np.array([len(part) for part in parts])
    first = starts + np.array([len(part) - len(part.lstrip()) for part in parts])
    last = ends - 1
    low = np.searchsorted(characters_T2[:, 0], first, "right") - 1
    high = np.searchsorted(characters_T2[:, 0], last, "right") - 1
    there = (first < ends) & (low >= 0) & (characters_T2[np.maximum(low, 0), 1] > first)
    low, high = low.clip(0), np.maximum(high, low).clip(0)
    rows = torch.from_numpy(np.flatnonzero(there))
    out[rows] = 0.5 * (states_TE[torch.from_numpy(low[there])] + states_TE[torch.from_numpy(high[there])])
    return out, states_TE.mean(0)
