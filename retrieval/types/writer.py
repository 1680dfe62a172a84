"""What a writer is: passages and a question in, tokens out.

- A writer knows nothing of the library: no catalogue, no search, no tools. All that it reads is in the request.
- Opening one is cheap; weights are loaded and servers are called by the first `write`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal, Protocol

WriterKind = Literal["local", "server"]
Finish = Literal["stop", "length", "cancelled", "repeated"]
"""Repeated: it said the same again and again, and was stopped."""


@dataclass(frozen=True)
class WriterPassage:
    """A passage as the writer is shown it. `number` counts from 1 and is what the answer cites; `pages` count from 1.

    `text` is a segment of its document (`retrieval.writers.passages`): the same document gives the same segments
    whatever is asked, so that what a writer made of one can be kept.
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
    """What to write, in the likeliest words. How it becomes a prompt, `retrieval.writers.prompt` says."""

    instruction: str
    question: str
    passages: tuple[WriterPassage, ...] = ()
    conversation: tuple[Turn, ...] = ()
    notes: tuple[str, ...] = ()
    """What was written down before about parts of documents; numbers in them are kept."""
    max_tokens: int = 512


@dataclass(frozen=True)
class WriterToken:
    """A piece of text. `logprob` in nats; `passage_attention`: share of the token's attention that each passage got,
    in the order of the request. None where the writer does not tell."""

    text: str
    logprob: float | None = None
    passage_attention: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Written:
    """How a writer came to its end. `stored_share`: share of the passages' tokens whose keys and values were stored
    already; `repair`: share of these that was computed again. None where nothing is stored."""

    finish: Finish = "stop"
    stored_share: float | None = None
    repair: float | None = None


Cancelled = Callable[[], bool]


class Writer(Protocol):
    """Words answers. Thread-safe: questions may be written at the same time."""

    @property
    def name(self) -> str:
        """As it is shown: the checkpoint, or the server's model, for whose name a server may be asked."""

    @property
    def kind(self) -> WriterKind: ...

    @property
    def leaves_machine(self) -> bool:
        """Whether passages are sent to another machine."""

    @property
    def weights(self) -> int | None:
        """How many it has, as far as that is known: a small one is given less to read. Raises `WriterError`."""

    def write(self, request: WriterRequest, cancelled: Cancelled) -> Generator[WriterToken, None, Written]:
        """Gives the tokens as they come. Returns early once `cancelled()`. Raises `WriterError` for whatever keeps it
        from writing, before or between tokens; `InvalidRequest` for passages that are too long for it."""
