"""Decoding over a memory: token stream, sampling, stop strings, quotation.

A landmark is never emitted: the block grid places it. Attention of every forward pass is recorded
(`GeneratedToken.selections`).

Axes: Q queries, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.memory import MemoryReader, Selection
from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel, on_device
from model.inference.constrained_decoding import Place, QuoteCursor, QuoteSource
from model.inference.prompt import EncodedPrompt
from model.inference.sampling import Sampling, TextStream, pick
from model.inference.session import LandmarkSession, StepOutput

NO_TOKEN = -1


@dataclass(frozen=True, eq=False)
class GeneratedToken:
    """One token of the answer; the last may be `NO_TOKEN`, which only carries text that was held back."""

    id: int
    text: str
    """Text that became final with this token; empty while a character or a possible stop string is unfinished."""
    logprob: float
    """Natural logarithm of its probability among all tokens (landmark excluded), before temperature."""
    selections: tuple[Selection, ...]
    """What attention read to choose this token: one read per memory layer, of one query."""
    quote: Place | None
    """Where it was copied from, in quote mode: the first place where the quotation so far occurs."""


def generate(
    model: LandmarkModel,
    prompt: Sequence[int] | EncodedPrompt,
    *,
    memory: MemoryReader | None = None,
    policy: SelectionPolicy | None = None,
    sampling: Sampling | None = None,
    quote_from: QuoteSource | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    window_blocks: int | None = None,
) -> Iterator[GeneratedToken]:
    """Answer a prompt (raw tokens of any length, or already encoded) over a memory.

    Under library positions the prompt and the answer form the local window; under paper positions the prompt is read
    in windows of `window_blocks` and may continue a `TextMemory`. The answer ends at a stop string, at the end-of-text
    token, after `sampling.max_tokens`, when nothing is left to quote, or when `cancelled()` is true between two tokens.
    """
    sampling = sampling or Sampling()
    session = LandmarkSession(model, memory=memory, policy=policy or SelectionPolicy(), window_blocks=window_blocks)
    output = session.resume(prompt) if isinstance(prompt, EncodedPrompt) else session.feed(prompt)
    steps = _chosen_steps(model, session, output, sampling, QuoteCursor(quote_from) if quote_from else None)
    text = TextStream(model.decode, sampling.stop)
    for count in range(1, sampling.max_tokens + 1):
        if cancelled():
            return
        step = next(steps, None)
        if step is None or step.token == model.tokenizer.eos_token_id:
            break
        piece, stopped = text.add(step.token)
        last = count == sampling.max_tokens
        piece += text.flush() if last and not stopped else ""
        yield GeneratedToken(step.token, piece, step.logprob, step.selections, step.place)
        if stopped or last:
            return
    if rest := text.flush():
        yield GeneratedToken(NO_TOKEN, rest, 0.0, (), None)


def answer_logprob(
    model: LandmarkModel,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    *,
    memory: MemoryReader | None = None,
    policy: SelectionPolicy | None = None,
) -> Tensor:
    """Natural log-probability of each answer token after the prompt, choosing blocks as in `generate`.

    float32, on the CPU.
    """
    session = LandmarkSession(model, memory=memory, policy=policy or SelectionPolicy())
    output, logprobs = session.feed(prompt_ids), list[float]()
    rows = [output.next_row(model.config.landmark_in_loss)]
    while len(logprobs) < len(answer_ids):
        done = len(logprobs)
        logprobs_QV = _logprobs(model, output.hidden_TE[on_device(rows, model.device)])
        known_Q1 = on_device(answer_ids[done : done + len(rows)], model.device).unsqueeze(-1)
        logprobs += logprobs_QV.gather(-1, known_Q1).squeeze(-1).tolist()
        if rest := answer_ids[len(logprobs) - 1 : -1]:
            output = session.feed_apart(rest)
            rows = output.predicting_rows(model.config.landmark_in_loss)
    return torch.tensor(logprobs)


@dataclass(frozen=True, eq=False)
class _Step:
    """A token of the answer, with its probability and what was read to choose it."""

    token: int
    logprob: float
    selections: tuple[Selection, ...]
    place: Place | None = None


def _chosen_steps(
    model: LandmarkModel,
    session: LandmarkSession,
    output: StepOutput,
    sampling: Sampling,
    cursor: QuoteCursor | None,
) -> Iterator[_Step]:
    """One forward pass per token; ends where a quotation does."""
    random = torch.Generator().manual_seed(sampling.seed)
    started = False
    while True:
        row = output.next_row(model.config.landmark_in_loss)
        logprobs_V = _logprobs(model, output.hidden_TE[row])
        token, logprob, place = _choose(model, logprobs_V, sampling, cursor, random, started=started)
        if token is None:
            return
        yield _Step(token, logprob, output.selections_of(row), place)
        output, started = session.feed([token]), True


@torch.no_grad()
def _logprobs(model: LandmarkModel, hidden: Tensor) -> Tensor:
    """Log-probabilities over the vocabulary without the landmark."""
    logits = model.logits(hidden).float()
    logits[..., model.config.landmark_token_id] = -torch.inf
    return logits.log_softmax(-1)


def _choose(
    model: LandmarkModel,
    logprobs_V: Tensor,
    sampling: Sampling,
    cursor: QuoteCursor | None,
    random: torch.Generator,
    *,
    started: bool,
) -> tuple[int | None, float, Place | None]:
    """The next token with its log-probability and, in quote mode, its place; None at the end of a quotation."""
    if cursor is None:
        return *pick(logprobs_V, sampling, random), None
    logprobs_V = logprobs_V.cpu()  # once; what follows stays here
    allowed = cursor.allowed()
    ends = _end_tokens(model, sampling) if started else []
    candidates = [*allowed, *(token for token in ends if token not in allowed)]
    if not candidates:
        return None, 0.0, None
    chosen, logprob = pick(logprobs_V[torch.tensor(candidates)], sampling, random)
    token = candidates[chosen]
    if token not in allowed:
        return None, 0.0, None
    return token, logprob, cursor.advance(token)


def _end_tokens(model: LandmarkModel, sampling: Sampling) -> list[int]:
    """Tokens that end an answer: end of text, and stop strings that are one token."""
    ends = [] if model.tokenizer.eos_token_id is None else [model.tokenizer.eos_token_id]
    for text in sampling.stop:
        ids = model.tokenize(text).ids
        ends += ids if len(ids) == 1 else []
    return ends
