"""Documents -> rows on the block grid, with targets. Where landmarks stand and what they predict follows
docs/landmark-attention.md, sections 2 and 3.

- A row is N raw tokens of the stream of documents, joined by end-of-text; landmarks come on top, after every
  `block_size - 1` raw ones.
- Every row starts a block. (lm_benchmark cuts its windows anywhere; ours start at a block border, since training
  attention is a grid.)
- Both sources are `Batches`: they say where they stand, and go on there after a kill.

Axes: B rows, T tokens with landmarks, N raw tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from research.train.data.documents import read_documents

IGNORED = -100
"""Target of a position that is not trained; the value that torch's cross-entropy skips."""

TargetRule = Literal["all", "skip-landmarks", "lm-benchmark"]
"""all: the next token, landmarks included, as input and as target (the published LLaMA fine-tuning,
include_landmark_in_loss).
skip-landmarks: landmarks predict nothing and are not predicted; the last raw token of a block predicts the first of the
next.
lm-benchmark: the same, and an end-of-text token predicts nothing either."""


@dataclass(frozen=True)
class Grid:
    """How raw tokens become rows of a model."""

    raw_tokens: int  # N
    block_size: int  # with the landmark
    landmark_token_id: int
    targets: TargetRule = "all"
    landmark_at_end: bool = (
        False  # whether a full last block gets its landmark (the published plain path: no, fused path: yes)
    )
    eos_token_id: int | None = None

    def __post_init__(self) -> None:
        if self.raw_tokens < 2 or self.block_size < 2:
            raise ValueError("A row needs at least 2 raw tokens, and a block a token and its landmark.")
        if self.targets not in ("all", "skip-landmarks", "lm-benchmark"):
            raise ValueError(f"targets is {self.targets!r}; choose all, skip-landmarks or lm-benchmark.")
        if self.targets == "lm-benchmark" and self.eos_token_id is None:
            raise ValueError("targets='lm-benchmark' needs eos_token_id.")

    @property
    def row_tokens(self) -> int:
        """T: tokens of a row with its landmarks."""
        finished = (self.raw_tokens if self.landmark_at_end else self.raw_tokens - 1) // self.tokens_per_block
        return self.raw_tokens + finished

    @property
    def tokens_per_block(self) -> int:
        """Raw tokens of a block."""
        return self.block_size - 1


@dataclass(frozen=True)
class Rows:
    """A micro-batch: ids with landmarks, and the target of each position (IGNORED where nothing is trained)."""

    ids_BT: Tensor
    targets_BT: Tensor

    @property
    def num_targets(self) -> int:
        return int((self.targets_BT != IGNORED).sum())


def pack(raw_BN: NDArray[np.integer], grid: Grid) -> Rows:
    """Rows of raw tokens on the grid. Raises ValueError if the text already holds a landmark."""
    if (raw_BN == grid.landmark_token_id).any():
        raise ValueError(
            "The text contains the landmark token, which only the block grid may place; tokenize it as plain text."
        )
    num_raw = raw_BN.shape[1]
    raw_index_N = np.arange(num_raw)
    ids_BT = np.full((len(raw_BN), grid.row_tokens), grid.landmark_token_id, dtype=np.int64)
    ids_BT[:, raw_index_N + raw_index_N // grid.tokens_per_block] = raw_BN
    ids = torch.from_numpy(ids_BT)
    return Rows(ids, next_token_targets(ids, grid))


def next_token_targets(ids_BT: Tensor, grid: Grid) -> Tensor:
    """Targets by the grid's rule; the last token of a row predicts nothing."""
    targets_BT = torch.full_like(ids_BT, IGNORED)
    targets_BT[:, :-1] = ids_BT[:, 1:]
    if grid.targets == "all":
        return targets_BT
    landmark_BT = ids_BT == grid.landmark_token_id
    after_next_BT = torch.full_like(ids_BT, IGNORED)
    after_next_BT[:, :-2] = ids_BT[:, 2:]
    targets_BT = torch.where(targets_BT == grid.landmark_token_id, after_next_BT, targets_BT)
    untrained_BT = landmark_BT if grid.targets == "skip-landmarks" else landmark_BT | (ids_BT == grid.eos_token_id)
    return targets_BT.masked_fill(untrained_BT, IGNORED)


class TokenRows:
    """Rows of a token array (for instance a memory-mapped file), in an order shuffled anew in every epoch.

    The position is one number; any row can be drawn at once.
    """

    def __init__(self, tokens: NDArray[np.integer], grid: Grid, *, rows: int, seed: int = 0) -> None:
        self._tokens, self._grid, self._rows, self._seed = tokens, grid, rows, seed
        self.num_rows = len(tokens) // grid.raw_tokens
        if self.num_rows < 1:
            raise ValueError(
                f"{len(tokens)} tokens do not fill one row of {grid.raw_tokens}; give more text or shorter rows."
            )
        self._next = 0
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def __iter__(self) -> Iterator[Rows]:
        while True:
            first, self._next = self._next, self._next + self._rows
            yield pack(np.stack([self._row(number) for number in range(first, first + self._rows)]), self._grid)

    def _row(self, number: int) -> NDArray[np.integer]:
        epoch, place = divmod(number, self.num_rows)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.arange(self.num_rows)
            np.random.default_rng((self._seed, epoch)).shuffle(self._order)
        start = int(self._order[place]) * self._grid.raw_tokens
        return np.asarray(self._tokens[start : start + self._grid.raw_tokens])

    def state(self) -> dict[str, Any]:
        return {"row": self._next}

    def load_state(self, state: dict[str, Any]) -> None:
        self._next = int(state["row"])


class StreamedRows:
    """Rows straight from text files, tokenized as they come, the files over and over; nothing is stored.

    The position is file, document and the raw tokens that do not fill a row yet. Resuming reads the current file again
    up to the
    document, without tokenizing it.
    """

    def __init__(
        self,
        files: Sequence[Path],
        tokenize: Callable[[str], Sequence[int]],
        grid: Grid,
        *,
        rows: int,
        eos_token_id: int,
    ) -> None:
        if not files:
            raise ValueError("No text files to train on.")
        self._files, self._tokenize, self._grid, self._rows, self._eos = list(files), tokenize, grid, rows, eos_token_id
        self._file = self._document = 0
        self._rest: list[int] = []

    def __iter__(self) -> Iterator[Rows]:
        empty_files = 0
        while True:
            yield from self._full_rows()  # a resumed position may hold rows already
            skipped, drawn = self._document, False
            for number, text in enumerate(read_documents(self._files[self._file])):
                if number < skipped:
                    continue
                self._rest.extend((*self._tokenize(text), self._eos))
                self._document, drawn = number + 1, True
                yield from self._full_rows()
            empty_files = 0 if drawn or skipped else empty_files + 1
            if empty_files == len(self._files):
                raise ValueError("The text files hold no documents.")
            self._file, self._document = (self._file + 1) % len(self._files), 0

    def _full_rows(self) -> Iterator[Rows]:
        needed = self._rows * self._grid.raw_tokens
        while len(self._rest) >= needed:
            row = np.asarray(self._rest[:needed], dtype=np.int64).reshape(self._rows, -1)
            self._rest = self._rest[needed:]
            yield pack(row, self._grid)

    def state(self) -> dict[str, Any]:
        return {"file": self._file, "document": self._document, "rest": list(self._rest)}

    def load_state(self, state: dict[str, Any]) -> None:
        self._file, self._document, self._rest = int(state["file"]), int(state["document"]), list(state["rest"])
