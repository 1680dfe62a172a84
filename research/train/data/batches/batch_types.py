"""Micro-batches, as their losses take them.

Axes: R rows, T tokens, N blocks, J raw tokens in a block, L tokens in a block (landmark last), Q questions, C blocks
shown to a question, E width of a key (all heads laid end to end).
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class TensorBatch:
    """A record of tensors (and sizes)."""

    def to(self, device: torch.device) -> Self:
        """The same batch with every tensor on this device."""
        return replace(self, **{name: x.to(device) for name, x in vars(self).items() if isinstance(x, Tensor)})


@dataclass(frozen=True)
class DistillationBatch(TensorBatch):
    """One micro-batch; every tensor on the block grid, padding on the right."""

    ids_RT: Tensor
    valid_RT: Tensor
    states_RTE: Tensor
    """The encoder's states by token; 0 where it has none (landmarks, blanks, padding)."""
    pooled_NE: Tensor
    """The encoder's mean state by block, 0 for empty blocks."""
    titles_RT: Tensor
    """The title of the row's document, behind an opening (`model.inference.prefill`)."""
    title_mask_RT: Tensor
    """True at tokens of the title itself; nowhere if there is none."""
    question_ids_QT: Tensor
    question_mask_QT: Tensor
    """True at tokens of the question itself, False in the prompt around it and at padding."""
    question_states_QTE: Tensor
    gold_QN: Tensor
    ignored_QN: Tensor
    """Blocks that are neither right nor wrong: empty, or perhaps an answer, too."""
    spans_Q2: Tensor
    """First and last token of the answer, as places in all blocks' raw tokens; -1 where unknown."""
    sentence_NJ: Tensor
    """Number of the sentence that a raw token belongs to; -1 in none that can be an answer."""
    elsewhere_QNJ: Tensor
    """True at raw tokens that give the answer in another place: neither right nor wrong."""


@dataclass(frozen=True)
class QuestionBatch(TensorBatch):
    """Rows of blocks and questions about them. `asked`: prompt alone; `window`: prompt and answer; all on the block
    grid, padded on the right."""

    ids_RT: Tensor
    valid_RT: Tensor
    blocks_per_row: int
    asked_QT: Tensor
    asked_mean_QT: Tensor
    """1 / (number of question tokens) at question tokens, 0 elsewhere."""
    window_QT: Tensor
    targets_QT: Tensor
    gold_QN: Tensor
    """True where a block overlaps the gold span."""
    ignored_QN: Tensor
    """Blocks that are neither right nor wrong: the same title in another document, text without gold."""
    reads_Q: Tensor
    """Whether the answer of this question is learned."""
