"""The sentences of the candidates: which lie whole in a run of neighbouring blocks, and what is quoted of them.

Axes: X any, C candidate blocks, L tokens in a block, S sentences, T tokens of a sentence.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
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

LONGEST_WITH_CONTEXT = 500
"""Characters of a sentence with what is quoted around it, and of one that is read whole though a run of blocks ends
within it, as it often does in rows of tables.
Of 518 questions about 109 documents that nothing was made for a sentence that is read holds the answer for 0.903
instead of 0.885 (0.006 to 0.030 more), and 0.779 instead of 0.771 are answered."""
_WORD = re.compile(r"\S{1,16}")  # what is written without spaces is said in pieces


@dataclass(frozen=True)
class Quotation:
    """What is quoted: characters start..stop-1 of a document, in the run of candidates that begins with number `run`;
    nothing, where both are the same.

    `answer`: the characters that answer; `score`: late interaction of its sentence; `probability`, `p_none`: that it
    answers, and that no candidate does, as a reader says, None without a reader; `share`: probability that it answers,
    given that one of the sentences does (softmax of the ranker's scores); `features`: see
    `model.reading.ranker.AnswerFeatures`; `sure`: whether it is more than a guess; `earlier_version`: whether it is
    what an earlier version says instead of the best sentence.
    """

    run: int = 0
    start: int = 0
    stop: int = 0
    answer: tuple[int, int] = (0, 0)
    score: float = 0.0
    probability: float | None = None
    p_none: float | None = None
    share: float = 0.0
    features: AnswerFeatures = field(default_factory=dict)
    sure: bool = False
    earlier_version: bool = False


@dataclass(frozen=True)
class Sentence:
    """`places`: its tokens; `run`: the first block of its run; `start`, `stop`: characters of the document; `end`: of
    the list that it introduces, which is quoted behind it."""

    places: list[TokenPlace]
    text: str
    run: int
    start: int
    stop: int
    end: int

    @property
    def introduces(self) -> bool:
        """Whether a list is quoted behind it."""
        return self.end > self.stop


class QuotableBlocks:
    """The candidate blocks of one question that may be quoted, by their number among the candidates: their sentences,
    the characters of their tokens, and what is quoted."""

    def __init__(
        self, model: LandmarkModel, blocks: Sequence[Block | None], texts: Mapping[str, str], *, apart: bool = False
    ):
        """`texts`: of the blocks' documents, by id. `apart`: no sentence goes on in other blocks."""
        self._longest_cut = 0 if apart else LONGEST_WITH_CONTEXT
        self._model, self._blocks, self.texts = model, blocks, texts
        self._token_ends: dict[int, list[int]] = {}
        number = {(block.document_id, block.ordinal): index for index, block in enumerate(blocks) if block is not None}
        self._next = [None if b is None else number.get((b.document_id, b.ordinal + 1)) for b in blocks]
        tokens = [() if block is None else block.tokens for block in blocks]
        self.source = QuoteSource(tokens, self._next, word_starts(model.tokenizer))

    def holding(self, quotation: Quotation) -> list[int]:
        """The candidates that hold characters of it, in text order."""
        found, index = [], None if quotation.start == quotation.stop else quotation.run
        while index is not None and (block := self._of(index)).start < quotation.stop:
            if block.end > quotation.start:
                found.append(index)
            index = self._next[index]
        return found

    def hits(self, quotation: Quotation) -> list[Hit]:
        """The blocks that hold characters of it, in text order, each with its score."""
        blocks = [self._of(index) for index in self.holding(quotation)]
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
            text = "" if self._model.is_causal_lm else self.texts[block.document_id]
            self._token_ends[index] = self._model.token_ends(block.tokens, text, block.start, block.end)
        return self._token_ends[index]

    def words(self, quotation: Quotation, most: int) -> Iterator[tuple[str, tuple[str, int, int], bool]]:
        """What is quoted, at most so many characters of it: word by word with the space before it, its place (document
        id, start, end), and whether it answers."""
        if quotation.start == quotation.stop:
            return
        document_id = self._of(quotation.run).document_id
        text, (first, last), limit = self.texts[document_id], quotation.answer, quotation.start + most
        ends = [match.end() for match in _WORD.finditer(text, quotation.start, quotation.stop)]
        stop = max((end for end in ends if end <= limit), default=min(limit, quotation.stop))
        borders = sorted({quotation.start, stop, *(at for at in (*ends, first, last) if quotation.start < at < stop)})
        for begin, end in pairwise(borders):
            yield text[begin:end], (document_id, begin, end), first <= begin < last

    def sentences(self) -> list[Sentence]:
        """Sentences that lie whole in a run of neighbouring blocks, and those that go on beyond an end of it, unless of
        the run the block at that end alone holds some of them.

        Where there is none (a sentence is longer than the run), the parts that lie there.
        """
        return self._found(whole=True) or self._found(whole=False)

    def _found(self, *, whole: bool) -> list[Sentence]:
        found: dict[tuple[str, int, int], Sentence] = {}
        for run in self._runs():
            for one in self._of_run(run, whole=whole):
                at = self.document_of(one), one.start, one.stop
                if (before := found.get(at)) is not None:  # of two runs with a gap within it
                    one = replace(before, places=[*before.places, *one.places])
                found[at] = one
        return list(found.values())

    def _of_run(self, run: Sequence[int], *, whole: bool) -> Iterator[Sentence]:
        first, last = self._of(run[0]), self._of(run[-1])
        text = self.texts[first.document_id]
        low, high = max(0, first.start - LONGEST_WITH_CONTEXT), min(len(text), last.end + LONGEST_WITH_CONTEXT)
        for start, stop in sentence_borders(text, low, high):
            inside = first.start <= start and stop <= last.end
            reaches_in = first.end < stop and start < last.start and stop - start <= self._longest_cut
            if whole and not inside and not reaches_in:
                continue
            places = self._tokens_within(run, start, stop)
            if places:
                if not whole:
                    start, stop = max(start, first.start), min(stop, last.end)
                end = continuation_end(text, start, stop, last.end)
                yield Sentence(places, text[start:stop], run[0], start, stop, end)

    def _tokens_within(self, run: Sequence[int], start: int, stop: int) -> list[TokenPlace]:
        """Tokens that hold characters of a span."""
        found: list[TokenPlace] = []
        for index in run:
            ends = self._ends(index)
            first = bisect_right(ends, start)
            last = bisect_left(ends, stop) + 1 if self._of(index).start < stop else 0  # tokens that begin before `stop`
            found.extend((index, row) for row in range(first, min(last, len(ends))))
        return found

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


class BySentence:
    """Values of tokens, gathered sentence by sentence."""

    def __init__(self, places: Sequence[Sequence[TokenPlace]], length: int) -> None:
        rows = [torch.tensor([index * length + row for index, row in each]) for each in places]
        self._place_ST = pad_sequence(rows, batch_first=True)
        self._there_ST = torch.arange(self._place_ST.shape[1]) < torch.tensor([len(each) for each in places])[:, None]

    def __call__(self, x_XCL: Tensor) -> Tensor:
        return x_XCL.flatten(1)[:, self._place_ST].masked_fill(~self._there_ST, -torch.inf)
