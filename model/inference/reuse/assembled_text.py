"""A prompt put together from stored segments, and what is fed behind it.

prefix | segments, in sequence | what is fed: the question, then the answer

Stored keys are rotated to where their tokens stand now. What they cannot know is the segments before them: `recompute`
makes chosen tokens again, knowing everything before them, and `model.inference.reuse.repair` chooses them.

Axes: Q tokens of a pass, K rows, E hidden width, S segments, J recomputed rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.grouped_softmax import ContextGate
from model.attention.plain_attention import PlainContext
from model.checkpoint.chat.chat_model import ChatModel
from model.inference.reuse.segments import Segment, rotated


@dataclass(frozen=True, eq=False)
class Fed:
    """Result of one pass."""

    hidden_QE: Tensor
    mass_QK: Tensor
    """Attention of each token on every row, the mean over layers and heads; rows sum to 1."""


class AssembledText:
    """One growing text over stored segments.

    segments: stored, or only their tokens, which then must be recomputed. room: tokens that will be fed at most.
    parallel: all segments begin at the same position, as gated reading wants it, instead of in sequence.
    Raises `ContextTooLong`.
    """

    def __init__(
        self,
        model: ChatModel,
        prefix: Segment,
        segments: Sequence[Segment | Sequence[int]],
        *,
        room: int,
        parallel: bool = False,
        gate: tuple[float, float] | None = None,
        between_layers: Callable[[], None] | None = None,
    ) -> None:
        ids = [segment.ids if isinstance(segment, Segment) else tuple(segment) for segment in segments]
        self.model = model
        self.segments: list[slice] = []
        """Rows of each segment."""
        self.ids = [*prefix.ids, *(token for tokens in ids for token in tokens)]
        self._rows = model.key_rows(len(self.ids) + room)
        self._between_layers, self._parallel = between_layers, parallel
        first = len(prefix.ids)
        self._rows.position_K[:first] = torch.arange(first)
        start, ends = first, [first]
        for tokens in ids:
            self.segments.append(slice(start, start + len(tokens)))
            position = first if parallel else start
            self._rows.position_K[start : start + len(tokens)] = torch.arange(position, position + len(tokens))
            ends.append(position + len(tokens))
            start += len(tokens)
        self._position = max(ends)
        self._length = self._context_stop = start
        self._gate = None if gate is None or start == first else ContextGate(first, start, *gate)
        self._fill(slice(0, first), prefix)
        for place, segment in zip(self.segments, segments, strict=True):
            if isinstance(segment, Segment):
                self._fill(place, segment)

    def _fill(self, place: slice, segment: Segment) -> None:
        """Put stored keys and values into their rows."""
        rows = self._rows
        for layer in range(self.model.num_layers):
            keys_GTD = segment.keys_YGTD[layer].to(rows.keys_YBGKD)
            rows.keys_YBGKD[layer, 0, :, place] = rotated(self.model, layer, keys_GTD, rows.position_K[place])
            rows.values_YBGKD[layer, 0, :, place] = segment.values_YGTD[layer]

    @property
    def context(self) -> slice:
        """Rows of all segments."""
        return slice(self.segments[0].start, self._context_stop) if self.segments else slice(self._context_stop, 0)

    def feed(self, ids: Sequence[int]) -> Fed:
        """Read more tokens, at least one."""
        start, stop = self._length, self._length + len(ids)
        self._rows.position_K[start:stop] = torch.arange(self._position, self._position + len(ids))
        mass_QK = torch.zeros((len(ids), stop), device=self.model.device)
        row_Q = torch.arange(start, stop, device=self.model.device)
        hidden_QE = self._run(ids, row_Q, stop, mass_QK=mass_QK, gate=self._gate)
        self._length, self._position = stop, self._position + len(ids)
        return Fed(hidden_QE, mass_QK / (self.model.num_layers * self.model.num_heads))

    def forget_fed(self) -> None:
        """Go back to the end of the segments."""
        self._position -= self._length - self._context_stop
        self._length = self._context_stop

    def read_again(self) -> None:
        """Read prefix and segments in one pass, whatever was stored of them."""
        assert self._length == self._context_stop and not self._parallel
        rows = torch.arange(self._context_stop, device=self.model.device)
        self._run(self.ids, rows, self._context_stop, from_start=True)

    def recompute(self, rows_J: Tensor) -> None:
        """Make these rows of the segments again, ascending, in one pass: their keys and values know all rows before
        them, which are as stored where they are not recomputed too."""
        assert self._length == self._context_stop, "segments are repaired before anything is fed"
        if len(rows_J):
            ids = [self.ids[row] for row in rows_J.tolist()]
            self._run(ids, rows_J.to(self.model.device), int(rows_J[-1]) + 1)

    def _run(
        self,
        ids: Sequence[int],
        row_Q: Tensor,
        num_rows: int,
        *,
        mass_QK: Tensor | None = None,
        gate: ContextGate | None = None,
        from_start: bool = False,
    ) -> Tensor:
        return self.model.run(
            ids,
            PlainContext(
                self._rows,
                row_Q,
                num_rows,
                self.model.table,
                gate=gate,
                mass_QK=mass_QK,
                between_layers=self._between_layers,
                from_start=from_start,
            ),
        )

    def mass_by_segment(self, mass_K: Tensor) -> list[float]:
        """Shares of one token's attention on each segment."""
        summed_K = mass_K.cumsum(0).tolist()
        ends = [(place.start - 1, place.stop - 1) for place in self.segments]
        return [summed_K[last] - (summed_K[before] if before >= 0 else 0.0) for before, last in ends]
