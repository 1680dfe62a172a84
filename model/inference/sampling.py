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


def pick(logprobs_V: Tensor, sampling: Sampling, random: torch.Generator) -> tuple[int, float]:
    """The next token with its log-probability. The host waits for the device once."""
    if sampling.temperature == 0:
        best = logprobs_V.argmax()
        token, logprob = torch.stack((best.double(), logprobs_V.gather(0, best[None])[0].double())).tolist()
        return int(token), logprob
    logprobs_V = logprobs_V.cpu()
    probabilities = (logprobs_V / sampling.temperature).softmax(-1)
    ordered, order = probabilities.sort(descending=True, stable=True)
    keep = ordered.cumsum(-1) - ordered < sampling.top_p
    token = int(order[torch.multinomial(ordered * keep, 1, generator=random)])
    return token, float(logprobs_V[token])


class TextStream:
    """Text of a growing list of tokens, held back while a character or a possible stop string is unfinished.

    A token is decoded with those since the last finished character, and behind the ones that finished it, since many
    tokenizers treat the first token of a text in a way of its own; never again with all tokens before it.

    decode: text of token ids, without special tokens.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: tuple[str, ...]) -> None:
        self._decode, self._stop = decode, stop
        self._ids: list[int] = []
        self._behind = 0  # of these ids, so many are done with and only stand before the others
        self._held = ""  # text of tokens that are done with, not given out
        self._given = 0  # characters of `_held` and the unfinished text that were given out

    def add(self, token: int) -> tuple[str, bool]:
        """(text now final, whether a stop string was reached)"""
        self._ids.append(token)
        new = self._unfinished()
        text = self._held + new
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            return self._take(text, min(found)), True
        whole = text.rstrip("\N{REPLACEMENT CHARACTER}")
        keep = max((n for stop in self._stop for n in range(1, len(stop)) if whole.endswith(stop[:n])), default=0)
        piece = self._take(text, len(whole) - keep)
        if new and not new.endswith("\N{REPLACEMENT CHARACTER}"):
            self._ids = self._ids[self._behind :]
            self._behind, self._held, self._given = len(self._ids), text[self._given :], 0
        return piece, False

    def flush(self) -> str:
        """What was held back when the answer ended otherwise."""
        text = self._held + self._unfinished()
        return self._take(text, len(text))

    def _unfinished(self) -> str:
        before = self._decode(self._ids[: self._behind]) if self._behind else ""
        return self._decode(self._ids)[len(before) :]

    def _take(self, text: str, end: int) -> str:
        piece, self._given = text[self._given : end], max(self._given, end)
        return piece
