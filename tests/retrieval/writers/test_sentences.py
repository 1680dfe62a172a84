"""Answers in sentences, and the numbers they cite."""

from __future__ import annotations

from retrieval.writers.citations import citations_in, without_citations
from retrieval.writers.claims import claims_of


def texts(answer: str) -> list[str]:
    return [text for _, _, text in claims_of(answer)]


def test_an_answer_is_cut_at_sentences_and_a_citation_behind_the_stop_belongs_to_the_sentence_before() -> None:
    answer = "The dam was raised in 1981. [1] The lake is 40 m deep [2][3]. Is it?"
    assert texts(answer) == ["The dam was raised in 1981.", "The lake is 40 m deep."]
    (start, end, _), (second, _, _) = claims_of(answer)
    assert start <= answer.index("[1]") < end <= second


def test_items_of_a_list_and_rows_of_a_table_are_claims_without_their_marks() -> None:
    answer = (
        "The valves are:\n- Valve 3 is closed [1].\n2. Valve 4 is open\n\n| Valve | State |\n|---|---|\n| 5 | shut |"
    )
    assert texts(answer) == ["Valve 3 is closed.", "Valve 4 is open", "Valve | State", "5 | shut"]


def test_what_says_nothing_is_no_claim() -> None:
    assert texts("Yes. No answer was found in the documents. Here they are:") == []


def test_a_citation_is_a_number_that_a_passage_has() -> None:
    found = citations_in("A [1], b [2, 7; 3], c [9], d (1), e [x].", {1: 0, 2: 1, 3: 2})
    assert [(one.number, one.passage, one.start, one.end) for one in found] == [
        (1, 0, 2, 5),
        (2, 1, 10, 11),
        (3, 2, 16, 17),
    ]
    assert without_citations("Raised [1], he said [2, 3].") == "Raised, he said."
