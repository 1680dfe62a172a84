"""What features say of sentences."""

from __future__ import annotations

import pytest
import torch

from model.reading.span_reader import FoundSpan
from retrieval.query.features import (
    FEATURES,
    QuestionTerms,
    Sentences,
    block_rank,
    feature_table,
    in_named,
    length,
    of_other,
    term_overlap,
)
from retrieval.query.sentences import Sentence

TEXTS = ["The crane lifts.", "A crane and a winch.", "Nothing of the kind.", "It opens at six."]


def made(question: str, texts: list[str], **given) -> Sentences:
    items = [Sentence([(n, 0)], text, n, 0, len(text), 0) for n, text in enumerate(texts)]
    return Sentences(QuestionTerms(question), items, ["d"] * len(texts), torch.zeros(len(texts)), **given)


def test_a_sentence_is_worth_what_terms_of_the_question_it_holds_the_rarer_the_more():
    one, both, *none = term_overlap(made("crane and winch", TEXTS)).tolist()
    assert 0 < one < 0.5 and both == pytest.approx(1.0) and none == [0.0, 0.0]
    assert not term_overlap(made("Where is it?", TEXTS)).any(), "small words say nothing"


POOLS = [
    "Outdoor pool; Day: Monday; Opens: 9:00; Closes: 18:00.",
    "Outdoor pool; Day: Tuesday; Opens: 10:00; Closes: 18:30.",
    "Indoor pool; Day: Tuesday; Opens: 6:30; Closes: 21:30.",
]


@pytest.mark.parametrize(
    ("question", "right"),
    [
        ("When does the outdoor pool close on Tuesday?", [1]),
        ("When does the indoor pool open on Tuesday?", [2]),
        ("When does the outdoor pool close?", [0, 1]),
        ("When does the sauna close?", [0, 1, 2]),
    ],
)
def test_the_row_that_holds_more_of_the_questions_words_wins_among_those_of_its_table(question, right):
    others = of_other(made(question, POOLS)).tolist()
    assert [number for number, other in enumerate(others) if not other] == right


def test_a_month_of_a_sheet_is_told_from_others_though_its_row_is_parted_elsewhere():
    rows = ["Date: 2020-05-01; IBM: 106.5; AAPL: 78.2.", "Date: 2020-04-01; IBM: 107.1; AAPL: 72.3; DELL: 21.4."]
    assert of_other(made("What was the price of AAPL in April 2020?", rows)).tolist() == [1, 0]


def test_sentences_and_rows_of_other_tables_are_left_alone():
    said = [POOLS[0], "Day: Tuesday; Guide: Ana; Price: 3.", "The pool is closed.", "It closes on Tuesday."]
    assert not of_other(made("When does the outdoor pool close on Tuesday?", said)).any()


def test_what_stands_under_the_number_asked_for_is_of_it_and_all_else_is_not():
    text = "Rule 7. Quiet is kept.\nRule 8. Fuel is stored.\nRule 9. Dogs are led."
    items = [Sentence([(n, 0)], text, at, at, at + 20, 0) for n, at in enumerate((0, 23, 47))]
    for question, those in (("What does rule 8 say?", [0, 1, 0]), ("What does rule 5 say?", [0, 0, 0])):
        sentences = Sentences(QuestionTerms(question), items, ["d"] * 3, torch.zeros(3), texts={"d": text})
        assert in_named(sentences).tolist() == those
        assert of_other(sentences).tolist() == [any(those) and not there for there in those]


def test_length_and_place_are_logarithms():
    assert length(made("", ["a", "a" * 50])).tolist() == pytest.approx([1.609, 3.912], abs=1e-3)
    assert block_rank(made("", TEXTS, ranks=[0, 1, 2, 7])).tolist() == pytest.approx([0, 0.693, 1.099, 2.079], abs=1e-3)
    assert not block_rank(made("", TEXTS)).any(), "nothing is known of places"


def test_what_only_reading_tells_is_nothing_before():
    names = list(FEATURES)
    column = names.index("reader_logprob")
    assert not feature_table(made("crane", TEXTS), names)[:, column].any()
    spans = [FoundSpan(probability, 0, 1) for probability in (1.0, 0.5, 0.0, 0.1)]
    told = feature_table(made("crane", TEXTS, spans=spans), names)[:, column]
    assert told[0] == 0 and told[1] == pytest.approx(-0.693, abs=1e-3) and told.isfinite().all()
