"""Reading order, paragraphs and the repair of printed words."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from retrieval.extraction.extract import ExtractedDocument, ExtractLimits
from retrieval.extraction.pdf.assemble import NO_TEXT
from retrieval.extraction.pdf.characters import PageCharacters
from retrieval.extraction.pdf.extract_pdf import extract_pdf
from retrieval.extraction.pdf.layout import read_lines
from retrieval.extraction.pdf.text_boxes import plain_line, spell
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


LABELLED = [
    ["Ctrl+B : Manager of combats and of their rounds", "Ctrl+D : Roll of dice", "F7 : Music"],
    ["Name: Harbour office of the northern port", "Street: Quay 7", "Town: Arnbury", "Telephone: none"],
    ["dose: two drops a day in a glass of water", "course: nine days", "storage: in the dark"],
    ["HP: hit points that a creature has at its birth", "MP: magic points", "WL: willpower"],
    ["Espace : jouer la musique ou afficher une image", "Suppr : supprimer", "+ : déplier", "F2 : éditer"],
]


@pytest.mark.parametrize("lines", LABELLED)
def test_each_line_of_a_list_of_labels_stands_by_itself_however_wide_it_is(tmp_path, lines):
    placed = [(72, 700 - 12 * number, 10, line) for number, line in enumerate(lines)]
    assert read(tmp_path, Sheet(placed)).text == "\n".join(lines)


def test_a_colon_in_lines_of_prose_parts_nothing(tmp_path):
    lines = [
        "The office is open: on Mondays and on Thursdays, and",
        "in summer on Fridays too. One rule holds: whoever",
        "comes first is heard first, and nobody waits longer",
        "than an hour: that is the promise of the keeper.",
    ]
    placed = [(72, 700 - 12 * number, 10, line) for number, line in enumerate(lines)]
    assert read(tmp_path, Sheet(placed)).text == " ".join(lines)


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


def test_a_rule_drawn_with_characters_parts_the_lines_above_and_below(tmp_path):
    lines = ["Till 3, Nadia", "21 May 2026", "- - - - - - - - - - - -", "hinge of brass", "and screws", "=" * 24, "Sum"]
    drawn = [(72, 700 - 14 * number, 10, line) for number, line in enumerate(lines)]
    parts = read(tmp_path, Sheet(drawn)).text.split("\n\n")
    assert [part.split("\n")[-1] for part in parts] == ["21 May 2026", lines[2], "and screws", lines[5], "Sum"]


def test_a_heading_with_gaps_between_its_letters_is_read_in_words(tmp_path):
    typed = [(72, 740, 14, "O P E N I N G   T I M E S"), *column(72, 700, 8)]
    assert read(tmp_path, Sheet(typed)).text.startswith("OPENING TIMES\n\n")
    moved = [(72 + 18 * n + 16 * (n > 3), 740, 12, letter) for n, letter in enumerate("OURHOUSE")]
    assert read(tmp_path, Sheet([*moved, *column(72, 700, 8)])).text.startswith("OURH OUSE\n\n")


@pytest.mark.parametrize(("initial", "rest", "word"), [("V", "isitors", "Visitors"), ("I", "nside", "Inside"),
                                                      ("A", " mill stood", "A mill stood")])  # fmt: skip
def test_an_initial_over_several_lines_begins_its_word(tmp_path, initial, rest, word):
    (_, y, _, first), *more = column(100, 700, 3, width=60)
    lines = [(72, 676, 36, initial), (100, y, 10, f"{rest} {first}"), *more, *column(72, 664, 6, width=66, first=30)]
    assert read(tmp_path, Sheet(lines)).text.startswith(f"{word} {first}")


INSERTED = ["Fig. 1. A loaded sledge holds ninety bundles.", "The ice is measured by the warden each day."]


@pytest.mark.parametrize("inserted", INSERTED)
def test_a_box_or_caption_inside_a_sentence_stands_behind_it(tmp_path, inserted):
    above = [(72, 700, 10, "The western shore belongs to the parish. Her people tie the bundles of reed")]
    below = [(72, 600, 10, "with willow instead of wire, because wire rusts on a roof.")]
    text = read(tmp_path, Sheet([*above, (80, 650, 8.5, inserted), *below])).text
    assert "tie the bundles of reed with willow instead of wire, because wire rusts on a roof." in text
    assert inserted in text


def test_a_box_at_the_end_of_a_page_stands_before_the_sentence_that_goes_on(tmp_path):
    above = [(72, 700, 10, "The parish is old."), (72, 688, 10, "Her people tie the bundles of reed")]
    document = read(tmp_path, Sheet([*above, (80, 650, 8.5, INSERTED[1])]), Sheet([(72, 700, 10, "with willow.")]))
    assert "tie the bundles of reed with willow." in document.text and INSERTED[1] in document.text
    assert document.pages[0].end <= document.pages[1].start


@pytest.mark.parametrize("size", [8, 10])
def test_the_text_between_two_listings_stays_between_them(tmp_path, size):
    """Each command looks like a sentence that has not ended, and the next one like its end."""
    lines = [(72, 700, 10, "If the files have changed, look at the log first:"), (84, 682, size, "keeper log"),
             (72, 660, 10, "Which of them nobody has handed in yet is told by another command:"),
             (84, 642, size, "keeper status"), (72, 620, 10, "This runs by itself every hour.")]  # fmt: skip
    assert read(tmp_path, Sheet(lines)).text.split() == words(lines)


def test_a_formula_inside_a_sentence_stays_there(tmp_path):
    lines = [(72, 700, 10, "The energy of a body at rest, as was found by then"), (120, 680, 12, "E = m c"),
             (72, 660, 10, "where m is its mass.")]  # fmt: skip
    assert read(tmp_path, Sheet(lines)).text.split() == words(lines)


def test_ligatures_are_spelled_out_and_keep_their_box(tmp_path):
    document = read(tmp_path, Sheet(content=b"BT /F2 12 Tf 72 700 Td (de\256ne the \257ow) Tj ET"))
    assert document.text == "define the flow"
    at = document.text.index("fi")
    assert (document.box_N4[at] == document.box_N4[at + 1]).all()
    assert spell(0xFB03) == "ffi" and spell(0xFB06) == "st"


def test_a_character_that_is_told_in_two_halves_is_one(tmp_path):
    document = read(tmp_path, Sheet(content=b"BT /F2 12 Tf 72 700 Td (we solve \242 for all) Tj ET"))
    assert document.text == "we solve \U0001d465 for all" and (document.page_N == -1).sum() == 4


def test_half_of_a_character_is_no_text_and_none_that_is_set_aside(tmp_path):
    half = b"BT /F2 12 Tf 72 700 Td (we solve \242) Tj 0 -20 Td 3 Tr (hidden \242 words) Tj ET"
    path = tmp_path / "made.pdf"
    path.write_bytes(make_pdf([Sheet(content=half)]).replace(b"<D835DC65>", b"<D835>    "))
    document = extract_pdf(path, ExtractLimits(), None)
    assert document.text == "we solve" and [aside.text for aside in document.asides] == ["hidden words"]


def test_a_soft_hyphen_inside_a_line_disappears(tmp_path):
    assert read(tmp_path, Sheet([(72, 700, 12, "Donau\u00addampf")])).text in ("Donaudampf", "Donau-dampf")


def test_a_note_mark_is_not_glued_to_its_word(tmp_path):
    content = b"BT /F1 12 Tf 72 700 Td (as the Explainer) Tj /F1 7 Tf 5 Ts (69) Tj 0 Ts /F1 12 Tf ( shows for x) Tj "
    content += b"/F1 7 Tf 5 Ts (2) Tj ET"
    assert read(tmp_path, Sheet(content=content)).text == "as the Explainer 69 shows for x2"


def raised(text: str) -> bytes:
    """Text operators of a line, of which what stands in braces is small and raised."""
    parts = []
    for n, part in enumerate(text.replace("}", "{").split("{")):
        size, rise = (7, 5) if n % 2 else (12, 0)
        parts.append(b"/F1 %d Tf %d Ts (%s) Tj" % (size, rise, part.encode("cp1252")))
    return b"BT 72 700 Td " + b" ".join(parts) + b" ET"


@pytest.mark.parametrize(
    ("printed", "read_as"),
    [
        ("It held 9 × 10{6} cells", "It held 9 × 10^6 cells"),
        ("A pore of 10{-6} m", "A pore of 10^-6 m"),
        ("Some 10{12} stars.", "Some 10^12 stars."),
        ("There are 2{8} values", "There are 2^8 values"),
        ("They carried 48,200{1} passengers", "They carried 48,200 [1] passengers"),
        ("A crew of 34{3} in summer", "A crew of 34 [3] in summer"),
        ("It cost 17.50{12}", "It cost 17.50 [12]"),
        ("In 1999{2,3} it rained", "In 1999 [2,3] it rained"),
        ("It takes 5{1}/2 hours", "It takes 5 1/2 hours"),
        ("A hall of 165 m{2} or so", "A hall of 165 m2 or so"),
        ("The 21{st} of May", "The 21st of May"),
        ("About 10³ of 40 m²", "About 10^3 of 40 m²"),
    ],
)
def test_raised_figures_are_told_from_the_number_before_them(tmp_path, printed, read_as):
    assert read(tmp_path, Sheet(content=raised(printed))).text == read_as


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


def test_a_running_head_is_read_once_and_page_numbers_are_left_out(tmp_path):
    document = read(tmp_path, *pages_with_heads(5))
    assert document.text.startswith("Journal of Boats, volume 7\n\n") and document.text.count("Journal") == 1
    assert [word for word in document.text.split() if word.isdigit()] == ["7"]
    heads = [aside.text for aside in document.asides if aside.kind == "header"]
    feet = [aside.text for aside in document.asides if aside.kind == "footer"]
    assert heads == ["Journal of Boats, volume 7"] * 4 and feet == ["4", "5", "6", "7", "8"]


def with_head(head: str, page: int) -> Sheet:
    """A page below a head, each of whose parts (between tabs) stands further to the right."""
    parts = [(72 + 250 * n, 750, 10, part) for n, part in enumerate(head.split("\t"))]
    return Sheet([*parts, *column(72, 680, 12, width=80, first=5 * page)])


DIFFERENT = {
    "invoice": "Halberd Ltd\tInvoice no. INV-204{0}7",
    "reading": "Water level on {0} May: 3.{0}2 m",
    "carried forward": "Cash book\tBrought forward: {0},204.10",
    "certificate": "Certificate {0}",
    "numbered from one page to the next": "Plot number 10{0}",
    "day": "{0} May 2026",
    "version": "Manual 2.{0}",
    "beside a page number": "Machine 40{0}0\tPage {0} of 4",
    "chapter": "Chapter {0}\tMethods",
    "price": "Rate: {0}.50 euros a day",
}


@pytest.mark.parametrize("head", DIFFERENT.values(), ids=DIFFERENT)
def test_heads_that_differ_by_more_than_a_page_number_are_content(tmp_path, head):
    heads = [head.format(page) for page in (2, 3, 4, 5)]
    text = read(tmp_path, *(with_head(each, page) for page, each in enumerate(heads))).text
    assert [each for each in heads if each not in text] == []


SAME = [
    "{0}", "- {0} -", "Page {0}", "Page {0} of 9", "{0} / 9", "Annual report\t{0}", "{0}\tAnnual report",
    "Annual report | {0}", "Annual report\tpage {0}", "[{0}]", "Annual report, page {0} of 9", "{0} | Annual report",
]  # fmt: skip


@pytest.mark.parametrize("head", SAME)
def test_heads_that_differ_by_their_page_number_are_read_once_at_most(tmp_path, head):
    document = read(tmp_path, *(with_head(head.format(page + 4), page) for page in range(4)))
    assert document.text.count("Annual report") == head.count("Annual report")
    assert not any(number in document.text for number in "567")


def test_a_letter_that_only_looks_like_a_roman_number_is_no_page_number(tmp_path):
    pages = [b"BT /F2 12 Tf 72 750 Td (\241) Tj 0 -350 Td (Page of words, the %dth) Tj ET" % n for n in range(4, 8)]
    assert read(tmp_path, *(Sheet(content=page) for page in pages)).text.startswith("İ\n\nPage of words, the 4th")


def test_a_head_is_read_where_it_interrupts_no_sentence(tmp_path):
    halves = ["The deposit must be paid to the clerk in cash, and not later than twenty-one days", "before the event."]
    more = [[(72, 680, 10, "One begins here."), (72, 90, 10, halves[0])], [(72, 680, 10, halves[1])]]
    pages = [
        Sheet([(72, 750, 8, "Wickham Parish Council"), *lines, (72, 40, 8, "Draft for members")])
        for lines in (*more, column(72, 680, 5), column(72, 680, 5))
    ]
    text = read(tmp_path, *pages).text
    assert " ".join(halves) in text
    assert text.count("Wickham Parish Council") == text.count("Draft for members") == 1


def test_a_sentence_that_begins_every_page_is_kept_whole(tmp_path):
    begun = ["This leaflet tells you how we work, and where to find what you need. It is", "printed twice."]
    pages = [
        Sheet([(72, 692, 10, begun[0]), (72, 680, 10, begun[1]), *column(72, 640, 12, first=9 * page)])
        for page in range(4)
    ]
    assert read(tmp_path, *pages).text.count(" ".join(begun)) == 4


def test_the_first_row_of_a_table_on_every_page_is_no_head(tmp_path):
    rows = [(72, 740, "Item"), (300, 740, "Amount"), (72, 720, "Fees of {}"), (300, 720, "8{}.00")]
    rows += [(72, 700, "Repair of {}"), (300, 700, "24{}.35")]
    pages = [Sheet([(x, y, 10, text.format(page)) for x, y, text in rows]) for page in range(4)]
    text = read(tmp_path, *pages).text
    assert all(f"Item: Fees of {page}; Amount: 8{page}.00." in text for page in range(4))


def test_heads_in_large_print_are_read_once_and_numbered_titles_are_kept(tmp_path):
    def sheets(left: str, right: str) -> list[Sheet]:
        heads = [
            [(72, 750, 14, left.format(47698 + page)), (400, 750, 14, right.format(47698 + page))] for page in range(4)
        ]
        return [Sheet([*head, *column(72, 680, 12, first=20 * page)]) for page, head in enumerate(heads)]

    assert read(tmp_path, *sheets("{}", "Gazette of the Valley")).text.count("Gazette") == 1
    assert read(tmp_path, *sheets("Gazette of the Valley", "{}")).text.count("Gazette") == 1
    steps = [
        Sheet([(72, 740, 28, f"Step {page + 1}"), *column(72, 600, 12, size=14, width=60, first=page)])
        for page in range(4)
    ]
    assert "Step 3" in read(tmp_path, *steps).text


@pytest.mark.parametrize(("box", "last"), [(b"2610", "Words of the page."), (b"2612", "☒ .")])
def test_a_box_without_words_may_be_printed_sideways(tmp_path, box, last):
    lone = b"BT /F1 10 Tf 72 700 Td (Words of the page.) Tj ET BT /F2 10 Tf 0 1 -1 0 300 300 Tm (\242) Tj ET"
    path = tmp_path / "made.pdf"
    path.write_bytes(make_pdf([Sheet(content=lone)] * 3).replace(b"<D835DC65>", b"<%s>    " % box))
    assert extract_pdf(path, ExtractLimits(), None).text.split("\n\n")[-1] == last


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


def lettered(words: list[tuple[float, str]]) -> PageCharacters:
    """A page with words that begin at these places, each drawn on its own; words that are read leftward end there."""
    drawn = [
        (letter, x + 6 * n * (-1 if letter > "\u0590" else 1), 2 * (n == 0))
        for x, word in words
        for n, letter in enumerate(word)
    ]
    count = len(drawn)
    x = np.array([place for _, place, _ in drawn], float)
    box = np.column_stack([x, np.full(count, 92.0), x + 6, np.full(count, 102.0)])
    origin, ten = np.column_stack([x, np.full(count, 100.0)]), np.full(count, 10.0)
    code, spaced = (np.array(each) for each in zip(*((ord(letter), space) for letter, _, space in drawn), strict=True))
    zero = np.zeros(count, int)
    return PageCharacters(612, 792, code, box, origin, ten, zero + 400, zero, spaced, box + (0.5, 1, -0.5, -2), zero, 0)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([(72, "Clinic"), (112, "/"), (147, "שכון"), (171, "דפה")], "Clinic / דפה שכון"),
        ([(72, "Clinic"), (112, "/"), (171, "דפה"), (147, "שכון")], "Clinic / דפה שכון"),
        ([(72, "Tel"), (114, "שכון"), (138, "דפה"), (150, "03")], "Tel דפה שכון 03"),
        ([(171, "דפה"), (147, "שכון")], "דפה שכון"),
        ([(147, "שכון"), (171, "דפה")], "דפה שכון"),
        ([(72, "one"), (96, "two"), (120, "three")], "one two three"),
    ],
)
def test_words_of_both_directions_in_one_line_stand_in_the_order_of_reading(words, text):
    page = lettered(words)
    (line,) = read_lines(page)
    found = plain_line(0, page, line)
    assert found is not None and found.text == text
