"""How the next token is chosen from its probabilities, and how tokens become text.

Axes: V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen. temperature 0 is greedy; top_p keeps the smallest set of tokens of that probability."""

    max_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    """Texts that end the answer and are not part of it; the model's end-of-text token always does."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ModelError("sampling needs max_tokens >= 1, temperature >= 0 and 0 < top_p <= 1.")
        if any(not text for text in self.stop):
            raise ModelError("an empty stop string would end every answer at once; leave it out.")


def pick(logprobs_V: Tensor, sampling: Sampling, random: torch.Generator) -> int:
    """The next token."""
    if sampling.temperature == 0:
        return int(logprobs_V.argmax())
    probabilities = (logprobs_V / sampling.temperature).softmax(-1).cpu()
    ordered, order = probabilities.sort(descending=True, stable=True)
    keep = ordered.cumsum(-1) - ordered < sampling.top_p
    return int(order[torch.multinomial(ordered * keep, 1, generator=random)])


class TextStream:
    """Text of a growing list of tokens, held back while a character or a possible stop string is unfinished.

    decode: text of token ids, without special tokens.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: tuple[str, ...]) -> None:
        self._decode, self._stop = decode, stop
        self._ids: list[int] = []
        self._given = 0

    def add(self, token: int) -> tuple[str, bool]:
        """(text now final, whether a stop string was reached)"""
        self._ids.append(token)
        text = self._decode(self._ids)
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            return self._take(text[: min(found)]), True
        keep = max((n for stop in self._stop for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        safe = text[: len(text) - keep]
        return self._take(safe.rstrip("\N{REPLACEMENT CHARACTER}")), False

    def flush(self) -> str:
        """What was held back when the answer ended otherwise."""
        return self._take(self._decode(self._ids))

    def _take(self, text: str) -> str:
        new, self._given = text[self._given :], max(self._given, len(text))
        return new
