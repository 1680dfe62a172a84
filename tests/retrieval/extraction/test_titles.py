"""Titles of PDFs, and numbers that were hidden before headings."""

from __future__ import annotations

import pytest

from retrieval.extraction.extract import ExtractLimits
from retrieval.extraction.pdf.assemble import may_be_title
from retrieval.extraction.pdf.extract_pdf import extract_pdf
from tests.retrieval.pdf_maker import Sheet, column, make_pdf

PAGE = [(72, 740, 20, "Dams of the North"), *column(72, 700, 12, width=80)]


def title(folder, sheets, stated=""):
    path = folder / "scan0042.pdf"
    path.write_bytes(make_pdf(sheets, title=stated))
    return extract_pdf(path, ExtractLimits(), None).title


@pytest.mark.parametrize(
    "stated",
    [
        "",
        "report_final_v2",
        "Dams 2.docx",
        "Microsoft Word - dams",
        "untitled",
        "C:/temp/dams/x",
        "Presentation 1.11.2024",
    ],
)
def test_a_title_that_is_a_file_name_gives_way_to_the_largest_text(tmp_path, stated):
    assert title(tmp_path, [Sheet(PAGE)], stated) == "Dams of the North"


def test_a_stated_title_counts_if_its_words_are_printed(tmp_path):
    assert title(tmp_path, [Sheet(PAGE)], "Dams of the North, 1990") == "Dams of the North, 1990"
    assert title(tmp_path, [Sheet(PAGE)], "Annual template for accounts") == "Dams of the North"


def test_a_cover_with_few_lines_is_compared_with_the_page_after_it(tmp_path):
    cover = Sheet([(72, 600, 24, "Dams of the North"), (72, 560, 18, "A survey of walls"), (72, 500, 12, "Ann Lee")])
    assert title(tmp_path, [cover]) == "scan0042", "alone it may be anything"
    assert title(tmp_path, [cover, Sheet(column(72, 700, 12, width=80))]) == "Dams of the North"


def test_the_names_of_a_tables_columns_are_no_title(tmp_path):
    names = [(72 + 120 * c, 740, 14, text) for c, text in enumerate(("DOCUMENT NO.", "DATE", "PAYEE NAME"))]
    rows = [
        (72 + 120 * c, 715 - 14 * r, 9, text) for r in range(6) for c, text in enumerate((f"{r}7", "3 May", "Mill"))
    ]
    assert title(tmp_path, [Sheet([*names, *rows])]) == "scan0042"


def test_a_running_head_is_no_title(tmp_path):
    heads = [Sheet([(72, 770, 9, "Gazette of Dams"), *column(72, 700, 30, width=80, first=n)]) for n in range(4)]
    first = Sheet([(72, 770, 9, "Gazette of Dams"), (72, 745, 24, "Gazette of Dams"), *PAGE[:1], *PAGE[1:]])
    assert title(tmp_path, [first, *heads]) == "Dams of the North"


def test_a_title_that_all_further_pages_repeat_as_their_head_is_the_title(tmp_path):
    heads = [Sheet([(72, 770, 9, "Dams of the North"), *column(72, 700, 30, width=80, first=n)]) for n in range(4)]
    assert title(tmp_path, [Sheet(PAGE), *heads]) == "Dams of the North"


def test_counters_hidden_before_headings_are_left_out(tmp_path):
    lines = [
        (72, 740 - 40 * n, 12, f"{n}BPart of the report number {word}") for n, word in enumerate(("one", "two", "six"))
    ]
    path = tmp_path / "made.pdf"
    path.write_bytes(make_pdf([Sheet(lines)]))
    document = extract_pdf(path, ExtractLimits(), None)
    assert document.text.startswith("Part of the report number one") and "BPart" not in document.text
    assert len(document.boxes(0, 4)) == 1
    falling = [(72, 740 - 40 * n, 12, f"{7 - n}BPart of it") for n in range(3)]
    path.write_bytes(make_pdf([Sheet(falling)]))
    assert "7BPart" in extract_pdf(path, ExtractLimits(), None).text


@pytest.mark.parametrize(
    "recognised",
    [
        "Oversize Tire Accessory Kit",
        "SUPREME COURT OF THE UNITED STATES",
        "4 ons linzen",
        "The LinnSequencer 32 Track MIDI Sequence Recorder",
        "Order & Judgment – Second Part",
        "Handbook of the Dam: Gates and Valves",
        "„Mühlen am Bach“",
        "Plan B",
        "FORM 1040",
        "a short history of mills",
        "水車の歴史",
    ],
)
def test_what_is_recognised_in_a_scan_may_be_its_title_where_it_reads_like_one(recognised):
    assert may_be_title(recognised)


@pytest.mark.parametrize(
    "recognised",
    [
        "e ; Docket Number: 7741203 ie",
        "| chapter",
        "~ Annual Report",
        "10/28/2019 1:49 PM 19CV47031",
        "Case No.: 2021-44",
        "WEIGHT INCREASE: 3.00 Lbs.",
        "Receipt ; thank you",
        "Minutes of the . Council",
        "Lease of the Mill t",
        "2019 07 11 0042",
    ],
)
def test_a_misread_line_a_stamp_or_a_label_with_its_number_is_no_title_of_a_scan(recognised):
    assert not may_be_title(recognised)
