"""Micro-batches for the span head: questions, each with blocks that may hold its answer.

The blocks are the gold ones (at times withheld, or with their neighbours in the passage) and those that search finds
for the question among all stored blocks. Every batch is a pure function of its number.

Axes: Q questions, C blocks, L tokens in a block, T tokens of a question, E width of a key.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from model.training.data.batches.batch_types import SpanBatch
from model.training.data.batches.key_cache import NO_TOKEN, KeyCache, RetrievedCandidates
from model.training.data.batches.question_batches import SOURCE_WEIGHT
from model.training.data.examples import TokenQuestion, places_of

LONGEST = 24
"""Tokens of the longest answer that is looked for in other places, too."""


@dataclass(frozen=True, kw_only=True)
class SpanShape:
    """Sizes of the head, of what is stored and of a micro-batch."""

    width: int = 64
    layers: int = 3
    dropout: float = 0.05
    stored_blocks: int = 25_000
    facts: int = 800
    """Made-up facts, each in a stretch of text of its own."""
    fact_blocks: int = 4
    definitions: int = 2
    """Questions of the kind "what is ...?" made of each document, at most."""
    found: int = 16
    """Blocks that search finds, of which a question sees the first."""
    questions: int = 32
    blocks: int = 5
    gold_masked: float = 0.12
    """How often the gold blocks are left out: then the answer stands nowhere."""
    whole_passage: float = 0.4
    """How often the other blocks of the gold passage come before those that search finds."""


class SpanBatchMaker:
    """make(i) -> SpanBatch."""

    def __init__(
        self,
        stored: KeyCache,
        questions: Sequence[TokenQuestion],
        met: RetrievedCandidates,
        shape: SpanShape,
        chosen: Sequence[int],
        *,
        seed: int = 0,
    ) -> None:
        """`chosen`: numbers of the questions to draw from."""
        self._stored, self._questions, self._met, self._shape, self._seed = stored, questions, met, shape, seed
        self._chosen = list(chosen)
        weights = np.array([SOURCE_WEIGHT.get(questions[number].source, 1.0) for number in chosen])
        self._cumulative = np.cumsum(weights / weights.sum())

    def make(self, index: int) -> SpanBatch:
        """Micro-batch number `index`."""
        random_ = random.Random(f"{self._seed}-{index}")
        drawn = [int(np.searchsorted(self._cumulative, random_.random())) for _ in range(self._shape.questions)]
        numbers = [self._chosen[min(place, len(self._chosen) - 1)] for place in drawn]
        return self._collate(numbers, [self._blocks(number, random_) for number in numbers])

    def served(self, numbers: Sequence[int], blocks: int) -> SpanBatch:
        """Questions with what search finds for them, as when serving."""
        return self._collate(numbers, [self._met.found_MF[number, :blocks].tolist() for number in numbers])

    def _blocks(self, number: int, random_: random.Random) -> list[int]:
        question, shape, stored = self._questions[number], self._shape, self._stored
        found = self._met.found_MF[number].tolist()
        if not question.answerable:
            first = stored.blocks(question.document, *question.passage)
        else:
            first = stored.blocks(question.document, question.start, question.stop)
            if random_.random() < shape.gold_masked:
                found, first = [block for block in found if block not in first], []
            elif random_.random() < shape.whole_passage:
                first = first + stored.blocks(question.document, *question.passage)
        return list(dict.fromkeys([*first, *found]))[: shape.blocks]

    def _collate(self, numbers: Sequence[int], blocks: Sequence[Sequence[int]]) -> SpanBatch:
        stored, count = self._stored, max(map(len, blocks))
        block_QC = np.array([[*row, *[-1] * (count - len(row))] for row in blocks])
        tokens_QCL = np.where(block_QC[..., None] >= 0, stored.tokens_NL[block_QC.clip(0)], NO_TOKEN)
        lengths = [int(self._met.begin_M[number + 1] - self._met.begin_M[number]) - 2 for number in numbers]
        width = stored.keys_NLE.shape[2]
        queries_QTE, span_queries_Q2E = (
            torch.zeros(len(numbers), max(lengths), width),
            torch.zeros(len(numbers), 2, width),
        )
        right = np.zeros((len(numbers), 2, *tokens_QCL.shape[1:]), bool)
        ignored = np.zeros(tokens_QCL.shape, bool)
        nothing = np.zeros(len(numbers), bool)
        for row, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
            begin = int(self._met.begin_M[number])
            queries_TE = torch.from_numpy(self._met.queries_TE[begin : begin + length + 2]).float()
            queries_QTE[row, :length], span_queries_Q2E[row] = queries_TE[:-2], queries_TE[-2:]
            right[row], ignored[row] = self._marked(self._questions[number], block_QC[row], tokens_QCL[row])
            nothing[row] = not right[row].any((1, 2)).all()
            if nothing[row]:  # at most a half of the answer is there, which is neither right nor wrong
                ignored[row] |= right[row].any(0)
        right[nothing] = False
        return SpanBatch(
            torch.from_numpy(stored.keys_NLE[block_QC.clip(0).ravel()]).float().unflatten(0, block_QC.shape),
            torch.from_numpy(tokens_QCL != NO_TOKEN),
            queries_QTE,
            torch.arange(max(lengths)) < torch.tensor(lengths)[:, None],
            span_queries_Q2E,
            torch.from_numpy(right),
            torch.from_numpy(ignored),
            torch.from_numpy(nothing),
        )

    def _marked(
        self, question: TokenQuestion, block_C: NDArray[np.int64], tokens_CL: NDArray[np.int32]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """right_2CL and ignored_CL of one question."""
        right, ignored = np.zeros((2, *tokens_CL.shape), bool), np.zeros(tokens_CL.shape, bool)
        if not question.answerable:
            return right, ignored
        stored = self._stored
        for side, token in enumerate((question.start, question.stop - 1)):
            block, row = stored.place(question.document, token)
            right[side, block_C == block, row] = True
        places = [stored.place(question.document, token) for token in range(question.start, question.stop)]
        said = np.array([stored.tokens_NL[place] for place in places])
        passage = stored.blocks(question.document, *question.passage)
        if len(said) <= LONGEST:
            for column, row in places_of(said, tokens_CL):
                if block_C[column] in passage:
                    right[0, column, row] = right[1, column, row + len(said) - 1] = True
                else:
                    ignored[column, row : row + len(said)] = True
        return right, ignored
