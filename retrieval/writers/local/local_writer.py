"""A checkpoint on this machine as a writer, which reads no passage twice.

    prefix | label and body of each passage, from memory | instruction, conversation, question | answer

A passage's keys and values come from the writer's memory, or are read now and kept. A share of its tokens is then
computed again, knowing the other passages and the question; `retrieval.writers.local.guard` finds the share that this
checkpoint needs.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval.errors import InvalidRequest, WriterError
from retrieval.writers.local.labels import CitationStream, labels_of, numbers_in, with_labels
from retrieval.writers.prompt import closing_text, passage_body
from retrieval.writers.protocol import Cancelled, WriterKind, WriterPassage, WriterRequest, WriterToken, Written

if TYPE_CHECKING:
    from model.checkpoint.chat.chat_model import ChatModel
    from model.checkpoint.chat.few_bits import FewBits
    from model.inference.reuse.segments import Segment
    from retrieval.writers.local.guard import Agreement
    from retrieval.writers.local.memory import WriterMemory

DEFAULT_BUDGET_BYTES = 10_000_000_000


class LocalWriter:
    """Words answers with an ordinary instruct checkpoint, loaded by the first `write`.

    name: a folder or a name on the hub. memory_bytes: what may be kept in `home`, for all writers together. repair:
    the share to compute again; None: what the guard finds. few_bits: how its matrices are kept, if in fewer bits.
    reads_ahead: whether new documents are read before anybody asks. Thread-safe.
    """

    kind: WriterKind = "local"
    leaves_machine = False

    def __init__(
        self,
        name: str,
        *,
        home: Path,
        device: str | None = None,
        dtype: str | None = None,
        memory_bytes: int = DEFAULT_BUDGET_BYTES,
        repair: float | None = None,
        few_bits: FewBits | None = None,
        reads_ahead: bool = False,
    ) -> None:
        self._source, self.reads_ahead = name, reads_ahead
        self._home, self._device, self._dtype, self._few_bits = home, device, dtype, few_bits
        self._memory_bytes, self._repair = memory_bytes, repair
        self._lock = threading.Lock()
        self._loaded: LoadedWriter | None = None

    def loaded(self) -> LoadedWriter:
        """The checkpoint with its memory. Raises `WriterError`."""
        from model.checkpoint.load import load_chat_model
        from model.errors import ModelError

        with self._lock:
            if self._loaded is None:
                try:
                    model = load_chat_model(
                        self._source, device=self._device, dtype=self._dtype, few_bits=self._few_bits
                    )
                except (ModelError, OSError, RuntimeError) as error:
                    raise WriterError(self.name, str(error)) from error
                self._loaded = loaded_writer(model, self._home, self._memory_bytes)
            return self._loaded

    @property
    def name(self) -> str:
        """As in `Writer`: of a folder or a file only the last part; the rest is nobody's business."""
        path = Path(self._source)
        return path.name if path.is_absolute() or path.exists() else self._source

    @property
    def weights(self) -> int:
        """As in `Writer`: counted."""
        return int(self.loaded().model.num_weights)

    def agreement(self) -> Agreement:
        """How stored passages compare with passages read again; measured once for each checkpoint."""
        from retrieval.writers.local.guard import agreement_of

        return agreement_of(self.loaded())

    @property
    def repair(self) -> float:
        """The share of stored tokens that is computed again."""
        return self._repair if self._repair is not None else self.agreement().repair

    def write(self, request: WriterRequest, cancelled: Cancelled) -> Generator[WriterToken, None, Written]:
        """See `Writer.write`."""
        from model.errors import ModelError

        loaded = self.loaded()
        try:
            return (yield from write_over(loaded, request, self.repair if request.passages else 0.0, cancelled))
        except ModelError as error:
            raise InvalidRequest(f"{self.name} cannot write this answer: {error}") from error

    def read_ahead(self, passages: Sequence[WriterPassage]) -> int:
        """Read and keep passages before anybody asks; returns how many were not kept before. Raises as `write`."""
        from model.errors import ModelError

        loaded, new = self.loaded(), 0
        try:
            for passage in passages:
                _, stored = loaded.segment(passage.document_id, passage_ids(loaded.model, [passage])[0])
                new += not stored
        except ModelError as error:
            raise InvalidRequest(f"{self.name} cannot read this passage: {error}") from error
        return new


@dataclass(frozen=True, eq=False)
class LoadedWriter:
    """A checkpoint, its prefix as it was read, and what it made of passages before."""

    model: ChatModel
    prefix: Segment
    memory: WriterMemory
    guard_lock: threading.Lock = field(default_factory=threading.Lock)

    def segment(self, document_id: str, ids: Sequence[int]) -> tuple[Segment, bool]:
        """A passage's keys and values, and whether they were stored. What is read now is stored."""
        from model.inference.reuse.segments import read_segment

        stored = self.memory.load(document_id, ids)
        if stored is not None:
            return stored, True
        segment = self.memory.as_stored(read_segment(self.model, self.prefix, ids))
        self.memory.save(document_id, segment)
        return segment, False


def loaded_writer(model: ChatModel, home: Path, memory_bytes: int = DEFAULT_BUDGET_BYTES) -> LoadedWriter:
    """A checkpoint in memory as a writer with its memory in `home`."""
    from model.inference.reuse.segments import read_prefix
    from retrieval.writers.local.memory import WriterMemory, WriterShape

    shape = WriterShape(model.num_layers, model.num_kv_heads, model.head_dim, model.dtype)
    return LoadedWriter(model, read_prefix(model), WriterMemory(home, shape, model.identity(), memory_bytes))


def write_over(
    loaded: LoadedWriter, request: WriterRequest, repair: float, cancelled: Cancelled
) -> Generator[WriterToken, None, Written]:
    """Answer a request over stored passages, a share of whose tokens is computed again. Raises `ModelError`."""
    from model.inference.reuse.assembled_text import AssembledText
    from model.inference.reuse.repair import read_question
    from model.inference.reuse.writing import write_answer
    from model.inference.sampling import Sampling

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
