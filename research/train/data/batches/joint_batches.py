"""Batches for the joint reader: a question with several passages, one of which mostly holds the answer.

Beside the passage of a question stand others of the same document that share most words with it, as search would show
them. Every batch is a pure function of its number, so a run that was killed sees what it would have seen.

Axes: Q questions, K rows (a question with one passage each), T tokens of a row, N = K x T.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor

from model.reading.rows import JointRows, RowTokens, join_rows
from research.train.data.batches.length_batches import batches_by_length
from research.train.data.span_questions import SpanQuestion

LONGEST_PASSAGE = 128
"""Tokens of a passage in training; a longer one is cut at random around its answer."""
_SMALL_WORDS = frozenset(
    ("a", "an", "the", "of", "in", "on", "at", "to", "for", "by", "is", "are", "was", "were", "be", "do", "does", "did")
    + ("and", "or", "with", "from")
)
_QUESTION_WORDS = frozenset(("what", "which", "who", "whom", "whose", "when", "where", "why", "how", "many", "much"))
_NEAREST = 6


@dataclass(frozen=True)
class JointBatch:
    """Rows, and the right answers: True at every first and last token of an accepted answer, and, last, at "not
    here"."""

    rows: JointRows
    start_QN1: Tensor
    end_QN1: Tensor

    def to(self, device: torch.device) -> JointBatch:
        """The same batch, its tensors on a device."""
        return JointBatch(rows_on(device, self.rows), self.start_QN1.to(device), self.end_QN1.to(device))


def rows_on(device: torch.device, rows: JointRows) -> JointRows:
    """The same rows, their tensors on a device."""
    ids_QKT, segment_QKT = rows.ids_QKT.to(device), rows.segment_QKT.to(device)
    return JointRows(ids_QKT, segment_QKT, rows.valid_QKT.to(device), rows.passage_QKT.to(device), rows.begins)


@dataclass(frozen=True)
class _Passage:
    title: str
    text: str
    spans: tuple[tuple[int, int], ...]


