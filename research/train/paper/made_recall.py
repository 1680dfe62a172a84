"""A made set in which memory is all there is to learn: keys with a value each, asked for again and again.

- A text is pairs of a key and its value. Every text has values of its own, so only an earlier pair tells the next one;
  keys come in any order, so nothing tells which key is next.
- Whoever remembers everything knows every value but the first one of each key; a window knows those of its last pairs.
  So the values of known keys are the `answers`: far away, and easy for attention that reaches them.

Axes: N tokens of a segment.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from research.train.paper.made_words import word_tokenizer

KEYS, VALUES = 48, 16
PAIRS = 256
"""Of a text to train on."""


def made_recall(texts: int, seed: int, *, tokens: int = 2 * PAIRS) -> Iterator[str]:
    """Texts of so many words: key, value, key, value, ..."""
    random = np.random.default_rng(seed)
    for _ in range(texts):
        value_K = random.integers(0, VALUES, KEYS)
        key_P = random.integers(0, KEYS, -(-tokens // 2))
        words = [word for key in key_P.tolist() for word in (f"k{key:02d}", f"v{value_K[key]:02d}")]
        yield " ".join(words[:tokens])


def recall_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each key, then one for each value."""
    return word_tokenizer([*(f"k{n:02d}" for n in range(KEYS)), *(f"v{n:02d}" for n in range(VALUES))])


def answers(tokens_N: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which tokens are the value of a key that stood in the segment before."""
    known: set[int] = set()
    answer_N = np.zeros(len(tokens_N), dtype=bool)
    for at, (key, value) in enumerate(zip(tokens_N[:-1].tolist(), tokens_N[1:].tolist(), strict=True), 1):
        if key < KEYS <= value < KEYS + VALUES:
            answer_N[at] = key in known
            known.add(key)
    return answer_N
