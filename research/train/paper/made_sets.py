"""Sets that are made, under the words that stand for them where text files are named (docs/paper.md)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from research.train.paper.made_genome import genome_tokenizer, made_genomes
from research.train.paper.made_passkeys import made_passkeys, passkey_tokenizer
from research.train.paper.made_recall import answers, made_recall, recall_tokenizer
from research.train.paper.made_series import made_series, series_tokenizer

Answers = Callable[[NDArray[np.integer]], NDArray[np.bool_]]
"""Which tokens_N of a segment a memory of everything before them can know for sure."""


@dataclass(frozen=True, kw_only=True)
class MadeSet:
    train: Callable[[int], Iterator[str]]
    """Texts, so many times a few thousand tokens."""
    heldout: Callable[[int, int], Iterator[str]]
    """Texts of so many segments of so many tokens each, none of which is trained on."""
    tokenizer: Callable[[], PreTrainedTokenizerFast]
    answers: Answers | None = None
    """Where the set has tokens to be remembered, which get a column of their own."""


MADE_SETS = {
    "series": MadeSet(
        train=lambda texts: made_series(16 * texts, seed=0),
        heldout=lambda texts, tokens: made_series(texts, seed=1, readings=tokens),
        tokenizer=series_tokenizer,
    ),
    "genome": MadeSet(
        train=lambda texts: made_genomes(8 * texts, seed=0),
        heldout=lambda texts, tokens: made_genomes(texts, seed=1, codons=tokens),
        tokenizer=genome_tokenizer,
    ),
    "recall": MadeSet(
        train=lambda texts: made_recall(8 * texts, seed=0),
        heldout=lambda texts, tokens: made_recall(texts, seed=1, tokens=tokens),
        tokenizer=recall_tokenizer,
        answers=answers,
    ),
    "passkey": MadeSet(
        train=lambda texts: made_passkeys(64 * texts, seed=0),
        heldout=lambda texts, tokens: made_passkeys(texts * tokens // 60, seed=1),
        tokenizer=passkey_tokenizer,
    ),
}
