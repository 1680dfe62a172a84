"""Does a writer say the same over stored passages as when it reads them again?

Measured on built-in passages and questions, once for each checkpoint: the words of its answers (F1) and the
distribution of their first token (KL). The share of tokens that is computed again is raised until the answers agree; a
share of 1 reads the passages again and agrees by definition. How many answers are right is counted beside: a writer
that guesses says something else for the smallest difference.

Axes: V vocabulary.
"""

from __future__ import annotations

import json
import logging
import math
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files

from torch import Tensor

from model.inference.reuse.assembled_text import AssembledText
from model.inference.reuse.repair import read_question
from model.inference.reuse.segments import Segment, read_segment
from model.inference.reuse.writing import write_answer
from model.inference.sampling import Sampling
from retrieval.writers.local.loaded_writer import LoadedWriter
from storage.blobs.files import write_durably

logger = logging.getLogger(__name__)

SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
ENOUGH = 0.95
INSTRUCTION = "Answer the question from the passages in a few words."
AGREEMENT_FILE = "agreement.json"
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
class Agreement:
    """What was measured. The last level is that of `repair`, unless even the largest share was not enough."""

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


def agreement_of(loaded: LoadedWriter) -> Agreement:
    """Measured now, or what was measured for the same checkpoint before."""
    with loaded.guard_lock:
        path = loaded.memory.folder / AGREEMENT_FILE
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            levels = tuple(Level(**level) for level in kept["levels"])
            return Agreement(kept["repair"], levels, kept.get("right_again"))
        agreement = measure(loaded)
        write_durably(path, memoryview(json.dumps(asdict(agreement)).encode()))
        return agreement


def measure(loaded: LoadedWriter) -> Agreement:
    """Raise the share until answers agree. Takes one reading of 12 short prompts, and a part of it for each share."""
    asked = _questions(loaded)
    again = [_answer(loaded, passages, question.text, 1.0) for passages, question in asked]
    right_again = _right(asked, again)
    levels: list[Level] = []
    for share in SHARES:
        answers = [_answer(loaded, passages, question.text, share) for passages, question in asked]
        pairs = list(zip(answers, again, strict=True))
        f1 = sum(word_f1(one.text, other.text) for one, other in pairs) / len(pairs)
        kl = sum(divergence(other.logprobs_V, one.logprobs_V) for one, other in pairs) / len(pairs)
        levels.append(Level(share, round(f1, 4), round(kl, 4), _right(asked, answers)))
        logger.info("agreement of %s with reading again: %s", loaded.model.source, levels[-1])
        if f1 >= ENOUGH:
            return Agreement(share, tuple(levels), right_again)
    return Agreement(1.0, tuple(levels), right_again)


@dataclass(frozen=True)
class BuiltInQuestion:
    """`known`: words of which a right answer has one."""

    text: str
    known: tuple[str, ...]

    def answered_by(self, answer: str) -> bool:
        return any(re.search(rf"\b{re.escape(known)}", answer, re.IGNORECASE) for known in self.known)


@dataclass(frozen=True, eq=False)
class _Answer:
    text: str
    logprobs_V: Tensor
    """Of the first token."""


def _answer(loaded: LoadedWriter, segments: Sequence[Segment], question: str, share: float) -> _Answer:
    model = loaded.model
    suffix = model.suffix_ids(f"{INSTRUCTION}\n\nQuestion: {question}")
    text = AssembledText(model, loaded.prefix, segments, room=len(suffix) + _MOST_TOKENS)
    fed = read_question(text, suffix, share)
    logprobs_V = model.logits(fed.hidden_QE[-1]).log_softmax(-1)
    pieces = write_answer(text, fed, Sampling(max_tokens=_MOST_TOKENS))
    return _Answer("".join(piece.text for piece in pieces), logprobs_V)


def _right(asked: Sequence[tuple[Sequence[Segment], BuiltInQuestion]], answers: Sequence[_Answer]) -> float:
    right = [question.answered_by(answer.text) for (_, question), answer in zip(asked, answers, strict=True)]
    return round(sum(right) / len(right), 4)


def _questions(loaded: LoadedWriter) -> list[tuple[list[Segment], BuiltInQuestion]]:
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
    table = tomllib.loads((files(__package__) / "guard_questions.toml").read_text(encoding="utf-8"))
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
