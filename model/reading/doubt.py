"""How far to believe a second look: what the reader says and how well search matched, weighed together.

The reader's "not here" rises with a question that is worded unlike its training, search's score with any text on the
same subject; together they tell more than either alone, and so do words of the question that stand in nothing that was
found. Two logistic regressions of three figures and two thresholds, fitted on questions with and without an answer
(benchmarks/quality/doubt_weights.py); they belong to one reader and one finder, whose scores they weigh.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

_SMALLEST = 1e-5


@dataclass(frozen=True)
class Signs:
    """What is known of an answer: the reader's chances of "not here" and of the sentence quoted, and the
    late-interaction scores of the best block and of that sentence; the share of the question's words that no block
    found holds."""

    not_here: float
    chance: float
    block: float
    sentence: float
    unmatched: float


@dataclass(frozen=True)
class Doubt:
    """`none`: constant, and weights of the log-odds of "not here", of the block's score and of the unmatched words, for
    the chance that there is no answer. `right`: constant, and weights of the log-odds of "not here", the logarithm of
    the sentence's chance and the sentence's score, for the chance that the sentence is right. Both with as many
    questions of either kind."""

    none: tuple[float, float, float, float]
    right: tuple[float, float, float, float]
    none_above: float
    """Chance of no answer from which none is given."""
    sure_above: float
    """Chance of being right below which an answer is a guess."""

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Doubt:
        """Raises ValueError for anything else than `doubt` of a reader's config.json."""
        try:
            none, right = (tuple(map(float, given[name])) for name in ("none", "right"))  # type: ignore[call-overload]
            above = (float(given[name]) for name in ("none_above", "sure_above"))  # type: ignore[arg-type]
            made = cls(none, right, *above)
        except (KeyError, TypeError) as error:
            raise ValueError(f"its doubt is incomplete: {error}") from error
        if (len(made.none), len(made.right)) != (4, 4):
            raise ValueError("its doubt has another number of weights; fit them anew (doubt_weights.py)")
        return made

    def chance_of_none(self, signs: Signs) -> float:
        constant, not_here, block, unmatched = self.none
        found = block * signs.block + unmatched * signs.unmatched
        return _chance(constant + not_here * _log_odds(signs.not_here) + found)

    def chance_of_right(self, signs: Signs) -> float:
        constant, not_here, chance, sentence = self.right
        said = math.log(max(signs.chance, _SMALLEST))
        return _chance(constant + not_here * _log_odds(signs.not_here) + chance * said + sentence * signs.sentence)


def _log_odds(chance: float) -> float:
    inside = min(max(chance, _SMALLEST), 1 - _SMALLEST)
    return math.log(inside / (1 - inside))


def _chance(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
