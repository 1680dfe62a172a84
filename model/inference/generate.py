"""Decoding over a memory: token stream, stop strings.

- A landmark is never emitted: the block grid places it. Attention of every forward pass is recorded
  (`GeneratedToken.selections`).
- Quoting: see `model.inference.constrained_decoding`.

Axes: Q queries, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.memory import MemoryReader, Selection
from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel, on_device
from model.errors import ModelError
from model.inference.constrained_decoding import QuoteCursor, QuoteSource, TokenPlace
from model.inference.prompt import EncodedPrompt
from model.inference.session import LandmarkSession


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How long an answer gets; its tokens are the likeliest ones."""

    max_tokens: int = 128
    stop: tuple[str, ...] = ()
    """Texts that end the answer and are not part of it; the model's end-of-text token always does."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ModelError(f"max_tokens is {self.max_tokens}; an answer needs at least 1.")
        if any(not text for text in self.stop):
            raise ModelError("an empty stop string would end every answer at once; leave it out.")


def likeliest(logprobs_V: Tensor) -> tuple[int, float]:
    """The next token with its log-probability. The host waits for the device once."""
    best = logprobs_V.argmax()
    token, logprob = torch.stack((best.double(), logprobs_V.gather(0, best[None])[0].double())).tolist()
    return int(token), logprob


class TextStream:
    """Text of a growing list of tokens, held back while a character or a possible stop string is unfinished.

    Only the tokens since the last finished character are decoded again, each time behind the tokens before them that
    finished it: many tokenizers treat the first token of a text differently.

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


NO_TOKEN = -1


@dataclass(frozen=True, eq=False)
class GeneratedToken:
    """One token of the answer; the last may be `NO_TOKEN`, which only carries text that was held back."""

    id: int
    text: str
    """Text that became final with this token; empty while a character or a possible stop string is unfinished."""
    logprob: float
    """Natural logarithm of its probability among all tokens (landmark excluded)."""
    selections: tuple[Selection, ...]
    """What attention read to choose this token: one read per memory layer, of one query."""
    quote: TokenPlace | None
    """Its source, in quote mode: the first place where the quotation so far occurs."""


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
    cursor = QuoteCursor(quote_from) if quote_from else None
    text = TextStream(model.decode, sampling.stop)
    token: int | None = None
    for count in range(1, sampling.max_tokens + 1):
        if cancelled():
            return
        if token is not None:
            output = session.feed([token])
        row = output.next_row(model.config.landmark_in_loss)
        logprobs_V = _logprobs(model, output.hidden_BTE[0, row])
        if cursor is None:
            (token, logprob), place = likeliest(logprobs_V), None
        else:
            token, logprob, place = _quoted(logprobs_V, cursor, [] if count == 1 else _end_tokens(model, sampling))
        if token is None or token == model.tokenizer.eos_token_id:
            break
        piece, stopped = text.add(token)
        last = count == sampling.max_tokens
        piece += text.flush() if last and not stopped else ""
        yield GeneratedToken(token, piece, logprob, output.selections_of(row), place)
        if stopped or last:
            return
    if rest := text.flush():
        yield GeneratedToken(NO_TOKEN, rest, 0.0, (), None)


def answer_logprobs(
    model: LandmarkModel,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    *,
    memory: MemoryReader | None = None,
    policy: SelectionPolicy | None = None,
) -> Tensor:
    """logprobs_BT: natural log-probability of each answer token after the prompt, choosing blocks as in `generate`; a
    row for each of the policy's `left_out`, or one.

    float32, on the CPU.
    """
    session = LandmarkSession(model, memory=memory, policy=policy or SelectionPolicy())
    output, done, found = session.feed(prompt_ids), 0, list[Tensor]()
    rows = [output.next_row(model.config.landmark_in_loss)]
    while done < len(answer_ids):
        logprobs_BQV = _logprobs(model, output.hidden_BTE[:, on_device(rows, model.device)])
        known_Q = on_device(answer_ids[done : done + len(rows)], model.device)
        known_BQ1 = known_Q.expand(len(logprobs_BQV), -1).unsqueeze(-1)
        found.append(logprobs_BQV.gather(-1, known_BQ1).squeeze(-1).cpu())
        done += len(rows)
        if rest := answer_ids[done - 1 : -1]:
            output = session.feed_apart(rest)
            rows = output.predicting_rows(model.config.landmark_in_loss)
    return torch.cat(found, 1)


@torch.no_grad()
def _logprobs(model: LandmarkModel, hidden: Tensor) -> Tensor:
    """Log-probabilities over the vocabulary without the landmark."""
    logits = model.logits(hidden).float()
    logits[..., model.config.landmark_token_id] = -torch.inf
    return logits.log_softmax(-1)


def _quoted(
    logprobs_V: Tensor, cursor: QuoteCursor, ends: Sequence[int]
) -> tuple[int | None, float, TokenPlace | None]:
    """The next token of a quotation with its log-probability and its place; None at the end, which `ends` mark."""
    logprobs_V = logprobs_V.cpu()  # once; what follows stays here
    allowed = cursor.allowed()
    candidates = [*allowed, *(token for token in ends if token not in allowed)]
    if not candidates:
        return None, 0.0, None
    chosen, logprob = likeliest(logprobs_V[torch.tensor(candidates)])
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
