"""What a question names: codes, numbers, rows, and what a message quotes of another."""

from __future__ import annotations

import pytest

from retrieval.index.terms import terms_of
from retrieval.query.named import (
    full_terms,
    in_numbered,
    is_named_row,
    numbers_in,
    of_earlier_message,
    of_other_code,
    of_other_row,
)

POOLS = [
    "Outdoor pool; Day: Monday; Opens: 9:00; Closes: 18:00.",
    "Outdoor pool; Day: Tuesday; Opens: 10:00; Closes: 18:30.",
    "Indoor pool; Day: Tuesday; Opens: 6:30; Closes: 21:30.",
]
BINS = ["Weekday: Mon; Bin: paper.", "Weekday: Wed; Bin: glass.", "Weekday: Fri; Bin: paper."]
PLACES = ["Place: First; Runner: Ito; Time: 2:11.", "Place: Second; Runner: Bakke; Time: 2:13."]
JOBS = [f"month: 2015-{month}-01; nonfarm: 1426{month}; government: 220{month}." for month in ("10", "11", "12")]
HOSTS = ["live / mail: host: m.example; port: 25.", "test / mail: host: t.example; port: 26."]


@pytest.mark.parametrize(
    ("question", "rows", "right"),
    [
        ("When does the outdoor pool close on Tuesday?", POOLS, [1]),
        ("When does the indoor pool open on Tuesday?", POOLS, [2]),
        ("Which bin is emptied on Wednesday?", BINS, [1]),
        ("Which bins are emptied on weekdays?", BINS, [0, 1, 2]),
        ("Who came second?", PLACES, [1]),
        ("Who was the first runner?", PLACES, [0]),
        ("Which port does mail use in test?", HOSTS, [1]),
        ("How many people worked for the government in November 2015?", JOBS, [1]),
        ("us employment dec 2015 government", JOBS, [2]),
        ("When does the sauna close?", POOLS, [0, 1, 2]),
    ],
)
def test_the_row_that_holds_more_of_the_questions_words_wins_among_those_of_its_table(question, rows, right):
    others = of_other_row(frozenset(full_terms(question)), rows, ["d"] * len(rows))
    assert [number for number, other in enumerate(others) if not other] == right


def test_rows_of_other_tables_and_documents_and_sentences_are_left_alone():
    said = [POOLS[0], POOLS[1], "Day: Tuesday; Guide: Ana.", "The pool is closed."]
    asked = frozenset(full_terms("When does the outdoor pool close on Tuesday?"))
    assert of_other_row(asked, said, ["a", "b", "a", "a"]) == [False] * 4


@pytest.mark.parametrize(
    ("question", "row", "is_named"),
    [
        ("Who works the late shift on Wednesday?", "Late; Mon: Agnes; Tue: Farida; Wed: Milan.", True),
        ("Who works the early shift on Wednesday?", "Late; Mon: Agnes; Tue: Farida; Wed: Milan.", False),
        ("How many may take part in wood turning in March?", "Course: Wood turning; March: 10; May: 12.", True),
        ("How many may take part in turning in March?", "Course: Wood turning; March: 10; May: 12.", False),
        ("What was the result of the second quarter?", "Quarter: Second quarter; Income: 5; Result: 7.", True),
        ("Which piece is played on 12 June?", "Evening: 12 June; Piece: Two Rivers.", True),
        ("What is the price of 4?", "Row: 4; Price: 12; Item: Nail.", False),
        ("What is the price in row 4?", "Row: 4; Price: 12; Item: Nail.", True),
        ("What does the pump cost?", "Item: Pump; Price: 12.", False),
        ("What is the price of a pump?", "Class: A; Price: 94; Seats: 4.", False),
        ("What is the price of the pump?", "The pump has a price.", False),
    ],
)
def test_a_row_is_named_by_its_first_cell_and_the_column_of_another(question, row, is_named):
    assert is_named_row(frozenset(full_terms(question)), row) is is_named


AGREEMENT = """Service agreement

§ 12 Hounds are kept on a lead.
(4) Cats are not.

2 Duties

2.1 Inspection

Every six weeks.

2.3 Records

Each visit is entered.

It is kept for eight years.

3 Payment

Within 21 days. Rule 7 does not hold.

Rule 7. Quiet is kept.
Rule 8. Fuel is stored.
"""


@pytest.mark.parametrize(
    ("question", "there"),
    [
        ("What is laid down in section 2.3?", ["2.3", "Each visit", "It is kept"]),
        ("what does sec 2.1 say", ["2.1", "Every six"]),
        ("What does chapter 2 say?", ["2 D", "2.1", "Every six", "2.3", "Each visit", "It is kept"]),
        ("What does rule 8 prescribe?", ["Rule 8", "Fuel"]),
        ("What does Rule 7 say?", ["Rule 7. ", "Quiet"]),
        ("Was steht in § 12?", ["§ 12 Hounds"]),
        ("Was steht in Absatz 4?", ["(4) Cats"]),
        ("What does section 2.4 say?", []),
        ("What happened on May 3?", []),
        ("How much is due within 21 days?", []),
        ("What was decided in 2026?", []),
    ],
)
def test_a_sentence_stands_under_the_number_above_it_whatever_says_what_that_numbers(question, there):
    starts = [AGREEMENT.index(each) for each in ("2 D", "2.1", "Every six", "2.3", "Each visit", "It is kept", "3 P")]
    starts += [AGREEMENT.index(each) for each in ("Within", "Rule 7. ", "Quiet", "Rule 8", "Fuel", "§ 12", "(4)")]
    found = in_numbered(question, {"d": AGREEMENT}, ["d"] * len(starts), starts)
    assert [start for start, inside in zip(starts, found, strict=True) if inside] == [*map(AGREEMENT.index, there)]


def test_numbers_with_units_dates_and_codes_name_no_part():
    assert numbers_in("Is 2.5 kg in section 12 or rule 3.1.2?") == {("section", "12"), ("rule", "3.1.2")}
    assert not numbers_in("Is VK-2040 from 2026-03-12 worth 1,200 or 3.50?")


def test_a_code_is_told_by_what_a_sentence_refers_back_to():
    said = [terms_of(text) for text in ("Valve VK-1 sits here. It is brass.", "Valve VK-2 sits here. It is tin.")]
    assert of_other_code({"vk-2", "valve"}, said) == [True, False]


MESSAGE = "It comes on 19 May.\n\nEarlier message, quoted: It comes on 5 May. Measure the door.\n\nRegards"


@pytest.mark.parametrize(
    ("question", "lost"),
    [
        ("When in May does it come?", [1]),
        ("Which door is to be measured?", []),
        ("When will it be delivered?", []),
        ("What did the earlier message say of May?", []),
    ],
)
def test_what_a_message_quotes_loses_to_what_it_says_itself(question, lost):
    said = ["It comes on 19 May.", "Earlier message, quoted: It comes on 5 May.", "Measure the door."]
    starts = [MESSAGE.index(each) for each in said]
    asked, terms = terms_of(question) - {"the", "in", "it", "of", "i"}, [terms_of(each) for each in said]
    others = of_earlier_message(asked, terms, {"d": MESSAGE}, ["d"] * 3, starts)
    assert [number for number, other in enumerate(others) if other] == lost
