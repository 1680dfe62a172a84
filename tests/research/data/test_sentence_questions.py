"""Questions made of sentences by moving their parts."""

import random

import pytest

from research.train.data.questions.sentence_questions import sentence_questions
from research.train.data.questions.verb_forms import base_form, is_participle

WORDS = frozenset(("launch", "acquire", "carry", "plan", "create", "use", "bless", "need"))


def asked(sentence: str, title: str = "") -> set[tuple[str, str]]:
    """All questions that some seed makes of a sentence, in small letters and without the mark, and their answers."""
    text = f"Here it begins. {sentence} And so it ends."
    found = set()
    for seed in range(150):
        for made in sentence_questions(text, title, random.Random(seed), WORDS.__contains__):
            found.add((made.question.lower().removesuffix("?"), text[made.start : made.stop]))
    return found


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "The first satellite was launched by the Soviet Union in October 1957.",
            {
                ("when was the first satellite launched by the soviet union", "October 1957"),
                ("what was the first satellite launched by", "the Soviet Union"),
                ("what was launched by the soviet union in october 1957", "The first satellite"),
            },
        ),
        (
            "In 1998, Acme acquired a small maker of violins in Cremona.",
            {
                ("when did acme acquire a small maker of violins in cremona", "1998"),
                ("what did acme acquire in cremona", "a small maker of violins"),
                ("where did acme acquire a small maker of violins", "Cremona"),
                ("what acquired a small maker of violins in cremona", "Acme"),
            },
        ),
        (
            "The larger ships carried seven boats in the summer of the war.",
            {("how many boats did the larger ships carry in the summer of the war", "seven")},
        ),
        (
            "The tower has been closed because its foundations were found to be weak.",
            {("why has the tower been closed", "its foundations were found to be weak")},
        ),
        (
            "The device is used to measure the humidity of older buildings.",
            {("what is the device used for", "measure the humidity of older buildings")},
        ),
        ("Maria Stone wrote two operas.", set()),  # too short a sentence
    ],
)
def test_parts_of_a_sentence_are_asked_for(sentence: str, expected: set[tuple[str, str]]) -> None:
    found = asked(sentence)
    assert bool(found) == bool(expected)
    assert expected <= found


def test_a_pronoun_is_asked_about_by_the_title() -> None:
    sentence = "It was launched from a desert in October 1957 by its builders."
    found = asked(sentence, "Sputnik")
    assert any(question.startswith("when was sputnik launched") and said == "October 1957" for question, said in found)
    assert asked(sentence) == set()


@pytest.mark.parametrize(
    "sentence",
    [
        "This was launched by somebody else in the year of 1957.",
        "When it was launched in 1957, nobody in the desert was there.",
        "Those who were launched in 1957 did never come back again.",
        "The bridge was not launched by the Soviet Union in 1957.",
    ],
)
def test_sentences_that_cannot_be_turned_are_left_alone(sentence: str) -> None:
    assert asked(sentence) == set()


def test_one_question_for_a_sentence_and_none_says_its_answer() -> None:
    text = "It begins. " + "The tower was planned by Maria Stone of Leeds and built in Porto in 1957. " * 3
    for seed in range(30):
        made = list(sentence_questions(text, "", random.Random(seed), WORDS.__contains__))
        assert len(made) == 3
        for each in made:
            assert text[each.start : each.stop].lower() not in each.question.lower()


@pytest.mark.parametrize(
    ("verb", "base"),
    [
        ("launched", "launch"),
        ("carried", "carry"),
        ("planned", "plan"),
        ("created", "create"),
        ("used", "use"),
        ("blessed", "bless"),
        ("began", "begin"),
        ("united", None),
        ("need", None),
        ("painted", None),  # not among the words
        ("launch", None),
    ],
)
def test_base_forms(verb: str, base: str | None) -> None:
    assert base_form(verb, WORDS.__contains__) == base


def test_participles() -> None:
    assert [is_participle(word) for word in ("been", "launched", "taken", "red", "tower")] == [
        True,
        True,
        True,
        False,
        False,
    ]
