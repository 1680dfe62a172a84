"""Questions made of text that explains, lists, tabulates and describes itself."""

import json
import lzma
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from research.train.data.questions.of_text import text_questions
from research.train.data.questions.of_text.abbreviations import abbreviation_questions
from research.train.data.questions.of_text.listed_items import listed_questions
from research.train.data.questions.of_text.manual_entries import manual_entry_questions
from research.train.data.questions.of_text.real_tables import with_tables
from research.train.data.questions.of_text.stated_details import address_questions, field_questions, made_front_matter
from research.train.data.questions.of_text.text_questions import KINDS, make_text_questions
from research.train.data.questions.pseudo_queries import MadeQuestion


def pairs(text: str, made: Iterable[MadeQuestion]) -> list[tuple[str, str]]:
    return [(each.question, text[each.start : each.stop]) for each in made]


@pytest.mark.parametrize(
    ("text", "words", "letters"),
    [
        ("It uses the Large Hadron Collider (LHC) daily.", "Large Hadron Collider", "LHC"),
        ("Read about the Food and Drug Administration (FDA).", "Food and Drug Administration", "FDA"),
        ("The CPU (central processing unit) is fast.", "central processing unit", "CPU"),
    ],
)
def test_abbreviations_in_brackets_are_asked_for_both_ways(text: str, words: str, letters: str) -> None:
    asked = [pair for seed in range(12) for pair in pairs(text, abbreviation_questions(text, random.Random(seed)))]
    assert {answer for _, answer in asked} == {words, letters}
    assert all((letters if answer == words else words) in question for question, answer in asked)


def test_brackets_that_spell_nothing_are_no_abbreviations() -> None:
    assert not list(abbreviation_questions("He came home late (USA) and left the place (ABC).", random.Random(0)))


def test_an_option_is_answered_by_the_first_sentence_about_it() -> None:
    text = "OPTIONS\n-q, --quiet  Suppress all warnings of the program. Errors are printed.\n"
    ((question, answer),) = pairs(text, manual_entry_questions(text, random.Random(1)))
    assert "-q" in question
    assert answer == "Suppress all warnings of the program"


def test_a_heading_is_no_parameter() -> None:
    entry = "{}\n\nA pointer to the buffer that receives the whole text.\n"
    assert not list(manual_entry_questions("Text.\n" + entry.format("Remarks"), random.Random(0)))
    assert list(manual_entry_questions("Text.\n" + entry.format("lpBuffer"), random.Random(0)))


def test_a_list_is_answered_by_the_sentence_that_announces_it() -> None:
    text = "Geology.\nThere are three main kinds of rock:\n- igneous\n- sedimentary\n- metamorphic\n"
    ((question, answer),) = pairs(text, listed_questions(text, random.Random(0)))
    assert "kinds of rock" in question
    assert answer == "There are three main kinds of rock"


def test_a_list_within_a_sentence_is_answered_by_its_items() -> None:
    text = "Common fuels include oil, coal and natural gas."
    asked = [pair for seed in range(8) for pair in pairs(text, listed_questions(text, random.Random(seed)))]
    assert {answer for _, answer in asked} == {"oil, coal and natural gas"}
    assert "What do Common fuels include?" in {question for question, _ in asked}


def test_tables_are_written_as_stored_ones_and_asked_by_column_and_row() -> None:
    text = "Rates\nRegion | Price per tonne | Code\nNorth | 41.50 | N7\nSouth | 38.00 | \nEnd."
    written, made = with_tables(text, random.Random(2))
    assert "Region\tPrice per tonne\tCode\nRegion: North; Price per tonne: 41.50; Code: N7.\n" in written
    assert "Region: South; Price per tonne: 38.00.\nEnd." in written
    assert made
    for question, answer in pairs(written, made):
        assert answer in ("41.50", "38.00", "N7", "North", "South")
        assert "North" in question or "South" in question or answer in ("North", "South")


def test_addresses_and_fields_are_asked_for() -> None:
    text = "Submitted: 05 May 2020 Published: 13 April 2022\nPlease send new events to help@agency.gov today."
    ((_, address),) = pairs(text, address_questions(text, random.Random(0)))
    assert address == "help@agency.gov"
    assert [answer for _, answer in pairs(text, field_questions(text, random.Random(0)))] == [
        "05 May 2020",
        "13 April 2022",
    ]


def test_made_front_matter_says_what_it_is_asked_for() -> None:
    for seed in range(60):
        text, made = made_front_matter(random.Random(seed))
        assert made
        for question, answer in pairs(text, made):
            assert answer.strip() == answer != ""
            assert "{" not in question


def test_text_questions_have_their_passage_and_others_of_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paragraph = "The Large Hadron Collider (LHC) is near Geneva. " + "It has many magnets in a long tunnel. " * 20
    other = "Costs of the tunnel and of the magnets are paid by many countries. " * 12
    (tmp_path / "text").mkdir()
    with lzma.open(tmp_path / "text" / "openstax.jsonl.xz", "wt") as file:
        for title in ("Physics", "Secret"):
            file.write(json.dumps({"title": title, "text": f"{paragraph}\n{other}\n{other}"}) + "\n")
    monkeypatch.setattr(text_questions, "LONGEST_STRETCH", 100_000)
    counts = dict.fromkeys(KINDS, 5)
    questions = make_text_questions(tmp_path, counts, held_out=("Secret",))
    assert {each.title for each in questions} == {"Physics"}
    (about,) = (each for each in questions if each.source == "abbreviations")
    ((piece, start, stop),) = about.spans
    assert about.pieces[piece][start:stop] == about.answers[0]
    assert about.wrong
    assert not any(about.answers[0] in text for text in about.wrong)
    assert make_text_questions(tmp_path, counts, held_out=("Secret",)) == questions
