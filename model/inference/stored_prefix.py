"""Passages that an ordinary checkpoint read once, assembled for a question from their stored keys and values.

prefix | segments, in sequence | input: the question, then the answer

- A segment holds the keys and values of a passage, computed behind the prefix that all passages share, before
  rotation. The prefix gives attention its sink: the beginning that it rests on in every text.
- Stored keys are rotated to the present positions of their tokens. They do not know the segments before them. So a
  share r of the tokens is recomputed with everything before them in view: the first tokens of each segment, where
  attention rests, and those that the question attends to most (as in ProphetKV, arXiv 2602.02579), the same for all
  layers. r = 0 reads what is stored, r = 1 reads the whole prompt again.
- Decoding records the attention that each token paid to each segment.

Axes: Y layers, G KV heads, T tokens, D head dim, Q tokens of a pass or of the question, K rows, E hidden width, S
segments, J recomputed rows, V vocabulary.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from model.attention.plain_attention import KeyRows, PlainContext
from model.attention.rotary import rotate
from model.checkpoint.chat_model import ChatModel
from model.errors import ModelError
from model.inference.generate import Sampling, TextStream, likeliest


@dataclass(frozen=True, eq=False)
class StoredSegment:
    """Tokens with the keys and values that the checkpoint computed for them behind the prefix, before rotation."""

    ids: tuple[int, ...]
    keys_YGTD: Tensor
    values_YGTD: Tensor


def read_prefix(model: ChatModel) -> StoredSegment:
    """The shared beginning of every prompt."""
    return read_segment(model, None, model.prefix_ids)


def read_segment(model: ChatModel, prefix: StoredSegment | None, ids: Sequence[int]) -> StoredSegment:
    """A passage of at least one token. Raises `ContextTooLong`."""
    before = 0 if prefix is None else len(prefix.ids)
    room = before + len(ids)
    rows = model.key_rows(room)
    if prefix is not None:
        _fill(model, rows, 0, prefix)
    written: list[tuple[Tensor, Tensor]] = []
    row_Q = torch.arange(before, room, device=model.device)
    model.run(ids, PlainContext(rows, row_Q, room, model.table, written=written))
    keys_YGTD, values_YGTD = (torch.stack([pair[which][0] for pair in written]) for which in (0, 1))
    return StoredSegment(tuple(ids), keys_YGTD, values_YGTD)


def _fill(model: ChatModel, rows: KeyRows, start: int, segment: StoredSegment) -> None:
    """Put stored keys and values into the rows from `start` on, the keys at their positions there."""
    place = slice(start, start + len(segment.ids))
    for layer in range(model.num_layers):
        keys_GTD = segment.keys_YGTD[layer].to(rows.keys_YBGKD)
        if model.rotates(layer):
            keys_GTD = rotate(keys_GTD, *(table[place] for table in model.table(layer)))
        rows.keys_YBGKD[layer, 0, :, place] = keys_GTD
        rows.values_YBGKD[layer, 0, :, place] = segment.values_YGTD[layer]


@dataclass(frozen=True, eq=False)
class PassOutput:
    """Of one pass."""

    hidden_QE: Tensor
    mass_QK: Tensor
    """Attention of each token on every row, the mean over layers and heads; rows sum to 1."""


class AssembledPrompt:
    """A prompt over stored segments, which grows by the question and the answer.

    segments: stored, or only their tokens, which then must be recomputed. room: tokens to be fed at most. Raises
    `ContextTooLong`.
    """

    def __init__(
        self,
        model: ChatModel,
        prefix: StoredSegment,
        segments: Sequence[StoredSegment | Sequence[int]],
        *,
        room: int,
    ) -> None:
        ids = [segment.ids if isinstance(segment, StoredSegment) else tuple(segment) for segment in segments]
        self.model = model
        self.segments: list[slice] = []
        """Rows of each segment."""
        self.ids = [*prefix.ids, *(token for tokens in ids for token in tokens)]
        self._rows = model.key_rows(len(self.ids) + room)
        start = len(prefix.ids)
        for tokens in ids:
            self.segments.append(slice(start, start + len(tokens)))
            start += len(tokens)
        self._length = self._context_stop = start
        _fill(model, self._rows, 0, prefix)
        for place, segment in zip(self.segments, segments, strict=True):
            if isinstance(segment, StoredSegment):
                _fill(model, self._rows, place.start, segment)

    def feed(self, ids: Sequence[int]) -> PassOutput:
        """Read more tokens, at least one."""
        start, stop = self._length, self._length + len(ids)
        mass_QK = torch.zeros((len(ids), stop), device=self.model.device)
        row_Q = torch.arange(start, stop, device=self.model.device)
        context = PlainContext(self._rows, row_Q, stop, self.model.table, mass_QK=mass_QK)
        hidden_QE = self.model.run(ids, context)
        self._length = stop
        return PassOutput(hidden_QE, mass_QK / (self.model.num_layers * self.model.num_heads))

    def rewind(self) -> None:
        """Go back to the end of the segments."""
        self._length = self._context_stop

    def read_again(self) -> None:
        """Recompute prefix and all segments in one pass."""
        assert self._length == self._context_stop
        row_Q = torch.arange(self._context_stop, device=self.model.device)
        context = PlainContext(self._rows, row_Q, self._context_stop, self.model.table, from_start=True)
        self.model.run(self.ids, context)

    def recompute(self, rows_J: Tensor) -> None:
        """Recompute these rows of the segments, ascending, in one pass. They see all rows before them; those that are
        not recomputed are as stored."""
        assert self._length == self._context_stop, "segments are recomputed before anything is fed"
        if len(rows_J):
            ids = [self.ids[row] for row in rows_J.tolist()]
            row_Q, num_rows = rows_J.to(self.model.device), int(rows_J[-1]) + 1
            self.model.run(ids, PlainContext(self._rows, row_Q, num_rows, self.model.table))

    def mass_by_segment(self, mass_K: Tensor) -> list[float]:
        """Shares of one token's attention on each segment."""
        summed_K = mass_K.cumsum(0).tolist()
        ends = [(place.start - 1, place.stop - 1) for place in self.segments]
        return [summed_K[last] - (summed_K[before] if before >= 0 else 0.0) for before, last in ends]


