"""The interface of writers: passages and a question in, tokens out.

- A writer knows nothing of the library: no catalogue, no search, no tools. All that it reads is in the request.
- Opening one is cheap; weights are loaded and servers are called by the first `write`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal, Protocol

WriterKind = Literal["local", "server"]
Finish = Literal["stop", "length", "cancelled", "repeated"]
""""repeated": it repeated itself and was stopped."""


@dataclass(frozen=True)
class WriterPassage:
    """A passage in the form for a writer. `number` counts from 1 and is what the answer cites; `pages` count from 1.

    `text` is a segment of its document (`retrieval.writers.passages`): the same document gives the same segments for
    every question, so that keys and values of one can be stored.
    """

    number: int
    document_id: str
    title: str
    pages: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Turn:
    """One question of the conversation so far, with its answer."""

    question: str
    answer: str


@dataclass(frozen=True)
class WriterRequest:
    """What to write. `retrieval.writers.prompt` makes a prompt of it."""

    instruction: str
    question: str
    passages: tuple[WriterPassage, ...] = ()
    conversation: tuple[Turn, ...] = ()
    notes: tuple[str, ...] = ()
    """Earlier notes on parts of documents; numbers in them are kept."""
    max_tokens: int = 512


@dataclass(frozen=True)
class WriterToken:
    """A piece of text. `logprob` in nats; `passage_attention`: share of the token's attention on each passage, in the
    order of the request. None where the writer gives none."""

    text: str
    logprob: float | None = None
    passage_attention: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Written:
    """How a writer ended. `stored_share`: share of the passages' tokens whose keys and values were stored already;
    `repair`: share of these that was recomputed. None where nothing is stored."""

    finish: Finish = "stop"
    stored_share: float | None = None
    repair: float | None = None


Cancelled = Callable[[], bool]


class Writer(Protocol):
    """Words answers. Thread-safe: questions may be written at the same time."""

    @property
    def name(self) -> str:
        """For users: the checkpoint, or the server's model, for whose name a server may be asked."""

    @property
    def kind(self) -> WriterKind: ...

    @property
    def leaves_machine(self) -> bool:
        """Whether passages are sent to another machine."""

    @property
    def weights(self) -> int | None:
        """Their number, as far as it is known: a small writer gets less to read. Raises `WriterError`."""

    def write(self, request: WriterRequest, cancelled: Cancelled) -> Generator[WriterToken, None, Written]:
        """Yields the tokens as they come. Returns early once `cancelled()`. Raises `WriterError` for any failure,
        before or between tokens; `InvalidRequest` for passages that are too long for it."""
