"""What an answer has that a writer worded: who wrote it, what it cites, and what the documents say to each sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from retrieval.types.serialisation import Record

Verdict = Literal["supported", "partly", "not_found"]


@dataclass(frozen=True)
class WriterUse(Record):
    """Who wrote. `kind`: "local" or "server". `stored_share`: share of the passages' tokens whose keys and values were
    stored; `repair`: share of these that was computed again; None where nothing is stored. `leaves_machine`: whether
    passages were sent to another machine."""

    name: str
    kind: str
    stored_share: float | None = None
    repair: float | None = None
    leaves_machine: bool = False


@dataclass(frozen=True)
class Citation(Record):
    """A number in the answer: characters `start` to `end` (exclusive) of its text. `passage`: index in the answer's
    passages."""

    number: int
    passage: int
    start: int
    end: int


@dataclass(frozen=True)
class Claim(Record):
    """One sentence of the answer, looked up in the documents as a question of its own.

    `sentence` supports it best; it stands in the answer's passage of index `passage`. Both are empty (None) for
    `not_found`. `score`: 0..1, how much of the claim the sentence says. `start`, `end`: the claim's characters in the
    answer's text. `unfounded`: (start, end) of figures and names in it that stand in no passage that it cites.
    """

    text: str
    verdict: Verdict
    passage: int | None
    sentence: str
    score: float
    start: int = 0
    end: int = 0
    unfounded: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Progress(Record):
    """How far a task over whole documents is: `done` of `total` parts were read; `note` says what is being done."""

    done: int
    total: int
    note: str
