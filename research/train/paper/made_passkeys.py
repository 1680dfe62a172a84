"""The made set of the fine-tuning experiment: passkey prompts with their answers, none longer than a trained row.

The prompts are those of `research.train.evaluation.passkey`. A network that learns from these has learned to find the
key within its window; whether it finds it further away is what the table `passkey` measures.
"""

import random
from collections.abc import Iterator

from transformers import PreTrainedTokenizerFast

from research.train.data.tokenizer import train_tokenizer
from research.train.evaluation.passkey import FILLER, passkey_prompt

VOCABULARY = 420
"""Bytes, special tokens, and merges enough for the words of the prompts; digits stay apart."""
MOST_FILLER = 2 * len(FILLER)
"""Characters."""


def made_passkeys(prompts: int, seed: int) -> Iterator[str]:
    """Prompts with their answers."""
    rng = random.Random(seed)
    for _ in range(prompts):
        prompt = passkey_prompt(rng.randint(0, MOST_FILLER), rng)
        yield f"{prompt.text}{prompt.question} {prompt.key}."


def passkey_tokenizer() -> PreTrainedTokenizerFast:
    """Learned from the prompts."""
    return train_tokenizer(made_passkeys(64, seed=2), vocab_size=VOCABULARY)
