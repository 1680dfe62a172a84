"""Boxes hold exactly the text they stand for, however the page is turned, cropped or set."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.extraction.check_boxes import spans_of, wrong_spans
from retrieval.extraction.extract import ExtractedDocument, ExtractLimits, extract
from retrieval.extraction.pdf.extract_pdf import extract_pdf, render_pdf_page
from tests.retrieval.pdf_maker import Sheet, column, make_pdf

PAPER = Path(__file__).parent / "data" / "paper.pdf"


def read(folder: Path, *sheets: Sheet) -> tuple[Path, ExtractedDocument]:
    path = folder / "made.pdf"
    path.write_bytes(make_pdf(sheets))
    return path, extract_pdf(path, ExtractLimits(), None)


def assert_boxes_right(path: Path, document: ExtractedDocument, length: int = 60) -> None:
    assert list(wrong_spans(path, document, spans_of(document, length, 200))) == []


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
@pytest.mark.parametrize("crop", [None, (30, 50, 500, 640)])
def test_boxes_are_right_on_turned_and_cropped_pages(tmp_path, rotate, crop):
    lines = column(60, 300, 8)
    media = (-20, 10, 600, 700)
    path, document = read(tmp_path, Sheet(lines, rotate=rotate, crop=crop, media=media))
    assert document.text.split() == " ".join(line[3] for line in lines).split()
    assert_boxes_right(path, document)


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
def test_the_ink_of_the_page_image_is_inside_the_boxes_and_only_there(tmp_path, rotate):
    path, document = read(tmp_path, Sheet(column(60, 300, 8), rotate=rotate, crop=(30, 50, 500, 640)))
    image = Image.open(io.BytesIO(render_pdf_page(path, 0, 1000, ExtractLimits(), None))).convert("L")
    ink = np.array(image) < 128
    boxed = np.zeros_like(ink)
    for box in document.boxes(0, len(document.text)):
        rows = slice(int(box.y0 * image.height), int(np.ceil(box.y1 * image.height)) + 1)
        boxed[rows, int(box.x0 * image.width) : int(np.ceil(box.x1 * image.width)) + 1] = True
    assert ink.sum() > 1000
    assert not (ink & ~boxed).any()
    assert ink[boxed].mean() > 0.05


def test_no_box_bridges_two_columns(tmp_path):
    left, right = column(72, 700, 20), column(320, 700, 20, first=9)
    path, document = read(tmp_path, Sheet([*left, *right]))
    boxes = document.boxes(0, len(document.text))
    assert len(boxes) == 40
    assert all(box.x1 < 310 / 612 or box.x0 > 310 / 612 for box in boxes)
    assert_boxes_right(path, document)


def test_a_span_over_two_pages_has_boxes_on_both(tmp_path):
    first, second = column(72, 200, 5, width=80), column(72, 700, 5, width=80, first=3)
    second = [(x, y, size, text.lower()) for x, y, size, text in second]
    path, document = read(tmp_path, Sheet(first), Sheet(second))
    end_of_first, start_of_second = document.pages[0].end, document.pages[1].start
    assert document.text[end_of_first:start_of_second] == " "  # the paragraph runs on
    boxes = document.boxes(end_of_first - 10, start_of_second + 10)
    assert [box.page for box in boxes] == [0, 1]
    assert_boxes_right(path, document)


def test_white_space_has_no_box_and_every_other_character_has_one(tmp_path):
    _, document = read(tmp_path, Sheet(column(72, 700, 6)))
    for position, letter in enumerate(document.text):
        assert (document.page_N[position] == -1) == letter.isspace()
        assert bool(document.boxes(position, position + 1)) != letter.isspace()
    assert document.boxes(3, 3) == []


def test_a_span_outside_the_text_is_refused(tmp_path):
    _, document = read(tmp_path, Sheet(column(72, 700, 2)))
    with pytest.raises(ValueError, match="no span"):
        document.boxes(0, len(document.text) + 1)


def test_text_outside_the_displayed_part_of_the_page_is_left_out(tmp_path):
    _, document = read(tmp_path, Sheet([(10, 10, 12, "seen"), (10, 600, 12, "cut away")], crop=(50, 50, 400, 400)))
    assert document.text == "seen"


def test_the_box_of_a_caption_that_reaches_beyond_the_page_ends_there(tmp_path):
    texts = [(-2, 700, 12, "Figure 1: The plan of the mill"), (3, 698, 12, "words that overlap it")]
    _, document = read(tmp_path, Sheet(texts))
    (figure,) = document.exhibits.figures
    assert figure.box is not None and figure.box.x0 == 0


def test_scattered_words_keep_their_boxes(tmp_path):
    dice = np.random.default_rng(7)
    places = dice.permutation(200)[:90]
    texts = [(40 + 55 * (p % 10), 40 + 36 * (p // 10), 9, f"w{p}x{i}") for i, p in enumerate(places.tolist())]
    path, document = read(tmp_path, Sheet(texts))
    assert sorted(document.text.split()) == sorted(text for *_, text in texts)
    assert_boxes_right(path, document, length=30)


def test_text_printed_sideways_keeps_its_boxes(tmp_path):
    content = (
        b"BT /F1 11 Tf 1 0 0 1 100 500 Tm (Upright words of the page) Tj 0 1 -1 0 60 200 Tm (Sideways words) Tj ET"
    )
    path, document = read(tmp_path, Sheet(content=content))
    assert document.text == "Upright words of the page\n\nSideways words"
    assert_boxes_right(path, document, length=7)


def test_boxes_of_a_real_paper_hold_the_text_of_its_spans():
    document = extract(PAPER)
    spans = spans_of(document, 250, 300)
    assert len(document.pages) == 10 and len(spans) > 400
    assert list(wrong_spans(PAPER, document, spans)) == []
