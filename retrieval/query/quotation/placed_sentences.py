"""Sentences with the places of their tokens: what stands whole in a run of neighbouring blocks, with what each refers
back to and what it announces."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model.inference.constrained_decoding import Place
from model.reading.second_look import FoundSpan
from model.scoring.sentences import sentence_borders
from retrieval.query.passage_builder import QuotableText
from retrieval.query.quotation.announcements import announced_end, captioned_start
from retrieval.query.quotation.antecedents import is_antecedent, refers_back
from retrieval.query.quotation.asides import Span


@dataclass(frozen=True)
class Quotation:
    """Places of a sentence's tokens, which of them are the answer span, and its late-interaction score.

    After a second look also the chance that the answer stands in it, and that it stands in none of the candidates.
    """

    places: list[Place]
    pointed: range
    score: float = 0.0
    chance: float | None = None
    not_here: float | None = None


@dataclass(frozen=True)
class PlacedBlock:
    start: int
    end: int
    token_ends: list[int]
    """Character of the document behind each token."""


@dataclass(frozen=True)
class Sentence:
    """`run`: the first block of its run; `start`, `stop`: characters of the document; `ends`: of each token;
    `antecedent`: tokens of the sentence that it refers back to; `announced`: tokens of what it announces; `is_aside`:
    it stands beside the matter of its document."""

    places: list[Place]
    text: str
    run: int
    start: int
    stop: int
    ends: list[int]
    antecedent: list[Place]
    announced: list[Place]
    is_aside: bool

    def quoted(self, pointed: range, score: float, chance: float | None, not_here: float | None) -> Quotation:
        """With what it refers back to and what it announces; `pointed` counts from its own first token."""
        first = len(self.antecedent)
        places = self.antecedent + self.places + self.announced
        return Quotation(places, range(first + pointed.start, first + pointed.stop), score, chance, not_here)

    def tokens_within(self, span: FoundSpan) -> range:
        """Its tokens that hold characters of a span."""
        first = bisect_right(self.ends, span.start)
        return range(first, min(bisect_left(self.ends, span.stop) + 1, len(self.ends)))


def sentences_of_run(
    placed: Sequence[PlacedBlock], run: Sequence[int], quotable: QuotableText, *, whole: bool
) -> Iterator[Sentence]:
    text = quotable.text
    first, last = placed[0].start, placed[-1].end
    # A sentence that begins before the run or ends behind it is not whole: look a little beyond both ends.
    low, high = max(0, first - 200), min(len(text), last + 200)
    before: Span | None = None
    for start, stop in sentence_borders(text, low, high):
        previous, before = before, (start, stop)
        at_a_border = start > low or low == 0
        if whole and (start < first or stop > last or not at_a_border):
            continue
        tokens = _tokens_within(placed, run, start, stop)
        if tokens:
            places, ends = zip(*tokens, strict=True)
            more = _tokens_within(placed, run, stop, announced_end(text, start, stop, last))
            announced = [place for place, _ in more if place not in places]
            antecedent = []
            if whole and previous is not None and first <= previous[0] and _leans(text, *previous, start, stop):
                antecedent = [place for place, _ in _tokens_within(placed, run, *previous) if place not in places]
            elif not announced and (rows := captioned_start(text, start, first)) < start:
                antecedent = [place for place, _ in _tokens_within(placed, run, rows, start) if place not in places]
            is_aside = start in quotable.asides
            start, stop = max(start, first), min(stop, last)
            yield Sentence(
                list(places), text[start:stop], run[0], start, stop, list(ends), antecedent, announced, is_aside
            )


def _leans(text: str, before: int, ended: int, start: int, stop: int) -> bool:
    """Whether the sentence `start` .. `stop` refers back to the one `before` .. `ended`."""
    return refers_back(text[start:stop]) and is_antecedent(text, before, ended, start)


def _tokens_within(placed: Sequence[PlacedBlock], run: Sequence[int], start: int, stop: int) -> list[tuple[Place, int]]:
    """Tokens that hold characters of a span, each with the character behind it."""
    found: list[tuple[Place, int]] = []
    for index, block in zip(run, placed, strict=True):
        ends = block.token_ends
        first = bisect_right(ends, start)
        last = bisect_left(ends, stop) + 1 if block.start < stop else 0  # tokens that begin before `stop`
        found.extend(((index, row), ends[row]) for row in range(first, min(last, len(ends))))
    return found
