"""Inserts made-up facts into the tokens of a text."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from research.train.data.questions.facts import Fact


@dataclass(frozen=True)
class TokenFact:
    """Tokens of a statement, of the question about it, and where in the statement the value stands."""

    ids: tuple[int, ...]
    question: tuple[int, ...]
    value: slice


def tokenize_fact(tokenizer: PreTrainedTokenizerBase, fact: Fact) -> TokenFact:
    """A fact in tokens, a space before the sentence."""
    fast = tokenizer.backend_tokenizer
    encoding = fast.encode(" " + fact.sentence, add_special_tokens=False)
    first, last = fact.start + 1, fact.stop + 1
    value = [token for token, (start, stop) in enumerate(encoding.offsets) if stop > first and start < last]
    question = fast.encode(fact.question, add_special_tokens=False).ids
    return TokenFact(tuple(encoding.ids), tuple(question), slice(value[0], value[-1] + 1))


def sentence_ends(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens after which a sentence may begin."""
    marks = (".", "?", "!", "\n")
    return frozenset(token for token in range(len(tokenizer)) if str(tokenizer.decode([token])).endswith(marks))


def insert_facts(
    tokens: NDArray[Any], facts: Sequence[TokenFact], ends: frozenset[int], random_: random.Random
) -> tuple[NDArray[Any], list[int]]:
    """The tokens with the facts at random places, mostly between sentences; and where each fact begins."""
    between = [place + 1 for place, token in enumerate(tokens.tolist()) if token in ends]
    places = [
        random_.choice(between) if between and random_.random() < 0.8 else random_.randrange(len(tokens) + 1)
        for _ in facts
    ]
    pieces, starts, copied, length = [], [0] * len(facts), 0, 0
    for place, number in sorted(zip(places, range(len(facts)), strict=True)):
        starts[number] = length + place - copied
        pieces += [tokens[copied:place], np.array(facts[number].ids, tokens.dtype)]
        length, copied = starts[number] + len(facts[number].ids), place
    return np.concatenate((*pieces, tokens[copied:])), starts