class JointBatchMaker:
    """make(i) -> JointBatch number i."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        questions: Sequence[SpanQuestion],
        *,
        batch: int,
        rows: int = 2,
        withheld: float = 0.15,
        keywords: float = 0.15,
        seed: int = 0,
    ) -> None:
        """`rows`: passages of each question. `withheld`: how often the gold one is not among them; `keywords`: how
        often the small words of a question are left out, as people type into a search box."""
        self._questions, self._batch, self._rows, self._seed = questions, batch, rows, seed
        self._withheld, self._keywords, self.tokenizer = withheld, keywords, tokenizer
        self._tokens = RowTokens.of(tokenizer)
        self._of_title: dict[str, list[str]] = defaultdict(list)
        for piece, title in {piece: each.title for each in questions for piece in each.pieces}.items():
            self._of_title[title].append(piece)
        self._all = [piece for pieces in self._of_title.values() for piece in pieces]
        self._words = {piece: frozenset(piece.lower().split()) for piece in self._all}
        counts = Counter(word for words in self._words.values() for word in words)
        self._weight = {word: math.log(len(self._all) / count) for word, count in counts.items()}
        self._lengths = np.array([min(600, sum(map(len, each.pieces))) for each in questions])
        self._near = lru_cache(maxsize=50_000)(self._nearest)

    @property
    def batches_per_epoch(self) -> int:
        return max(1, len(self._questions) // self._batch)

    def make(self, index: int) -> JointBatch:
        """Micro-batch number `index`."""
        epoch, place = divmod(index, self.batches_per_epoch)
        chosen = self._order(epoch)[place]
        random_ = random.Random(f"{self._seed}-{index}")
        texts, passages = zip(*(self._show(int(number), random_) for number in chosen), strict=True)
        return self._collate(texts, passages, random_)

    @lru_cache(maxsize=2)  # noqa: B019 - the maker lives as long as the run
    def _order(self, epoch: int) -> list[np.ndarray]:
        return batches_by_length(self._lengths, self._batch, self._seed, epoch)

    def _nearest(self, number: int) -> list[str]:
        question = self._questions[number]
        if question.wrong:
            return list(question.wrong)
        answers = [answer.lower() for answer in question.answers]
        asked = {word.strip("?,.") for word in question.text.lower().split()} - _SMALL_WORDS
        near = []
        for piece in self._of_title[question.title]:
            if piece not in question.pieces and not any(answer in piece.lower() for answer in answers):
                near.append((sum(self._weight.get(word, 0.0) for word in asked & self._words[piece]), piece))
        return [piece for _, piece in sorted(near, reverse=True)[:_NEAREST]]

    def _show(self, number: int, random_: random.Random) -> tuple[str, list[_Passage]]:
        question = self._questions[number]
        near = self._near(number)
        others = random_.sample(near, min(len(near), self._rows))
        others += random_.choices(self._all, k=self._rows - len(others))
        wrong = [_Passage(question.title, text, ()) for text in others]
        asked = question.text
        if random_.random() < self._keywords:
            asked = in_keywords(asked, random_)
        shown = wrong
        if random_.random() >= self._withheld:
            piece = question.spans[0][0] if question.spans else random_.randrange(len(question.pieces))
            spans = tuple((start, stop) for at, start, stop in question.spans if at == piece)
            shown = [_Passage(question.title, question.pieces[piece], spans), *wrong[1:]]
        random_.shuffle(shown)
        return asked, shown

    def _collate(self, texts: Sequence[str], shown: Sequence[Sequence[_Passage]], random_: random.Random) -> JointBatch:
        questions = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        titled = random_.random() < 0.7
        rows, spans = [], []
        for asked, passages in zip(questions, shown, strict=True):
            for passage in passages:
                ids, found = self._cut(passage, random_)
                title = self._encode(passage.title).ids if titled else []
                rows.append((asked.ids, title, ids))
                spans.append(found)
        return joint_batch(rows, spans, self._rows, self._tokens)

    def _cut(self, passage: _Passage, random_: random.Random) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of at most LONGEST_PASSAGE tokens, and (first, last) token of each answer among them."""
        encoded = self._encode(passage.text)
        found = [(a, b) for a, b in tokens_of(passage.spans, encoded) if b - a < LONGEST_PASSAGE // 2]
        most = max(0, len(encoded.ids) - LONGEST_PASSAGE)
        low, high = 0, most
        if found:
            low, high = max(0, found[0][1] + 1 - LONGEST_PASSAGE), min(most, found[0][0])
        begin = random_.randint(low, high)
        ids = encoded.ids[begin : begin + LONGEST_PASSAGE]
        return ids, [(a - begin, b - begin) for a, b in found if a >= begin and b < begin + len(ids)]

    @lru_cache(maxsize=100_000)  # noqa: B019 - the maker lives as long as the run
    def _encode(self, text: str) -> Encoding:
        return self.tokenizer.encode(text, add_special_tokens=False)


def tokens_of(spans: Iterable[tuple[int, int]], text: Encoding) -> Iterator[tuple[int, int]]:
    """(first, last) token of each span of characters that has any."""
    for start, stop in spans:
        inside = [n for n, (a, b) in enumerate(text.offsets) if a < stop and b > start]
        if inside:
            yield inside[0], inside[-1]


def joint_batch(
    rows: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]],
    spans: Sequence[Sequence[tuple[int, int]]],
    per_question: int,
    tokens: RowTokens,
) -> JointBatch:
    """Of rows as `join_rows` takes them, with (first, last) passage token of each accepted answer in each row."""
    joined = join_rows(rows, per_question, tokens)
    start_RT, end_RT = (torch.zeros(len(rows), joined.ids_QKT.shape[-1], dtype=torch.bool) for _ in range(2))
    for row, (begin, found) in enumerate(zip(joined.begins, spans, strict=True)):
        for first, last in found:
            start_RT[row, begin + first] = end_RT[row, begin + last] = True
    return JointBatch(
        joined, *(_or_none(each.view_as(joined.passage_QKT), joined.passage_QKT) for each in (start_RT, end_RT))
    )


def in_keywords(question: str, random_: random.Random) -> str:
    """Without its small words, mostly without its question word, sometimes in lower case; the question itself if
    nothing else is left."""
    dropped = _SMALL_WORDS | _QUESTION_WORDS if random_.random() < 0.7 else _SMALL_WORDS
    kept = " ".join(word for word in question.split() if word.lower() not in dropped).rstrip("?")
    return (kept.lower() if random_.random() < 0.5 else kept) or question


def _or_none(right_QKT: Tensor, passage_QKT: Tensor) -> Tensor:
    """right_QN1 with the column of "not here", which is right where nothing else is."""
    right_QN = (right_QKT & passage_QKT).flatten(1)
    return torch.cat((right_QN, ~right_QN.any(1, keepdim=True)), 1)
