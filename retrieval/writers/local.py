"""A checkpoint on this machine as a writer, which reads no passage twice.

    prefix | label and body of each passage, from memory | instruction, conversation, question | answer

- It is loaded at its first use. A passage's keys and values come from the writer's memory, or are computed now and
  stored. A share of its tokens is then recomputed, with the other passages and the question in view.
- The reuse check asks whether a writer says the same over stored passages as when it reads them again. It is made on
  built-in passages and questions, once for each checkpoint, by the words of the answers (F1) and the distribution of
  their first token (KL). The share is raised until the answers agree; a share of 1 reads the passages again and agrees
  by definition. Right answers are counted too: a writer that guesses says something else for the smallest difference.

Axes: V vocabulary.
"""

from __future__ import annotations

import json
import logging
import math
import re
import threading
import tomllib
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from model.checkpoint.chat_model import ChatModel
from model.errors import ModelError
from model.inference.generate import Sampling
from model.inference.stored_prefix import (
    AssembledPrompt,
    StoredSegment,
    read_prefix,
    read_question,
    read_segment,
    write_answer,
)
from retrieval.errors import NOT_ENOUGH_MEMORY, InvalidRequest, WriterError, ran_out_of_memory
from retrieval.types.writer import Cancelled, WriterKind, WriterPassage, WriterRequest, WriterToken, Written
from retrieval.writers.citations import CitationStream, labels_of, numbers_in, with_labels
from retrieval.writers.local_memory import DEFAULT_BUDGET_BYTES, WEIGHTS, WriterMemory
from retrieval.writers.prompt import closing_text, passage_body
from storage.blobs.files import write_durably

if TYPE_CHECKING:
    from model.checkpoint.chat_model import FewBits


@dataclass(frozen=True, eq=False)
class LoadedWriter:
    """A checkpoint, its prefix as it was read, and the memory of the passages that it read."""

    model: ChatModel
    prefix: StoredSegment
    memory: WriterMemory
    check_lock: threading.Lock = field(default_factory=threading.Lock)

    def segment(self, document_id: str, ids: Sequence[int]) -> tuple[StoredSegment, bool]:
        """A passage's keys and values, and whether they were stored. New ones are stored."""
        stored = self.memory.load(document_id, ids)
        if stored is not None:
            return stored, True
        segment = self.memory.as_stored(read_segment(self.model, self.prefix, ids))
        self.memory.save(document_id, segment)
        return segment, False


def loaded_writer(model: ChatModel, home: Path, memory_bytes: int = DEFAULT_BUDGET_BYTES) -> LoadedWriter:
    """A checkpoint in memory as a writer with its memory in `home`."""
    return LoadedWriter(model, read_prefix(model), WriterMemory(home, model, memory_bytes))


def write_over(
    loaded: LoadedWriter, request: WriterRequest, repair: float, cancelled: Cancelled
) -> Generator[WriterToken, None, Written]:
    """Answer a request over stored passages, of whose tokens a share is recomputed. Raises `ModelError`."""
    model = loaded.model
    passages_ids = passage_ids(model, request.passages)
    segments: list[StoredSegment | Sequence[int]] = []
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
    text = AssembledPrompt(model, loaded.prefix, segments, room=len(suffix) + request.max_tokens)
    output = read_question(text, suffix, repair)
    sampling = Sampling(max_tokens=request.max_tokens)
    citations = CitationStream(numbers or numbers_in(request.notes))
    pieces = write_answer(text, output, sampling, cancelled)
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


logger = logging.getLogger(__name__)

SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
ENOUGH = 0.95
INSTRUCTION = "Answer the question from the passages in a few words."
REUSE_CHECK_FILE = "agreement.json"
_MOST_TOKENS = 20


@dataclass(frozen=True)
class Level:
    """Agreement of answers with those of reading again, at one share: mean F1 of words; mean KL of the first token, in
    nats. `right`: share of the questions answered right; None if that was not counted."""

    repair: float
    f1: float
    kl: float
    right: float | None = None


