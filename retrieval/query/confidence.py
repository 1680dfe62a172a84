"""Confidence in what search found, and the thresholds that decide between an answer, a guess and a refusal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from model.checkpoint.config import LandmarkConfig
from model.reading.doubt import Signs
from model.reading.second_look import SecondLook
from retrieval.index.exact import Ranking
from retrieval.types.defaults import Outcome

# Below this many blocks the confidence of a search by landmarks says nothing.
FEW_BLOCKS = 16
_COMPARED = 8  # blocks among which the best should stand out


def confidence_of(ranking: Ranking, in_scope: int) -> float:
    """Chance that none of so many unrelated blocks would score as high as the best block does: near 1 for a real match.

    Unrelated scores are taken as normal, with the mean and spread of the whole memory; the calibrated threshold makes
    up for the error in that. 0 for an empty memory.
    """
    if not len(ranking.logits) or ranking.spread == 0:
        return 0.0
    z = (float(ranking.logits[0]) - ranking.mean) / ranking.spread
    return (0.5 * math.erfc(-z / math.sqrt(2))) ** in_scope


def sureness(scores: Sequence[float], sentences: Sequence[float]) -> float:
    """How far the best of the found blocks and sentences stand out: the best block's score, plus its lead over the
    eighth, plus the lead of the best sentence over the next. Both best first.

    Chosen on questions about held-out articles (`benchmarks/quality/doubt.py`): it tells right answers from
    wrong ones and from answers to questions about other articles, which the best score alone hardly does.
    """
    if not scores:
        return 0.0
    ahead = scores[0] - scores[min(_COMPARED, len(scores)) - 1]
    apart = sentences[0] - sentences[1] if len(sentences) > 1 else 0.0
    return scores[0] + ahead + apart


def is_answerable(config: LandmarkConfig, confidence: float, in_scope: int) -> bool:
    """Whether the confidence reaches the checkpoint's threshold. A handful of landmarks gives nothing to compare with:
    then the model decides."""
    threshold, comparing = config.answer_threshold, not config.ranks_by_tokens
    return threshold is None or (comparing and in_scope < FEW_BLOCKS) or confidence >= threshold


def outcome_of_reading(look: SecondLook, signs: Signs) -> Outcome:
    """What the second look says, weighed with how well search matched where the reader was calibrated with it."""
    doubt = look.doubt
    if doubt is not None:
        absent, sure = doubt.chance_of_none(signs) >= doubt.none_above, doubt.chance_of_right(signs) >= doubt.sure_above
    else:
        absent, sure = signs.not_here >= look.absent_above, signs.chance >= look.sure_above
    return "not_found" if absent else "found" if sure else "perhaps"


def outcome_of(config: LandmarkConfig, sure: float, in_scope: int) -> Outcome:
    """Whether an answer that was given is more than a guess."""
    comparing = not config.ranks_by_tokens
    if config.sure_threshold is None or (comparing and in_scope < FEW_BLOCKS):
        return "found"
    return "found" if sure >= config.sure_threshold else "perhaps"
