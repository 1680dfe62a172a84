"""The sentences of the candidates: which lie whole in a run of neighbouring blocks, and the places of their tokens.

Axes: X any, C candidate blocks, L tokens in a block, S sentences, T tokens of a sentence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from model.inference.constrained_decoding import QuoteSource, TokenPlace, word_starts
from model.reading.ranker import AnswerFeatures
from model.scoring.sentences import sentence_borders
from retrieval.query.extend import continuation_end
from retrieval.query.passage_spans import Hit
from storage.records import Block

if TYPE_CHECKING:
    from model.checkpoint.landmark_model import LandmarkModel
    from model.reading.span_reader import FoundSpan


@dataclass(frozen=True)
class Quotation:
    """A sentence to quote: its tokens, the answer span among them (numbers in `places`), its late-interaction score.

    `probability`, `p_none`: that it answers, and that no candidate does, as a reader says; None without a reader.
    `share`: probability that it answers, given that one of the sentences does (softmax of the ranker's scores);
    `features`: see `model.reading.ranker.AnswerFeatures`; `sure`: whether it is more than a guess;
    `earlier_version`: whether it is what an earlier version says instead of the best sentence.
    """

    places: list[TokenPlace]
    answer_span: range
    score: float = 0.0
    probability: float | None = None
    p_none: float | None = None
    share: float = 0.0
    features: AnswerFeatures = field(default_factory=dict)
    sure: bool = False
    earlier_version: bool = False


@dataclass(frozen=True)
class PlacedBlock:
    start: int
    end: int
    token_ends: list[int]
    """Character of the document behind each token."""


@dataclass(frozen=True)
class Sentence:
    """`run`: the first block of its run; `start`, `stop`: characters of the document; `ends`: of each token;
    `continuation`: tokens of the list that it introduces, quoted behind it."""

    places: list[TokenPlace]
    text: str
    run: int
    start: int
    stop: int
    ends: list[int]
    continuation: list[TokenPlace]

    def tokens_within(self, span: FoundSpan) -> range:
        """Its tokens that hold characters of a span."""
        first = bisect_right(self.ends, span.start)
        return range(first, min(bisect_left(self.ends, span.stop) + 1, len(self.ends)))


def sentences_of_run(
    placed: Sequence[PlacedBlock], run: Sequence[int], text: str, *, whole: bool
) -> Iterator[Sentence]:
    first, last = placed[0].start, placed[-1].end
    # A sentence that begins before the run or ends behind it is not whole: look a little beyond both ends.
    low, high = max(0, first - 200), min(len(text), last + 200)
    for start, stop in sentence_borders(text, low, high):
        at_a_border = start > low or low == 0
        if whole and (start < first or stop > last or not at_a_border):
            continue
        tokens = _tokens_within(placed, run, start, stop)
        if tokens:
            places, ends = zip(*tokens, strict=True)
            more = _tokens_within(placed, run, stop, continuation_end(text, start, stop, last))
            continuation = [place for place, _ in more if place not in places]
            start, stop = max(start, first), min(stop, last)
            yield Sentence(list(places), text[start:stop], run[0], start, stop, list(ends), continuation)


def _tokens_within(
    placed: Sequence[PlacedBlock], run: Sequence[int], start: int, stop: int
) -> list[tuple[TokenPlace, int]]:
    """Tokens that hold characters of a span, each with the character behind it."""
    found: list[tuple[TokenPlace, int]] = []
    for index, block in zip(run, placed, strict=True):
        ends = block.token_ends
        first = bisect_right(ends, start)
        last = bisect_left(ends, stop) + 1 if block.start < stop else 0  # tokens that begin before `stop`
        found.extend(((index, row), ends[row]) for row in range(first, min(last, len(ends))))
    return found


class QuotableBlocks:
    """The candidate blocks of one question that may be quoted, by their number among the candidates: their sentences,
    and the characters of their tokens."""

    def __init__(
        self,
        model: LandmarkModel,
        blocks: Sequence[Block | None],
        text_of: Callable[[str], str] | None = None,
    ):
        """`text_of`: the text of a document by id, for encoders, whose tokens do not spell it."""
        self._model, self._blocks = model, blocks
        self._text_of = text_of or (lambda _: "")
        self._token_ends: dict[int, list[int]] = {}
        number = {(block.document_id, block.ordinal): index for index, block in enumerate(blocks) if block is not None}
        self._next = [None if b is None else number.get((b.document_id, b.ordinal + 1)) for b in blocks]
        tokens = [() if block is None else block.tokens for block in blocks]
        self.source = QuoteSource(tokens, self._next, word_starts(model.tokenizer))

    def hits(self, quotation: Quotation) -> list[Hit]:
        """The blocks that hold its tokens, in text order, each with its score."""
        indices = sorted({index for index, _ in quotation.places}, key=lambda index: self._of(index).ordinal)
        blocks = [self._of(index) for index in indices]
        return [Hit(block.id, block.document_id, block.ordinal, quotation.score) for block in blocks]

    def _of(self, index: int) -> Block:
        block = self._blocks[index]
        assert block is not None, "only blocks with tokens are quoted"
        return block

    def document_of(self, sentence: Sentence) -> str:
        return self._of(sentence.run).document_id

    def place(self, index: int, row: int) -> tuple[str, int, int]:
        """(document id, start, end) of one token; characters that tokens share belong to each of them."""
        block, ends = self._of(index), self._ends(index)
        start = ends[row - 1] if row else block.start
        return block.document_id, start, max(ends[row], start)

    def _ends(self, index: int) -> list[int]:
        """For each token of a block, the character of the document behind it."""
        if index not in self._token_ends:
            block = self._of(index)
            text = "" if self._model.is_causal_lm else self._text_of(block.document_id)
            self._token_ends[index] = self._model.token_ends(block.tokens, text, block.start, block.end)
        return self._token_ends[index]

    def words(self, places: Sequence[TokenPlace]) -> Iterator[tuple[str, tuple[str, int, int]]]:
        """For each of these successive tokens its text in the document, with what lies between it and the token before,
        and its place."""
        before: int | None = None
        for place in places:
            document_id, start, end = self.place(*place)
            yield self._text_of(document_id)[start if before is None else before : end], (document_id, start, end)
            before = end

    def within(self, places: Sequence[TokenPlace], characters: int) -> Sequence[TokenPlace]:
        """As many of these tokens as have at most so many characters; none ends inside a character."""
        left, before = characters, -1
        for number, place in enumerate(places):
            _, start, end = self.place(*place)
            left -= max(0, end - max(start, before))
            before = end
            if left < 0:
                return places[:number]
        return places

    def span(self, places: Sequence[TokenPlace]) -> tuple[int, int]:
        """(start, end) of successive tokens, as characters of their document."""
        return self.place(*places[0])[1], self.place(*places[-1])[2]

    def sentences(self, text_of: Mapping[str, str]) -> list[Sentence]:
        """Sentences that lie whole in a run of neighbouring blocks.

        Where none does (a sentence is longer than the run), the parts that lie there.
        """
        return self._found(text_of, whole=True) or self._found(text_of, whole=False)

    def _found(self, text_of: Mapping[str, str], *, whole: bool) -> list[Sentence]:
        return [
            sentence
            for run in self._runs()
            for sentence in sentences_of_run(
                [self._placed(index) for index in run], run, self.text(run, text_of), whole=whole
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

    def text(self, run: Sequence[int], text_of: Mapping[str, str]) -> str:
        return text_of.get(self._of(run[0]).document_id) or ""

    def _placed(self, index: int) -> PlacedBlock:
        block = self._of(index)
        return PlacedBlock(block.start, block.end, self._ends(index))


class BySentence:
    """Values of tokens, gathered sentence by sentence."""

    def __init__(self, places: Sequence[Sequence[TokenPlace]], length: int) -> None:
        rows = [torch.tensor([index * length + row for index, row in each]) for each in places]
        self._place_ST = pad_sequence(rows, batch_first=True)
        self._there_ST = torch.arange(self._place_ST.shape[1]) < torch.tensor([len(each) for each in places])[:, None]

    def __call__(self, x_XCL: Tensor) -> Tensor:
        return x_XCL.flatten(1)[:, self._place_ST].masked_fill(~self._there_ST, -torch.inf)
