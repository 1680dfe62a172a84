"""Sentences side by side that answer about equally well, and tables above their captions, are quoted together."""

from __future__ import annotations

import pytest
import torch

from retrieval.query.sentences import QuotableText, Quoting
from tests.retrieval.query.test_quoting import best_sentences, blocks_of, reading_of
from tests.tiny_model import tiny_model

TEXT = (
    "The dam was raised in 1931. The old wall had leaked for years, so the valley asked for a new one. "
    "A road crosses it today.\n\nBoats are let in summer."
)


def quoted(text: str, count: int = 1, **chances: float) -> list[str]:
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, text)
    quoting = Quoting(model, blocks)
    found = best_sentences(
        quoting, torch.zeros(1, len(blocks), 16), {"d": QuotableText(text)}, read=reading_of(**chances), count=count
    )
    return [text[slice(*quoting.span(one.places))].strip() for one in found]


@pytest.mark.parametrize(
    ("chances", "expected"),
    [
        ({"raised": 0.5, "leaked": 0.3}, TEXT.split(" A road")[0]),
        ({"raised": 0.3, "leaked": 0.5}, TEXT.split(" A road")[0]),
        ({"raised": 0.5, "leaked": 0.01}, "The dam was raised in 1931."),
        ({"raised": 0.5, "road": 0.4}, "The dam was raised in 1931."),
        ({"Boats": 0.5, "road": 0.4}, "Boats are let in summer."),
    ],
)
def test_the_next_best_is_quoted_along_if_it_stands_beside_and_is_about_as_good(chances, expected):
    assert quoted(TEXT, **chances)[0] == expected


def test_what_is_quoted_along_is_not_offered_again():
    first, second = quoted(TEXT, count=2, raised=0.5, leaked=0.3, road=0.1)
    assert "1931" in first and "leaked" in first and second == "A road crosses it today."


def test_rows_items_and_headings_are_not_joined():
    rows = "North; Price: 1; Stock: 2.\nSouth; Price: 3; Stock: 4."
    assert quoted(rows, North=0.5, South=0.4)[0] == "North; Price: 1; Stock: 2."
    items = "Bring these.\n\n- Warm clothes for the night.\n- Food for a whole day."
    assert quoted(items, Warm=0.5, Food=0.4)[0] == "- Warm clothes for the night."
    heading = "About the dam\nThe dam was raised in 1931."
    assert quoted(heading, About=0.4, raised=0.5)[0] == "The dam was raised in 1931."


def test_a_caption_below_its_table_is_quoted_with_the_rows():
    table = "Prices follow.\n\nNorth; Price: 1; Stock: 2.\nSouth; Price: 3; Stock: 4.\n\nTable 1: Prices of water."
    assert quoted(table, Table=0.5)[0] == table.split("follow.")[1].strip()
    assert quoted("Water is dear there.\n\nTable 1: Prices of water.", Table=0.5)[0] == "Table 1: Prices of water."