FIRST_TOKENS = 8
"""Of each segment, at most; and at most half of what is recomputed."""


def read_question(text: AssembledPrompt, question_ids: Sequence[int], share: float) -> PassOutput:
    """Recompute a share of the segments' tokens and read the question. Raises `ModelError` for a share outside 0..1."""
    if not 0 <= share <= 1:
        raise ModelError(f"the recomputed share is {share}; it must be between 0 and 1.")
    count = math.ceil(share * sum(place.stop - place.start for place in text.segments))
    if share == 1 and count:
        text.read_again()
    elif count:
        glance = text.feed(question_ids)
        text.rewind()
        text.recompute(chosen_rows(glance.mass_QK.sum(0), text.segments, count))
    return text.feed(question_ids)


def chosen_rows(mass_K: Tensor, segments: Sequence[slice], count: int) -> Tensor:
    """rows_J, ascending: `count` rows of the segments, by the question's attention mass_K and by their place."""
    most_first = min(FIRST_TOKENS, count // (2 * len(segments)))
    first = [row for place in segments for row in range(place.start, min(place.start + most_first, place.stop))]
    context = slice(segments[0].start, segments[-1].stop)
    rest_K = mass_K.clone()
    rest_K[first] = -1.0
    best = rest_K[context].topk(count - len(first)).indices.cpu() + context.start
    return torch.cat((torch.tensor(first, dtype=torch.long), best)).sort().values


Ending = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, eq=False)
class AnswerPiece:
    """One token of the answer, or (without id) text that was held back."""

    id: int | None
    text: str
    """Text that became final with this token."""
    logprob: float | None
    """Natural logarithm of its probability."""
    segment_mass: tuple[float, ...]
    """Share of attention on each segment when it was chosen: the mean over layers and heads."""


def write_answer(
    text: AssembledPrompt, output: PassOutput, sampling: Sampling, cancelled: Callable[[], bool] = lambda: False
) -> Generator[AnswerPiece, None, Ending]:
    """The answer's tokens, until one of the checkpoint's stop tokens, `sampling.max_tokens`, or `cancelled()`.

    output: that of `read_question`. Returns how it ended.
    """
    model = text.model
    stream = TextStream(model.decode, sampling.stop)
    ending: Ending = "length"
    for count in range(1, sampling.max_tokens + 1):
        if cancelled():
            ending = "cancelled"
            break
        logprobs_V = model.logits(output.hidden_QE[-1]).log_softmax(-1)
        token, logprob = likeliest(logprobs_V)
        mass = tuple(text.mass_by_segment(output.mass_QK[-1]))
        if token in model.stop_ids:
            ending = "stop"
            break
        piece, stopped = stream.add(token)
        yield AnswerPiece(token, piece, logprob, mass)
        if stopped:
            return "stop"
        if count < sampling.max_tokens:
            output = text.feed([token])
    if rest := stream.flush():
        yield AnswerPiece(None, rest, None, (0.0,) * len(text.segments))
    return ending
