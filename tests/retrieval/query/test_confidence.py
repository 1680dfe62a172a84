"""When an answer is more than a guess."""

import pytest

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
    assert outcome_of_reading(look, 0.0, 1.0) == "found", "a reader that was not calibrated never doubts"
    look.reader.config.sure_above, look.reader.config.absent_above = 0.1, 0.6
    given = [(0.2, 0.1), (0.05, 0.1), (0.2, 0.7)]
    assert [outcome_of_reading(look, *each) for each in given] == ["found", "perhaps", "not_found"]
