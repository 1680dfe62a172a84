"""A checkpoint in memory as a writer, which reads no passage twice.

    prefix | label and body of each passage, from memory | instruction, conversation, question | answer

A passage's keys and values come from the writer's memory, or are read now and kept. A share of its tokens is then
computed again, knowing the other passages and the question.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from model.checkpoint.chat.chat_model import ChatModel
from model.inference.reuse.assembled_text import AssembledText
from model.inference.reuse.repair import read_question
from model.inference.reuse.segments import Segment, read_prefix, read_segment
from model.inference.reuse.writing import write_answer
from model.inference.sampling import Sampling
from retrieval.writers.local.labels import CitationStream, labels_of, numbers_in, with_labels
from retrieval.writers.local.memory import WriterMemory, WriterShape
from retrieval.writers.local.memory_files import DEFAULT_BUDGET_BYTES
from retrieval.writers.prompt import closing_text, passage_body
from retrieval.writers.protocol import Cancelled, WriterPassage, WriterRequest, WriterToken, Written


@dataclass(frozen=True, eq=False)
class LoadedWriter:
    """A checkpoint, its prefix as it was read, and what it made of passages before."""

    model: ChatModel
    prefix: Segment
    memory: WriterMemory
    guard_lock: threading.Lock = field(default_factory=threading.Lock)

    def segment(self, document_id: str, ids: Sequence[int]) -> tuple[Segment, bool]:
        """A passage's keys and values, and whether they were stored. What is read now is stored."""
        stored = self.memory.load(document_id, ids)
        if stored is not None:
            return stored, True
        segment = self.memory.as_stored(read_segment(self.model, self.prefix, ids))
        self.memory.save(document_id, segment)
        return segment, False


def loaded_writer(model: ChatModel, home: Path, memory_bytes: int = DEFAULT_BUDGET_BYTES) -> LoadedWriter:
    """A checkpoint in memory as a writer with its memory in `home`."""
    shape = WriterShape(model.num_layers, model.num_kv_heads, model.head_dim, model.dtype)
    return LoadedWriter(model, read_prefix(model), WriterMemory(home, shape, model.identity(), memory_bytes))


def write_over(
    loaded: LoadedWriter, request: WriterRequest, repair: float, cancelled: Cancelled
) -> Generator[WriterToken, None, Written]:
    """Answer a request over stored passages, a share of whose tokens is computed again. Raises `ModelError`."""
    model, options = loaded.model, request.options
    passages_ids = passage_ids(model, request.passages)
    segments: list[Segment | Sequence[int]] = []
    stored_tokens = 0
    for passage, ids in zip(request.passages, passages_ids, strict=True):
        if cancelled():
            return Written("cancelled")
        if repair == 1:  # nothing stored would be used
            segments.append(ids)
            continue
        segment, stored = loaded.segment(passage.document_id, ids)
        segments.append(segment)
        stored_tokens += stored * len(ids)
    labels = labels_of([passage_body(passage) for passage in request.passages])
    numbers = {label: passage.number for label, passage in zip(labels, request.passages, strict=True)}
    instruction = with_labels(request.instruction.strip(), numbers)
    suffix = model.suffix_ids(f"{instruction}\n\n{closing_text(request)}")
    text = AssembledText(model, loaded.prefix, segments, room=len(suffix) + options.max_tokens)
    fed = read_question(text, suffix, repair)
    sampling = Sampling(max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed)
    citations = CitationStream(numbers or numbers_in(request.notes))
    pieces = write_answer(text, fed, sampling, cancelled)
    while True:
        try:
            piece = next(pieces)
        except StopIteration as stopped:
            finish = stopped.value
            break
        yield WriterToken(citations.add(piece.text), piece.logprob, piece.segment_mass)
    if rest := citations.flush():
        yield WriterToken(rest)
    total = sum(map(len, passages_ids))
    return Written(finish, stored_tokens / total if total else None, repair if total else None)


def passage_ids(model: ChatModel, passages: Sequence[WriterPassage]) -> list[list[int]]:
    """Tokens of each passage with its label: what is read and stored."""
    bodies = [passage_body(passage) for passage in passages]
    return [model.tokenize(f"[{label}] {body}") for label, body in zip(labels_of(bodies), bodies, strict=True)]
