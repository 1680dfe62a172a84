"""Follow-up questions."""

import pytest

from retrieval.query.follow_up import EARLIER_CHARACTERS, leans_on_earlier, with_conversation, with_subject


@pytest.mark.parametrize(
    "question",
    ["And when was it built?", "Why?", "What about the bridge?", "Who wrote these?", "Is he still alive?", "where"],
)
def test_questions_that_point_back_lean_on_the_one_before(question):
    assert leans_on_earlier(question)


@pytest.mark.parametrize(
    "question",
    [
        "When was the Eiffel Tower built?",
        "Which method did the authors use for training the retriever?",
        "Is there a limit on the number of pages that a document may have?",
        "How many people live in Lisbon?",
    ],
)
def test_questions_that_stand_alone_are_asked_alone(question):
    assert not leans_on_earlier(question)
    assert with_conversation(question, ["Who painted the ceiling?"]) == question


def test_the_third_turn_keeps_the_subject_of_the_first():
    turns = ["What is libxcrypt?", "Who maintains it?"]
    assert with_conversation("What is its licence?", turns) == "What is libxcrypt? What is its licence?"
    assert with_conversation("Since when?", turns) == "What is libxcrypt? Who maintains it? Since when?"
    changed = [*turns, "What does the kernel contain?"]
    assert with_conversation("How large is it?", changed) == "What does the kernel contain? How large is it?"


def test_a_follow_up_does_not_carry_earlier_questions_without_end():
    assert with_conversation("Why?", ["Is the first one open?", "Is the second one open?"]) == (
        "Is the second one open? Why?"
    )
    asked = with_conversation("Why?", ["word " * 500])
    assert asked.endswith("word Why?") and len(asked) < EARLIER_CHARACTERS + 10


def test_a_question_in_a_language_that_is_not_looked_at_gets_the_subject_when_it_is_asked_for():
    assert with_conversation("Womit wurde er gebaut?", ["Wer baute ihn?"]) == "Womit wurde er gebaut?"
    assert with_subject("Womit wurde er gebaut?", ["Wer baute ihn?"]) == "Wer baute ihn? Womit wurde er gebaut?"
    assert with_subject(" Womit? ", []) == "Womit?"
