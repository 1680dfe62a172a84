"""Text of PDFs that no reader of a page takes for part of it: hidden, watermarks, numbers of lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from retrieval.extraction.extract import ExtractedDocument, ExtractLimits
from retrieval.extraction.pdf.extract_pdf import extract_pdf
from tests.retrieval.pdf_maker import Sheet, column, make_pdf

BODY = column(72, 700, 12, width=80)
SECRET = "The grant is 95,000 euros."


def text(x: float, y: float, words: str, *, size: float = 10, more: str = "") -> bytes:
    return f"{more} BT /F1 {size} Tf 1 0 0 1 {x} {y} Tm ({words}) Tj ET\n".encode()


def slanted(x: float, y: float, words: str, size: float = 34) -> bytes:
    return f"0.8 g BT /F1 {size} Tf 0.79 0.62 -0.62 0.79 {x} {y} Tm ({words}) Tj ET 0 g\n".encode()


def page(*more: bytes) -> bytes:
    return b"".join([*more, *(text(x, y, words, size=size) for x, y, size, words in BODY)])


def read(folder: Path, *pages: bytes) -> ExtractedDocument:
    path = folder / "made.pdf"
    path.write_bytes(make_pdf([Sheet(content=each) for each in pages]))
    return extract_pdf(path, ExtractLimits(), None)


def prose() -> str:
    return " ".join(words for *_, words in BODY)


PICTURE = b"q 300 0 0 40 60 480 cm BI /W 1 /H 1 /CS /G /BPC 8 /F /AHx ID 30> EI Q\n"

HIDDEN = {
    "white": text(72, 500, SECRET, more="1 g") + b"0 g\n",
    "nearly white": text(72, 500, SECRET, more="0.98 0.99 1 rg") + b"0 g\n",
    "invisible": text(72, 500, SECRET, more="3 Tr") + b"0 Tr\n",
    "off the page": text(72, -40, SECRET),
    "beside the page": text(700, 500, SECRET),
    "tiny": text(72, 500, SECRET, size=0.5),
    "white on a white area": b"1 g 60 480 300 40 re f 0 g\n" + text(72, 500, SECRET, more="1 g") + b"0 g\n",
    "invisible on a dark area": b"0.2 g 60 480 300 40 re f 0 g\n" + text(72, 500, SECRET, more="3 Tr") + b"0 Tr\n",
}


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_what_nobody_sees_is_no_text(tmp_path, hidden):
    document = read(tmp_path, page(hidden))
    assert document.text == prose()
    assert [(aside.kind, aside.text) for aside in document.asides] == [("hidden", SECRET)]


SEEN = {
    "white on dark": b"0.2 g 60 480 300 40 re f 0 g\n" + text(72, 500, SECRET, more="1 g") + b"0 g\n",
    "white on a picture": PICTURE + text(72, 500, SECRET, more="1 g") + b"0 g\n",
    "recognised in a picture": PICTURE + text(72, 500, SECRET, more="3 Tr") + b"0 Tr\n",
    "grey": text(72, 500, SECRET, more="0.8 g") + b"0 g\n",
    "white with a black outline": text(72, 500, SECRET, more="1 g 2 Tr") + b"0 g 0 Tr\n",
}


@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
def test_what_is_seen_is_text(tmp_path, seen):
    assert SECRET in read(tmp_path, page(seen)).text


WATERMARKS = {
    "slanted": slanted(150, 600, "CONFIDENTIAL"),
    "tiled": b"".join(slanted(80 + 150 * (n % 3), 560 + 60 * (n // 3), "COPY 5573") for n in range(6)),
    "level": text(90, 640, "NOT LEGALLY BINDING", size=30, more="0.85 g") + b"0 g\n",
    "stamped": text(90, 652, "PAID IN FULL", size=24, more="1 0 0 rg") + b"0 g\n",
    "drawn last": b"",
}


@pytest.mark.parametrize("kind", WATERMARKS)
def test_watermarks_across_the_lines_stand_in_no_sentence(tmp_path, kind):
    drawn = page(WATERMARKS[kind]) if WATERMARKS[kind] else page() + slanted(150, 600, "DRAFT")
    document = read(tmp_path, drawn)
    assert document.text == prose() and {aside.kind for aside in document.asides} == {"watermark"}


def test_slanted_text_beside_the_lines_is_read_as_lines_of_its_own(tmp_path):
    document = read(tmp_path, page(slanted(100, 300, "Income of the North", 9), slanted(140, 300, "Costs of all", 9)))
    assert document.text.split("\n\n") == [prose(), "Income of the North", "Costs of all"]


def test_a_large_heading_beside_a_smaller_text_is_no_watermark(tmp_path):
    assert read(tmp_path, page(text(72, 730, "The Annual Report", size=30))).text.startswith("The Annual Report\n\n")


@pytest.mark.parametrize("step", [1, 5])
@pytest.mark.parametrize(("x", "start"), [(40, 1), (40, 56), (480, 1)])
def test_numbers_of_lines_stand_in_no_sentence(tmp_path, step, x, start):
    numbers = [
        text(x, y, str(start + n), size=8)
        for n, (_, y, _, _) in enumerate(column(72, 700, 24, width=80))
        if (start + n) % step == 0
    ]
    lines = [text(x, y, words) for x, y, _, words in column(72, 700, 24, width=80)]
    text_read = read(tmp_path, b"".join([*numbers, *lines])).text
    assert text_read == " ".join(words for *_, words in column(72, 700, 24, width=80))


PAPER = [(45 if number > 9 else 51, 730 - 24 * number, f"{number}") for number in range(1, 29)]
PRAYED = [
    "WHEREFORE, plaintiff asks for:",
    "The balance that is due,",
    "Interest at the legal rate, and",
    "Costs of the court.",
]


@pytest.mark.parametrize(
    ("first", "leading", "lines"),
    [
        (706, 12, PRAYED),  # twice as dense as the numbers
        (697, 24, PRAYED),  # between them
        (706, 24, [words.lower() for words in PRAYED]),  # on their lines, and going on
        (706, 36, PRAYED),
        (400, 30, [*PRAYED, *PRAYED]),
    ],
)
def test_numbers_down_the_margin_of_ruled_paper_stand_in_no_sentence(tmp_path, first, leading, lines):
    written = [text(80, first - leading * number, words) for number, words in enumerate(lines)]
    document = read(tmp_path, b"".join([*(text(*place) for place in PAPER), *written]))
    assert document.text.split() == " ".join(lines).split()
    assert [(one.kind, one.text) for one in document.asides] == [("line number", " ".join(map(str, range(1, 29))))]


@pytest.mark.parametrize("names", [["Iceland", "Norway"], ["Pier; open", "Crane"], ["Ann Lee", "B. Miller"]])
def test_numbers_of_a_long_list_are_text(tmp_path, names):
    rows = [text(80, y, names[number % 2]) for number, (_, y, _) in enumerate(PAPER)]
    document = read(tmp_path, b"".join([*(text(*place) for place in PAPER), *rows]))
    assert not document.asides and {str(number) for number in range(1, 29)} <= {*document.text.split()}


def test_numbers_of_a_list_and_of_rows_are_text(tmp_path):
    items = ["Apples", "Pears", "Plums", "Quinces", "Medlars"]
    rows = b"".join(text(72, 700 - 20 * n, f"{n + 1}") + text(100, 700 - 20 * n, item) for n, item in enumerate(items))
    read_text = read(tmp_path, rows).text
    assert all(f"{n + 1}" in read_text for n in range(5))


def rule(x0: float, x1: float, y: float, *, filled: bool = False) -> bytes:
    drawn = f"{x0} {y} {x1 - x0} 0.6 re f" if filled else f"0.6 w {x0} {y} m {x1} {y} l S"
    return f"{drawn}\n".encode()


def price(*more: bytes) -> bytes:
    """A sentence whose words "90 crowns" reach from 141.1 to 184.5."""
    return b"".join(
        [text(72, 500, "The old price was"), text(155, 500, "90 crowns"), text(203, 500, "120 crowns."), *more]
    )


@pytest.mark.parametrize(
    "lines",
    [
        [rule(155, 199, 502.8)],
        [rule(155, 199, 502.8, filled=True)],
        [rule(154, 201.5, 503.5)],
        [rule(155, 178, 502.8), rule(178, 199, 502.8)],
        [rule(155, 199, 502.2), rule(155, 199, 504.4)],
    ],
)
def test_what_a_drawn_line_strikes_out_is_set_aside(tmp_path, lines):
    document = read(tmp_path, price(*lines))
    assert document.text == "The old price was 120 crowns."
    assert [(aside.kind, aside.text) for aside in document.asides] == [("deleted", "90 crowns")]


@pytest.mark.parametrize(
    "lines",
    [
        [rule(155, 199, 498.5)],  # under the words
        [rule(155, 199, 508.5)],  # above them
        [rule(60, 400, 502.8)],  # through the whole width
        [rule(155, 300, 502.8)],  # and beyond their end
        [b"0.6 w 155 490 m 199 515 l S\n"],
    ],
)
def test_other_lines_strike_nothing_out(tmp_path, lines):
    document = read(tmp_path, price(*lines))
    assert "90 crowns" in document.text and not document.asides
