"""Weights of features and doubt, fitted to made tables whose right sentences are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from model.reading.ranker import Decision, Ranker
from research.fit_ranker import NAMES, Asked, fit, fit_weights, judged, of_all_features

NAMED = ("late_interaction", "boilerplate", "row_overlap", "code_match", "heading_match", "reader_logprob")
PRIOR = of_all_features(Ranker(NAMED, (1.0, -0.2, 0.16, 0.08, 0.0, 0.0), (25.0, -5.0, 4.0, 2.0, 6.0, 1.0), Decision()))


def asked(number: int, *, answerable: bool = True) -> Asked:
    """Ten sentences, of which the one with the highest code match is right, and late interaction says nothing."""
    chance = torch.Generator().manual_seed(number)
    features_SF = torch.rand(10, len(NAMES), generator=chance)
    features_SF[:, NAMES.index("boilerplate")] = 0.0
    features_SF[:, NAMES.index("reader_logprob")] -= 3.0
    right_S = torch.zeros(10, dtype=torch.bool)
    if answerable:
        right_S[features_SF[:, NAMES.index("code_match")].argmax()] = True
    p_none = 0.1 + 0.2 * float(torch.rand((), generator=chance)) if answerable else 0.8
    return Asked(f"{number % 4}.pdf", features_SF, right_S, answerable, p_none, 0.7 if answerable else 0.4, 0.0)


QUESTIONS = [asked(number) for number in range(60)] + [asked(number, answerable=False) for number in range(60, 100)]


def test_what_tells_right_sentences_gains_weight_and_more_are_right() -> None:
    after = dict(zip(NAMES, fit_weights(QUESTIONS, PRIOR), strict=True))
    assert after["code_match"] > 2 * PRIOR.after[NAMES.index("code_match")]
    assert after["late_interaction"] < PRIOR.after[0]
    fitted = replace(PRIOR, after=tuple(after.values()))
    others = [asked(number) for number in range(200, 240)]
    right = [sum(each.is_right(ranker) for each in others) for ranker in (PRIOR, fitted)]
    assert right[1] > right[0] + 5


def test_without_questions_that_tell_anything_the_weights_stay() -> None:
    alike = [replace(each, features_SF=torch.ones(10, len(NAMES))) for each in QUESTIONS]
    assert fit_weights(alike, PRIOR) == pytest.approx(PRIOR.after, abs=0.01)


def test_questions_without_an_answer_are_refused_and_few_others() -> None:
    figures = judged(QUESTIONS, fit(QUESTIONS, PRIOR, {"questions": "made"}))
    assert figures["refused"] > 0.95 and figures["wrongly"] <= 0.05 and figures["questions"] == 100
    assert fit(QUESTIONS, PRIOR, {}).decision == fit(QUESTIONS, PRIOR, {}).decision, "the same each time"
