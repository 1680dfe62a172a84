"""Two readers in a row: what a small one finds likely, a larger one reads once more.

Both have read other texts, and err on other questions. What both find likely is the answer more often than what either
does, and the larger one, which takes four times as long over a text, reads only the sentences that are in question.

Axes: S sentences of all passages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from model.precision import fast_precision
from model.reading.span_reader import FoundSpan, PointsOf, ReadPassage, SpanReader, SpanReading, load_span_reader

SECOND = "second"
"""The subfolder of a reader with the files of another one, which reads after it."""
READ_AGAIN = 6
"""Sentences that the second reads, with what stands in their windows."""
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
    first, second = folder, folder / SECOND
    if not second.is_dir():
        return _ready(first, device)
    return TwoReaders(_ready(first, device), _ready(second, device))


def _ready(folder: Path, device: torch.device | None) -> SpanReader:
    """To read and nothing else: where that is done in bfloat16, its matrices are kept in it, and not converted for
    every question."""
    reader = load_span_reader(folder, device)
    if fast_precision(reader.network.points.weight.device.type) == "bf16":
        for module in reader.network.modules():
            if isinstance(module, torch.nn.Linear):
                module.to(torch.bfloat16)
    return reader


def _mean(one: FoundSpan, two: FoundSpan) -> float:
    return math.sqrt(max(one.probability, _LEAST) * max(two.probability, _LEAST))
