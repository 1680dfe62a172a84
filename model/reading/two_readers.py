"""Two readers in a row: what a small one finds likely, a larger one reads once more.

Both have read other texts, and err on other questions. What both find likely is the answer more often than what either
does, and the larger one, which takes twice as long over a text, reads only the sentences that are in question.

Axes: S sentences of all passages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from model.reading.span_reader import FoundSpan, PointsOf, ReadPassage, SpanReader, SpanReading, load_span_reader

SECOND = "second"
"""The subfolder of a reader with the files of another one, which reads after it."""
READ_AGAIN = 6
"""Sentences that the second reads, with what stands in their windows. With four 0.016 fewer of 373 questions are right
(0.005 to 0.028), with ten as many, for a third more of its time."""
_LEAST = 1e-9
"""Less is said of no sentence, and so much of those that the second did not read."""


class TwoReaders:
    """Reads as `SpanReader` does. A probability is the geometric mean of both readers', scaled so that those of all
    sentences and of none sum to 1 (a product of experts, Hinton 2002)."""

    def __init__(self, first: SpanReader, second: SpanReader) -> None:
        self.first, self.second = first, second
        self.sure_above, self.absent_above = first.sure_above, first.absent_above

    def read(self, question: str, passages: Sequence[ReadPassage], points_of: PointsOf | None = None) -> SpanReading:
        """See `SpanReader.read`. The words of a sentence are those of the reader that finds it likelier."""
        one = self.first.read(question, passages, points_of)
        places = [(passage, place) for passage, spans in enumerate(one.spans) for place in range(len(spans))]
        best = sorted(places, key=lambda at: one.spans[at[0]][at[1]].probability, reverse=True)[:READ_AGAIN]
        two = self.second.read(question, passages, points_of, frozenset(best))
        both = [
            [(max(pair, key=lambda span: span.probability), _mean(*pair)) for pair in zip(*spans, strict=True)]
            for spans in zip(one.spans, two.spans, strict=True)
        ]
        none = math.sqrt(one.p_none * two.p_none)
        total = none + sum(share for spans in both for _, share in spans) or 1.0
        spans = [[span._replace(probability=share / total) for span, share in each] for each in both]
        return SpanReading(spans, none / total)


Reader = SpanReader | TwoReaders


def load_reader(folder: Path, device: torch.device | None = None) -> Reader:
    """The reader in `folder`, with the one in its subfolder `second` where there is one. Raises `ModelError` as
    `load_span_reader` does."""
    first, second = load_span_reader(folder, device), folder / SECOND
    return TwoReaders(first, load_span_reader(second, device)) if second.is_dir() else first


def _mean(one: FoundSpan, two: FoundSpan) -> float:
    return math.sqrt(max(one.probability, _LEAST) * max(two.probability, _LEAST))
