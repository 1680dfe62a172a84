"""Constrained decoding for quotations: only text that appears verbatim in given blocks.

A cursor is the state of the decoding: every place where the quotation so far occurs. The next token must continue
one of them. So all that the model writes is an exact quotation, and its place is known. No backbone is needed here.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

TokenPlace = tuple[int, int]
"""(number of the block in the memory, row of the token in the block)"""


@dataclass(frozen=True)
class QuoteSource:
    """Text that may be quoted: raw tokens of each block, and for each block the one that continues it, if any."""

    tokens_by_block: Sequence[Sequence[int]]
    next_block: Sequence[int | None]
    may_start: frozenset[int] | None = None
    """Tokens that a quotation may begin with (those that begin a word, say). None: all."""

    def token_at(self, place: TokenPlace) -> int:
        return self.tokens_by_block[place[0]][place[1]]

    def after(self, place: TokenPlace) -> TokenPlace | None:
        """The place after `place`, also across the border to a block that continues this one."""
        block, row = place
        if row + 1 < len(self.tokens_by_block[block]):
            return block, row + 1
        following = self.next_block[block]
        return (following, 0) if following is not None and len(self.tokens_by_block[following]) else None


@dataclass
class QuoteCursor:
    """The state of constrained decoding: where the quotation so far occurs."""

    source: QuoteSource
    places: list[TokenPlace] | None = None
    """Places of the last token quoted; None before the first."""

    def allowed(self) -> dict[int, list[TokenPlace]]:
        """Tokens that continue the quotation (or begin it), each with its places."""
        if self.places is None:
            return self._starts
        following: dict[int, list[TokenPlace]] = defaultdict(list)
        for place in self.places:
            if (after := self.source.after(place)) is not None:
                following[self.source.token_at(after)].append(after)
        return following

    def advance(self, token: int) -> TokenPlace:
        """Quote one more token; returns the first place where it occurs; a longer quotation may rule it out."""
        self.places = self.allowed()[token]
        return self.places[0]

    @cached_property
    def _starts(self) -> dict[int, list[TokenPlace]]:
        starts: dict[int, list[TokenPlace]] = defaultdict(list)
        for block, tokens in enumerate(self.source.tokens_by_block):
            for row, token in enumerate(tokens):
                if self.source.may_start is None or token in self.source.may_start:
                    starts[token].append((block, row))
        return starts


@lru_cache(maxsize=1)  # listing a vocabulary takes longer than reading a question
def word_starts(tokenizer: Any) -> frozenset[int] | None:
    """Tokens that begin a word, for quotations to begin with; None if the tokenizer does not mark them."""
    vocabulary = tokenizer.get_vocab()
    starts = frozenset(token for text, token in vocabulary.items() if len(text) > 1 and text[0] in "Ġ▁")
    return starts if len(starts) > len(vocabulary) // 20 else None
