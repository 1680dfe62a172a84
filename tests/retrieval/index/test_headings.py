"""What a block stands under: headings from the highest level on, and the caption of its table."""

from __future__ import annotations

import pytest

from retrieval.index.headings import Headings

TEXT = """Boats of the lake
They are old.
Harbour
Fees
A day costs 5.
Lake
Nobody pays.
"""


def at(text: str, words: str) -> tuple[int, int]:
    return text.index(words), text.index(words) + len(words)


def outline(*headings: tuple[str, int, int]) -> list[tuple[str, int, int | None, int | None]]:
    return [(title, level, None, start) for title, level, start in headings]


@pytest.mark.parametrize("start", [TEXT.index, lambda title: 0])
def test_a_paragraph_stands_under_its_headings_also_where_only_their_page_is_known(start):
    titles = [("Boats of the lake", 0), ("Harbour", 1), ("Fees", 2), ("Lake", 1)]
    headings = Headings(TEXT, outline(*((title, level, start(title)) for title, level in titles)))
    assert headings.above(*at(TEXT, "They are old.")) == "Boats of the lake"
    assert headings.above(*at(TEXT, "A day costs 5.")) == "Boats of the lake Harbour Fees"
    assert headings.above(*at(TEXT, "Nobody pays.")) == "Boats of the lake Lake"


def test_nothing_stands_above_the_first_heading_and_headings_without_a_place_count_for_nothing():
    assert Headings(TEXT, [("Harbour", 0, 3, None)]).above(*at(TEXT, "Nobody pays.")) == ""
    assert Headings(TEXT, outline(("Harbour", 0, TEXT.index("Harbour")))).above(*at(TEXT, "They")) == ""


def test_a_row_stands_under_the_caption_of_its_table():
    rows = "\n".join(f"Offense: {name}; Total: {n}; Male: {n}." for n, name in enumerate(("Robbery", "Fraud", "Arson")))
    table = f"Offense\tTotal\tMale\n{rows}"
    text = f"An introduction to all of it.\n\nTable 324. Arrests by Sex: 2009\n\n{table}\n\nSource: FBI."
    headings = Headings(text, ())
    caption = "An introduction to all of it. Table 324. Arrests by Sex: 2009"
    assert headings.above(*at(text, "Arson; Total: 2")) == headings.above(*at(text, "Offense\tTotal")) == caption
    assert headings.above(*at(text, "Table 324")) == headings.above(*at(text, "Source: FBI.")) == ""
    long = text.replace("Arrests by Sex: 2009", "Arrests by Sex: 2009, for year ending December 31")
    assert (
        Headings(long, ()).above(*at(long, "Fraud")) == "Table 324. Arrests by Sex: 2009, for year ending December 31"
    )


def test_a_table_that_begins_or_ends_a_document_has_its_rows():
    text = "Item: Pump; Price: 12.\nItem: Hose; Price: 3."
    assert Headings(text, ()).above(*at(text, "Hose")) == ""
    assert Headings(f"Prices of the year\n{text}", ()).above(19, 60) == "Prices of the year"
