"""Micro-batches of the retriever and of the span head, as their losses take them.

Axes: R rows, T tokens, N blocks, J raw tokens in a block, L tokens in a block (landmark last), Q questions, C blocks
shown to a question, E width of a key (all heads laid end to end).
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class DistillationBatch:
    """One micro-batch; every tensor on the block grid, padding on the right."""

    ids_RT: Tensor
    valid_RT: Tensor
    states_RTE: Tensor
    """The encoder's states by token; 0 where it has none (landmarks, blanks, padding)."""
    pooled_NE: Tensor
    """The encoder's mean state by block, 0 for empty blocks."""
    titles_RT: Tensor
    """The title of the row's document, behind an opening (`model.inference.titles`)."""
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
    unanswerable_Q: Tensor
    """True where the passage of the question does not answer it."""
    gold_masked_Q: Tensor
    """True where the span head is not shown the gold blocks, to learn what that looks like."""


@dataclass(frozen=True)
class SpanBatch:
    """One micro-batch of the span head."""

    keys_QCLE: Tensor
    valid_QCL: Tensor
    queries_QTE: Tensor
    question_mask_QT: Tensor
    span_queries_Q2E: Tensor
    target_mask_Q2CL: Tensor
    """Where the answer begins and ends, each time that it stands in the gold passage."""
    ignored_QCL: Tensor
    """The same words elsewhere: neither right nor wrong."""
    no_answer_Q: Tensor
    """The answer stands in none of the blocks."""
