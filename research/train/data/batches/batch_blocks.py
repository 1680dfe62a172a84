"""The blocks of a micro-batch: which tokens of which documents they hold, and which of them answer a question.

Axes: R rows, W blocks of a row, N blocks (R x W), J raw tokens of a block, L with its landmark, Q questions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.attention.block_grid import on_block_grid
from model.checkpoint.config import LandmarkConfig
from research.train.data.examples import TokenQuestion, places_of

EMPTY = -1
"""Document of an empty block."""


def block_grid_rows(
    rows: Sequence[NDArray[np.integer]], blocks: int, config: LandmarkConfig
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """`on_block_grid` of rows of raw tokens in W = `blocks` blocks each."""
    raw = [ids.tolist() for ids in rows]
    ids_RWL, valid_RWL, _ = on_block_grid(
        raw, blocks, block_size=config.block_size, landmark_token_id=config.landmark_token_id
    )
    return ids_RWL.numpy(), valid_RWL.numpy()


@dataclass(frozen=True)
class BatchBlocks:
    """Blocks of a micro-batch, row after row."""

    document_N: NDArray[np.int64]
    first_N: NDArray[np.int64]
    """Place of the block's first token in its document."""
    tokens_NJ: NDArray[np.int64]

    def spans(self, questions: Sequence[TokenQuestion], blocks_per_row: int) -> NDArray[np.int64]:
        """spans_Q2: first and last answer token as places in the flattened N x J tokens; -1 where unknown or not in
        one row."""
        per_block = self.tokens_NJ.shape[1]
        spans = np.full((len(questions), 2), -1, np.int64)
        for row, question in enumerate(questions):
            for column, token in enumerate((question.start, question.stop - 1) if question.exact else ()):
                blocks = np.flatnonzero(self._holding(question.document, token, token + 1))
                if len(blocks):
                    spans[row, column] = blocks[0] * per_block + token - self.first_N[blocks[0]]
        rows = spans // (per_block * blocks_per_row)
        spans[(spans < 0).any(1) | (rows[:, 0] != rows[:, 1])] = -1
        return spans

    def marks(
        self, questions: Sequence[TokenQuestion], title_of: Callable[[int], int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """gold_QN; elsewhere_QNJ, tokens that repeat the answer in any place; ignored_QN, neither right nor wrong.

        Other blocks that repeat an answer may be right too. If the answer is not known word for word, or does not
        stand whole in a block, that holds for all blocks of other documents with the same title.
        """
        gold, ignored = (np.zeros((len(questions), len(self.document_N)), bool) for _ in range(2))
        elsewhere = np.zeros((len(questions), *self.tokens_NJ.shape), bool)
        title_N = np.array([title_of(int(document)) for document in self.document_N])
        for row, question in enumerate(questions):
            ignored[row] = self.document_N == EMPTY
            if not question.answerable:
                continue
            gold[row] = self._holding(question.document, question.start, question.stop)
            answer = self._answer(question) if question.exact else None
            if answer is None:
                ignored[row] |= (title_N == title_of(question.document)) & (self.document_N != question.document)
                continue
            for block, token in places_of(answer, self.tokens_NJ):
                elsewhere[row, block, token : token + len(answer)] = True
            ignored[row] |= elsewhere[row].any(1) & ~gold[row]
        return gold, elsewhere, ignored

    def _holding(self, document: int, start: int, stop: int) -> NDArray[np.bool_]:
        """Blocks with any of the tokens [start, stop) of a document."""
        last_N = self.first_N + self.tokens_NJ.shape[1]
        holding_N: NDArray[np.bool_] = (self.document_N == document) & (self.first_N < stop) & (last_N > start)
        return holding_N

    def _answer(self, question: TokenQuestion) -> NDArray[np.int64] | None:
        """The tokens of the answer, if one block holds all of them."""
        holds = (self.document_N == question.document) & (self.first_N <= question.start)
        blocks = np.flatnonzero(holds & (self.first_N + self.tokens_NJ.shape[1] >= question.stop))
        if not len(blocks):
            return None
        start = question.start - self.first_N[blocks[0]]
        return self.tokens_NJ[blocks[0], start : start + question.stop - question.start]
