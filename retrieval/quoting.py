"""Quotation from candidate blocks: which characters a quoted token stands for, and which sentence answers best.

A model that is not trained to write an answer can still point at one: the sentence whose stored keys answer best to the
question's queries (`retrieval.late_interaction`). The keys are those that attention reads, so nothing is read again.

Axes: Q question tokens, C candidate blocks, L tokens in a block, S sentences, T tokens of a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from model.backbone import LandmarkModel
from model.quote import Place, QuoteSource
from model.sentences import may_answer, sentence_borders
from retrieval.late_interaction import best_spans, score
from retrieval.prompts import word_starts
from storage.records import Block

POINTING = 0.005
"""Weight of the pointed span's logits beside the score of the sentence: it decides among sentences that are alike.
Held-out questions do not tell 0.0025 from 0.05 (docs/experiments.md)."""


@dataclass(frozen=True)
class Quotation:
    """Places of the tokens of a sentence, and which of these tokens the model points at."""

    places: list[Place]
    pointed: range


class Quoting:
    """Quotation from the candidate blocks of one question, in the order of the reader."""

    def __init__(self, model: LandmarkModel, blocks: Sequence[Block | None]):
        self._model, self._blocks = model, blocks
        number = {(block.document_id, block.ordinal): index for index, block in enumerate(blocks) if block is not None}
        self._next = [None if b is None else number.get((b.document_id, b.ordinal + 1)) for b in blocks]
        tokens = [() if block is None else block.tokens for block in blocks]
        self.source = QuoteSource(tokens, self._next, word_starts(model))

    def place(self, index: int, row: int) -> tuple[str, int, int] | None:
        """(document id, start, end) of one token; characters that tokens share belong to each of them."""
        block = self._blocks[index]
        assert block is not None, "only blocks with tokens are quoted"
        start = block.start + len(self._model.decode(block.tokens[:row]))
        end = block.start + len(self._model.decode(block.tokens[: row + 1]))
        return block.document_id, min(start, block.end), min(max(end, start), block.end)

    def best_sentence(
        self, matches_QCL: Tensor, text_of: dict[str, str], points_2CL: Tensor | None = None
    ) -> Quotation:
        """The best sentence, and the words in it that the model points at; empty if the blocks hold no text.

        `matches_QCL`: see `late_interaction.token_matches`; `points_2CL`: see `late_interaction.points`, if the model
        points.
        """
        sentences = list(self._sentences(text_of))
        if not sentences:
            return Quotation([], range(0))
        length = matches_QCL.shape[2]
        rows = [torch.tensor([index * length + row for index, row in places]) for places in sentences]
        place_ST = pad_sequence(rows, batch_first=True)
        there_ST = torch.arange(place_ST.shape[1]) < torch.tensor([len(places) for places in sentences])[:, None]

        def by_sentence(x_XCL: Tensor) -> Tensor:
            return x_XCL.flatten(1)[:, place_ST].masked_fill(~there_ST, -torch.inf)

        scores_S = score(by_sentence(matches_QCL))
        if points_2CL is None:
            return Quotation(sentences[int(scores_S.argmax())], range(0))
        sums_S, first_S, last_S = best_spans(by_sentence(points_2CL))
        best = int((scores_S + POINTING * sums_S).argmax())
        return Quotation(sentences[best], range(int(first_S[best]), int(last_S[best]) + 1))

    def _sentences(self, text_of: dict[str, str]) -> Iterator[list[Place]]:
        """Tokens of every sentence that stands whole in a run of neighbouring blocks; short ones only if all are.

        Where none stands whole (a sentence longer than the run) the parts that do stand there.
        """
        found = self._found(text_of, whole=True) or self._found(text_of, whole=False)
        answering = [places for places, text in found if may_answer(text)]
        yield from answering or [places for places, _ in found]

    def _found(self, text_of: dict[str, str], *, whole: bool) -> list[tuple[list[Place], str]]:
        return [
            sentence
            for run in self._runs()
            for sentence in _sentences_of_run(
                [self._placed(index) for index in run], run, self._text(run, text_of), whole=whole
            )
        ]

    def _runs(self) -> list[list[int]]:
        """Candidates that continue each other in their document."""
        continued = {following for following in self._next if following is not None}
        runs = []
        for index, block in enumerate(self._blocks):
            if block is None or index in continued:
                continue
            run, following = [index], self._next[index]
            while following is not None:
                run.append(following)
                following = self._next[following]
            runs.append(run)
        return runs

    def _text(self, run: Sequence[int], text_of: dict[str, str]) -> str:
        block = self._blocks[run[0]]
        assert block is not None
        return text_of.get(block.document_id, "")

    def _placed(self, index: int) -> _PlacedBlock:
        block = self._blocks[index]
        assert block is not None
        ends = [min(block.start + end, block.end) for end in self._model.token_text.ends(block.tokens)]
        return _PlacedBlock(block.start, block.end, ends)


@dataclass(frozen=True)
class _PlacedBlock:
    start: int
    end: int
    token_ends: list[int]
    """Character of the document behind each token."""


def _sentences_of_run(
    placed: Sequence[_PlacedBlock], run: Sequence[int], text: str, *, whole: bool
) -> Iterator[tuple[list[Place], str]]:
    first, last = placed[0].start, placed[-1].end
    # A sentence that begins before the run or ends behind it is not whole: look a little beyond both ends.
    low, high = max(0, first - 200), min(len(text), last + 200)
    for start, stop in sentence_borders(text, low, high):
        at_a_border = start > low or low == 0
        if whole and (start < first or stop > last or not at_a_border):
            continue
        places: list[Place] = []
        for index, block in zip(run, placed, strict=True):
            before = block.start
            for row, token_end in enumerate(block.token_ends):
                if before < stop and token_end > start:
                    places.append((index, row))
                before = token_end
        if places:
            yield places, text[max(start, first) : min(stop, last)]


def with_neighbours(positions_C: Tensor, document_N: Tensor, ordinal_N: Tensor) -> Tensor:
    """Ascending positions with the block before and behind each, so that sentences across blocks are whole."""
    count = len(document_N)
    beside = torch.cat((positions_C - 1, positions_C, positions_C + 1)).unique()
    beside = beside[(beside >= 0) & (beside < count)]
    chosen = set(positions_C.tolist())

    def joins(position: int) -> bool:
        return position in chosen or any(
            other in chosen
            and int(document_N[other]) == int(document_N[position])
            and abs(int(ordinal_N[other]) - int(ordinal_N[position])) == 1
            for other in (position - 1, position + 1)
        )

    return torch.tensor([position for position in beside.tolist() if joins(position)], dtype=torch.int64)
