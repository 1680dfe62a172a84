"""Figures and tables of documents: found with their captions, kept beside the characters, given as CSV."""

from __future__ import annotations

import csv
import io

import pytest

from retrieval.extraction import character_places, exhibits
from retrieval.extraction.document import Exhibits, ExtractedBox, ExtractedTable
from retrieval.extraction.exhibits import is_figure_caption, is_table_caption, nearest_caption
from retrieval.types.exhibits import Table
from tests.retrieval.extraction.reading import read, written


def test_every_table_of_a_sheet_is_given_with_its_cells_as_they_stand(tmp_path):
    document = read(written(tmp_path, "two.csv", "Item,Cost\nPier,12\n\nShip,Built,Owner\nPetrel,1923,\n"))
    assert [table.rows for table in document.exhibits.tables] == [
        (("Item", "Cost"), ("Pier", "12")),
        (("Ship", "Built", "Owner"), ("Petrel", "1923", "")),
    ]
    assert [table.page for table in document.exhibits.tables] == [0, 0] and document.exhibits.figures == ()


def test_what_is_kept_belongs_to_its_text_and_damage_counts_as_absence(tmp_path):
    document = read(written(tmp_path, "one.csv", "Item,Cost\nPier,12\n"))
    folder = tmp_path / "pages"
    character_places.keep(folder, document)
    assert character_places.kept_exhibits(folder, document.text) == document.exhibits
    assert character_places.kept_exhibits(folder, "another text") is None
    (folder / exhibits.FILE).write_text("{")
    assert character_places.kept_exhibits(folder, document.text) is None


@pytest.mark.parametrize(
    ("text", "figure", "table"),
    [
        ("Figure 3: Counts by year", True, False),
        ("Fig. 2.1 The harbour", True, False),
        ("Abbildung 4. Der Hafen", True, False),
        ("Table 1. Topics by week", False, True),
        ("Tabelle 2: Preise", False, True),
        ("Figure 1 shows the harbour", False, False),
        ("Tables are listed below", False, False),
    ],
)
def test_captions_are_lines_that_begin_with_a_number_of_their_kind(text, figure, table):
    assert (is_figure_caption(text), is_table_caption(text)) == (figure, table)


def test_the_nearest_caption_above_or_below_belongs_to_a_table():
    lines = [("far", ExtractedBox(0, 0.1, 0.1, 0.9, 0.12)), ("near", ExtractedBox(0, 0.1, 0.44, 0.9, 0.46))]
    assert nearest_caption(lines, ExtractedBox(0, 0.1, 0.2, 0.9, 0.42), 0.12) == 1
    assert nearest_caption(lines, ExtractedBox(0, 0.1, 0.7, 0.9, 0.9), 0.12) is None
    assert nearest_caption(lines, ExtractedBox(0, 0.95, 0.47, 1.0, 0.6), 0.12) is None  # in another column


def test_csv_keeps_numbers_and_words_and_disarms_formulas():
    rows = (("Item", "a,b"), ("-12.5", "=cmd|' /C calc'!A0"), ("+1 000", "@x"), ("-5%", 'say "so"'))
    table = Table(1, "", "", None, rows)
    assert list(csv.reader(io.StringIO(table.csv))) == [
        ["Item", "a,b"], ["-12.5", "'=cmd|' /C calc'!A0"], ["+1 000", "'@x"], ["-5%", 'say "so"'],
    ]  # fmt: skip


def test_more_cells_than_are_kept_leave_the_last_tables_out():
    large = ExtractedTable(0, "", None, tuple(("x",) * 100 for _ in range(1500)))
    assert len(exhibits.within_limits(Exhibits((), (large, large))).tables) == 1
