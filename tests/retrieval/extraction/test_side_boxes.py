"""A box beside the running text of a PDF is read apart from it, and never between its sentences."""

from __future__ import annotations

import re

import pytest

from tests.retrieval.extraction.reading import read, written
from tests.retrieval.pdf_maker import Sheet, make_pdf

TEXT = (
    "Reed is cut when the lake has frozen hard enough to carry a sledge. In mild winters the cutters wait in vain, and "
    "the roofs of the villages must do with what was stored in the lofts. The crew of Aldous Wren cuts the eastern "
    "shore, from the mill to the boathouse. They start at first light and stop when the ice begins to sing. A bundle "
    "must measure sixty centimetres around the band. Bundles that are too thin are sold as bedding for goats and bring "
    "only a third of the price. The western shore belongs to the parish and is cut by the crew of Matilda Osk. Her "
    "people tie the bundles with willow instead of wire, because wire rusts on a roof and stains the walls. In the "
    "evening the sledges are drawn home by two horses each, and the boys who led them are given soup and bread."
)
BOX = (
    "Safety on the ice. Nobody walks alone. A sledge with one horse needs ice of twelve centimetres. The rope hangs at "
    "the boathouse door, and the bell is rung when a cutter falls in."
)
FRAMED, TINTED = "0.8 w {} {} {} {} re S\n", "0.9 0.9 0.8 rg {} {} {} {} re f 0 g\n"
WIDE, STEP, LEFT, RIGHT = 150, 13, 72, 540


def _line(words: list[str], room: float) -> str:
    line = [words.pop(0)]
    while words and len(" ".join([*line, words[0]])) * 4.7 <= room:
        line.append(words.pop(0))
    return " ".join(line)


def sheet(side: str, drawn: str, order: str, size: float) -> Sheet:
    """A text that runs around a box, drawn in some order."""
    words, boxed = TEXT.split(), BOX.split()
    inner: list[str] = []
    while boxed:
        inner.append(_line(boxed, WIDE - 16))
    top, high = 700 - 4 * STEP, len(inner) * (size + 2.5) + 14
    text, y = [], 700.0
    while words:
        is_beside = top - high - 10 < y < top + 4
        free = RIGHT - LEFT - (WIDE + 14 if is_beside else 0)
        text.append((LEFT + (WIDE + 14 if is_beside and side == "left" else 0), y, 10.0, _line(words, free)))
        y -= STEP
    x = LEFT if side == "left" else RIGHT - WIDE
    box = [(x + 8, top - 12 - number * (size + 2.5), size, line) for number, line in enumerate(inner)]
    drawing = {
        "text first": [*text, *box],
        "box first": [*box, *text],
        "box between": [*text[:6], *box, *text[6:]],
        "line by line": sorted([*text, *box], key=lambda line: (-line[1], line[0])),
    }[order]
    shown = "\n".join(f"/F1 {size} Tf 1 0 0 1 {x} {y} Tm ({line}) Tj" for x, y, size, line in drawing)
    return Sheet(content=f"{drawn.format(x, top - high, WIDE, high)}BT\n{shown}\nET".encode("cp1252"))


@pytest.mark.parametrize("order", ["text first", "box first", "box between", "line by line"])
@pytest.mark.parametrize("drawn", [FRAMED, TINTED])
@pytest.mark.parametrize(("side", "size"), [("left", 10), ("left", 8.5), ("right", 10)])
def test_sentences_of_the_text_and_of_the_box_stay_whole(tmp_path, side, drawn, order, size):
    document = read(written(tmp_path, "made.pdf", make_pdf([sheet(side, drawn, order, size)])))
    paragraphs = [" ".join(one.split()) for one in document.text.split("\n\n")]
    assert BOX in paragraphs
    text = " ".join(one for one in paragraphs if one != BOX)
    assert [one for one in re.split(r"(?<=\.) ", TEXT) if one not in text] == []
    assert len("".join(document.text.split())) == len("".join((TEXT + BOX).split())), "nothing twice"


