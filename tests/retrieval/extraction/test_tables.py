"""Tables: every row a sentence of its own, behind the names of its columns, with the boxes of its cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from retrieval.extraction.extract import ExtractedDocument, ExtractLimits
from retrieval.extraction.pdf.assemble import DAMAGED
from retrieval.extraction.pdf.extract_pdf import extract_pdf
from retrieval.extraction.pdf.tables.find_tables import _with_turned_names
from retrieval.extraction.pdf.tables.grid import Cell, Grid
from tests.retrieval.pdf_maker import Sheet, column, make_pdf

PRICES = [("Region", "Price per tonne, EUR", "Grade"), ("North", "41.50", "A"), ("South", "39.10", "B")]
SENTENCES = [
    "Region: North; Price per tonne, EUR: 41.50; Grade: A.",
    "Region: South; Price per tonne, EUR: 39.10; Grade: B.",
]
EDGES, TOP, STEP = (72, 172, 332, 432), 700, 20


def drawn(rows: Sequence[Sequence[str]], *, top: int = TOP, edges: Sequence[int] = EDGES) -> bytes:
    """The text of cells, a row at a time; lines of one cell are separated by a line break."""
    parts = []
    for row, cells in enumerate(rows):
        for left, text in zip(edges, cells, strict=False):
            for line, words in enumerate(text.split("\n")):
                y = top - STEP * row - 12 * line - 14
                parts.append(b"BT /F1 10 Tf %d %d Td (%s) Tj ET" % (left + 4, y, escaped(words)))
    return b"\n".join(parts)


def escaped(text: str) -> bytes:
    return text.replace("(", "\\(").replace(")", "\\)").encode()


def stroked(*lines: tuple[float, float, float, float]) -> bytes:
    return b"".join(b"%g %g m %g %g l S\n" % line for line in lines)


def borders(rows: int, *, top: int = TOP, edges: Sequence[int] = EDGES, missing: Sequence[int] = ()) -> bytes:
    """All borders of a table; `missing`: horizontal ones that its first column lacks, because a cell spans rows."""
    foot = top - STEP * rows
    level = [
        (edges[1] if n in missing else edges[0], top - STEP * n, edges[-1], top - STEP * n) for n in range(rows + 1)
    ]
    return stroked(*level, *((x, top, x, foot) for x in edges))


def read(folder: Path, *pages: bytes) -> ExtractedDocument:
    path = folder / "made.pdf"
    path.write_bytes(make_pdf([Sheet(content=page) for page in pages]))
    return extract_pdf(path, ExtractLimits(), None)


RULES = stroked((72, 700, 432, 700), (72, 680, 432, 680), (72, 640, 432, 640))


FRAME = stroked((66, 702, 438, 702), (66, 638, 438, 638), (66, 702, 66, 638), (438, 702, 438, 638))


@pytest.mark.parametrize(
    "lines", [borders(3), borders(3) + FRAME, RULES, b""], ids=["borders", "framed borders", "rules", "aligned"]
)
def test_a_row_is_a_sentence_behind_the_names_of_its_columns(tmp_path, lines):
    assert read(tmp_path, lines + b"\n" + drawn(PRICES)).text.split("\n") == ["\t".join(PRICES[0]), *SENTENCES]


def test_a_row_that_is_one_cell_of_dots_leaves_the_rest_of_a_table_and_what_stands_below_it(tmp_path):
    rows = [PRICES[0], PRICES[1], ("....",), PRICES[2]]
    level = [(72, TOP - STEP * row, 432, TOP - STEP * row) for row in range(5)]
    upright = [(x, top, x, foot) for x in EDGES for top, foot in ((700, 660), (660, 640), (640, 620))]
    kept = [line for line in upright if line[0] in (72, 432) or line[1] != 660]
    below = drawn([("Prices are without tax.",)], top=600)
    text = read(tmp_path, b"\n".join([stroked(*level, *kept), drawn(rows), below])).text
    assert [line for line in text.split("\n") if line][1:] == [*SENTENCES, "Prices are without tax."]


def test_a_row_that_repeats_the_names_of_the_columns_is_no_row_also_sideways_on_several_pages(tmp_path):
    rows = [("Region", "2019", "2020"), ("North", "41.50", "40.10"), ("", "2019", "2020"), ("South", "39.10", "38.00")]
    document = read(tmp_path, *[TURNS[90] + borders(4) + drawn(rows)] * 3)
    said = ["Region: North; 2019: 41.50; 2020: 40.10.", "Region: South; 2019: 39.10; 2020: 38.00."]
    assert document.text.split("\n\n") == ["\n".join(["Region\t2019\t2020", *said])] * 3


TURNS = {90: b"0 1 -1 0 702 90 cm\n", 180: b"-1 0 0 -1 612 792 cm\n", 270: b"0 -1 1 0 -90 702 cm\n"}


@pytest.mark.parametrize("degrees", TURNS)
@pytest.mark.parametrize("lines", [borders(3), RULES, b""], ids=["borders", "rules", "aligned"])
def test_a_table_that_is_printed_sideways_is_read_like_others(tmp_path, lines, degrees):
    document = read(tmp_path, TURNS[degrees] + lines + b"\n" + drawn(PRICES))
    assert document.text.split("\n") == ["\t".join(PRICES[0]), *SENTENCES]
    start = document.text.index("41.50")
    (box,) = document.boxes(start, start + len("41.50"))
    wide, high = (box.x1 - box.x0) * 612, (box.y1 - box.y0) * 792
    assert (wide > high) == (degrees == 180)


def test_the_boxes_of_a_row_enclose_its_cells_and_not_the_names_above(tmp_path):
    document = read(tmp_path, borders(3) + drawn(PRICES))
    start = document.text.index(SENTENCES[1])
    boxes = document.boxes(start, start + len(SENTENCES[1]))
    assert len(boxes) == 3
    top, bottom = (792 - TOP + 2 * STEP) / 792, (792 - TOP + 3 * STEP) / 792
    assert all(top < box.y0 < box.y1 < bottom for box in boxes)
    cells = list(zip(EDGES, EDGES[1:], strict=False))
    assert all(left / 612 <= box.x0 < box.x1 <= right / 612 for box, (left, right) in zip(boxes, cells, strict=True))


def test_a_cell_of_several_lines_is_read_whole(tmp_path):
    edges = (72, 132, 332, 432)
    rows = [("Term", "Meaning of it", "Year"), ("must", "indicates an action that somebody\nrequires", "2020")]
    lines = stroked(*((72, y, 432, y) for y in (700, 680, 640, 620)), *((x, 700, x, 620) for x in edges))
    page = drawn(rows, edges=edges) + b"\n" + drawn([("may", "is optional", "2021")], top=640, edges=edges)
    assert read(tmp_path, lines + page).text.split("\n")[1:] == [
        "Term: must; Meaning of it: indicates an action that somebody requires; Year: 2020.",
        "Term: may; Meaning of it: is optional; Year: 2021.",
    ]


def test_lines_between_rules_are_told_from_rows_by_the_words_that_did_not_fit(tmp_path):
    rows = [
        ("Data set", "Year", "Contains"),
        ("Stein data (Stein", "2020", "recordings of mice that look"),
        ("and Bell, 2019)", "", "at pictures"),
        ("Bell data (none)", "2021", "recordings of mice at rest"),
    ]
    edges = (72, 172, 222, 432)
    lines = stroked((72, 700, 432, 700), (72, 680, 432, 680), (72, 620, 432, 620))
    text = read(tmp_path, lines + b"\n" + drawn(rows, edges=edges)).text
    assert text.split("\n")[1:] == [
        "Data set: Stein data (Stein and Bell, 2019); Year: 2020; Contains: recordings of mice that look at pictures.",
        "Data set: Bell data (none); Year: 2021; Contains: recordings of mice at rest.",
    ]


def test_a_cell_beside_several_rows_is_said_in_each(tmp_path):
    rows = [("Kind", "Amount", "Place"), ("Grain", "12", "north"), ("", "340", "south")]
    text = read(tmp_path, borders(3, missing=[2]) + drawn(rows)).text
    assert text.split("\n")[1:] == [
        "Kind: Grain; Amount: 12; Place: north.",
        "Kind: Grain; Amount: 340; Place: south.",
    ]


def test_a_table_that_goes_on_on_the_next_page_keeps_the_names_of_its_columns(tmp_path):
    more = [("East", "40.00", "A"), ("West", "38.25", "C")]
    text = read(tmp_path, borders(3) + drawn(PRICES), borders(2) + drawn(more)).text
    assert text.split("\n")[-2:] == [
        "Region: East; Price per tonne, EUR: 40.00; Grade: A.",
        "Region: West; Price per tonne, EUR: 38.25; Grade: C.",
    ]


def test_a_form_says_what_is_filled_in_behind_what_is_asked(tmp_path):
    edges = (72, 232, 432)
    rows = [("Name of applicant", "Ada Byron"), ("Place of birth", "London")]
    text = read(tmp_path, borders(2, edges=edges) + drawn(rows, edges=edges)).text
    assert text.split("\n") == ["Name of applicant: Ada Byron.", "Place of birth: London."]


def test_a_line_across_a_table_stands_alone(tmp_path):
    rows = [PRICES[0], ("Prices of the second quarter",), PRICES[1]]
    upright = [(x, 700, x, 680) for x in EDGES] + [(x, 660, x, 640) for x in EDGES]
    lines = stroked(*((72, 700 - STEP * n, 432, 700 - STEP * n) for n in range(4)), *upright)
    lines += stroked((72, 700, 72, 640), (432, 700, 432, 640))
    assert read(tmp_path, lines + drawn(rows)).text.split("\n")[1:] == [rows[1][0], SENTENCES[0]]


def test_columns_of_prose_between_rules_are_no_table(tmp_path):
    left, right = column(72, 660, 20, width=40), column(320, 660, 20, width=40, first=9)
    parts = [b"BT /F1 10 Tf %d %d Td (%s) Tj ET" % (x, y, text.encode()) for x, y, _, text in [*left, *right]]
    lines = stroked((72, 700, 540, 700), (72, 676, 540, 676), (72, 400, 540, 400))
    heading = b"BT /F1 10 Tf 72 684 Td (Journal of) Tj ET BT /F1 10 Tf 320 684 Td (Boats) Tj ET "
    text = read(tmp_path, lines + heading + b"\n".join(parts)).text
    assert [line for line in text.split("\n") if ": " in line or "; " in line] == []
    assert " ".join(text.split()).endswith(" ".join(line[3] for line in right))


def test_boxes_of_a_drawing_are_no_table(tmp_path):
    page = b"72 600 100 40 re S 250 500 80 90 re S 172 620 m 250 620 l S 330 540 m 400 540 l S 400 500 100 60 re S "
    words = [(80, 615, b"Plan"), (260, 550, b"Assess"), (410, 530, b"Act")]
    page += b" ".join(b"BT /F1 10 Tf %d %d Td (%s) Tj ET" % word for word in words)
    assert set(read(tmp_path, page).text.split()) == {"Plan", "Assess", "Act"}


def test_dots_that_lead_to_the_next_cell_are_no_text(tmp_path):
    rows = [PRICES[0], ("North" + "." * 40, "41.50", "A"), ("South" + "." * 40, "39.10", "B")]
    assert read(tmp_path, RULES + drawn(rows)).text.split("\n")[1:] == SENTENCES


def test_the_caption_between_two_tables_belongs_to_neither(tmp_path):
    caption = (
        b"\nBT /F1 10 Tf 76 622 Td (Table 1: prices of grain in spring, as they were told to us by the mills) Tj ET\n"
    )
    second = stroked((72, 600, 432, 600), (72, 580, 432, 580), (72, 540, 432, 540))
    text = read(tmp_path, RULES + second + drawn(PRICES) + caption + drawn(PRICES, top=600)).text
    assert text.split("\n").count(SENTENCES[0]) == 2 and "Table 1: prices of grain in spring" in text


def test_rows_and_columns_that_only_white_space_parts_are_told_apart_between_borders(tmp_path):
    edges = (72, 172, 222, 272, 332)
    rows = [
        ("", "Match", "", "", "Kept"),
        ("", "P", "R", "F1", ""),
        ("fast", "59.0", "35.6", "44.4", "97"),
        ("slow", "76.8", "–", "72.6", "94"),
    ]
    pieces = [(x, top, x, top - 20) for x in (172, 332) for top in (700, 680, 660, 640)]  # as LaTeX draws borders
    lines = stroked(*((72, y, 432, y) for y in (700, 660, 620)), *pieces)
    table = [row.replace("–", "-") for row in map("\t".join, rows)]
    text = read(tmp_path, lines + drawn([row.split("\t") for row in table], edges=edges)).text
    assert text.split("\n") == [
        "Match\tKept",
        "P\tR\tF1",
        "fast; Match P: 59.0; Match R: 35.6; Match F1: 44.4; Kept: 97.",
        "slow; Match P: 76.8; Match R: -; Match F1: 72.6; Kept: 94.",
    ]


LIGHT = stroked((72, 700, 432, 700), (72, 680, 432, 680), (172, 700, 172, 600), (332, 700, 332, 600))


def test_printed_rows_between_two_borders_keep_their_own_cells_and_the_lines_that_go_on(tmp_path):
    rows = [
        ("Action", "Labor", "Cost"),
        ("Install it ........", "1 hour = $85 ......", "$6,205."),
        ("Mark it and", "2 hours = $170 ....", "$7,000."),
        ("then remove it", "", ""),
    ]
    assert read(tmp_path, LIGHT + drawn(rows, edges=(72, 172, 332))).text.split("\n")[1:] == [
        "Action: Install it; Labor: 1 hour = $85; Cost: $6,205.",
        "Action: Mark it and then remove it; Labor: 2 hours = $170; Cost: $7,000.",
    ]


def test_a_number_may_stand_beside_the_last_line_of_its_rows_name(tmp_path):
    rows = [
        ("Offense", "Total", "Arrests"),
        ("Robbery ......", "102.1", "25.5"),
        ("Murder and", "", ""),
        ("manslaughter ....", "10.0", "0.9"),
        ("Arson ......", "9.8", "4.3"),
    ]
    assert read(tmp_path, LIGHT + drawn(rows, edges=(72, 172, 332))).text.split("\n")[1:] == [
        "Offense: Robbery; Total: 102.1; Arrests: 25.5.",
        "Offense: Murder and manslaughter; Total: 10.0; Arrests: 0.9.",
        "Offense: Arson; Total: 9.8; Arrests: 4.3.",
    ]


def test_names_of_two_lines_above_columns_that_only_white_space_parts_are_read_whole(tmp_path):
    lines = stroked(*((72, y, 432, y) for y in (700, 660, 620)), (172, 700, 172, 620), (372, 700, 372, 620))
    rows = [
        (14, ((178, "under 18"), (238, "over 18 and"), (376, "Kept"))),
        (32, ((185, "years"), (240, "under 65"), (300, "Total"))),
        (54, ((76, "Theft"), (185, "59.0"), (240, "35.6"), (300, "44.4"), (376, "97"))),
        (72, ((76, "Arson"), (185, "76.8"), (240, "12.5"), (300, "72.6"), (376, "94"))),
    ]
    assert read(tmp_path, lines + printed(rows)).text.split("\n")[-2:] == [
        "Theft; under 18 years: 59.0; over 18 and under 65: 35.6; Total: 44.4; Kept: 97.",
        "Arson; under 18 years: 76.8; over 18 and under 65: 12.5; Total: 72.6; Kept: 94.",
    ]


def test_several_numbers_in_one_cell_are_no_rows_and_words_of_one_name_no_columns(tmp_path):
    rows = [("Pump", "Daytime number", "Voltage"), ("small", "020 7946 0018", "12 V"), ("", "", "24 V")]
    assert read(tmp_path, LIGHT + drawn(rows, edges=(72, 172, 332))).text.split("\n")[1:] == [
        "Pump: small; Daytime number: 020 7946 0018; Voltage: 12 V 24 V."
    ]


def test_a_name_that_is_wider_than_its_column_stands_above_it(tmp_path):
    head, body = [("Parameter", "Coefficient")], [("", ""), ("Rate", "0.31"), ("Slope", "2.94")]
    content = RULES + drawn(head, edges=(72, 280)) + b"\n" + drawn(body, edges=(72, 305))
    assert read(tmp_path, content).text.split("\n") == [
        "Parameter\tCoefficient",
        "Parameter: Rate; Coefficient: 0.31.",
        "Parameter: Slope; Coefficient: 2.94.",
    ]


def test_a_cell_that_ends_with_a_full_stop_is_parted_from_the_next_like_any_other(tmp_path):
    rows = [("Item", "Supplier", "Price"), ("Pump", "Voda s.r.o.", "12.50"), ("Valve", "Aqua Ltd.", "9.00")]
    assert read(tmp_path, borders(3) + drawn(rows)).text.split("\n")[1] == (
        "Item: Pump; Supplier: Voda s.r.o.; Price: 12.50."
    )


def test_a_heading_of_two_lines_above_aligned_columns_is_said_in_every_row(tmp_path):
    rows = [
        ("", "Compress", "Decompress"),
        ("Flag", "usage", "usage"),
        *((f"-{n}", f"{n}200k", f"{n}00k") for n in (1, 2, 3)),
    ]
    lines = read(tmp_path, drawn(rows)).text.split("\n")
    assert lines == [
        "Flag\tCompress usage\tDecompress usage",
        "Flag: -1; Compress usage: 1200k; Decompress usage: 100k.",
        "Flag: -2; Compress usage: 2200k; Decompress usage: 200k.",
        "Flag: -3; Compress usage: 3200k; Decompress usage: 300k.",
    ]


def printed(rows: Sequence[tuple[float, Sequence[tuple[float, str]]]]) -> bytes:
    """Lines (y from the top of the text, parts with their left edges) in Courier-like places."""
    return b"\n".join(
        b"BT /F1 9 Tf %g %g Td (%s) Tj ET" % (x, 700 - y, escaped(text)) for y, parts in rows for x, text in parts
    )


def statistics(*, rule: bool = True) -> bytes:
    """A table of numbers: names in two levels, groups of rows, a label of two lines."""
    columns = (230, 290, 350, 410)
    rows: list[tuple[float, list[tuple[float, str]]]] = [
        (0, [(260, "Actual"), (380, "Projected")]),
        (14, [(72, "Region"), *zip(columns, ("2003-04", "2004-05", "2005-06", "2006-07"), strict=True)]),
        (30, [(72, "North"), *zip(columns, ("2,753", "2,799", "2,815", "2,893"), strict=True)]),
        (42, [(72, "East and"), *zip((), (), strict=True)]),
        (54, [(72, "the islands"), *zip(columns, ("1,103", "-", "1,205", "1,309"), strict=True)]),
        (66, [(72, "Inner districts")]),
        (78, [(72, "South"), *zip(columns, ("946", "953", "962", "986"), strict=True)]),
        (90, [(72, "West"), *zip(columns, ("36", "37", "37", "38"), strict=True)]),
    ]
    lines = stroked((230, 688 + 9, 330, 697), (350, 697, 450, 697)) if rule else b""
    return lines + printed(rows)


@pytest.mark.parametrize("rule", [True], ids=["rules below the groups"])
def test_numbers_below_names_in_two_levels_are_read_with_both(tmp_path, rule):
    lines = read(tmp_path, statistics(rule=rule)).text.split("\n")
    assert "Region: North; Actual 2003-04: 2,753; Actual 2004-05: 2,799; Projected 2005-06: 2,815; " in lines[2]
    assert any(line.startswith("Region: East and the islands; Actual 2003-04: 1,103;") for line in lines)
    assert any("Inner districts" in line and "946" not in line for line in lines)
    assert lines[-1].startswith("Region: West; Actual 2003-04: 36;")


LEVELS = (72, 132, 192, 252, 312, 372)


def boxes(*cells: tuple[int, int, int, int, str]) -> bytes:
    """Cells with borders all round them, by row and column: from and to of each."""
    drawing = []
    for row, row_end, first, last, text in cells:
        left, right, top, foot = LEVELS[first], LEVELS[last], TOP - STEP * row, TOP - STEP * row_end
        drawing.append(b"%d %d %d %d re S" % (left, foot, right - left, top - foot))
        drawing.append(b"BT /F1 10 Tf %d %d Td (%s) Tj ET" % (left + 4, top - 14, escaped(text)))
    return b"\n".join(drawing)


def row_of(row: int, *texts: str, first: int = 0) -> list[tuple[int, int, int, int, str]]:
    return [(row, row + 1, first + number, first + number + 1, text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("heads", "last"),
    [
        ([(0, 2, 0, 1, "Pier"), (0, 1, 1, 3, "2024"), (0, 1, 3, 5, "2025"), *row_of(1, *("May", "June") * 2, first=1)],
         "Pier: South; 2024 May: 5; 2024 June: 6; 2025 May: 7; 2025 June: 8."),
        ([(0, 2, 0, 1, "Pier"), (0, 1, 1, 4, "Boats"), (0, 2, 4, 5, "All"),
          *row_of(1, "Sail", "Oar", "Steam", first=1)],
         "Pier: South; Boats Sail: 5; Boats Oar: 6; Boats Steam: 7; All: 8."),
        ([(0, 1, 0, 1, "Pier"), (0, 1, 1, 3, "Spring"), (0, 1, 3, 5, "Autumn"),
          *row_of(1, "North", "1", "2", "3", "4")],
         "Pier: South; Spring: 5; Spring: 6; Autumn: 7; Autumn: 8."),
    ],
)  # fmt: skip
def test_cells_that_span_names_below_are_part_of_them(tmp_path, heads, last):
    body = [*row_of(2, "North", "1", "2", "3", "4"), *row_of(3, "South", "5", "6", "7", "8")]
    assert read(tmp_path, boxes(*heads, *body)).text.split("\n")[-1] == last


def test_a_table_whose_first_row_is_empty_may_be_looked_at_for_names_set_sideways():
    page: Any = SimpleNamespace(middle_N2=np.zeros((2, 2)), box_N4=np.zeros((2, 4)), turn_N=np.zeros(2, int))
    cells = [Cell(1, 2, column, column + 1, np.array([column])) for column in (0, 1)]
    grid = Grid(cells, (0.0, 10.0, 20.0), heading_rows=2)
    assert _with_turned_names(page, grid) is grid


def test_names_set_sideways_name_their_columns(tmp_path):
    columns = (200, 260, 320)
    names = [b"BT /F1 9 Tf 0 1 -1 0 %d 704 Tm (%s) Tj ET" % (x + 8, n) for x, n in
             zip(columns, (b"January", b"March", b"May"), strict=True)]  # fmt: skip
    rows = [
        ("Course", "", "", ""),
        ("Welding", "6", "-", "8"),
        ("Turning", "-", "10", "12"),
        ("Sewing", "14", "15", "9"),
    ]
    table = borders(4, edges=(72, 192, 252, 312, 372)) + drawn(rows, edges=(72, 192, 252, 312))
    assert read(tmp_path, b"\n".join([*names, table])).text.split("\n")[1:] == [
        "Course: Welding; January: 6; March: -; May: 8.",
        "Course: Turning; January: -; March: 10; May: 12.",
        "Course: Sewing; January: 14; March: 15; May: 9.",
    ]


def test_a_row_that_a_page_break_cuts_is_joined(tmp_path):
    rows = [*PRICES, ("East, with the", "40.00", "A and")]
    rest = [("", "", "a little B"), ("West", "38.25", "C")]
    rows[-1] = ("East", "40.00", "A and")
    text = read(tmp_path, borders(4) + drawn(rows), borders(2) + drawn(rest)).text
    assert "Region: East; Price per tonne, EUR: 40.00; Grade: A and a little B." in text
    assert text.endswith("Region: West; Price per tonne, EUR: 38.25; Grade: C.") and text.count("little B") == 1


def test_the_rest_of_a_row_behind_a_damaged_page_is_not_lost(tmp_path):
    rows, rest = [*PRICES, ("East", "40.00", "A and")], [("", "", "a little B"), ("West", "38.25", "C")]
    pages = [borders(4) + drawn(rows), b"BT /F1 10 Tf 72 700 Td (gone) Tj ET", borders(2) + drawn(rest)]
    made = make_pdf([Sheet(content=page) for page in pages])
    first, lost, last = re.search(rb"/Kids \[(\d+ 0 R) (\d+ 0 R) (\d+ 0 R)\]", made).groups()
    kids = b"/Kids [%s %s %s]"
    damaged = made.replace(kids % (first, lost, last), kids % (first, b"99 0 R".rjust(len(lost)), last))
    (tmp_path / "made.pdf").write_bytes(damaged)
    document = extract_pdf(tmp_path / "made.pdf", ExtractLimits(), None)
    assert document.pages[1].note == DAMAGED
    assert "Grade: a little B.\nRegion: West;" in document.text


def test_the_number_of_a_row_is_not_said_in_the_next(tmp_path):
    rows = [("Pos.", "Description", "Amount"), ("1", "Bell", "11.00"), ("2", "Crane", "12.15"), ("", "Sum", "23.15")]
    assert read(tmp_path, borders(4) + drawn(rows)).text.split("\n")[-1] == "Description: Sum; Amount: 23.15."


@pytest.mark.parametrize(
    ("first", "second"), [(range(450, -51, -50), range(450, -51, -50)), (range(0, 110, 10), range(20, 42, 2))]
)
def test_the_scales_of_charts_are_no_table(tmp_path, first, second):
    marks = [
        (20 * n, [(72, str(left)), (300, str(right))])
        for n, (left, right) in enumerate(zip(first, second, strict=True))
    ]
    assert not read(tmp_path, printed(marks)).exhibits.tables


def test_numbers_in_equal_steps_below_names_are_a_table(tmp_path):
    rows = [(0, [(72, "Step"), (200, "Length, cm"), (300, "Weight, g")])]
    rows += [(14 * n, [(72, f"Size {n}"), (200, str(10 * n)), (300, str(25 * n))]) for n in range(1, 8)]
    assert "Step: Size 3; Length, cm: 30; Weight, g: 75." in read(tmp_path, printed(rows)).text.split("\n")


def test_a_dash_below_numbers_stands_for_one_though_it_is_the_first(tmp_path):
    rows = [(0, [(200, "2009"), (260, "2010"), (320, "2011")])]
    cells = {"Kenya": "12 14 15", "Norway": "- - 21", "Peru": "- - 8", "Chad": "- 5 6", "Mali": "7 8 9"}
    for number, (land, amounts) in enumerate(cells.items(), start=1):
        places = zip((200, 260, 320), amounts.split(), strict=True)
        rows.append((14 * number, [(72, land), *places]))
    lines = read(tmp_path, printed(rows)).text.split("\n")
    assert "Norway; 2009: -; 2010: -; 2011: 21." in lines and "Chad; 2009: -; 2010: 5; 2011: 6." in lines


POOLS = (("Day", "Opens", "Closes"), ("Monday", "6:30", "20:00"), ("Tuesday", "8:00", "21:30"))


def named(text: str, left: int, top: int) -> bytes:
    return b"BT /F1 10 Tf %d %d Td (%s) Tj ET\n" % (left, top + 12, text.encode())


def test_rows_of_tables_that_only_their_names_tell_apart_begin_with_them(tmp_path):
    edges = (320, 400, 460, 520)
    left = named("Indoor pool", 72, TOP) + borders(3) + drawn(POOLS)
    right = named("Outdoor pool:", 320, TOP) + borders(3, edges=edges) + drawn(POOLS, edges=edges)
    narrow = (72, 172, 232, 292)
    left = left.replace(drawn(POOLS), drawn(POOLS, edges=narrow)).replace(borders(3), borders(3, edges=narrow))
    lines = read(tmp_path, left + b"\n" + right).text.split("\n")
    assert "Indoor pool; Day: Tuesday; Opens: 8:00; Closes: 21:30." in lines
    assert "Outdoor pool; Day: Monday; Opens: 6:30; Closes: 20:00." in lines


@pytest.mark.parametrize(
    "second", [[("Day", "Opens", "Closes"), ("Friday", "9:00", "10:00"), ("Sunday", "1:00", "2:00")], []]
)
def test_rows_that_stand_in_one_table_alone_do_not_repeat_its_name(tmp_path, second):
    below = named("Holidays", 72, 500) + borders(3, top=500) + drawn(second, top=500) if second else b""
    text = read(tmp_path, named("Indoor pool", 72, TOP) + borders(3) + drawn(POOLS) + b"\n" + below).text
    assert "Indoor pool\n\nDay\tOpens\tCloses\nDay: Monday; Opens: 6:30" in text
