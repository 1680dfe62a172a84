"""PowerPoint files: slides as parts, tables, notes, and files that are odd, broken or hostile."""

from __future__ import annotations

import pptx
import pytest
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from retrieval.errors import ExtractError
from retrieval.extraction.extract import extract
from tests.retrieval.extraction.reading import SMALL, odd_archive, read
from tests.retrieval.packed import repacked

BOX = (Inches(1), Inches(1), Inches(5), Inches(2))
SLIDE = "ppt/slides/slide1.xml"


def presentation(folder, words: str = "The crane lifts 40 tonnes."):
    made = pptx.Presentation()
    first = made.slides.add_slide(made.slide_layouts[1])
    first.shapes.title.text = "Harbour works"
    body = first.placeholders[1].text_frame
    body.text = words
    body.add_paragraph().text = "Its arm is new."
    body.paragraphs[1].level = 1
    first.notes_slide.notes_text_frame.text = "Mention the price: 70."
    second = made.slides.add_slide(made.slide_layouts[6])
    table = second.shapes.add_table(3, 2, *BOX).table
    for row, cells in enumerate([("Item", "Cost"), ("Pier", "12"), ("Crane", "70")]):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    made.slides.add_slide(made.slide_layouts[6])
    made.core_properties.author = "A. Miller"
    made.core_properties.title = "PowerPoint Presentation"
    made.save(folder / "made.pptx")
    return folder / "made.pptx"


def test_each_slide_is_a_part_with_its_title_text_tables_and_notes(tmp_path):
    document = extract(presentation(tmp_path))
    assert document.text == (
        "Harbour works\n\nThe crane lifts 40 tonnes.\n• Its arm is new.\n\nNotes: Mention the price: 70.\n\n"
        "Item\tCost\nItem: Pier; Cost: 12.\nItem: Crane; Cost: 70."
    )
    assert [page.label for page in document.pages] == ["slide 1", "slide 2", "slide 3"]
    assert document.pages[2].start == document.pages[2].end  # an empty slide keeps its number
    assert document.title == "Harbour works" and document.metadata["author"] == "A. Miller"
    assert [(entry.title, entry.page) for entry in document.outline] == [("Harbour works", 0)]


def test_groups_and_charts_are_read_and_footers_are_not(tmp_path):
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[6])
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(*BOX).text_frame.text = "inside a group"
    data = CategoryChartData()
    data.categories = ["2024", "2025"]
    data.add_series("Ships", (12, 15.5))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *BOX, data)
    made.save(tmp_path / "chart.pptx")
    document = read(tmp_path / "chart.pptx")
    assert "inside a group" in document.text and "2025: 15.5." in document.text.replace("; Ships", "")


ALTERNATIVES = (
    b'<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
    b'<mc:Choice xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main" Requires="a14">%b</mc:Choice>'
    b"<mc:Fallback>%b</mc:Fallback></mc:AlternateContent>"
)


def test_of_shapes_that_are_stated_in_several_ways_the_one_with_text_is_read(tmp_path):
    def doubled(xml: bytes) -> bytes:
        start, end = xml.index(b"<p:sp>"), xml.rindex(b"</p:sp>") + len(b"</p:sp>")
        shapes = xml[start:end]
        return xml[:start] + ALTERNATIVES % (shapes, shapes.replace(b"40 tonnes", b"gone")) + xml[end:]

    path = repacked(presentation(tmp_path), {SLIDE: doubled})
    assert read(path).text == read(presentation(tmp_path)).text


def test_a_box_without_a_form_is_read(tmp_path):
    made = pptx.Presentation()
    box = made.slides.add_slide(made.slide_layouts[6]).shapes.add_textbox(*BOX)
    box.text_frame.text = "The crane is new."
    box._element.spPr.remove(box._element.spPr.prstGeom)
    del box._element.nvSpPr.cNvSpPr.attrib["txBox"]
    made.save(tmp_path / "made.pptx")
    assert read(tmp_path / "made.pptx").text == "The crane is new."


