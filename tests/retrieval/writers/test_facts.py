"""Figures and names in sentences."""

from __future__ import annotations

import pytest

from retrieval.writers.facts import content_words, facts_of, forms_of


@pytest.mark.parametrize(
    ("sentence", "facts"),
    [
        ("The dam was raised in 1981.", ["1981"]),
        ("It cost 1,200 euros, about 5% more.", ["1,200", "5%"]),
        ("Eight members met Anna Weber in Graz.", ["Eight", "Anna", "Weber", "Graz"]),
        ("Anna Weber wrote it.", ["Anna", "Weber"]),
        ("Valves are closed.", []),
        ("FAA rules apply.", ["FAA"]),
        ("It was one of them.", []),
        ("In May it may rain.", ["May"]),
    ],
)
def test_figures_and_names_are_facts_and_the_first_word_of_a_sentence_is_not(sentence: str, facts: list[str]) -> None:
    assert [sentence[fact.start : fact.end] for fact in facts_of(sentence)] == facts


@pytest.mark.parametrize(
    ("fact", "text"),
    [("1200", "They paid 1,200 euros."), ("eight", "There were 8."), ("5%", "It rose by 5 percent."),
     ("Weber", "That is Weber's."), ("Graz", "GRAZ, 1981"), ("2019", "in 2018–2019")],
)  # fmt: skip
def test_the_same_fact_is_known_in_another_form(fact: str, text: str) -> None:
    assert all(one.form in forms_of(text) for one in facts_of(f"So it is {fact}.")) and facts_of(f"So it is {fact}.")


def test_the_first_word_of_a_sentence_is_a_name_where_it_is_said_to_be_one() -> None:
    assert [fact.form for fact in facts_of("Pavlov was there.", first_is_name=True)] == ["pavlov"]
    assert facts_of("The dog was there.", first_is_name=True) == []


def test_another_figure_is_another_fact() -> None:
    (fact,) = facts_of("It was raised in 1981.")
    assert fact.form not in forms_of("It was raised in 1918, 198 or 19.81.")
    (four,) = facts_of("It ran for 4 epochs.")
    assert four.form not in forms_of("The rate was 3 · 10−4.")


def test_content_words_leave_out_the_words_of_grammar_and_endings() -> None:
    assert content_words("The dams were being raised by the council.") == content_words("Dam raises: council")
