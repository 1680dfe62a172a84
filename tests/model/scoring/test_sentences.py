"""Borders of sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.scoring.sentences import is_contentless, is_date, may_answer, sentence_borders


def test_a_sentence_goes_on_over_a_hard_line_break() -> None:
    text = """A heading of this page
The keeper burned whale oil before the lamp was electrified, and left the island in
1987. It was a long
journey: Thomas Reed went home to a small town in the far south of the country, to
Sandvik. An item without a stop

Another item of this list
- a third item
"""
    assert [text[start:end].replace("\n", " ") for start, end in sentence_borders(text)] == [
        "A heading of this page",
        "The keeper burned whale oil before the lamp was electrified, and left the island in 1987.",
        "It was a long journey: Thomas Reed went home to a small town in the far south of the country, to Sandvik.",
        "An item without a stop",
        "Another item of this list",
        "- a third item",
    ]
    paragraphs = (
        "A heading as long as a line of text, but over a paragraph that is one line\n" + 9 * "The cairn is old. "
    )
    assert next(sentence_borders(paragraphs)) == (0, paragraphs.index("\n"))


def test_headings_questions_and_contents_answer_nothing() -> None:
    assert may_answer("The cairn was built by surveyors.")
    assert not may_answer("Who built the cairn on the hill?")
    assert not may_answer("Cairns of the north")
    assert not may_answer("4.9.3 Plan and method of the survey....................... 47")
    assert may_answer("He waited for us ... and left before the storm.")
    assert may_answer("この過程は最も重要です。")
    assert not may_answer("戦略は？") and not may_answer("第一期")


@pytest.mark.parametrize(
    "sentences",
    [
        ["He met Rev. Smith in St. Ives.", "Mr. Hall came too."],
        ["J. R. R. Tolkien and John F. Kennedy never met.", "Why would they?"],
        ["The U.S. Army left in 1946.", "It came back to the U.S.", "The rest is known."],
        ["It is signed by John Hall, Esq.", "He was there."],
        ["Use valve No. 5 (see Fig. 3 and Tab. 2).", "Then wait."],
        ["See Docket No. FAA-2020-0746 first.", "They said no.", "Nobody came."],
        ["Doors open at 9 a.m. Monday.", "They close at 5 p.m.", "Nobody waits."],
        ["Acme Inc. Boston sells it.", "It is sold by Acme Inc.", "The price is low."],
        ["Water is rich in vitamin C.", "The rest is not."],
        ["He said no.", "Nobody heard it."],
        [
            "Verena Stegemann, geb. 1980, lebt auf Jersey.",
            "Im 19. Jahrhundert war es anders.",
            "Die 2. Auflage kam 1990.",
        ],
        ["Hunde bzw. Katzen zahlen nichts.", "Äpfel auch nicht."],
        ["Vive el Sr. Pérez en Av. Libertador 5, pág. 7.", "La Sra. López no."],
        ["I am 19.", "He is 20."],
    ],
)
def test_abbreviations_initials_and_their_numbers_do_not_end_a_sentence(sentences):
    text = " ".join(sentences)
    assert [text[start:end] for start, end in sentence_borders(text)] == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Il vint.", "Était-ce vrai?", "Non.", "À demain."],
        ["Ella vino.", "¿Qué dijo?", "¡Nada!", "Él calló."],
        ["Привет мир.", "Как дела?", "Всё ясно."],
        ["Το σπίτι είναι μεγάλο.", "Έχει κήπο."],
        ["مرحبا بالعالم.", "كيف حالك؟", "أنا بخير."],
        ["שלום עולם.", "מה שלומך?", "טוב."],
        ["यह घर है।", "वह बड़ा है।"],
    ],
)
def test_sentences_end_in_every_script(sentences):
    text = " ".join(sentences)
    assert [text[start:end] for start, end in sentence_borders(text)] == sentences


def test_a_japanese_sentence_goes_on_over_a_hard_line_break() -> None:
    lines = [
        "まず言っておきたいことは、これは「完璧」な戦略ではありません。非常に",
        "よい戦略でもありません。しかしこの戦略で遊び始めることができるではず",
        "です。",
        "ゲームを幾つかの段階に分けることができます",
    ]
    text = "\n".join(lines)
    assert [text[start:end].replace("\n", "") for start, end in sentence_borders(text)] == [
        "まず言っておきたいことは、これは「完璧」な戦略ではありません。",
        "非常によい戦略でもありません。",
        "しかしこの戦略で遊び始めることができるではずです。",
        "ゲームを幾つかの段階に分けることができます",
    ]


def test_sentences_without_spaces_between_them_end_at_their_full_stops():
    text = "今日は晴れです。「はい。そうです。」と言った。明日は？"
    assert [text[start:end] for start, end in sentence_borders(text)] == [
        "今日は晴れです。",
        "「はい。",
        "そうです。」と言った。",
        "明日は？",
    ]


@given(st.lists(st.sampled_from([" ", "\n", ".", "No.", "St.", "8.", "A.", "(", "-", "Docket", "said"]), max_size=12))
def test_any_text_has_borders_that_hold_its_words_once(parts):
    """Also one that ends in white space behind an abbreviation."""
    text = "".join(parts)
    found = "".join(text[start:end] for start, end in sentence_borders(text))
    assert "".join(found.split()) == "".join(text.split())


def test_a_line_that_ends_with_a_letter_and_a_full_stop_ends_there():
    rows = "Region: North; Grade: A.\nRegion: South; Grade: B."
    assert [rows[start:end] for start, end in sentence_borders(rows)] == rows.split("\n")


def test_the_number_of_a_list_item_belongs_to_it():
    text = "Do this:\n1. Open the valve.\n2. Wait.\na. Not for long."
    assert [text[start:end] for start, end in sentence_borders(text)] == text.split("\n")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("Opening of the new bridge\nMonday, 3 May 2021", "Opening of the new bridge\nMonday, 3 May 2021"),
        ("14:30 to 16:00\nGuided tour of the dam", "14:30 to 16:00\nGuided tour of the dam"),
        ("The first part ends here.\n\n12 June 2020\n\nThe council met.", "12 June 2020\n\nThe council met."),
    ],
)
def test_a_date_or_time_that_stands_alone_belongs_to_the_line_beside_it(text, whole):
    assert whole in [text[start:end] for start, end in sentence_borders(text)]


def test_what_only_holds_numbers_is_no_date():
    assert is_date("2021-05-03") and is_date("9:00 - 17:30") and is_date("Mon 3 May")
    assert not is_date("1,440") and not is_date("May the 4 of them win") and not is_date("12")


def test_a_row_of_a_table_may_answer_however_short_it_is():
    assert may_answer("Region: North; Price: 41.50.")
    assert not may_answer("Region: North.")


@pytest.mark.parametrize(
    "whole",
    [
        'All extensions must have a namespace flag set to\n"https://example.org/ns".',
        "Our next virtual meeting will be on\n\nThursday, February 8, at noon.",
        "Die nächste Sitzung ist am\n\nDonnerstag, dem 8. Februar.",
    ],
)
def test_a_line_that_ends_with_a_word_that_ends_nothing_goes_on(whole):
    assert [whole[start:end] for start, end in sentence_borders(whole)] == [whole]


def test_a_bracket_behind_three_dots_belongs_to_the_same_row() -> None:
    menu = "Find... (Ctrl+F): Set criteria for a search.\nNew… (Ctrl+N): Make a file."
    assert [menu[a:b] for a, b in sentence_borders(menu)] == menu.split("\n")
    told = "He waited... She did not."
    assert [told[a:b] for a, b in sentence_borders(told)] == ["He waited...", "She did not."]


def test_dots_that_lead_to_a_number_do_not_part_it_from_its_line():
    lines = ["7.9 Why is that? . . . . . . . 30", "Late fee . . . . . . 25.00 EUR", "That is all."]
    text = "\n".join(lines)
    assert [text[start:end] for start, end in sentence_borders(text)] == lines


def test_headings_and_blank_lines_end_what_stands_before_them():
    text = "How to Log In\n\nOpen the page. The list of\n\n\nNotes"
    assert [text[a:b] for a, b in sentence_borders(text)] == ["How to Log In", "Open the page.", "The list of", "Notes"]


@pytest.mark.parametrize(
    ("line", "contentless"),
    [
        ("2.9. The mime.cache files", True),
        ("4.2.4.1 If No Plan Exists", True),
        ("2.9 is the version that was tested.", False),
        ("2.9 million people live there", False),
        ("3.1. Tools must validate the files that they write.", False),
        ("1. Paris", False),
        ("25.00 EUR", False),
        ("7.10 How do I convert factors to numeric? . . . . . . . . . . 30", True),
        ("Preface ................ xii", True),
        ("Late fee . . . . . . . . 25.00 EUR", False),
        ("Filing fee ........ $50", False),
        ("And so on . . . he said.", False),
    ],
)
def test_lines_of_contents_and_headings_of_numbered_sections_are_contentless(line, contentless):
    assert is_contentless(line) is contentless


@pytest.mark.parametrize(
    "term",
    [
        "-k, --keep",
        "-1 (or --fast) to -9 (or --best)",
        "--leak-resolution=<low|med|high> [default: high]",
        "--suppressions=<file> [default: lib/default.supp]:",
        "BZ_DATA_ERROR",
        "SHA256_DIGEST_SIZE\t[Constant]",
    ],
)
@pytest.mark.parametrize("between", ["\n", "\n\n", "\n        "])
def test_an_option_or_a_constant_goes_with_what_explains_it(term, between) -> None:
    text = f"Some options follow here.\n\n{term}{between}Keep what was read before. Another sentence."
    found = [text[start:end] for start, end in sentence_borders(text)]
    assert found == [
        "Some options follow here.",
        f"{term}{between}Keep what was read before.",
        "Another sentence.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "--keep\n--stdout\n--test",  # a list of options, not explained here
        "-1; Compress: 1200k; Decompress: 500k\n-2; Compress: 2000k; Decompress: 900k",  # rows
        "- an item of a list\nKeep what was read before.",
        "NASA\nKeep what was read before.",
        "--keep\n\n\nKeep what was read before.",  # too far away
    ],
)
def test_what_only_looks_like_a_term_stays_alone(text) -> None:
    assert len(list(sentence_borders(text))) == len([line for line in text.split("\n") if line])


@pytest.mark.parametrize(
    "row",
    [
        "Item: Pump; Supplier: Voda s.r.o.; Price, EUR: 12.50.",
        "Item: Pump; Remark: It leaks. Ask Voda s.r.o. Praha first. Then wait.; Price: 12.50.",
        "None; Accuracy All: 67.5; Note: See p. 4. Measured twice; once in winter.; F1: 57.6.",
        "No.\tName of it.\tPrice",
    ],
)
def test_the_row_of_a_table_is_never_cut(row):
    text = f"Some words before it. And more.\n{row}\nItem: Valve; Price: 9.00."
    for low in (0, text.index("\n"), text.index(row) + 12):
        found = [text[start:end] for start, end in sentence_borders(text, low)]
        assert found[-2:] == [row if low < 20 else row[max(0, low - text.index(row)) :], "Item: Valve; Price: 9.00."]


def test_prose_with_colons_and_semicolons_is_no_row():
    text = "Three things matter: speed; cost; and care. It never fails: so they say; I doubt it."
    assert [text[a:b] for a, b in sentence_borders(text)] == [
        text[: text.index("It")].strip(),
        text[text.index("It") :],
    ]