@dataclass(frozen=True)
class ReuseCheck:
    """What was measured. The last level is that of `repair`, the recomputed share, unless even the largest was not
    enough."""

    repair: float
    """The smallest share that is enough; 1 reads passages again."""
    levels: tuple[Level, ...]
    right_again: float | None = None
    """Share of the questions answered right by reading again; None if that was not counted."""

    @property
    def reached(self) -> Level:
        """What to expect at `repair`."""
        last = self.levels[-1]
        return last if last.repair == self.repair else Level(1.0, 1.0, 0.0, self.right_again)


def reuse_check_of(loaded: LoadedWriter) -> ReuseCheck:
    """Measured now, or what was measured for the same checkpoint before."""
    with loaded.check_lock:
        path = loaded.memory.folder / REUSE_CHECK_FILE
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            levels = tuple(Level(**level) for level in kept["levels"])
            return ReuseCheck(kept["repair"], levels, kept.get("right_again"))
        reuse_check = measure(loaded)
        write_durably(path, memoryview(json.dumps(asdict(reuse_check)).encode()))
        return reuse_check


def measure(loaded: LoadedWriter) -> ReuseCheck:
    """Raise the share until answers agree. Takes one reading of 12 short prompts, and a part of it for each share."""
    asked = _questions(loaded)
    again = [_answer(loaded, passages, question.text, 1.0) for passages, question in asked]
    right_again = _right(asked, again)
    levels: list[Level] = []
    for share in SHARES:
        answers = [_answer(loaded, passages, question.text, share) for passages, question in asked]
        pairs = list(zip(answers, again, strict=True))
        f1 = sum(word_f1(text, other) for (text, _), (other, _) in pairs) / len(pairs)
        kl = sum(divergence(others_V, logprobs_V) for (_, logprobs_V), (_, others_V) in pairs) / len(pairs)
        levels.append(Level(share, round(f1, 4), round(kl, 4), _right(asked, answers)))
        logger.info("agreement of %s with reading again: %s", loaded.model.source, levels[-1])
        if f1 >= ENOUGH:
            return ReuseCheck(share, tuple(levels), right_again)
    return ReuseCheck(1.0, tuple(levels), right_again)


@dataclass(frozen=True)
class BuiltInQuestion:
    """`known`: words of which a right answer has one."""

    text: str
    known: tuple[str, ...]

    def answered_by(self, answer: str) -> bool:
        return any(re.search(rf"\b{re.escape(known)}", answer, re.IGNORECASE) for known in self.known)


def _answer(loaded: LoadedWriter, segments: Sequence[StoredSegment], question: str, share: float) -> tuple[str, Tensor]:
    """The text, and logprobs_V of its first token."""
    model = loaded.model
    suffix = model.suffix_ids(f"{INSTRUCTION}\n\nQuestion: {question}")
    text = AssembledPrompt(model, loaded.prefix, segments, room=len(suffix) + _MOST_TOKENS)
    output = read_question(text, suffix, share)
    logprobs_V = model.logits(output.hidden_QE[-1]).log_softmax(-1)
    pieces = write_answer(text, output, Sampling(max_tokens=_MOST_TOKENS))
    return "".join(piece.text for piece in pieces), logprobs_V


def _right(
    asked: Sequence[tuple[Sequence[StoredSegment], BuiltInQuestion]], answers: Sequence[tuple[str, Tensor]]
) -> float:
    right = [question.answered_by(text) for (_, question), (text, _) in zip(asked, answers, strict=True)]
    return round(sum(right) / len(right), 4)


def _questions(loaded: LoadedWriter) -> list[tuple[list[StoredSegment], BuiltInQuestion]]:
    """The built-in questions, each over its passages, which are read apart from each other as documents are."""
    asked = []
    for passages, questions in built_in():
        texts = [f"[{number}01] {title}\n{text}\n\n" for number, (title, text) in enumerate(passages, 1)]
        segments = [read_segment(loaded.model, loaded.prefix, loaded.model.tokenize(text)) for text in texts]
        asked += [([loaded.memory.as_stored(segment) for segment in segments], question) for question in questions]
    return asked


