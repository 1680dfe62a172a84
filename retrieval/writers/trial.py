"""Does a writer write? One small request, as the test button and `cairn doctor` make it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from retrieval.errors import CairnError
from retrieval.types.serialisation import Record
from retrieval.writers.protocol import Writer, WriterOptions, WriterPassage, WriterRequest

_PASSAGE = WriterPassage(1, "trial", "Handbook", (1,), "The lake is closed to boats from November to March.")
_INSTRUCTION = "Answer from the passage in one short sentence, and put its number behind it, like this: [1]"
_QUESTION = "When is the lake closed to boats?"
_MAX_TOKENS = 48


@dataclass(frozen=True)
class Trial(Record):
    """`text`: what it wrote; `problem`: why it did not; `cites`: whether it put the number of the passage."""

    name: str
    kind: str
    leaves_machine: bool
    text: str
    problem: str
    cites: bool
    first_token_seconds: float
    seconds: float


def try_writer(writer: Writer) -> Trial:
    """Never raises for what the writer does."""
    begun, first, pieces, problem = time.perf_counter(), 0.0, [], ""
    request = WriterRequest(_INSTRUCTION, _QUESTION, (_PASSAGE,), options=WriterOptions(max_tokens=_MAX_TOKENS))
    try:
        for token in writer.write(request, lambda: False):
            first = first or time.perf_counter() - begun
            pieces.append(token.text)
    except CairnError as error:
        problem = str(error)
    text, seconds = "".join(pieces).strip(), time.perf_counter() - begun
    waited, took = round(first, 3), round(seconds, 3)
    return Trial(writer.name, writer.kind, writer.leaves_machine, text, problem, "[1]" in text, waited, took)
