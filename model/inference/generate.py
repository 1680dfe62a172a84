"""Decoding over a memory: token stream, sampling, stop strings, quotation; and the question asked alone.

A landmark is never emitted: the block grid places it. Attention of every forward pass is recorded
(`GeneratedToken.selections`).

Axes: B batch (1 here), H query heads, Q queries, D head dim, Y memory layers, V vocabulary, E hidden width.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from model.attention.memory import MemoryReader, Selection
from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel
from model.errors import ModelError
from model.inference.constrained_decoding import Place, QuoteCursor, QuoteSource
from model.inference.session import LandmarkSession, StepOutput

NO_TOKEN = -1


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen. temperature 0 is greedy; top_p keeps the smallest set of tokens with that much
    probability."""

    max_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    beams: int = 1
    """Quote mode only: quotations weighed as wholes before the first token is given; 1 is greedy."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer and are not part of it; the model's end-of-text token always does."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.temperature < 0 or not 0 < self.top_p <= 1 or self.beams < 1:
            raise ModelError("sampling needs max_tokens >= 1, temperature >= 0, 0 < top_p <= 1 and beams >= 1.")
        if any(not text for text in self.stop):
            raise ModelError("an empty stop string would end every answer at once; leave it out.")


@dataclass(frozen=True, eq=False)
class GeneratedToken:
    """One token of the answer; at its end possibly `NO_TOKEN`, which only brings text that was held back."""

    id: int
    text: str
    """Text that became final with this token; may be empty while a character or a possible stop string is
    unfinished."""
    logprob: float
    """Natural logarithm of its probability among all tokens (landmark excluded), before temperature."""
    selections: tuple[Selection, ...]
    """What attention read when it chose this token, one read a memory layer, one query."""
    quote: Place | None
    """Where it was copied from, in quote mode: the first place where the quotation up to here stands."""


def generate(
    model: LandmarkModel,
    prompt_ids: Sequence[int],
    *,
    memory: MemoryReader | None = None,
    policy: SelectionPolicy | None = None,
    sampling: Sampling | None = None,
    quote_from: QuoteSource | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    window_blocks: int | None = None,
    quotation: Sequence[Place] | None = None,
) -> Iterator[GeneratedToken]:
    """Answer a prompt of raw tokens, any length, over a memory.

    Under library positions the prompt and the answer form the local window; under paper positions the prompt is read
    in windows of `window_blocks` and may continue a `InMemoryReader`. The answer ends at a stop string, at the
    end-of-text token, after `sampling.max_tokens`, when nothing is left to quote, or when `cancelled()` says so
    between two tokens.
    """
    sampling = sampling or Sampling()
    stream = LandmarkSession(model, memory=memory, policy=policy or SelectionPolicy(), window_blocks=window_blocks)
    fed = stream.feed(prompt_ids)
    text = _TextStream(model, sampling.stop)
    cursor = QuoteCursor(quote_from) if quote_from is not None else None
    planned: list[tuple[int, Place]] | None = None
    if quote_from is not None and quotation is not None:
        planned = [(quote_from.token_at(place), place) for place in quotation]
    elif quote_from is not None and sampling.beams > 1:
        planned = _plan_quotation(model, stream, fed, quote_from, sampling, cancelled)
    random = torch.Generator().manual_seed(sampling.seed)
    for count in range(sampling.max_tokens):
        if cancelled():
            return
        logprobs_V, selections = _next(model, fed)
        token: int | None
        place: Place | None
        if planned is not None:
            token, place = planned[count] if count < len(planned) else (None, None)
        else:
            token, place = _choose(model, logprobs_V, sampling, cursor, random, started=count > 0)
        if token is None or token == model.tokenizer.eos_token_id:
            break
        piece, stopped = text.add(token)
        last = count + 1 == sampling.max_tokens
        yield GeneratedToken(
            token, piece + text.flush() if last and not stopped else piece, float(logprobs_V[token]), selections, place
        )
        if stopped or last:
            return
        fed = stream.feed([token])
    if rest := text.flush():
        yield GeneratedToken(NO_TOKEN, rest, 0.0, (), None)


def question_queries(model: LandmarkModel, prompt_ids: Sequence[int]) -> Tensor:
    """queries_YHQD of the prompt's raw tokens in the search frame, float32: the question encoded alone, reading
    nothing.

    The product of a query with an un-rotated landmark key is the landmark's logit under library positions.
    """
    ids = model.with_landmarks(prompt_ids)
    policy = SelectionPolicy()
    model.check_window(len(ids), policy)
    context = model.context(policy=policy)
    context.search_queries = {}
    with torch.no_grad():
        model.encode(torch.tensor([ids], device=model.device), context)
    raw = [row for row, token in enumerate(ids) if token != model.config.landmark_token_id]
    return torch.stack([context.search_queries[layer][0, :, raw].float() for layer in model.memory_layers])


def answer_logprob(
    model: LandmarkModel,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    *,
    memory: MemoryReader | None = None,
    policy: SelectionPolicy | None = None,
) -> Tensor:
    """Natural log-probability of each answer token after the prompt, the answer read in one pass. float32, on the
    CPU."""
    stream = LandmarkSession(model, memory=memory, policy=policy or SelectionPolicy())
    config = model.config
    fed = stream.feed(prompt_ids)
    hidden = [fed.hidden_TE[fed.next_row(config.landmark_in_loss)][None]]
    if len(answer_ids) > 1:
        more = stream.feed(answer_ids[:-1])
        hidden.append(more.hidden_TE[more.predicting_rows(config.landmark_in_loss)])
    logprobs = _logprobs(model, torch.cat(hidden))
    return logprobs.gather(-1, torch.tensor(list(answer_ids), device=model.device)[:, None])[:, 0].cpu()


@torch.no_grad()
def _logprobs(model: LandmarkModel, hidden: Tensor) -> Tensor:
    """Log-probabilities over the vocabulary without the landmark."""
    logits = model.logits(hidden).float()
    logits[..., model.config.landmark_token_id] = -torch.inf
    return logits.log_softmax(-1)


def _next(model: LandmarkModel, fed: StepOutput) -> tuple[Tensor, tuple[Selection, ...]]:
    row = fed.next_row(model.config.landmark_in_loss)
    return _logprobs(model, fed.hidden_TE[row]), tuple(one_query(read, row) for read in fed.selections[-1])


def one_query(read: Selection, row: int) -> Selection:
    """The part of a read that belongs to one query (row counted as in Python, negative from the end)."""
    batch, heads, queries, _ = read.gate_BHQS.shape
    ids, row = read.ids_BGXS, row % queries
    groups = ids.shape[1]
    if ids.shape[2] == heads * queries // groups:  # every token chose for itself
        ids = ids.unflatten(2, (-1, queries))[:, :, :, row]
    return replace(
        read, ids_BGXS=ids, gate_BHQS=read.gate_BHQS[:, :, row, None], local_BHQ=read.local_BHQ[:, :, row, None]
    )


def _choose(
    model: LandmarkModel,
    logprobs_V: Tensor,
    sampling: Sampling,
    cursor: QuoteCursor | None,
    random: torch.Generator,
    *,
    started: bool,
) -> tuple[int | None, Place | None]:
    """The next token and, in quote mode, its place; None when a quotation is at its end."""
    if cursor is None:
        return _pick(logprobs_V, sampling, random), None
    allowed = cursor.allowed()
    ends = _end_tokens(model, sampling) if started else []
    candidates = torch.tensor([*allowed, *(token for token in ends if token not in allowed)], device=logprobs_V.device)
    if not len(candidates):
        return None, None
    token = int(candidates[_pick(logprobs_V[candidates], sampling, random)])
    if token not in allowed:
        return None, None
    return token, cursor.advance(token)


LENGTH_POWER = 0.8
"""Quotations are compared by logprob / tokens ** LENGTH_POWER: 0 would favour the shortest, 1 the most predictable."""


def _plan_quotation(
    model: LandmarkModel,
    stream: LandmarkSession,
    fed: StepOutput,
    source: QuoteSource,
    sampling: Sampling,
    cancelled: Callable[[], bool],
) -> list[tuple[int, Place]]:
    """The most probable quotation, its end included, by beam search over what stands in the blocks."""
    ends = _end_tokens(model, sampling)
    logprobs_V, _ = _next(model, fed)
    starts = QuoteCursor(source).allowed()
    if not starts:
        return []
    tokens = torch.tensor(list(starts), device=logprobs_V.device)
    first = logprobs_V[tokens].topk(min(sampling.beams, len(tokens)))
    live: list[tuple[float, list[int], QuoteCursor]] = []
    for logprob, index in zip(first.values.tolist(), first.indices.tolist(), strict=True):
        token = int(tokens[index])
        live.append((logprob, [token], QuoteCursor(source, starts[token])))
    stream, best, best_score = stream.branch([0] * len(live)), live[0][1], -float("inf")
    for length in range(1, sampling.max_tokens + 1):
        if cancelled():
            break
        logprobs_BV = _logprobs(model, stream.feed_rows([ids[-1] for _, ids, _ in live])).cpu()
        grown: list[tuple[float, int, int, list[Place]]] = []
        for row, (total, ids, cursor) in enumerate(live):
            following = cursor.allowed()
            end = float(logprobs_BV[row, ends].max()) if ends else 0.0
            if (score := (total + end) / (length + 1) ** LENGTH_POWER) > best_score:
                best, best_score = ids, score
            grown += [(total + float(logprobs_BV[row, token]), row, token, at) for token, at in following.items()]
        grown = sorted(grown, key=lambda entry: -entry[0])[: sampling.beams]
        # A continuation that would lose even if it ended here for nothing cannot catch up token by token.
        grown = [entry for entry in grown if entry[0] / (length + 1) ** LENGTH_POWER > best_score]
        if not grown or length == sampling.max_tokens:
            break
        stream = stream.branch([row for _, row, _, _ in grown])
        live = [(total, [*live[row][1], token], QuoteCursor(source, at)) for total, row, token, at in grown]
    return list(zip(best, source.find(best), strict=True))


def _pick(logprobs: Tensor, sampling: Sampling, random: torch.Generator) -> int:
    if sampling.temperature == 0:
        return int(logprobs.argmax())
    probabilities = (logprobs / sampling.temperature).softmax(-1).cpu()
    ordered, order = probabilities.sort(descending=True, stable=True)
    keep = ordered.cumsum(-1) - ordered < sampling.top_p
    return int(order[torch.multinomial(ordered * keep, 1, generator=random)])


def _end_tokens(model: LandmarkModel, sampling: Sampling) -> list[int]:
    """Tokens that end an answer: end of text, and stop strings that are one token."""
    ends = [] if model.tokenizer.eos_token_id is None else [model.tokenizer.eos_token_id]
    for text in sampling.stop:
        ids = model.tokenize(text).ids
        ends += ids if len(ids) == 1 else []
    return ends


class _TextStream:
    """Text of a growing list of tokens, held back while a character or a possible stop string is unfinished."""

    def __init__(self, model: LandmarkModel, stop: tuple[str, ...]) -> None:
        self._model, self._stop = model, stop
        self._ids: list[int] = []
        self._given = 0

    def add(self, token: int) -> tuple[str, bool]:
        """(text now final, whether a stop string was reached)"""
        self._ids.append(token)
        text = self._model.decode(self._ids)
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            return self._take(text[: min(found)]), True
        keep = max((n for stop in self._stop for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        safe = text[: len(text) - keep]
        return self._take(safe.rstrip("\N{REPLACEMENT CHARACTER}")), False

    def flush(self) -> str:
        """What was held back when the answer ended otherwise."""
        return self._take(self._model.decode(self._ids))

    def _take(self, text: str) -> str:
        new, self._given = text[self._given :], max(self._given, len(text))
        return new
