"""Whether there is an answer: found, perhaps or not found, from what the search found and what a reader made of it.

The numbers are the checkpoint's (`Ranker.decision`); a checkpoint that is not calibrated refuses nothing, but what its
reader refuses by its own thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from model.reading.ranker import Decision, Ranker
from model.reading.two_readers import Reader
from retrieval.index.exact import Ranking
from retrieval.query.sentences import Quotation
from retrieval.types.answers import Outcome

FEW_BLOCKS = 16
"""Below so many blocks the confidence of a search by landmarks says nothing."""
_COMPARED = 8  # blocks among which the best should stand out


def confidence_of(ranking: Ranking, in_scope: int) -> float:
    """Probability that none of so many unrelated blocks would score as high as the best block does: near 1 for a real
    match.

    Unrelated scores are taken as normal, with the mean and spread of the whole memory; the calibrated threshold makes
    up for the error in that. 0 for an empty memory.
    """
    if not len(ranking.logits) or ranking.spread == 0:
        return 0.0
    z = (float(ranking.logits[0]) - ranking.mean) / ranking.spread
    return (0.5 * math.erfc(-z / math.sqrt(2))) ** in_scope


def match_margin(scores: Sequence[float], sentences: Sequence[float]) -> float:
    """How far the best of the found blocks and sentences stand out: the best block's score, plus its lead over the
    eighth, plus the lead of the best sentence over the next. Both best first.

    Chosen on questions about held-out articles (docs/decisions/0029): it tells right answers from wrong ones and from
    answers to questions about other articles, which the best score alone hardly does.
    """
    if not scores:
        return 0.0
    ahead = scores[0] - scores[min(_COMPARED, len(scores)) - 1]
    apart = sentences[0] - sentences[1] if len(sentences) > 1 else 0.0
    return scores[0] + ahead + apart


def is_answerable(decision: Decision, confidence: float, in_scope: int, *, by_tokens: bool) -> bool:
    """Whether the confidence of a search reaches the threshold. A handful of landmarks gives nothing to compare with:
    then the model decides. `by_tokens`: the search ranked by the keys of tokens."""
    threshold = decision.answer_threshold
    return threshold is None or (not by_tokens and in_scope < FEW_BLOCKS) or confidence >= threshold


def outcome_of_search(decision: Decision, margin: float, in_scope: int, *, by_tokens: bool) -> Outcome:
    """Whether an answer that nobody read is more than a guess."""
    threshold = decision.sure_threshold
    if threshold is None or (not by_tokens and in_scope < FEW_BLOCKS):
        return "found"
    return "found" if margin >= threshold else "perhaps"


def outcome_of_reading(ranker: Ranker, reader: Reader, best: Quotation) -> Outcome:
    """What the reader says, weighed with how well search matched where the ranker was fitted with it."""
    assert best.probability is not None and best.p_none is not None, "a reader read it"
    decision = ranker.decision
    if ranker.weighs_reading:
        none, sure = decision.p_none(best.features) >= decision.none_above, best.sure
    else:
        none, sure = best.p_none >= reader.absent_above, best.probability >= reader.sure_above
    return "not_found" if none else "found" if sure else "perhaps"
