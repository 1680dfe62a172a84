"""When an answer is more than a guess."""

import pytest

from model.reading.doubt import Doubt, Signs
from retrieval.query.confidence import outcome_of, outcome_of_reading, sureness
from tests.tiny_model import tiny_model
from tests.tiny_reader import tiny_look


def test_what_stands_out_is_surer_than_what_has_rivals():
    alone, among_rivals = [0.7, 0.5, 0.4], [0.7, 0.69, 0.68]
    assert sureness(alone, [0.7, 0.4]) > sureness(among_rivals, [0.7, 0.4]) > sureness(among_rivals, [0.7, 0.69])
    assert sureness(alone, [0.7]) == pytest.approx(1.0) and sureness([], []) == 0.0


def test_a_block_far_down_the_ranking_does_not_make_the_first_surer():
    near = [0.7] * 8
    assert sureness([*near, 0.1], [0.7, 0.7]) == sureness(near, [0.7, 0.7])


def test_below_the_threshold_an_answer_is_a_guess_and_without_one_it_never_is():
    config = tiny_model().config
    assert outcome_of(config, 0.0, 100) == "found"
    guessing = tiny_model(sure_threshold=0.7).config
    assert [outcome_of(guessing, sure, 100) for sure in (0.69, 0.71)] == ["perhaps", "found"]
    assert outcome_of(guessing, 0.0, 3) == "found", "a handful of landmarks gives nothing to compare with"


def test_the_second_look_knows_guesses_and_what_stands_nowhere():
    look = tiny_look(["a"])
    never = Signs(not_here=1.0, chance=0.0, block=0.0, sentence=0.0, unmatched=1.0)
    assert outcome_of_reading(look, never) == "found", "a reader that was not calibrated never doubts"
    look.reader.config.sure_above, look.reader.config.absent_above = 0.1, 0.6
    given = [(0.1, 0.2), (0.1, 0.05), (0.7, 0.2)]
    outcomes = [outcome_of_reading(look, Signs(absent, chance, 0.5, 0.5, 0.0)) for absent, chance in given]
    assert outcomes == ["found", "perhaps", "not_found"]


def test_a_calibrated_reader_doubts_less_where_search_matched_well():
    look = tiny_look(["a"])
    look.doubt = Doubt(none=(6.0, 0.6, -12.0, 3.0), right=(-4.0, -0.3, 0.5, 9.0), none_above=0.8, sure_above=0.5)
    poor, good = Signs(0.7, 0.05, 0.35, 0.3, 0.0), Signs(0.7, 0.05, 0.7, 0.5, 0.0)
    assert outcome_of_reading(look, poor) == "not_found"
    assert outcome_of_reading(look, good) == "perhaps"
    assert outcome_of_reading(look, Signs(0.01, 0.8, 0.7, 0.65, 0.0)) == "found"
    assert 0 < look.doubt.chance_of_none(Signs(1.0, 0.0, 0.0, 0.0, 1.0)) <= 1, "certainty has odds, too"


def test_words_of_the_question_that_stand_nowhere_in_what_was_read_raise_doubt():
    look = tiny_look(["a"])
    look.doubt = Doubt(none=(6.0, 0.6, -12.0, 3.0), right=(-4.0, -0.3, 0.5, 9.0), none_above=0.8, sure_above=0.5)
    outcomes = [outcome_of_reading(look, Signs(0.5, 0.3, 0.5, 0.5, unmatched)) for unmatched in (0.0, 0.2, 0.8)]
    assert outcomes == ["perhaps", "perhaps", "not_found"]


def test_a_doubt_that_is_incomplete_is_refused():
    whole = {"none": [0, 1, 1, 1], "right": [0, 1, 1, 1], "none_above": 0.5, "sure_above": 0.5}
    assert Doubt.of(whole).none == (0.0, 1.0, 1.0, 1.0)
    for changed in ({"none": [0, 1, 1]}, {"none_above": None}, {"right": 3}):
        with pytest.raises(ValueError, match="its doubt"):
            Doubt.of({**whole, **changed})
    with pytest.raises(ValueError, match="its doubt is incomplete"):
        Doubt.of({"none": [0, 1, 1]})
