"""When an answer is more than a guess."""

import json
import math
from pathlib import Path

import pytest

from model.errors import ModelError
from model.reading.ranker import AnswerFeatures, Decision, Ranker, log_odds
from retrieval.query.decide import match_margin, outcome_of_reading, outcome_of_search
from retrieval.query.sentences import Quotation
from tests.tiny_reader import tiny_reader

FITTED = Decision(
    none={"constant": 6.0, "none": 0.6, "block": -12.0, "unmatched": 3.0},
    right={"constant": -4.0, "none": -0.3, "reader_logprob": 0.5, "late_interaction": 9.0},
    none_above=0.8,
    sure_above=0.5,
)


def judged(
    ranker: Ranker, reader, none: float, probability: float, block: float, sentence: float, unmatched: float
) -> str:
    features: AnswerFeatures = {
        "none": log_odds(none), "reader_logprob": math.log(max(probability, 1e-5)), "late_interaction": sentence,
        "block": block, "unmatched": unmatched,
    }  # fmt: skip
    sure = ranker.weighs_reading and ranker.decision.is_sure(features)
    best = Quotation(0, 0, 0, (0, 0), sentence, probability, none, features=features, sure=sure)
    return outcome_of_reading(ranker, reader, best)


def test_what_stands_out_is_surer_than_what_has_rivals():
    alone, among_rivals = [0.7, 0.5, 0.4], [0.7, 0.69, 0.68]
    one, two, three = (
        match_margin(alone, [0.7, 0.4]),
        match_margin(among_rivals, [0.7, 0.4]),
        match_margin(among_rivals, [0.7, 0.69]),
    )
    assert one > two > three
    assert match_margin(alone, [0.7]) == pytest.approx(1.0) and match_margin([], []) == 0.0


def test_a_block_far_down_the_ranking_does_not_make_the_first_surer():
    near = [0.7] * 8
    assert match_margin([*near, 0.1], [0.7, 0.7]) == match_margin(near, [0.7, 0.7])


def test_below_the_threshold_an_answer_is_a_guess_and_without_one_it_never_is():
    assert outcome_of_search(Decision(), 0.0, 100, by_tokens=False) == "found"
    guessing = Decision(sure_threshold=0.7)
    outcomes = [outcome_of_search(guessing, sure, 100, by_tokens=False) for sure in (0.69, 0.71)]
    assert outcomes == ["perhaps", "found"]
    few = outcome_of_search(guessing, 0.0, 3, by_tokens=False)
    assert few == "found", "a handful of landmarks gives nothing to compare with"


def test_a_reader_knows_guesses_and_what_stands_nowhere():
    reader = tiny_reader(["a"])
    never = judged(Ranker(), reader, 1.0, 0.0, 0.0, 0.0, 1.0)
    assert never == "found", "a reader that was not calibrated never doubts"
    reader.network.config.sure_above, reader.network.config.absent_above = 0.1, 0.6
    given = [(0.1, 0.2), (0.1, 0.05), (0.7, 0.2)]
    outcomes = [judged(Ranker(), reader, none, probability, 0.5, 0.5, 0.0) for none, probability in given]
    assert outcomes == ["found", "perhaps", "not_found"]


def test_a_calibrated_ranker_doubts_less_where_search_matched_well():
    reader, ranker = tiny_reader(["a"]), Ranker(decision=FITTED)
    assert judged(ranker, reader, 0.7, 0.05, 0.35, 0.3, 0.0) == "not_found"
    assert judged(ranker, reader, 0.7, 0.05, 0.7, 0.5, 0.0) == "perhaps"
    assert judged(ranker, reader, 0.01, 0.8, 0.7, 0.65, 0.0) == "found", "and the reader as well"
    assert 0 < FITTED.p_none({"none": log_odds(1.0), "block": 0.0, "unmatched": 1.0}) <= 1, "certainty has odds, too"
    assert FITTED.p_none({"none": -1e9}) < 1e-9 and FITTED.p_none({}) == FITTED.p_none({"none": 0.0}), "or is not known"


def test_words_of_the_question_that_stand_nowhere_in_what_was_read_raise_doubt():
    reader, ranker = tiny_reader(["a"]), Ranker(decision=FITTED)
    outcomes = [judged(ranker, reader, 0.5, 0.3, 0.5, 0.5, unmatched) for unmatched in (0.0, 0.2, 0.8)]
    assert outcomes == ["perhaps", "perhaps", "not_found"]


def test_a_ranker_comes_back_and_is_refused_for_another_finder_or_reader(tmp_path: Path):
    ranker = Ranker(("late_interaction", "reader_logprob"), (1.0, 0.0), (20.0, 1.0), FITTED, {"questions": 3})
    ranker.save(tmp_path, "finder", "reader")
    assert Ranker.load(tmp_path, "finder", "reader") == ranker
    assert Ranker.load(tmp_path / "nowhere", "finder", "reader") == Ranker(), "a checkpoint without one"
    for finder, reader in (("other", "reader"), ("finder", "other")):
        with pytest.raises(ModelError, match="another finder or reader"):
            Ranker.load(tmp_path, finder, reader)
    assert not ranker.without_reader().weighs_reading and ranker.weighs_reading


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 3}, "format 3"),
        ({"before": [1.0]}, "unequal numbers of features and weights"),
        ({"after": ["much", 1]}, "cannot be used"),
        ({"decision": {"none": [1.0]}}, "cannot be used"),
        ({"features": ["late_interaction", "reader_logprop"]}, "has weights for unknown features: reader_logprob"),
        ({"fitted_on": None, "decision": None}, "cannot be used"),
    ],
)
def test_a_damaged_ranker_is_refused(tmp_path: Path, changes: dict, message: str):
    Ranker(decision=FITTED).save(tmp_path, "f", "r")
    given = json.loads((tmp_path / "ranker.json").read_text()) | changes
    (tmp_path / "ranker.json").write_text(json.dumps(given))
    with pytest.raises(ModelError, match=message):
        Ranker.load(tmp_path, "f", "r")
