"""Batches for the span reader: questions with the passages that they are shown, as cached states.

Every batch is a pure function of its number, so a run that was killed sees what it would have seen.

Axes: Q questions, N tokens of all stretches and the gaps between them, T tokens of a question, S states of a token,
E their width, P pieces of passages.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from model.scoring.span_reader import GAP, lay_out
from model.training.data.batches.length_batches import batches_by_length
from model.training.data.span_questions import SpanQuestion
from model.training.data.token_states import StateCache

NEAREST = 24
"""Pieces nearest to a question that are kept for it."""
LONGEST_QUESTION = 48


@dataclass(frozen=True)
class Shown:
    """A question with the pieces that it is shown, gold ones at `gold`."""

    question: SpanQuestion
    pieces: tuple[str, ...]
    gold: tuple[int, ...]
    """Place among `pieces` of each piece of the passage; -1 for one that is not shown."""


@dataclass(frozen=True)
class ReaderBatch:
    """What a reader sees and what is right. Targets are distributions over the tokens and, last, "not here"."""

    states_QNE: Tensor
    valid_QN: Tensor
    stretch_QN: Tensor
    asked_QTE: Tensor
    question_mask_QT: Tensor
    start_QN1: Tensor
    end_QN1: Tensor
    offsets: list[dict[int, tuple[int, int, int]]]
    """Of each question: row -> (piece among those shown, first character, character behind the last)."""


class Distractors:
    """Wrong passages for a question: those whose mean state is nearest to that of the question, as search would find
    them, without those that hold an accepted answer."""

    def __init__(self, passages: StateCache, asked: StateCache, pieces: Sequence[str]) -> None:
        self._asked, self._pieces = asked, list(pieces)
        self._lowered = [piece.lower() for piece in self._pieces]
        self._means_PE = torch.stack([_mean(passages, piece) for piece in self._pieces])

    def of(self, question: SpanQuestion, *, most: int = NEAREST) -> list[str]:
        """The nearest pieces, best first."""
        scores_P = self._means_PE @ _mean(self._asked, question.text)
        answers = [answer.lower() for answer in question.answers]
        gold = set(question.pieces)
        found: list[str] = []
        for number in scores_P.topk(min(4 * most, len(self._pieces))).indices.tolist():
            held = any(answer in self._lowered[number] for answer in answers)
            if not held and self._pieces[number] not in gold:
                found.append(self._pieces[number])
        return found[:most]


def _mean(cache: StateCache, text: str) -> Tensor:
    mean_E = cache.get(text).states_TSE[:, 0].float().mean(0)
    return normalize(mean_E, dim=0)


class ReaderBatchMaker:
    """make(i) -> ReaderBatch number i of training; collate(shown) for measuring."""

    def __init__(
        self,
        passages: StateCache,
        asked: StateCache,
        questions: Sequence[SpanQuestion],
        *,
        states: Sequence[int],
        batch: int,
        distractors: Sequence[Sequence[str]] | None = None,
        crowded: float = 0.0,
        withheld: float = 0.0,
        most_distractors: int = 2,
        seed: int = 0,
    ) -> None:
        """`states`: which of the cached states, in this order. `crowded`: in how many batches passages that hold no
        answer stand beside the gold one, at most `most_distractors`; `withheld`: how often, of these, the gold one is
        not shown."""
        self._passages, self._asked, self._questions = passages, asked, questions
        self._states, self._batch, self._seed = list(states), batch, seed
        self._distractors, self._crowded, self._withheld = distractors, crowded, withheld
        self._most = most_distractors
        self._lengths = np.array([sum(len(passages.get(piece).ids_T) for piece in q.pieces) for q in questions])

    @property
    def batches_per_epoch(self) -> int:
        return max(1, len(self._questions) // self._batch)

    def make(self, index: int) -> ReaderBatch:
        """Micro-batch number `index`."""
        epoch, place = divmod(index, self.batches_per_epoch)
        numbers = batches_by_length(self._lengths, self._batch, self._seed, epoch)[place]
        random_ = random.Random(f"{self._seed}-{index}")
        # All questions of a batch or none: a single crowded one would pad all others to its length.
        crowded = random_.random() < self._crowded
        return self.collate([self._show(int(number), random_, crowded=crowded) for number in numbers])

    def _show(self, number: int, random_: random.Random, *, crowded: bool) -> Shown:
        question = self._questions[number]
        pieces = [*question.pieces[:2]]
        if question.spans and question.spans[0][0] >= 2:
            pieces = [question.pieces[question.spans[0][0]]]
        if self._distractors is not None and crowded:
            near = list(self._distractors[number][:8])
            random_.shuffle(near)
            pieces = [*([] if random_.random() < self._withheld and near else pieces), *near[: self._most]]
        return shown(question, pieces)

    def collate(self, rows: Sequence[Shown]) -> ReaderBatch:
        """Pad and stack."""
        states, begins = zip(*(self._lay_out(each) for each in rows), strict=True)
        asked = [self._chosen(self._asked, each.question.text)[:LONGEST_QUESTION] for each in rows]
        length, asked_length = max(map(len, states)) - GAP, max(map(len, asked))
        width = states[0].shape[-1]
        states_QNE, asked_QTE = torch.zeros(len(rows), length, width), torch.zeros(len(rows), asked_length, width)
        stretch_QN = torch.full((len(rows), length), -1)
        start_QN1, end_QN1 = torch.zeros(len(rows), length + 1), torch.zeros(len(rows), length + 1)
        offsets: list[dict[int, tuple[int, int, int]]] = []
        for row, each in enumerate(rows):
            states_NE = states[row][:length]
            states_QNE[row, : len(states_NE)] = states_NE
            asked_QTE[row, : len(asked[row])] = asked[row]
            places: dict[int, tuple[int, int, int]] = {}
            for piece, (text, begin) in enumerate(zip(each.pieces, begins[row], strict=True)):
                at = self._passages.get(text).offsets_T2.tolist()
                stretch_QN[row, begin : begin + len(at)] = piece
                places |= {begin + token: (piece, first, stop) for token, (first, stop) in enumerate(at)}
            offsets.append(places)
            self._mark(each, begins[row], start_QN1[row], end_QN1[row])
        mask_QT = torch.arange(asked_length) < torch.tensor([len(each) for each in asked])[:, None]
        return ReaderBatch(states_QNE, stretch_QN >= 0, stretch_QN, asked_QTE, mask_QT, start_QN1, end_QN1, offsets)

    def _lay_out(self, row: Shown) -> tuple[Tensor, list[int]]:
        return lay_out([self._chosen(self._passages, piece) for piece in row.pieces])

    def _chosen(self, cache: StateCache, text: str) -> Tensor:
        return cache.get(text).states_TSE[:, self._states].flatten(1).float()

    def _mark(self, row: Shown, begins: Sequence[int], start_N1: Tensor, end_N1: Tensor) -> None:
        """Write the targets: all annotators' answers count the same; "not here" if none is shown."""
        for piece, first, stop in row.question.spans:
            place = row.gold[piece]
            if place < 0:
                continue
            at_T2 = self._passages.get(row.pieces[place]).offsets_T2
            inside = ((at_T2[:, 1] > first) & (at_T2[:, 0] < stop)).nonzero()[:, 0]
            if len(inside):
                start_N1[begins[place] + int(inside[0])] += 1
                end_N1[begins[place] + int(inside[-1])] += 1
        for target_N1 in (start_N1, end_N1):
            if not target_N1.any():
                target_N1[-1] = 1
            target_N1 /= target_N1.sum()


def shown(question: SpanQuestion, pieces: Sequence[str]) -> Shown:
    """The question with these pieces, each once."""
    kept = list(dict.fromkeys(pieces))
    gold = tuple(kept.index(piece) if piece in kept else -1 for piece in question.pieces)
    return Shown(question, tuple(kept), gold)
