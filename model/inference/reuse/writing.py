"""Decoding behind an assembled text, with the attention that each token paid to each segment.

Axes: V vocabulary.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal

import torch

from model.inference.reuse.assembled_text import AssembledText, Fed
from model.inference.sampling import Sampling, TextStream, pick

Ending = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, eq=False)
class TextPiece:
    """One token of the answer, or (without id) text that was held back."""

    id: int | None
    text: str
    """Text that became final with this token."""
    logprob: float | None
    """Natural logarithm of its probability, before temperature."""
    segment_mass: tuple[float, ...]
    """Share of attention on each segment when it was chosen: the mean over layers and heads."""


def write_answer(
    text: AssembledText, fed: Fed, sampling: Sampling, cancelled: Callable[[], bool] = lambda: False
) -> Generator[TextPiece, None, Ending]:
    """The answer's tokens, until one of the checkpoint's stop tokens, `sampling.max_tokens`, or `cancelled()`.

    fed: the result of `read_question`. Returns how it ended.
    """
    model, random = text.model, torch.Generator().manual_seed(sampling.seed)
    stream = TextStream(model.decode, sampling.stop)
    ending: Ending = "length"
    for count in range(1, sampling.max_tokens + 1):
        if cancelled():
            ending = "cancelled"
            break
        logprobs_V = model.logits(fed.hidden_QE[-1]).log_softmax(-1)
        token, logprob = pick(logprobs_V, sampling, random)
        mass = tuple(text.mass_by_segment(fed.mass_QK[-1]))
        if token in model.stop_ids:
            ending = "stop"
            break
        piece, stopped = stream.add(token)
        yield TextPiece(token, piece, logprob, mass)
        if stopped:
            return "stop"
        if count < sampling.max_tokens:
            fed = text.feed([token])
    if rest := stream.flush():
        yield TextPiece(None, rest, None, (0.0,) * len(text.segments))
    return ending
