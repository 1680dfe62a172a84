"""Plain questions over tables are computed; any other is left to reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from retrieval.library import Library
from retrieval.query.computed import NamedTable, asks_to_compute, computed, named_table
from retrieval.types.answers import Answer
from tests.retrieval.conftest import add

ROWS = [
    ["Ferry", "Home port", "Seats", "Price per trip", "Built_in"],
    ["Albatross", "Rosental", "1,200", "$4.50", "1981"],
    ["Booby", "Lindau", "80", "$3.00", "1999"],
    ["Cormorant", "Rosental", "400", "$3.00", "2004"],
    ["Dunlin", "Old Harbour", "-", "$9.25", "1964"],
    ["Total", "", "1,680", "$19.75", ""],
]


def table(rows: list[list[str]] = ROWS, about: str = "fleet of 2024") -> NamedTable:
    found = named_table("d", about, rows)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("question", "answer", "rows"),
    [
        ("How many ferries are there in the fleet?", "4 of 4 rows.", 4),
        ("how many rows fleet", "4 of 4 rows.", 4),
        ("How many ferries have the home port Rosental?", "2 of 4 rows where Home port is Rosental.", 2),
        ("How many ferries have more than 100 seats?", "2 of 4 rows where Seats is above 100.", 2),
        ("How many ferries have at most 400 seats?", "2 of 4 rows where Seats is below or exactly 400.", 2),
        ("Which ferry has the most seats?", "Albatross: Seats 1,200, the highest of 3 rows.", 1),
        (
            "Which ferry has the lowest price per trip?",
            "Booby, Cormorant: Price per trip $3.00, the lowest of 4 rows.",
            2,
        ),
        ("What is the total of seats in the fleet of 2024?", "1,680: the sum of Seats over 3 rows.", 3),
        (
            "What is the average price per trip from Rosental?",
            "3.75: the mean of Price per trip over 2 rows where Home port is Rosental.",
            2,
        ),
    ],
)
def test_what_every_word_of_is_understood_is_computed(question: str, answer: str, rows: int) -> None:
    assert asks_to_compute(question)
    found = computed(question, [table()])
    assert found is not None and (found.text, len(found.rows)) == (answer, rows)


@pytest.mark.parametrize(
    "question",
    [
        "How many seats does the Albatross have?",  # one cell: it is read
        "How many passengers were on the ferries?",
        "Which ferry has the most seats without Rosental?",
        "How many ferries sank?",
        "What is the highest mountain of the fleet?",
        "Which ferry has the most comfortable seats?",
        "What is the average?",
        "How many ferries have more than 100?",
    ],
)
def test_a_question_with_any_other_word_is_left_to_reading(question: str) -> None:
    assert computed(question, [table()]) is None


def test_of_two_tables_the_one_that_is_named_answers_and_without_a_name_none() -> None:
    other = [[*row[:2], "7", *row[3:]] for row in ROWS[1:]]
    tables = [table(), table([ROWS[0], *other], "fleet of 2019")]
    assert computed("What is the sum of the seats?", tables) is None
    found = computed("What is the sum of the seats in the fleet of 2019?", tables)
    assert found is not None and found.text.startswith("28:")


def test_columns_without_names_or_of_several_units_are_not_computed() -> None:
    assert named_table("d", "", [["1", "2"], ["3", "4"], ["5", "6"], ["7", "8"]]) is None
    mixed = [["Ferry", "Home port", "Price"], ["A", "x", "$3"], ["B", "y", "€4"], ["C", "z", "$5"]]
    assert computed("What is the sum of the price?", [table(mixed)]) is None


def test_an_answer_shows_the_rows_that_it_was_computed_from(library: Library, tmp_path: Path) -> None:
    (tmp_path / "fleet.csv").write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in ROWS))
    add(library, tmp_path / "fleet.csv")
    *words, answer = library.ask("Which ferry has the most seats?", quote=True)
    assert isinstance(answer, Answer) and [word.text for word in words] == [answer.text]
    assert answer.text == "Albatross: Seats 1,200, the highest of 3 rows."
    assert (answer.decided_by, answer.outcome, answer.quote, answer.probability) == ("rows", "found", False, None)
    assert "Ferry: Albatross" in answer.passages[0].text
    assert library.answers.get(answer.id) == answer

    *_, other = library.ask("How many rows have a captain?", quote=True)
    assert isinstance(other, Answer) and other.decided_by != "rows" and other.settings["survey"]
