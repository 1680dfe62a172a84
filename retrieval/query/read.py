"""The protocol of readers, which turn ranked sentences into an answer, and what they return.

| reader | chooses the words | `decides` |
|---|---|---|
| a landmark language model | itself, token by token over stored keys and values | attention |
| a span reader | among the ranked sentences, which it reads with the question | reader |
| a writer | itself, over the passages that it is given | writer |

Axes: S sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from retrieval.query.evidence import AnswerMass
from retrieval.query.question import EncodedQuestion
from retrieval.query.retrieve import Candidates
from retrieval.query.sentences import Sentence
from retrieval.types.answers import AnswerToken, Space

Decider = Literal["attention", "reader", "writer"]
Cancelled = Callable[[], bool]


@dataclass(frozen=True, eq=False)
class Ranked:
    """The sentences of the candidates; `order`: their numbers, best first."""

    candidates: Candidates
    sentences: Sequence[Sentence]
    scores_S: Tensor
    order: Sequence[int]


@dataclass(frozen=True)
class ReadSpan:
    """The words of a sentence that answer: characters `start` to `stop` of its document."""

    sentence: int
    start: int
    stop: int
    logprob: float


@dataclass(frozen=True, eq=False)
class Reading:
    """What a reader made of a question and the ranked sentences."""

    reader: str
    text: str
    tokens: Sequence[AnswerToken] = ()
    spans: Sequence[ReadSpan] = ()
    p_none: float | None = None
    """Probability that nothing read holds an answer; None where the reader does not say."""
    mass: AnswerMass | None = None
    """What attention read, by block, layer and head. None where attention decided nothing."""
    space: Space = "candidates"
    """What attention chose from: the whole scope, or the candidates of the search."""
    interrupted: bool = False


class Reader(Protocol):
    """Raises `InvalidRequest` for what it cannot do."""

    name: str
    decides: Decider

    def read(
        self, query: EncodedQuestion, ranked: Ranked, cancelled: Cancelled
    ) -> Generator[AnswerToken, None, Reading]:
        """Yields the tokens as they come; returns the whole. Cancelled: the answer so far."""
        ...
