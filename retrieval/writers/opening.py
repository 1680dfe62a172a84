"""A writer by its name: a folder, a name on the Hugging Face hub, or the address of a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retrieval.engine.workspace import WRITER_FOLDER
from retrieval.errors import CairnError, WriterError
from retrieval.types.serialisation import Record
from retrieval.types.writer import Writer, WriterPassage, WriterRequest
from storage.trash import size_of


class CurrentWriter:
    """The writer in use, opened at its first use. Thread-safe. None until `set`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Callable[[], Writer] | None = None
        self._writer: Writer | None = None

    def set(self, open_: Callable[[], Writer] | None) -> None:
        """From now on the writer is what `open_` returns. None: there is none."""
        with self._lock:
            self._open, self._writer = open_, None

    @property
    def is_set(self) -> bool:
        """Whether there is a writer, open or not."""
        return self._open is not None

    @property
    def writer(self) -> Writer | None:
        """Raises `WriterError`."""
        with self._lock:
            if self._writer is None and self._open is not None:
                self._writer = self._open()
            return self._writer


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
    request = WriterRequest(_INSTRUCTION, _QUESTION, (_PASSAGE,), max_tokens=_MAX_TOKENS)
    try:
        for token in writer.write(request, lambda: False):
            first = first or time.perf_counter() - begun
            pieces.append(token.text)
    except CairnError as error:
        problem = str(error)
    text, seconds = "".join(pieces).strip(), time.perf_counter() - begun
    waited, took = round(first, 3), round(seconds, 3)
    return Trial(writer.name, writer.kind, writer.leaves_machine, text, problem, "[1]" in text, waited, took)


def writer_report(writer: Writer, home: Path) -> tuple[dict[str, Any], list[str]]:
    """Plain values, and problems as sentences.

    Of a checkpoint, also how its answers over stored passages compare with reading again (`repair`, `agreement_f1`,
    `first_token_kl`), and how many built-in questions it answers right (`right`, over passages as they are read for
    it; `right_again`, having read them all again); measured now if it never was, which takes about a minute on a
    processor.
    """
    from retrieval.writers.local import LocalWriter, reuse_check_of  # the model's libraries take seconds to import

    report: dict[str, Any] = {
        "name": writer.name,
        "kind": writer.kind,
        "leaves_machine": writer.leaves_machine,
        "stored_bytes": size_of(home / WRITER_FOLDER),
    }
    if not isinstance(writer, LocalWriter):
        return report, []
    try:
        reuse_check = reuse_check_of(writer.loaded())
    except WriterError as error:
        return report, [str(error)]
    reached = reuse_check.reached
    report |= {"repair": writer.repair, "agreement_f1": reached.f1, "first_token_kl": reached.kl}
    report |= {"right": reached.right, "right_again": reuse_check.right_again}
    if reuse_check.repair < 1:
        return report, []
    best = reuse_check.levels[-1]
    return report, [
        f"{writer.name} answers otherwise over stored passages (agreement {best.f1:.2f} where half of them is read "
        "again), so it reads all passages again for every question. That is right, but slower: choose another "
        "checkpoint, or a GPU."
    ]


def open_writer(name: str, *, key: str | None = None, timeout_seconds: float = 120.0, **of_checkpoint: Any) -> Writer:
    """The writer of this name: a checkpoint's folder, `org/model` on the hub, or `http(s)://host/v1`, with `#model`
    behind it where the server has several. Neither loads weights nor calls a server.

    `key`: of a server; `timeout_seconds`: how long it may be silent. `of_checkpoint`: as of `LocalWriter`.
    """
    if name.startswith(("http://", "https://")):
        from retrieval.writers.server import ServerWriter

        return ServerWriter(name, key=key, timeout_seconds=timeout_seconds)
    from retrieval.writers.local import LocalWriter

    return LocalWriter(name, **of_checkpoint)
