"""Passkey retrieval (docs/landmark-attention.md, section 6): a number hidden in filler text, asked for at the end.

With *paper* positions the whole prompt is read in windows, as published. With *library* positions the text is read into
a
memory first and the question is asked over it, as the product does.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.attention.memory import InMemoryReader, MemoryReader
from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel
from model.inference.generate import Sampling, generate
from model.inference.prefill import prefill
from research.train.evaluation.one_text import text_memory

TASK = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there."
)
FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
QUESTION = "What is the pass key? The pass key is"
LARGEST_KEY = 50_000


@dataclass(frozen=True)
class PasskeyPrompt:
    text: str  # everything before the question
    question: str
    key: int


@dataclass(frozen=True)
class PasskeyScore:
    """Prompts answered rightly at one length of filler."""

    filler_characters: int
    mean_tokens: float  # raw tokens of the prompts
    prompts: int
    correct: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.prompts


def passkey_prompt(filler_characters: int, rng: random.Random) -> PasskeyPrompt:
    """One prompt; the place of the key and the key itself are drawn from `rng`."""
    before = rng.randint(0, filler_characters)
    filler = " ".join([FILLER] * (filler_characters // (len(FILLER) + 1) + 1))
    key = rng.randint(1, LARGEST_KEY)
    statement = f"The pass key is {key}. Remember it. {key} is the pass key."
    text = "\n".join((TASK, filler[:before], statement, filler[: filler_characters - before], ""))
    return PasskeyPrompt(text, QUESTION, key)


def passkey_scores(
    model: LandmarkModel,
    lengths: Sequence[int],
    *,
    prompts: int = 50,
    policy: SelectionPolicy,
    window_blocks: int | None = None,
    max_tokens: int = 10,
    seed: int = 0,
    offload: Path | None = None,
) -> Iterator[PasskeyScore]:
    """Accuracy at each length (characters of filler): the first integer of the answer must be the key. offload: see
    `text_memory`. Raises ValueError for it with library positions, which have no memory of one text."""
    if offload is not None and not policy.of_one_text:
        raise ValueError("Only the memory of one text is offloaded: choose --positions paper.")
    for length in lengths:
        rng = random.Random(f"{seed}/{length}")  # the same prompts whatever other lengths are asked for
        correct = tokens = 0
        for _ in range(prompts):
            prompt = passkey_prompt(length, rng)
            text, question = model.tokenize(prompt.text).ids, model.tokenize(prompt.question).ids
            tokens += len(text) + len(question)
            with text_memory(model, offload) as memory:
                answer = _answer(model, text, question, policy, window_blocks, max_tokens, memory)
            correct += first_integer(answer) == prompt.key
        yield PasskeyScore(length, tokens / prompts, prompts, correct)


def first_integer(text: str) -> int | None:
    """The first run of digits in a text."""
    found = re.search(r"\d+", text)
    return int(found.group()) if found else None


def _answer(
    model: LandmarkModel,
    text: list[int],
    question: list[int],
    policy: SelectionPolicy,
    window_blocks: int | None,
    max_tokens: int,
    memory: MemoryReader,
) -> str:
    if policy.of_one_text:
        prompt = text + question
    else:
        prompt, memory = question, InMemoryReader.from_blocks(model.memory_layers, list(prefill(model, text)))
    sampling = Sampling(max_tokens=max_tokens)
    tokens = generate(model, prompt, memory=memory, policy=policy, sampling=sampling, window_blocks=window_blocks)
    return "".join(token.text for token in tokens)
