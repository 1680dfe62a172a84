"""Figures and tables of documents: found with their captions, kept beside the characters, given as CSV."""

from __future__ import annotations

import csv
import io
import json

import pytest

from retrieval.extraction import character_places
from retrieval.extraction.document import Exhibits, ExtractedBox, ExtractedTable
from retrieval.extraction.exhibits import is_figure_caption, is_table_caption, nearest_caption, within_limits
from retrieval.types.records import Table
from tests.retrieval.extraction.reading import read, written
from tests.retrieval.extraction.test_mail import attach, message
from tests.retrieval.extraction.test_other_texts import odt


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
    (folder / character_places.EXHIBITS).write_text("{")
    assert character_places.kept_exhibits(folder, document.text) is None
    places = folder / character_places.FILE
    assert character_places.boxes(folder, document.text, 0, 4)
    for damaged in (places.read_bytes()[:-40], b"PK\x03\x04", b""):
        places.write_bytes(damaged)
        assert character_places.boxes(folder, document.text, 0, 4) is None


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
    assert len(within_limits(Exhibits((), (large, large))).tables) == 1


def cells(document) -> list[tuple[int, str, list[list[str]]]]:
    return [(one.page, one.caption, [list(row) for row in one.rows]) for one in document.exhibits.tables]


def test_tables_of_a_word_document_have_captions_and_keep_their_columns(tmp_path):
    import docx

    made = docx.Document()
    made.add_paragraph("Table 2. What it costs")
    table = made.add_table(3, 3)
    for row, words in zip(table.rows, (("Item", "2024", "2025"), ("Pier", "12", "13"), ("All", "", "25")), strict=True):
        for cell, word in zip(row.cells, words, strict=True):
            cell.text = word
    table.cell(2, 0).merge(table.cell(2, 1))
    inner = table.cell(1, 0).add_table(2, 2)
    for cell in (*inner.rows[0].cells, *inner.rows[1].cells):
        cell.text = "oak"
    made.add_paragraph("Nothing of note.")
    made.add_table(1, 4).cell(0, 0).text = "a frame around words"
    made.save(str(tmp_path / "made.docx"))
    document = read(tmp_path / "made.docx")
    rows = [["Item", "2024", "2025"], ["Pier oak | oak oak | oak", "12", "13"], ["All", "", "25"]]
    assert cells(document) == [(0, "Table 2. What it costs", rows)]
    assert document.exhibits.tables[0].box is None


def test_tables_and_charts_of_slides_are_found_on_their_slide(tmp_path):
    import pptx
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    show = pptx.Presentation()
    show.slides.add_slide(show.slide_layouts[0]).shapes.title.text = "Start"
    slide = show.slides.add_slide(show.slide_layouts[6])
    table = slide.shapes.add_table(2, 2, *[Inches(1)] * 4).table
    for at, word in enumerate(("Item", "Cost", "Pier", "12")):
        table.cell(at // 2, at % 2).text = word
    data = CategoryChartData()
    data.categories = ["2024", "2025"]
    data.add_series("Ships", (3, 4.5))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *[Inches(1)] * 4, data).chart
    chart.has_title, chart.chart_title.text_frame.text = True, "Ships by year"
    show.save(str(tmp_path / "made.pptx"))
    assert cells(read(tmp_path / "made.pptx")) == [
        (1, "", [["Item", "Cost"], ["Pier", "12"]]),
        (1, "Ships by year", [["", "Ships"], ["2024", "3"], ["2025", "4.5"]]),
    ]


def test_tables_of_an_opendocument_text_and_of_attachments_are_found(tmp_path):
    row = "<table:table-row>{}</table:table-row>"
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    rows = "".join(row.format(cell.format(a) + cell.format(b)) for a, b in (("Item", "Cost"), ("Pier", "12")))
    made = odt(tmp_path, f"<text:p>Tabelle 1: Preise</text:p><table:table>{rows}</table:table>")
    wanted = [["Item", "Cost"], ["Pier", "12"]]
    assert cells(read(made)) == [(0, "Tabelle 1: Preise", wanted)]
    mail = attach(message(), "prices.odt", made.read_bytes())
    assert cells(read(written(tmp_path, "made.eml", mail.as_bytes()))) == [(1, "Tabelle 1: Preise", wanted)]


def test_what_an_older_release_kept_is_found_anew(tmp_path):
    document = read(written(tmp_path, "one.csv", "Item,Cost\nPier,12\n"))
    character_places.keep(tmp_path / "pages", document)
    path = tmp_path / "pages" / character_places.EXHIBITS
    plain = json.loads(path.read_text())
    assert plain.pop("made")
    path.write_text(json.dumps(plain))
    assert character_places.kept_exhibits(tmp_path / "pages", document.text) is None
