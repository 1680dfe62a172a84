"""Sets that are made, under the words that stand for them where text files are named (docs/paper.md)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from research.train.paper.made_passkeys import made_passkeys, passkey_tokenizer
from research.train.paper.made_series import made_series, series_tokenizer


@dataclass(frozen=True, kw_only=True)
class MadeSet:
    train: Callable[[int], Iterator[str]]
    """Texts, so many times a few thousand tokens."""
    heldout: Callable[[int, int], Iterator[str]]
    """Texts of so many segments of so many tokens each, none of which is trained on."""
    tokenizer: Callable[[], PreTrainedTokenizerFast]


MADE_SETS = {
    "series": MadeSet(
        train=lambda texts: made_series(16 * texts, seed=0),
        heldout=lambda texts, tokens: made_series(texts, seed=1, readings=tokens),
        tokenizer=series_tokenizer,
    ),
    "passkey": MadeSet(
        train=lambda texts: made_passkeys(64 * texts, seed=0),
        heldout=lambda texts, tokens: made_passkeys(texts * tokens // 60, seed=1),
        tokenizer=passkey_tokenizer,
    ),
}
