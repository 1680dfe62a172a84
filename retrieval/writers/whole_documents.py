"""Tasks over whole documents: every part of the chosen documents is read, and notes on the parts become the answer.

- A part is a few neighbouring segments. The segments of all documents are numbered through, so that a number means the
  same in the notes and in the answer.
- Notes that are too long together are combined group by group first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from retrieval.types.answers import Progress
from retrieval.types.writer import Writer, WriterPassage, WriterRequest, WriterToken, Written
from retrieval.writers.output_filter import filtered, without_repetition
from retrieval.writers.passages import ContextBudget
from retrieval.writers.prompt import COMBINE, NOTES, NOTHING

NOTES_CHARACTERS = 6000
_NOTE_TOKENS = 256

_TASK = re.compile(
    r"\b(?:summari[sz]e|summary|overview|outline|table of|in a table|list (?:all|every|the|each)|"
    r"(?:name|give|find|collect) (?:all|every)|what are all|how many|compare|comparison|"
    r"differences? between|main (?:points|topics|ideas|findings)|"
    r"what is (?:this|the) (?:document|paper|report|file) about)\b",
    re.IGNORECASE,
)


def is_whole_document_task(question: str) -> bool:
    """Whether a question asks for something that no few passages hold."""
    return _TASK.search(question) is not None


@dataclass
class WholeDocuments:
    """One task. `passages`: all segments, numbered through, those of a document together and in order."""

    writer: Writer
    task: str
    passages: Sequence[WriterPassage]
    max_tokens: int
    cancelled: Callable[[], bool]
    budget: ContextBudget
    done: int = 0
    total: int = 0

    def run(self) -> Generator[Progress | WriterToken, None, Written]:
        """Progress, then the tokens of the answer. Cancelled: what could be said of the parts that were read. Raises as
        `Writer.write`."""
        parts = self._parts()
        if len(parts) == 1:
            request = WriterRequest(self.budget.instruction, self.task, parts[0], max_tokens=self.max_tokens)
            return (yield from filtered(self.writer, request, self.cancelled))
        self.total = len(parts) + 1
        notes: list[str] = []
        for part in parts:
            yield self._progress(f"reading {part[0].title}")
            note = self._note(WriterRequest(NOTES, self.task, part, max_tokens=self._note_tokens))
            if self.cancelled():
                return Written("cancelled")
            if note.rstrip(".") != NOTHING.rstrip("."):
                notes.append(f"{part[0].title}:\n{note}")
            self.done += 1
        notes = yield from self._combined(notes)
        yield self._progress("writing the answer")
        request = WriterRequest(COMBINE, self.task, notes=tuple(notes), max_tokens=self.max_tokens)
        written = yield from filtered(self.writer, request, self.cancelled)
        self.done = self.total
        return written

    def _parts(self) -> list[tuple[WriterPassage, ...]]:
        """A part never holds two documents."""
        parts: list[tuple[WriterPassage, ...]] = []
        for document_id in dict.fromkeys(passage.document_id for passage in self.passages):
            own = [passage for passage in self.passages if passage.document_id == document_id]
            size = self.budget.part
            parts += [tuple(own[at : at + size]) for at in range(0, len(own), size)]
        return parts

    def _combined(self, notes: list[str]) -> Generator[Progress, None, list[str]]:
        """Notes short enough to be read at once."""
        while sum(map(len, notes)) > NOTES_CHARACTERS and len(notes) > 1:
            groups = _groups(notes, NOTES_CHARACTERS)
            self.total += len(groups)
            shorter = []
            for group in groups:
                yield self._progress("combining notes")
                request = WriterRequest(COMBINE, self.task, notes=tuple(group), max_tokens=self._note_tokens)
                shorter.append(self._note(request)[: NOTES_CHARACTERS // 3])
                if self.cancelled():
                    return shorter
                self.done += 1
            notes = shorter
        return [note[:NOTES_CHARACTERS] for note in notes]

    def _note(self, request: WriterRequest) -> str:
        return without_repetition("".join(token.text for token in filtered(self.writer, request, self.cancelled)))

    @property
    def _note_tokens(self) -> int:
        return min(_NOTE_TOKENS, self.max_tokens)

    def _progress(self, note: str) -> Progress:
        return Progress(self.done, self.total, note)


def _groups(notes: Sequence[str], most: int) -> list[list[str]]:
    """Neighbouring notes of at most `most` characters together; at least two in each group but the last, so that there
    are fewer groups than notes."""
    groups: list[list[str]] = [[]]
    for note in notes:
        if len(groups[-1]) >= 2 and sum(map(len, groups[-1])) + len(note) > most:
            groups.append([])
        groups[-1].append(note[: most // 2])
    return groups
