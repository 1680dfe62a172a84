"""A writer that says what a test tells it, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from retrieval.errors import WriterError
from retrieval.types.writer import Cancelled, WriterKind, WriterRequest, WriterToken, Written

Reply = Callable[[WriterRequest], str]


@dataclass
class ScriptedWriter:
    """`fails_after`: words after which it breaks. `attention`: gives every passage an equal share of this."""

    reply: Reply = lambda _request: "No answer was found in the documents."
    fails_after: int | None = None
    attention: float | None = None
    written: Written = Written()
    name: str = "scripted"
    kind: WriterKind = "server"
    leaves_machine: bool = False
    weights: int | None = None
    requests: list[WriterRequest] = field(default_factory=list)

    def write(self, request: WriterRequest, cancelled: Cancelled) -> Generator[WriterToken, None, Written]:
        self.requests.append(request)
        share = None
        if self.attention is not None and request.passages:
            share = (self.attention / len(request.passages),) * len(request.passages)
        for at, word in enumerate(self.reply(request).split(" ")):
            if cancelled():
                return Written("cancelled")
            if at == self.fails_after:
                raise WriterError(self.name, "it broke off in the middle. Ask again.")
            yield WriterToken(word if at == 0 else " " + word, None, share)
        return self.written