@cache
def built_in() -> list[tuple[list[tuple[str, str]], list[BuiltInQuestion]]]:
    """Passages (title, text) with the questions about them."""
    table = tomllib.loads((files(__package__) / "reuse_check.toml").read_text(encoding="utf-8"))
    return [
        (
            [(title, text) for title, text in made["passages"]],
            [BuiltInQuestion(text, tuple(known)) for text, *known in made["questions"]],
        )
        for made in table["set"]
    ]


def word_f1(one: str, other: str) -> float:
    """F1 of the words of two texts; two empty ones agree."""
    words, others = (Counter(re.findall(r"\w+", text.lower())) for text in (one, other))
    if not words or not others:
        return float(words == others)
    common = (words & others).total()
    return 2 * common / (words.total() + others.total())


def divergence(logprobs_V: Tensor, others_V: Tensor) -> float:
    """KL(p || q) in nats."""
    return max(0.0, math.fsum((logprobs_V.exp() * (logprobs_V - others_V)).tolist()))


class LocalWriter:
    """Words answers with an ordinary instruct checkpoint, loaded by the first `write`.

    name: a folder or a name on the hub. memory_bytes: what all writers together may keep in `home`. repair: the share
    to recompute; None: what the reuse check finds. few_bits: the format of its matrices, if in fewer bits. prefetches:
    whether new documents are read before anybody asks. Thread-safe.
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
        prefetches: bool = False,
    ) -> None:
        self._source, self.prefetches = name, prefetches
        self._home, self._device, self._dtype, self._few_bits = home, device, dtype, few_bits
        self._memory_bytes, self._repair = memory_bytes, repair
        self._lock = threading.Lock()
        self._loaded: LoadedWriter | None = None

    def loaded(self) -> LoadedWriter:
        """The checkpoint with its memory. Raises `WriterError`."""
        from model.checkpoint.load import load_chat_model

        with self._lock, self._naming_memory():
            if self._loaded is None:
                try:
                    model = load_chat_model(
                        self._source,
                        device=self._device,
                        dtype=self._dtype,
                        few_bits=self._few_bits,
                        kept=self._home / WEIGHTS,
                    )
                except (ModelError, OSError, RuntimeError) as error:
                    if ran_out_of_memory(error):
                        raise
                    raise WriterError(self.name, str(error).replace(self._source, self.name)) from error
                self._loaded = loaded_writer(model, self._home, self._memory_bytes)
            return self._loaded

    @property
    def name(self) -> str:
        """As in `Writer`: of a folder or a file only the last part."""
        path = Path(self._source)
        return path.name if path.is_absolute() or path.exists() else self._source

    @property
    def weights(self) -> int:
        """As in `Writer`: counted."""
        return int(self.loaded().model.num_weights)

    @property
    def repair(self) -> float:
        """The share of stored tokens that is recomputed."""
        return self._repair if self._repair is not None else reuse_check_of(self.loaded()).repair

    def write(self, request: WriterRequest, cancelled: Cancelled) -> Generator[WriterToken, None, Written]:
        """See `Writer.write`."""
        loaded = self.loaded()
        try:
            with self._naming_memory():
                return (yield from write_over(loaded, request, self.repair if request.passages else 0.0, cancelled))
        except ModelError as error:
            raise InvalidRequest(f"{self.name} cannot write this answer: {error}") from error

    def prefetch(self, passages: Sequence[WriterPassage]) -> int:
        """Read and store passages before anybody asks; returns how many were new. Raises as `write`."""
        loaded, new = self.loaded(), 0
        try:
            with self._naming_memory():
                for passage in passages:
                    _, stored = loaded.segment(passage.document_id, passage_ids(loaded.model, [passage])[0])
                    new += not stored
        except ModelError as error:
            raise InvalidRequest(f"{self.name} cannot read this passage: {error}") from error
        return new

    @contextmanager
    def _naming_memory(self) -> Iterator[None]:
        """Too little memory comes out as a `WriterError`."""
        try:
            yield
        except (MemoryError, RuntimeError, SystemError) as error:
            if not ran_out_of_memory(error):
                raise
            raise WriterError(self.name, NOT_ENOUGH_MEMORY) from error
