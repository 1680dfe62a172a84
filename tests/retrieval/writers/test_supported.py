"""When a text without citations is believed, and when what the search quotes is."""

from __future__ import annotations

import pytest

from retrieval.types.answers import Claim, Outcome, Passage, QuotedSentence, Verdict
from retrieval.writers.claims import SearchQuotation, is_supported, without_unfinished

QUESTION = "Which three parts has memory?"
SENTENCE = "Name and describe the three stages of memory."
WORDS = "The parts are sensory, short-term and long-term memory."
PASSAGE = Passage("d", "memory.txt", "Memory", (1,), ("1",), 0, len(SENTENCE), SENTENCE, 1.0, (), ())


def by_search(outcome: Outcome) -> SearchQuotation:
    at = SENTENCE.index("three stages")
    return SearchQuotation(QuotedSentence(PASSAGE, (at, at + len("three stages"))), outcome)


def claim(verdict: Verdict, score: float, unfounded: tuple[tuple[int, int], ...] = ()) -> Claim:
    return Claim(WORDS, verdict, 0, SENTENCE, score, 0, len(WORDS), unfounded)


@pytest.mark.parametrize(
    ("found", "outcome", "small", "supported"),
    [
        (claim("supported", 0.8), "found", False, True),
        (claim("supported", 0.8), "perhaps", True, True),
        (claim("supported", 0.8), "found", True, False),  # says nothing of what the search is sure of
        (claim("partly", 0.7), "perhaps", True, True),
        (claim("partly", 0.7), "found", False, False),
        (claim("partly", 0.5), "perhaps", True, False),
        (claim("partly", 0.7, ((4, 9),)), "perhaps", True, False),
        (claim("not_found", 0.2), "perhaps", False, False),
    ],
)
def test_words_against_a_quotation(found: Claim, outcome: Outcome, small: bool, supported: bool) -> None:
    assert is_supported(QUESTION, WORDS, [found], by_search(outcome), small=small) == supported


def test_where_nothing_would_be_quoted_most_sentences_must_be_supported() -> None:
    nothing = SearchQuotation(None, "not_found")
    good, bad = claim("supported", 0.8), claim("not_found", 0.1)
    assert is_supported(QUESTION, WORDS, [good, good, bad], nothing, small=False)
    assert not is_supported(QUESTION, WORDS, [good, bad], nothing, small=False)
    assert not is_supported(QUESTION, "Three.", [], nothing, small=False)


def test_where_nothing_would_be_quoted_a_copy_of_something_else_is_no_answer() -> None:
    nothing, copied = SearchQuotation(None, "not_found"), [claim("supported", 1.0)]
    assert not is_supported("How is the pager chosen?", WORDS, copied, nothing, small=False)
    assert is_supported("What part does the sensorium play?", WORDS, copied, nothing, small=False)


def test_a_name_that_the_quotation_holds_is_believed() -> None:
    assert is_supported(QUESTION, "Stages.", [], by_search("found"), small=True)
    assert not is_supported(QUESTION, "Yes.", [], by_search("found"), small=True)
    assert not is_supported("What do the stages do?", "The stages do what?", [], by_search("found"), small=True)


@pytest.mark.parametrize(("text", "made"), [(f"{WORDS} The first (van V", 1), (f"{WORDS} It is short. ", 2), ("", 2)])
def test_the_sentence_in_which_an_answer_broke_off_is_not_looked_up(text: str, made: int) -> None:
    first = claim("supported", 0.8)
    last = Claim(text[len(WORDS) + 1 :], "supported", 0, SENTENCE, 0.8, len(WORDS) + 1, len(text.rstrip()))
    assert without_unfinished([first, last], text) == (first, last)[:made]
