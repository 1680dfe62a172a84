"""Weights of features and doubt, fitted to made sentences of which the right one is known."""

from __future__ import annotations

import pytest
import torch

from model.reading.ranker import Ranker
from model.reading.span_reader import FoundSpan
from research.fit_ranker import NAMES, Shown, calibration_error, fit, fit_weights, judged
from retrieval.query.features import QuestionTerms, Sentences
from retrieval.query.sentences import Sentence

PRIOR = Ranker(("late_interaction", "reader_logprob"), (1.0, 0.0), (25.0, 1.0))
WEIGHTS = dict(zip(PRIOR.features, PRIOR.weights_with_reader, strict=True))


def shown(number: int, *, answerable: bool = True) -> Shown:
    """Ten sentences, of which the one that the reader likes best is right, and late interaction says nothing."""
    rng = torch.Generator().manual_seed(number)
    likes = torch.rand(10, generator=rng) * 0.5
    right = int(likes.argmax())
    texts = [
        f"Sentence {place} says something{' ANSWER' if place == right and answerable else ''}." for place in range(10)
    ]
    items = [Sentence([(0, place)], text, place, 0, len(text), 0) for place, text in enumerate(texts)]
    spans = [FoundSpan(float(like), 0, 3) for like in likes]
    p_none = 0.05 + 0.2 * float(torch.rand((), generator=rng)) if answerable else 0.8
    document = f"{number % 4}.pdf"
    sentences = Sentences(
        QuestionTerms("Which one?"), items, [document] * 10, torch.rand(10, generator=rng), spans, [""] * 10, p_none,
        block=0.6, unmatched=0.0 if answerable else 0.5,
    )  # fmt: skip
    of = dict(enumerate(texts))
    return Shown(
        document, sentences, {}, lambda given: float(any("ANSWER" in each for each in given)),
        lambda quotation: of[quotation.run], answerable,
    )  # fmt: skip


QUESTIONS = [shown(number) for number in range(60)] + [shown(number, answerable=False) for number in range(60, 100)]


def test_what_tells_right_sentences_gains_weight_and_more_are_right() -> None:
    fitted = fit(QUESTIONS, PRIOR, {"questions": "made"})
    after = dict(zip(NAMES, fitted.weights_with_reader, strict=True))
    assert after["reader_logprob"] > 1.3 and after["late_interaction"] < 20
    others = [shown(number) for number in range(200, 240)]
    right = [sum(each.quoted(ranker)[1] for each in others) for ranker in (PRIOR, fitted)]
    assert right[1] > right[0] + 10


def test_weights_can_be_kept_while_doubt_is_fitted() -> None:
    kept = fit(QUESTIONS, PRIOR, {}, keep_weights=True)
    after = dict(zip(NAMES, kept.weights_with_reader, strict=True))
    assert {name: after[name] for name in WEIGHTS} == WEIGHTS
    assert kept.decision == fit(QUESTIONS, kept, {}, keep_weights=True).decision != PRIOR.decision


def test_what_was_set_by_hand_stays_and_is_still_said() -> None:
    by_hand = Ranker(
        PRIOR.features,
        PRIOR.weights_without_reader,
        PRIOR.weights_with_reader,
        PRIOR.decision,
        {"by_hand": ["late_interaction"]},
    )
    fitted = fit(QUESTIONS, by_hand, {"questions": "made"})
    after = dict(zip(NAMES, fitted.weights_with_reader, strict=True))
    assert after["late_interaction"] == 25.0 and after["reader_logprob"] > 1.3
    assert fitted.fitted_on == {"questions": "made", "by_hand": ["late_interaction"]}


def test_without_questions_that_tell_anything_the_weights_stay() -> None:
    none = [shown(number, answerable=False) for number in range(10)]
    assert {name: weight for name, weight in fit_weights(none, WEIGHTS).items() if weight} == WEIGHTS


def test_questions_without_an_answer_are_refused_and_few_others() -> None:
    figures = judged(QUESTIONS, fit(QUESTIONS, PRIOR, {}))
    assert figures["refused"] > 0.95 and figures["wrongly"] <= 0.1 and figures["questions"] == 100
    assert fit(QUESTIONS, PRIOR, {}).decision == fit(QUESTIONS, PRIOR, {}).decision, "the same each time"


def test_the_calibration_error_is_the_distance_between_what_is_stated_and_what_comes_true() -> None:
    assert calibration_error([0.8] * 10, [True] * 8 + [False] * 2) == pytest.approx(0.0)
    assert calibration_error([0.9] * 10, [True] * 4 + [False] * 6) == pytest.approx(0.5)
    assert calibration_error([], []) == 0


def test_a_quotation_is_judged_alone_where_an_earlier_version_stands_behind_it() -> None:
    texts = ["The fee is 30 euros a year.", "The fee is 20 euros a year."]
    items = [Sentence([(0, place)], text, place, 0, len(text), 0) for place, text in enumerate(texts)]
    spans, names = [FoundSpan(0.5, 0, 3), FoundSpan(0.3, 0, 3)], ["fees version 2", "fees version 1"]
    sentences = Sentences(
        QuestionTerms("What is the fee?"), items, ["new", "old"], torch.tensor([0.5, 0.5]), spans, names, 0.1,
        titles={"new": "fees version 2", "old": "fees version 1"},
    )  # fmt: skip
    both = Shown("new", sentences, {}, lambda given: float("30" in given[0]), lambda one: texts[one.run], True)
    assert sentences.earlier == {0: [1]} and both.quoted(PRIOR)[1] == 1
