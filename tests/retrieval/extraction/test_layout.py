"""Reading order, paragraphs and the repair of printed words."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from retrieval.extraction.extract import ExtractedDocument, ExtractLimits
from retrieval.extraction.pdf.assemble import NO_TEXT
from retrieval.extraction.pdf.extract_pdf import extract_pdf
from retrieval.extraction.pdf.text_boxes import spell
from tests.retrieval.pdf_maker import Sheet, column, make_pdf


def read(folder: Path, *sheets: Sheet) -> ExtractedDocument:
    path = folder / "made.pdf"
    path.write_bytes(make_pdf(sheets))
    return extract_pdf(path, ExtractLimits(), None)


def words(lines: list[tuple[float, float, float, str]]) -> list[str]:
    return " ".join(line[3] for line in lines).split()


TITLE = (100, 740, 20, "A Title Over Both Columns Of The Page")
LEFT, RIGHT = column(72, 700, 22), column(320, 700, 22, first=17)


@pytest.mark.parametrize(
    "drawn",
    [
        [TITLE, *LEFT, *RIGHT],
        [*RIGHT, *LEFT, TITLE],
        [TITLE, *(line for pair in zip(LEFT, RIGHT, strict=True) for line in pair)],
    ],
    ids=["as read", "right column first", "line by line across"],
)
def test_two_columns_are_read_one_after_the_other_whatever_the_order_of_drawing(tmp_path, drawn):
    document = read(tmp_path, Sheet(drawn))
    assert document.text.split() == words([TITLE, *LEFT, *RIGHT])


def test_three_columns_under_a_heading_and_over_a_full_line_are_read_in_turn(tmp_path):
    columns = [column(50 + 180 * i, 680, 20, size=9, width=34, first=11 * i) for i in range(3)]
    foot = (
        50,
        400,
        9,
        "This closing line runs over the whole width of the page, across all of its three columns of print.",
    )
    drawn = [TITLE, *(line for row in zip(*columns, strict=True) for line in row), foot]
    document = read(tmp_path, Sheet(drawn))
    assert document.text.split() == words([TITLE, *columns[0], *columns[1], *columns[2], foot])


def test_a_column_drawn_in_no_order_is_read_from_top_to_bottom(tmp_path):
    lines = column(72, 700, 25, width=85)
    drawn = lines.copy()
    random.Random(3).shuffle(drawn)
    assert read(tmp_path, Sheet(drawn)).text.split() == words(lines)


def test_lines_set_wide_to_fill_their_width_are_no_columns(tmp_path):
    """Justified text: between full lines, words so far apart that each is drawn alone, with a gap in the middle."""
    full = column(72, 700, 12, width=85)
    x_of = (72, 122, 168, 210, 252, 330, 372, 418, 460, 510)  # a gap of more than two em before the sixth
    set_wide = ["seven", "words", "are", "here", "and", "then", "five", "more", "again"] + ["there"]
    lines = full[:6]
    for row in range(2):
        lines += [(x, full[6 + row][1], 10, word) for x, word in zip(x_of, set_wide, strict=True)]
    lines += full[8:]
    assert read(tmp_path, Sheet(lines)).text.split() == words(lines)


def test_paragraphs_are_parted_by_a_blank_line_and_headings_stand_alone(tmp_path):
    heading = (72, 740, 16, "Chapter One")
    first, second = column(72, 710, 4, width=80), column(72, 640, 4, width=80, first=5)
    paragraphs = read(tmp_path, Sheet([heading, *first, *second])).text.split("\n\n")
    assert paragraphs == ["Chapter One", " ".join(words(first)), " ".join(words(second))]


def printed(*lines: tuple[str, float, float, float, str]) -> bytes:
    """Text operators of lines (font, x, y, size, text)."""
    return b"\n".join(
        b"BT /%s %g Tf %g %g Td (%s) Tj ET" % (f.encode(), s, x, y, t.encode()) for f, x, y, s, t in lines
    )


@pytest.mark.parametrize("font", ["F3", "F1"], ids=["bold", "only larger"])
def test_a_heading_of_several_lines_is_one_and_numbered_ones_stand_alone(tmp_path, font):
    body = [("F1", *line) for line in column(72, 700, 6, width=80)]
    asks = ["Why do I get these messages when I am compil-", "ing a program of mine?"]
    numbered = ["1.1 What the guests who came to dinner ate or", "1.2 Drank"]
    two = [(font, 72, 600 - 20 * i, 15, text) for i, text in enumerate(asks)]
    four = [(font, 72, 540 - 20 * i, 15, text) for i, text in enumerate(numbered)]
    more = [("F1", *line) for line in column(72, 490, 3, width=80)]
    text = read(tmp_path, Sheet(content=printed(*body, *two, *four, *more))).text
    assert "\n\nWhy do I get these messages when I am compiling a program of mine?\n\n1.1 What" in text
    assert "ate or\n\n1.2 Drank\n\n" in text


def test_lines_broken_on_purpose_stay_lines(tmp_path):
    code = ["<task>", "Measure", "</task>", "<task>", "Sow", "</task>", "<note about='the last task of all'/>"]
    lines = [(72, 600 - 12 * i, 10, text) for i, text in enumerate(code)]
    assert read(tmp_path, Sheet([*column(72, 700, 4, width=80), *lines])).text.endswith("\n".join(code))


def prose(*lines: str) -> Sheet:
    """One paragraph; the long first line shows where the right margin is."""
    margin = (
        72,
        700,
        10,
        "This is the longest line of the paragraph, it shows where all of them end here, do you see?",
    )
    return Sheet([margin, *((72, 688 - 12 * i, 10, line) for i, line in enumerate(lines))])


@pytest.mark.parametrize(
    ("second", "third", "joined"),
    [
        ("and so we come to the second line of this fine paragraph, with infor-", "mation in it.", "information"),
        ("the long-term view and the short view are two, says the author of the long-", "term plan.", "long-term"),
        ("nothing is certain, which is state-of-the-art if anything is state-of-the-", "art.", "state-of-the-art"),
        ("here comes a compound with a capital letter behind the hyphen, Afro-", "American.", "Afro-American"),
        ("these are the years in which all of this took place in the north, 1914-", "1918 it was.", "1914-1918"),
    ],
)
def test_words_divided_at_line_ends_are_joined_and_compounds_keep_their_hyphen(tmp_path, second, third, joined):
    text = read(tmp_path, prose(second, third)).text
    assert text.endswith(joined + third[third.index(" ") :] if " " in third else joined + ".")


def test_ligatures_are_spelled_out_and_keep_their_box(tmp_path):
    document = read(tmp_path, Sheet(content=b"BT /F2 12 Tf 72 700 Td (de\256ne the \257ow) Tj ET"))
    assert document.text == "define the flow"
    at = document.text.index("fi")
    assert (document.box_N4[at] == document.box_N4[at + 1]).all()
    assert spell(0xFB03) == "ffi" and spell(0xFB06) == "st"


def test_a_soft_hyphen_inside_a_line_disappears(tmp_path):
    assert read(tmp_path, Sheet([(72, 700, 12, "Donau\u00addampf")])).text in ("Donaudampf", "Donau-dampf")


def test_a_note_mark_is_not_glued_to_its_word(tmp_path):
    content = b"BT /F1 12 Tf 72 700 Td (as the Explainer) Tj /F1 7 Tf 5 Ts (69) Tj 0 Ts /F1 12 Tf ( shows for x) Tj "
    content += b"/F1 7 Tf 5 Ts (2) Tj ET"
    assert read(tmp_path, Sheet(content=content)).text == "as the Explainer 69 shows for x2"


def pages_with_heads(count: int) -> list[Sheet]:
    return [
        Sheet(
            [
                (72, 760, 9, "Journal of Boats, volume 7"),
                *column(72, 700, 30, width=80, first=page),
                (300, 30, 9, str(page + 4)),
            ]
        )
        for page in range(count)
    ]


def test_running_heads_and_page_numbers_are_dropped_from_documents_long_enough_to_tell(tmp_path):
    document = read(tmp_path, *pages_with_heads(5))
    assert "Journal" not in document.text and not any(word.isdigit() for word in document.text.split())


def test_heads_in_large_print_are_dropped_by_their_page_numbers_and_numbered_titles_are_not(tmp_path):
    def sheets(left: str, right: str) -> list[Sheet]:
        heads = [
            [(72, 750, 14, left.format(47698 + page)), (400, 750, 14, right.format(47698 + page))] for page in range(4)
        ]
        return [Sheet([*head, *column(72, 680, 12, first=20 * page)]) for page, head in enumerate(heads)]

    assert "Gazette" not in read(tmp_path, *sheets("{}", "Gazette of the Valley")).text
    assert "Gazette" not in read(tmp_path, *sheets("Gazette of the Valley", "{}")).text
    steps = [
        Sheet([(72, 740, 28, f"Step {page + 1}"), *column(72, 600, 12, size=14, width=60, first=page)])
        for page in range(4)
    ]
    assert "Step 3" in read(tmp_path, *steps).text


def test_nothing_is_dropped_from_a_short_document(tmp_path):
    document = read(tmp_path, *pages_with_heads(2))
    assert document.text.count("Journal of Boats") == 2 and "5" in document.text.split()


def test_a_document_of_nothing_but_repeated_lines_keeps_them(tmp_path):
    document = read(tmp_path, *[Sheet([(72, 740, 12, "Certificate of attendance")])] * 3)
    assert document.text.count("Certificate") == 3


def test_repeated_slide_titles_are_kept(tmp_path):
    sheets = [
        Sheet([(72, 740, 28, "The Plan"), *column(72, 600, 12, size=14, width=60, first=page)]) for page in range(4)
    ]
    assert read(tmp_path, *sheets).text.count("The Plan") == 4


def test_a_page_without_text_is_named_and_keeps_its_place(tmp_path):
    document = read(tmp_path, Sheet(column(72, 700, 3)), Sheet(content=b"0 0 100 100 re f"), Sheet(column(72, 700, 3)))
    assert [page.note for page in document.pages] == ["", NO_TEXT, ""]
    assert document.pages[1].start == document.pages[1].end
    assert "page 2" in document.notes[0]
    assert [page.number for page in document.pages] == [0, 1, 2]


def test_pages_cover_the_text_in_order(tmp_path):
    document = read(tmp_path, *pages_with_heads(4))
    for before, after in zip(document.pages[:-1], document.pages[1:], strict=True):
        assert before.end <= after.start and not document.text[before.end : after.start].strip()
    assert [int(document.page_N[page.start]) for page in document.pages] == [0, 1, 2, 3]
