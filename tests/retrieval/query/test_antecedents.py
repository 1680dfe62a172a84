"""A sentence that refers back is quoted with the sentence before it; one that stands alone is not."""

import pytest
import torch

from retrieval.query.extend import is_antecedent, refers_back
from retrieval.query.sentences import QuotableBlocks
from tests.retrieval.query.test_quoting import best_sentences, blocks_of, reading_of
from tests.tiny_model import tiny_model

TEXT = (
    "Nothing of this matters here.\n\nGravel slides under the wheels. For this reason the road is closed in March. "
    "This document says nothing about April."
)


def quoted(text, **chances):
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, text)
    quotable = QuotableBlocks(model, blocks)
    zeros = torch.zeros(1, len(blocks), 16)
    found = best_sentences(quotable, zeros, {"d": text}, read=reading_of(**chances), count=3)
    pointed = [each.places[each.answer_span.start : each.answer_span.stop] for each in found]
    spelt = ["".join(text[a:b] for _, a, b in map(lambda place: quotable.place(*place), places)) for places in pointed]
    return [text[slice(*quotable.span(each.places))] for each in found], spelt


def test_the_reason_is_quoted_with_what_follows_from_it_and_the_answer_still_pointed_at() -> None:
    said, pointed = quoted(TEXT, March=0.9)
    assert said[0] == "Gravel slides under the wheels. For this reason the road is closed in March."
    assert pointed[0] == "March"
    assert "Gravel slides under the wheels." not in said, "it is quoted already"


def test_a_sentence_that_stands_alone_is_quoted_alone() -> None:
    assert quoted(TEXT, Gravel=0.9)[0][0] == "Gravel slides under the wheels."
    assert quoted(TEXT, April=0.9)[0][0] == "This document says nothing about April."


def test_nothing_is_taken_from_another_paragraph() -> None:
    said, _ = quoted("Gravel slides under the wheels of a car.\n\nIt was closed for all of March.", March=0.9)
    assert said[0] == "It was closed for all of March."


@pytest.mark.parametrize(
    "sentence",
    [
        "As a result, most researchers lack training.",
        "The process is known as spreading activation.",
        "These are examples of interference.",
        "He lost his memory in an accident.",
        "In this case the pump stops.",
        "Aus diesem Grund bleibt die Straße gesperrt.",
        "Elle est fermée en mars.",
        "Por eso la carretera está cerrada.",
    ],
)
def test_it_refers_back(sentence) -> None:
    assert refers_back(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "This proposed rule applies to all aircraft.",
        "In this section we describe the corpus.",
        "It is important to close the valve.",
        "Thistles grow beside the road.",
        "Items are listed below.",
        "Es gibt drei Arten.",
        "The processor stops at once.",
    ],
)
def test_it_stands_alone(sentence) -> None:
    assert not refers_back(sentence)


def test_headings_and_long_sentences_are_no_antecedents() -> None:
    assert not is_antecedent("The road\nIt is closed.", 0, 8, 9)
    long = "Gravel " * 60 + "slides. It is closed."
    assert not is_antecedent(long, 0, long.index("It") - 1, long.index("It"))