def test_a_box_that_tears_no_sentence_stays_where_it_stands(tmp_path):
    lines = [
        (72, 700 - 13 * n, 10, one) for n, one in enumerate(["The first paragraph ends here.", "It has two lines."])
    ]
    lines += [(80, 650 - 13 * n, 10, one) for n, one in enumerate(re.findall(r".{1,60}(?: |$)", BOX))]
    lines += [
        (72, 560 - 13 * n, 10, one) for n, one in enumerate(["The second paragraph follows.", "It ends the page."])
    ]
    shown = "\n".join(f"/F1 {size} Tf 1 0 0 1 {x} {y} Tm ({line.strip()}) Tj" for x, y, size, line in lines)
    page = Sheet(content=f"{FRAMED.format(72, 600, 320, 66)}BT\n{shown}\nET".encode("cp1252"))
    text = " ".join(read(written(tmp_path, "made.pdf", make_pdf([page]))).text.split())
    assert text.index("two lines.") < text.index("Safety") < text.index("The second")


FILL = [
    "The clock was built by the town in the year of the great",
    "flood and strikes the hours for the boats that lie in the",
    "basin, whose crews set their watches by the sound of it.",
]
FIRST, REST = "The door of the shaft is locked by the har-", "bourmaster, who keeps the key in his own office."
NOTE = ["1 The key was lost in 1902 and made again by a smith of", "the town, who asked for nothing but his name."]
CAPTION = "Fig. 2. The clock as it was seen by visitors in that year."


def _set(lines: list[str], top: float, size: float = 10) -> list[tuple[float, float, float, str]]:
    return [(72, top - 13 * number, size, line) for number, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("below", "above"), [([], []), (NOTE, []), ([], [CAPTION]), (NOTE, [CAPTION])], ids=["", "note", "figure", "both"]
)
@pytest.mark.parametrize("head", ["", "Care of the clock"])
def test_a_word_that_a_page_divides_is_whole_whatever_stands_between_its_halves(tmp_path, below, above, head):
    pages = [
        [*_set([*FILL * 3, FIRST], 330), *_set(below, 110, 7.5)],
        [*_set(above, 720, 8.5), *_set([REST, *FILL], 680)],
        _set(FILL * 2, 700),
    ]
    heads = [[(72, 760, 8, head), (300, 30, 8, str(number))] if head else [] for number in range(1, 4)]
    sheets = [Sheet([*own, *page]) for own, page in zip(heads, pages, strict=True)]
    text = " ".join(read(written(tmp_path, "made.pdf", make_pdf(sheets))).text.split())
    assert "is locked by the harbourmaster, who keeps" in text
    assert all(" ".join(one) in text for one in (below, above) if one)


@pytest.mark.parametrize(
    ("first", "rest", "word", "elsewhere"),
    [
        ("The winding of it is well-", "known to all who live here.", "well-known to", "A well-known book is of it."),
        ("The keeper is told of it by e-", "mail, and by a bell in the yard.", "e-mail", ""),
        ("The spring was looked at by x-", "ray, and a crack was found in it.", "x-ray", ""),
        ("The oldest of the wheels is Anglo-", "Saxon work, the spring is later.", "Anglo-Saxon", ""),
        ("The weights of it are all pre-", "1900 and may not be changed.", "pre-1900", ""),
        ("The drive of it is a state-of-the-", "art machine that the town paid.", "state-of-the-art", ""),
        ("The hands of the clock are re-", "newed every ten years by a smith.", "are renewed every", ""),
        ("The hands are gilt, and the long-", "case is of oak from the hills.", "longcase is", "A longcase is old."),
        ("The oil of it is a long-", "term matter for the whole town.", "long-term matter", "So are long-term loans."),
    ],
)
def test_words_of_the_document_say_whether_a_hyphen_stays(tmp_path, first, rest, word, elsewhere):
    lines = [*([elsewhere] if elsewhere else []), *FILL, first, rest, *FILL]
    assert word in " ".join(read(written(tmp_path, "made.pdf", make_pdf([Sheet(_set(lines, 700))]))).text.split())
