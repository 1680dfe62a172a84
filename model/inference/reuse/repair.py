"""Which tokens of assembled segments are computed again, now that the question and the neighbours are known.

A share r of the tokens: the first of each segment, where attention rests, and those that the question attends to most
(as ProphetKV chooses them, arXiv 2602.02579), one choice for all layers. r = 0 reads what is stored, r = 1 reads the
whole prompt again.

Axes: Q tokens of the question, K rows, S segments, J recomputed rows.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from model.errors import ModelError
from model.inference.reuse.assembled_text import AssembledText, Fed

FIRST_TOKENS = 8
"""Of each segment, at most; and at most half of what is repaired."""


def read_question(text: AssembledText, question_ids: Sequence[int], share: float) -> Fed:
    """Repair a share of the segments' tokens and read the question. Raises `ModelError` for a share outside 0..1."""
    if not 0 <= share <= 1:
        raise ModelError(f"the repaired share is {share}; it must be between 0 and 1.")
    context = text.context
    count = math.ceil(share * (context.stop - context.start)) if text.segments else 0
    if share == 1 and count:
        text.read_again()
    elif count:
        glance = text.feed(question_ids)
        text.forget_fed()
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
