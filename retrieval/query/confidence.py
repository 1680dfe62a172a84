"""Confidence in what search found, and the thresholds that decide between an answer, a guess and a refusal."""

from __future__ import annotations

import math

from model.checkpoint.config import LandmarkConfig
from retrieval.index.exact import Ranking
from retrieval.types.defaults import Outcome

# Below this many blocks the confidence of a search by landmarks says nothing.
FEW_BLOCKS = 16


def confidence_of(ranking: Ranking, in_scope: int) -> float:
    """Chance that none of so many unrelated blocks would score as high as the best block does: near 1 for a real match.

    Unrelated scores are taken as normal, with the mean and spread of the whole memory; the calibrated threshold makes
    up for the error in that. 0 for an empty memory.
    """
    if not len(ranking.logits) or ranking.spread == 0:
        return 0.0
    z = (float(ranking.logits[0]) - ranking.mean) / ranking.spread
    return (0.5 * math.erfc(-z / math.sqrt(2))) ** in_scope


def outcome_of(config: LandmarkConfig, confidence: float, in_scope: int) -> Outcome:
    """What the checkpoint's thresholds say. A handful of landmarks gives nothing to compare with: then the model
    decides whether there is an answer."""
    if not config.ranks_by_tokens and in_scope < FEW_BLOCKS:
        return "found"
    if config.answer_threshold is not None and confidence < config.answer_threshold:
        return "not_found"
    return "perhaps" if config.sure_threshold is not None and confidence < config.sure_threshold else "found"
