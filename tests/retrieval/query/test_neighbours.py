"""A guess is quoted with what stands around it, what is more than a guess with what answers nearly as well, a row
alone."""

from __future__ import annotations

import pytest
import torch

from model.reading.ranker import Decision, Ranker
from model.reading.span_reader import FoundSpan
from retrieval.query.features import QuestionTerms, Sentences
from retrieval.query.rank import LONGEST_BESIDE, quote_best, score_sentences
from retrieval.query.sentences import LONGEST_WITH_CONTEXT, QuotableBlocks, Sentence
from tests.retrieval.query.test_quoting import best_sentences, blocks_of, reading_of
from tests.tiny_model import tiny_model

TEXT = (
    "The dam was raised in 1931. The old wall had leaked for years, so the valley asked for a new one. "
    "A road crosses it today.\n\nBoats are let in summer."
)

RANKER = Ranker(decision=Decision(none={"constant": -9.0}, right={"reader_logprob": 1.0}, sure_above=1 / 3))
"""p_right of a third: a sentence that the reader gives a probability of a half."""


def quoted(text: str, count: int = 1, **probabilities: float) -> list[str]:
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, text)
    quotable = QuotableBlocks(model, blocks, {"d": text})
    found = best_sentences(
        quotable,
        torch.zeros(1, len(blocks), 16),
        read=reading_of(**probabilities),
        count=count,
        ranker=RANKER,
    )
    return [text[one.start : one.stop].strip() for one in found]


def test_a_sentence_that_is_more_than_a_guess_stands_without_what_does_not_answer():
    assert quoted(TEXT, raised=0.8, leaked=0.0001, road=0.1)[0] == "The dam was raised in 1931."


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        ({"raised": 0.8, "leaked": 0.1}, slice(0, 2)),
        ({"leaked": 0.8, "raised": 0.1}, slice(0, 2)),
        ({"leaked": 0.8, "road": 0.1, "raised": 0.0001}, slice(1, 3)),
    ],
)
def test_it_stands_with_the_sentence_beside_it_that_answers_nearly_as_well(probabilities, expected):
    sentences = TEXT.replace("\n\n", " ").split(". ")
    assert quoted(TEXT, **probabilities)[0] == ". ".join(sentences[expected]) + "."


def test_another_stands_with_what_is_around_it_over_blank_lines_too():
    assert quoted(TEXT, raised=0.4, leaked=0.1)[0] == TEXT


def test_the_words_that_answer_stay_marked():
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, TEXT)
    quotable = QuotableBlocks(model, blocks, {"d": TEXT})
    matches_QCL, read = torch.zeros(1, len(blocks), 16), reading_of(road=0.4)
    (found,) = best_sentences(quotable, matches_QCL, read=read, ranker=RANKER)
    assert TEXT[slice(*found.answer)] == "road"


def test_the_better_neighbour_comes_first_until_the_quotation_is_full():
    goes_on = " and it goes on" * 12
    text = "\n\n".join(f"{word} is said in this sentence{goes_on}." for word in "abc")
    found = quoted(text, b=0.4, c=0.1)[0]
    assert len(found) <= LONGEST_WITH_CONTEXT and "b is said" in found and "c is said" in found
    assert "a is said" not in found


def test_what_is_quoted_along_is_not_offered_again():
    assert len(quoted(TEXT, count=2, raised=0.5, leaked=0.3, road=0.1)) == 1


def test_what_is_offered_beside_it_stands_with_a_little_around_it_and_says_nothing_twice():
    words = ("anchor", "bollard", "capstan", "dinghy", "ensign", "fender", "gunwale", "hawser", "inlet")
    text = " ".join(f"Of the {word} nothing else is told in this long sentence of the harbour book." for word in words)
    best, *others = quoted(text, count=3, bollard=0.6, fender=0.2, inlet=0.1)
    assert len(others) == 2 and all(len(other) <= LONGEST_BESIDE for other in others)
    assert "fender" in others[0] and others[0].count("nothing else") > 1 and "inlet" in others[1]
    said = [word for each in (best, *others) for word in words if word in each]
    assert len(set(said)) == len(said)


def test_what_an_earlier_version_says_stands_by_itself_and_not_around_another():
    said = [
        ("new", "Lists of visitors are kept for thirty months."),
        ("old", "Lists of visitors are kept for two months."),
        ("old", "A list of visitors lies at the gate."),
    ]
    starts = [0, 0, len(said[1][1]) + 1]
    items = [
        Sentence([(number, 0)], text, min(number, 1), start, start + len(text), start + len(text))
        for number, ((_, text), start) in enumerate(zip(said, starts, strict=True))
    ]
    found = Sentences(
        QuestionTerms("How long are lists of visitors kept?"),
        items,
        [document for document, _ in said],
        torch.zeros(3),
        [FoundSpan(likely, start, start + 1) for likely, start in zip((0.6, 0.2, 0.1), starts, strict=True)],
        names=["Records 2026", "Records 2023", "Records 2023"],
        titles={"new": "Records 2026", "old": "Records 2023"},
        p_none=0.0,
    )
    best, gate, before = quote_best(score_sentences(found, RANKER), 3)
    assert before.earlier_version and (before.start, before.stop) == (0, len(said[1][1]))
    assert (best.run, gate.run, gate.start) == (0, 1, starts[2])


def test_a_reader_is_given_plain_letters_for_full_width_ones():
    texts = []

    def read(passages):
        texts.extend(passage.text for passage in passages)
        return reading_of(Nm=0.5)(passages)

    model, text = tiny_model(block_size=16), "The belt ＣＶ－４４ has ３８ Ｎｍ."
    blocks = blocks_of(model, text)
    found = best_sentences(QuotableBlocks(model, blocks, {"d": text}), torch.zeros(1, len(blocks), 16), read=read)
    assert texts == ["The belt CV-44 has 38 Nm."] and found


@pytest.mark.parametrize("probabilities", [{"North": 0.5, "South": 0.4}, {"North": 0.1}])
def test_a_row_stands_alone(probabilities):
    rows = "North; Price: 1; Stock: 2.\nSouth; Price: 3; Stock: 4."
    assert quoted(rows, **probabilities)[0] == "North; Price: 1; Stock: 2."


def test_a_field_of_a_form_stands_with_what_is_around_it():
    form = "Collected from: Vine Hill 8.\nBrought to: Canal Quay 21.\nWeight: 40 kg."
    assert quoted(form, Canal=0.1)[0] == form


def test_a_question_is_quoted_with_the_answer_behind_it_however_well_it_matches():
    assert quoted("When does supper begin?\n\nIt is served at six.", supper=0.9)[0].endswith("It is served at six.")


@pytest.mark.parametrize(
    "announced",
    ["To mend it, check:\n", "To mend it, check the following:\n\n"],
)
def test_what_announces_a_list_is_quoted_along_with_the_list(announced):
    items = "".join(f"• the {number} valve in the gallery behind the eastern wall\n" for number in ("first", "second"))
    began = "The pump may stop in spring, and there are many reasons for that which nobody knows. " * 5
    text = f"{began}\n\n{announced}{items}"
    found = quoted(text, stop=0.4)[0]
    assert len(began) < LONGEST_WITH_CONTEXT < len(text), "the items by themselves have no room"
    assert found.endswith("second valve in the gallery behind the eastern wall")