def laid_out(tmp_path, boxes):
    """The text of a slide with boxes (left, top, width and height in inches, text), stored in this order."""
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[6])
    for *box, text in boxes:
        slide.shapes.add_textbox(*map(pptx.util.Inches, box)).text_frame.text = text
    made.save(tmp_path / "boxes.pptx")
    return read(tmp_path / "boxes.pptx").text


def test_boxes_in_a_grid_are_read_row_by_row_each_with_its_heading(tmp_path):
    cards = [(x, y, f"{name} plan", f"{name} price\n{name} term") for name, x, y in
             (("Gold", 5, 1), ("Basic", 0.5, 1), ("Team", 5, 4), ("School", 0.5, 4))]  # fmt: skip
    boxes = [(x, y + 0.6, 3, 1, text) for x, y, _, text in cards] + [(x, y, 3, 0.4, name) for x, y, name, _ in cards]
    assert laid_out(tmp_path, boxes).split("\n\n") == [
        f"{name} plan: {name} price; {name} term." for name in ("Basic", "Gold", "School", "Team")
    ]


def test_boxes_of_two_columns_are_read_column_by_column(tmp_path):
    heights = [(0.5, 1, "Why we moved."), (0.5, 3, "What it cost."), (5, 1.5, "Who paid."), (5, 4, "Who came.")]
    text = laid_out(tmp_path, [(x, y, 4, 1, text) for x, y, text in heights[::-1]])
    assert text == "Why we moved.\n\nWhat it cost.\n\nWho paid.\n\nWho came."


def test_sentences_below_a_heading_stay_sentences(tmp_path):
    boxes = [
        (x, y, 4, h, f"{text}{x}") for x in (1, 5) for y, h, text in ((1, 0.4, "Part "), (1.5, 1, "It rained.\nDay "))
    ]
    assert laid_out(tmp_path, boxes) == "Part 1\nIt rained.\nDay 1\n\nPart 5\nIt rained.\nDay 5"


def test_hidden_slides_are_read_and_marked(tmp_path):
    path = presentation(tmp_path)
    hidden = repacked(path, {SLIDE: lambda xml: xml.replace(b"<p:sld ", b'<p:sld show="0" ', 1)})
    assert read(hidden).pages[0].note == "hidden slide"


def test_macros_are_neither_run_nor_read(tmp_path):
    path = repacked(presentation(tmp_path), {}, {"ppt/vbaProject.bin": b"Sub Auto_Open() Shell"}, "macros.pptm")
    document = read(path)
    assert "Shell" not in document.text and "macros" in document.notes[0]


def test_letters_of_every_writing_and_breaks_within_a_line_survive(tmp_path):
    assert "Köln 東京\v" not in read(presentation(tmp_path, "Köln 東京 Ωμέγα\vnext")).text
    assert "Köln 東京 Ωμέγα next" in read(presentation(tmp_path, "Köln 東京 Ωμέγα\vnext")).text


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("cut", "damaged or cut off"),
        ("words", "damaged or cut off"),
        ("encrypted", "old .ppt file or a PowerPoint file with a password"),
        ("foreign", "not a PowerPoint file"),
        ("entities", "declares entities"),
        ("broken xml", "is damaged"),
        ("emptied", "is damaged"),
        ("deep", "is damaged"),
        ("bomb", "unpacks to"),
    ],
)
def test_odd_presentations_are_refused_with_their_reason(tmp_path, kind, reason):
    with pytest.raises(ExtractError, match=reason):
        read(odd_archive(presentation(tmp_path), kind, SLIDE))


def test_a_presentation_without_words_or_with_too_many_is_refused(tmp_path):
    empty = pptx.Presentation()
    empty.save(tmp_path / "empty.pptx")
    with pytest.raises(ExtractError, match="no text"):
        read(tmp_path / "empty.pptx")
    with pytest.raises(ExtractError, match="more than 20,000 characters"):
        read(presentation(tmp_path, "word " * 5000), SMALL)
