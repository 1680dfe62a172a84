"""What is hidden, deleted or struck out is set aside in every format: never part of the text, never lost."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pptx
import pytest
from openpyxl.formatting.rule import CellIsRule
from openpyxl.styles import Color, Font, PatternFill
from openpyxl.worksheet.table import Table
from PIL import Image
from pptx.dml.color import RGBColor
from pptx.oxml import parse_xml
from pptx.oxml.ns import nsdecls

from retrieval.errors import ExtractError
from retrieval.extraction.document import Aside, ExtractedDocument, aside_notes
from retrieval.extraction.extract import extract
from tests.retrieval.extraction.reading import read, written
from tests.retrieval.extraction.test_formats import W, docx
from tests.retrieval.extraction.test_other_texts import odt


def set_aside(document: ExtractedDocument) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in document.asides]


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


STYLES = (
    f'<w:styles {W}><w:style w:styleId="Base"><w:rPr><w:vanish/></w:rPr></w:style>'
    '<w:style w:styleId="Note"><w:basedOn w:val="Base"/></w:style>'
    '<w:style w:styleId="Shown"><w:basedOn w:val="Base"/><w:rPr><w:vanish w:val="0"/></w:rPr></w:style></w:styles>'
)
NOTE_RUN = "<w:rStyle w:val='Note'/>"
TINY = "<w:sz w:val='2'/>"
WHITE = "<w:color w:val='ffffff'/>"
UNHIDDEN = "<w:vanish w:val='0'/>"
UNSTRUCK = "<w:strike w:val='false'/>"
CELL = "<w:tc><w:p>{}</w:p></w:tc>"


DELETED_ROW = (
    f"<w:tbl><w:tr>{CELL.format(run('a'))}</w:tr><w:tr><w:trPr><w:del/></w:trPr>{CELL.format(run('b'))}</w:tr></w:tbl>"
)


@pytest.mark.parametrize(
    ("body", "text", "aside"),
    [
        (f"<w:p>{run('It costs ')}{run('7', '<w:vanish/>')}{run('9')}</w:p>", "It costs 9", ("hidden", "7")),
        (f"<w:p>{run('It costs ')}{run('7', '<w:strike/>')}{run('9')}</w:p>", "It costs 9", ("deleted", "7")),
        (f"<w:p>{run('It costs ')}{run('7', '<w:dstrike/>')}{run('9')}</w:p>", "It costs 9", ("deleted", "7")),
        (f"<w:p>{run('a')}<w:del><w:r><w:delText>b</w:delText></w:r></w:del></w:p>", "a", ("deleted", "b")),
        (f"<w:p>{run('a')}<w:moveFrom>{run('b')}</w:moveFrom></w:p>", "a", ("deleted", "b")),
        (f"<w:p>{run('a')}{run('b', NOTE_RUN)}</w:p>", "a", ("hidden", "b")),
        (f'<w:p><w:pPr><w:pStyle w:val="Note"/></w:pPr>{run("b")}</w:p><w:p>{run("a")}</w:p>', "a", ("hidden", "b")),
        (f"<w:p>{run('a')}{run('b', TINY)}</w:p>", "a", ("hidden", "b")),
        (f"<w:p>{run('a')}{run('b', WHITE)}</w:p>", "a", ("hidden", "b")),
        (DELETED_ROW, "a", ("deleted", "b")),
        (
            f"<w:p>{run('Name: a')}<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent>{run('Enter text')}"
            "</w:sdtContent></w:sdt></w:p>",
            "Name: a",
            ("hidden", "Enter text"),
        ),
    ],
)
def test_word_sets_aside_what_is_hidden_struck_deleted_or_moved_away(tmp_path, body, text, aside):
    document = read(docx(tmp_path, body, parts={"word/styles.xml": STYLES}))
    assert document.text == text and set_aside(document) == [aside]


@pytest.mark.parametrize(
    "body",
    [
        f"<w:p>{run('a', UNHIDDEN)}</w:p>",
        f"<w:p>{run('a', UNSTRUCK)}</w:p>",
        f'<w:p><w:pPr><w:pStyle w:val="Shown"/></w:pPr>{run("a")}</w:p>',
        f'<w:p><w:pPr><w:pStyle w:val="Note"/></w:pPr>{run("a", UNHIDDEN)}</w:p>',
        f"<w:p>{run('a', '<w:webHidden/>')}</w:p>",
        f"<w:p>{run('a', WHITE + '<w:highlight/>')}</w:p>",
        f'<w:p><w:pPr><w:shd w:fill="000000"/></w:pPr>{run("a", WHITE)}</w:p>',
        f"<w:tbl><w:tr>{CELL.format(run('a', WHITE))}</w:tr></w:tbl>",
        f"<w:p><w:r><w:pict><w:txbxContent><w:p>{run('a', WHITE)}</w:p></w:txbxContent></w:pict></w:r></w:p>",
        f"<w:p><w:ins>{run('a')}</w:ins></w:p>",
        f"<w:p><w:moveTo>{run('a')}</w:moveTo></w:p>",
    ],
)
def test_word_keeps_what_is_shown(tmp_path, body):
    document = read(docx(tmp_path, body, parts={"word/styles.xml": STYLES}))
    assert document.text == "a" and not document.asides


@pytest.mark.parametrize(
    ("page", "text", "aside"),
    [
        ("<p>It costs <del>7</del> <ins>9</ins>.</p>", "It costs 9.", ("deleted", "7")),
        ("<p>It costs <s>7</s> 9.</p>", "It costs 9.", ("deleted", "7")),
        ("<p>It costs <strike>7</strike> 9.</p>", "It costs 9.", ("deleted", "7")),
        ("<p hidden>old</p><p>new</p>", "new", ("hidden", "old")),
        ("<div style='Display : none'><p>old</p></div><p>new</p>", "new", ("hidden", "old")),
        ("<p style='visibility:hidden;color:red'>old</p><p>new</p>", "new", ("hidden", "old")),
        ("<p style='font-size:0'>old</p><p>new</p>", "new", ("hidden", "old")),
        ("<p style='position:absolute;left:-9999px'>old</p><p>new</p>", "new", ("hidden", "old")),
        ("<p style='text-decoration: underline line-through'>old</p><p>new</p>", "new", ("deleted", "old")),
        ("<style>.old, #gone{display:none}</style><p class='A OLD'>old</p><p>new</p>", "new", ("hidden", "old")),
        ("<style>p.x{text-decoration:line-through}</style><p class=x>old</p><p>new</p>", "new", ("deleted", "old")),
        ("<p style='color:#FFF; background: white'>old</p><p>new</p>", "new", ("hidden", "old")),
        ("<p style='background-color:#000000;color:rgb(0, 0, 0)'>old</p><p>new</p>", "new", ("hidden", "old")),
        ("<style>.w{color:transparent}</style><p class=w>old</p><p>new</p>", "new", ("hidden", "old")),
        ("<template><p>old</p></template><p>new</p>", "new", ("hidden", "old")),
        ("<noscript><p>old</p></noscript><p>new</p>", "new", ("hidden", "old")),
        ("<table><tr><td>A<i hidden>00038</i>38 m</td><td>b</td></tr></table>", "A 38 m | b", ("hidden", "00038")),
    ],
)  # fmt: skip
def test_a_web_page_sets_aside_what_it_hides_or_strikes_out(tmp_path, page, text, aside):
    document = read(written(tmp_path, "page.html", page))
    assert document.text == text and set_aside(document) == [aside]


@pytest.mark.parametrize(
    "page",
    [
        "<a href='#t'>Fees</a><div id=t hidden><p>new</p></div>",
        "<button aria-controls=t>Fees</button><div id=t style='display:none'><p>new</p></div>",
        "<div role=tabpanel hidden><p>new</p></div>",
        "<style>@media print{p{display:none}}</style><p>new</p>",
        "<style>p.x{display:none}</style><p class=y>new</p>",
        "<style>/* p{display:none} */</style><p>new</p>",
        "<p style='opacity:0.5;font-size:0.9em'>new</p>",
        "<p style='color:#fff;background:#000'>new</p>",
        "<p style='color:white;border-color:white'>new</p>",
        "<details><summary>More</summary><p>new</p></details>",
    ],
)
def test_a_web_page_keeps_what_its_readers_can_open(tmp_path, page):
    document = read(written(tmp_path, "page.html", page))
    assert "new" in document.text and not document.asides


@pytest.mark.parametrize(
    ("source", "text", "aside"),
    [
        ("It costs ~~7~~ 9.", "It costs  9.", ("deleted", "7")),
        ("It costs <del>7</del>9.", "It costs 9.", ("deleted", "7")),
        ("<!-- old\n\nmore -->\n\nnew", "new", ("hidden", "old more")),
        ("new <!-- old -->", "new ", ("hidden", "old")),
        ('<div style="display:none">old</div>\n\nnew', "new", ("hidden", "old")),
        ("# New <!-- old -->\n", "New", ("hidden", "old")),
        ("| A | B |\n|---|---|\n| ~~7~~8 | 9 |", "A\tB\nA: 8; B: 9.", ("deleted", "7")),
    ],
)
def test_markdown_sets_aside_comments_and_what_is_struck_out(tmp_path, source, text, aside):
    document = read(written(tmp_path, "page.md", source))
    assert document.text == text and set_aside(document) == [aside]


@pytest.mark.parametrize("source", ["```\n<!-- code -->\n~~a~~\n```", "    ~~code~~", "a ~ b ~~ c"])
def test_markdown_keeps_code_and_single_marks(tmp_path, source):
    assert not read(written(tmp_path, "page.md", source)).asides


@pytest.mark.parametrize(
    ("source", "text", "aside"),
    [
        (r"It costs {\v 7 }9.\par", "It costs 9.", ("hidden", "7")),
        (r"It costs \v 7 \v0 9.\par", "It costs 9.", ("hidden", "7")),
        (r"It costs {\strike 7 }9.\par", "It costs 9.", ("deleted", "7")),
        (r"It costs \strike 7 \plain 9.\par", "It costs 9.", ("deleted", "7")),
        (r"It costs {\deleted\revauthdel1 7 }{\revised 9}.\par", "It costs 9.", ("deleted", "7")),
        (r"{\v one\par two}\par new\par", "new", ("hidden", "one")),
    ],
)
def test_rich_text_sets_aside_what_is_hidden_struck_or_deleted(tmp_path, source, text, aside):
    document = read(written(tmp_path, "made.rtf", "{\\rtf1\\ansi " + source + "}"))
    assert document.text == text and set_aside(document)[0] == aside


def test_headers_of_rich_text_are_read(tmp_path):
    source = r"{\rtf1\ansi{\header Contract K-7}{\footerf\pard Valid until May}\pard The fee is 9.\par}"
    assert read(written(tmp_path, "made.rtf", source)).text.split("\n\n") == [
        "Contract K-7",
        "Valid until May",
        "The fee is 9.",
    ]


def style(name: str, family: str, properties: str) -> str:
    return (
        f'<style:style style:name="{name}" style:family="{family}"><style:text-properties {properties}/></style:style>'
    )


@pytest.mark.parametrize(
    ("body", "aside"),
    [
        ('<text:p>a<text:span text:style-name="H">b</text:span></text:p>', ("hidden", "b")),
        ('<text:p>a<text:span text:style-name="S">b</text:span></text:p>', ("deleted", "b")),
        ('<text:p text:style-name="P">b</text:p><text:p>a</text:p>', ("hidden", "b")),
        ('<text:section text:display="none"><text:p>b</text:p></text:section><text:p>a</text:p>', ("hidden", "b")),
        ('<text:p>a<text:hidden-text text:string-value="b"/></text:p>', ("hidden", "b")),
        ('<text:p><text:hidden-paragraph text:is-hidden="true"/>b</text:p><text:p>a</text:p>', ("hidden", "b")),
        ("<text:tracked-changes><text:changed-region><text:deletion><text:p>b</text:p></text:deletion>"
         "</text:changed-region></text:tracked-changes><text:p>a</text:p>", ("deleted", "b")),
    ],
)  # fmt: skip
def test_an_opendocument_text_sets_aside_what_is_hidden_struck_or_deleted(tmp_path, body, aside):
    styles = style("H", "text", 'text:display="none"') + style("P", "paragraph", 'text:display="none"')
    styles += style("S", "text", 'style:text-line-through-style="solid"')
    document = read(odt(tmp_path, body, automatic=styles))
    assert document.text == "a" and set_aside(document) == [aside]


def test_hidden_sheets_rows_and_columns_of_opendocument_are_set_aside(tmp_path):
    def cells(*words: str) -> str:
        remark = "<office:annotation><text:p>on {0}</text:p></office:annotation>"
        cell = f"<table:table-cell>{remark}<text:p>{{0}}</text:p></table:table-cell>"
        return "".join(map(cell.format, words))

    hidden = (
        '<style:style style:name="T" style:family="table"><style:table-properties table:display="false"/></style:style>'
    )
    body = (
        f'<table:table table:name="Old" table:style-name="T"><table:table-row>{cells("old")}</table:table-row>'
        "</table:table>"
        '<table:table table:name="New"><table:table-column/><table:table-column table:visibility="collapse"/>'
        f"<table:table-row>{cells('a', 'secret')}</table:table-row>"
        f'<table:table-row table:visibility="collapse">{cells("row")}</table:table-row></table:table>'
    )
    document = read(odt(tmp_path, body, "made.ods", kind="spreadsheet", automatic=hidden))
    assert document.text == "a\n\nComment on “a”: on a"
    assert sorted(set_aside(document)) == [
        ("hidden", text) for text in ("old\nComment on “old”: on old", "on row", "on secret", "row", "secret")
    ]
    assert document.notes == ("The sheet Old is hidden in the file.",)


def deck(folder: Path) -> tuple[pptx.presentation.Presentation, Path]:
    return pptx.Presentation(), folder / "made.pptx"


def test_hidden_slides_and_shapes_and_struck_words_of_a_deck_are_set_aside(tmp_path):
    made, path = deck(tmp_path)
    for words in ("one old", "two"):
        slide = made.slides.add_slide(made.slide_layouts[6])
        box = slide.shapes.add_textbox(0, 0, 9_000_000, 900_000)
        for word in words.split():
            box.text_frame.paragraphs[0].add_run().text = word
    first = made.slides[0].shapes[0]
    first.element.txBody.p_lst[0].r_lst[1].get_or_add_rPr().set("strike", "sngStrike")
    secret = made.slides[0].shapes.add_textbox(0, 2_000_000, 9_000_000, 900_000)
    secret.text_frame.text = "secret"
    secret.element.nvSpPr.cNvPr.set("hidden", "1")
    made.slides[1].element.set("show", "0")
    made.save(path)
    document = read(path)
    assert document.text == "one" and document.pages[1].note == "hidden slide"
    assert document.asides == (Aside("deleted", "old"), Aside("hidden", "secret"), Aside("hidden", "two", 1))


def test_footers_of_slides_are_set_aside_and_their_numbers_left_out(tmp_path):
    made, path = deck(tmp_path)
    slide = made.slides.add_slide(made.slide_layouts[6])
    slide.shapes.add_textbox(0, 0, 9_000_000, 900_000).text_frame.text = "words"
    for kind, words in (("ftr", "Project Tern"), ("dt", "4 May"), ("sldNum", "7")):
        box = slide.shapes.add_textbox(0, 5_000_000, 900_000, 900_000)
        box.text_frame.text = words
        box.element.nvSpPr.nvPr.append(parse_xml(f'<p:ph {nsdecls("p")} type="{kind}" idx="1{len(words)}"/>'))
    made.save(path)
    document = read(path)
    assert document.text == "words" and set_aside(document) == [("footer", "Project Tern"), ("footer", "4 May")]


def test_what_the_number_format_of_a_cell_hides_is_set_aside(tmp_path):
    book = openpyxl.Workbook()
    for row in (("Item", "Cost", "Help"), ("Pier", 12, 77), ("Quay", 13, 88)):
        book.active.append(row)
    book.active["C2"].number_format = ";;;"
    book.save(tmp_path / "made.xlsx")
    document = read(tmp_path / "made.xlsx")
    assert "Item: Pier; Cost: 12." in document.text and set_aside(document) == [("hidden", "77")]


WHITE_FONT = Font(color="FFFFFFFF")


@pytest.mark.parametrize(
    ("font", "fill", "is_hidden"),
    [
        (WHITE_FONT, None, True),
        (Font(color=Color(theme=0)), None, True),
        (Font(color=Color(indexed=9)), None, True),
        (WHITE_FONT, "FFFFFFFF", True),
        (Font(color="FF336699"), "FF336699", True),
        (WHITE_FONT, "FF336699", False),
        (Font(color="FF336699"), None, False),
        (Font(color=Color(theme=0, tint=-0.5)), None, False),
        (Font(color="FF000000"), "FFFFFFFF", False),
        (Font(bold=True), None, False),
    ],
)
def test_letters_in_the_colour_of_their_cell_are_set_aside(tmp_path, font, fill, is_hidden):
    book = openpyxl.Workbook()
    for row in (("Item", "Cost", "Help"), ("Pier", 12, 77), ("Quay", 13, 88)):
        book.active.append(row)
    book.active["C2"].font = font
    if fill:
        book.active["C2"].fill = PatternFill("solid", fgColor=fill)
    book.save(tmp_path / "made.xlsx")
    document = read(tmp_path / "made.xlsx")
    assert set_aside(document) == ([("hidden", "77")] if is_hidden else []) and "Help: 88" in document.text
    assert ("Help: 77" in document.text) != is_hidden


def test_white_letters_stay_where_a_table_or_a_condition_may_colour_their_cell(tmp_path):
    book = openpyxl.Workbook()
    for row in (("Item", "Cost", "Help"), ("Pier", 12, 77), ("Quay", 13, 88)):
        book.active.append(row)
    for cell in ("A1", "B1", "C1", "C2"):
        book.active[cell].font = WHITE_FONT
    book.active.add_table(Table(displayName="Costs", ref="A1:B3"))
    ground = PatternFill(bgColor="FF336699", fill_type="solid")
    book.active.conditional_formatting.add("C2:C3", CellIsRule("greaterThan", ["70"], fill=ground))
    book.save(tmp_path / "made.xlsx")
    document = read(tmp_path / "made.xlsx")
    assert set_aside(document) == [("hidden", "Help")] and "Item: Pier; Cost: 12; 77." in document.text


NOTHING, DARK, PICTURE = "nothing", "a dark shape", "a picture"


@pytest.mark.parametrize(
    ("colour", "own", "slide", "below", "is_hidden"),
    [
        ("FFFFFF", None, None, NOTHING, True),
        ("FFFFFF", "FFFFFF", "000000", NOTHING, True),
        ("224466", "224466", None, NOTHING, True),
        ("224466", None, "224466", NOTHING, True),
        ("FFFFFF", "224466", None, NOTHING, False),
        ("FFFFFF", None, "224466", NOTHING, False),
        ("FFFFFF", None, None, DARK, False),
        ("FFFFFF", None, None, PICTURE, False),
        ("224466", None, None, NOTHING, False),
    ],
)
def test_letters_in_the_colour_of_their_ground_on_a_slide_are_set_aside(tmp_path, colour, own, slide, below, is_hidden):
    made, path = deck(tmp_path)
    page = made.slides.add_slide(made.slide_layouts[6])
    if slide:
        page.background.fill.solid()
        page.background.fill.fore_color.rgb = RGBColor.from_string(slide)
    if below == DARK:
        page.shapes.add_shape(1, 0, 0, 9_000_000, 900_000)
    elif below == PICTURE:
        Image.new("RGB", (40, 40), "navy").save(tmp_path / "sea.png")
        page.shapes.add_picture(str(tmp_path / "sea.png"), 0, 0, 9_000_000, 900_000)
    box = page.shapes.add_textbox(0, 0, 9_000_000, 900_000)
    if own:
        box.fill.solid()
        box.fill.fore_color.rgb = RGBColor.from_string(own)
    for words, rgb in (("seen", None), (" secret", colour)):
        run = box.text_frame.paragraphs[0].add_run()
        run.text = words
        if rgb:
            run.font.color.rgb = RGBColor.from_string(rgb)
    made.save(path)
    document = read(path)
    assert set_aside(document) == ([("hidden", "secret")] if is_hidden else [])
    assert document.text == ("seen" if is_hidden else "seen secret")


@pytest.mark.parametrize(
    ("page", "text", "aside"),
    [
        ('<iframe srcdoc="<p>Berth 42</p>">no frames</iframe>', "Before\n\nBerth 42\n\nAfter", []),
        ('<iframe src="https://example.org/a.html">no frames</iframe>', "Before\n\nAfter", []),
        ('<iframe hidden srcdoc="<p>Buy now</p>"></iframe>', "Before\n\nAfter", ["Buy now"]),
        ('<iframe style="display:none" srcdoc="Buy now"></iframe>', "Before\n\nAfter", ["Buy now"]),
        ('<iframe srcdoc="<p>Berth 42</p><p hidden>old</p>"></iframe>', "Before\n\nBerth 42\n\nAfter", ["old"]),
        ('<iframe srcdoc="<script>run()</script><h2>Quay</h2>"></iframe>', "Before\n\nQuay\n\nAfter", []),
        ("<iframe srcdoc='<iframe srcdoc=\"Inner 7\"></iframe>'></iframe>", "Before\n\nInner 7\n\nAfter", []),
        ('<table><tr><td>Pier<td><iframe srcdoc="12 m"></iframe><tr><td>Quay<td>9 m</table>',
         "Before\n\nPier: 12 m.\nQuay: 9 m.\n\nAfter", []),
    ],
)  # fmt: skip
def test_pages_that_stand_in_a_frame_of_a_page_are_read(tmp_path, page, text, aside):
    document = read(written(tmp_path, "made.html", f"<p>Before</p>{page}<p>After</p>"))
    assert document.text == text and [one.text for one in document.asides] == aside


def test_frames_in_frames_without_end_are_read_to_some_depth(tmp_path):
    page = "deep"
    for number in range(12):
        page = f"<p>level {number}</p><iframe srcdoc='{page.replace('&', '&amp;').replace(chr(39), '&#39;')}'></iframe>"
    lines = read(written(tmp_path, "made.html", page)).text.split("\n\n")
    assert lines == [f"level {number}" for number in range(11, 5, -1)]


def test_what_is_set_aside_in_an_attachment_and_in_a_message_stays_with_its_part(tmp_path):
    message = (
        "Subject: dam\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: text/html\n\n"
        "<p>new<s>old</s></p>\n--B\nContent-Type: text/html; name=a.html\nContent-Disposition: attachment\n\n"
        "<p>more</p><p hidden>secret</p>\n--B--\n"
    )
    document = extract(written(tmp_path, "made.eml", message))
    assert document.asides == (Aside("deleted", "old", 0), Aside("hidden", "secret", 1))


def test_a_file_of_nothing_but_hidden_text_says_so(tmp_path):
    with pytest.raises(ExtractError, match="hidden or deleted"):
        read(written(tmp_path, "page.html", "<p hidden>old</p>"))


def test_a_document_says_how_much_was_set_aside():
    asides = [Aside("hidden", "abc"), Aside("deleted", "de"), Aside("hidden", "f")]
    assert aside_notes(asides) == [
        "Set aside as hidden text: 2 passages, 4 characters.",
        "Set aside as deleted text: 1 passage, 2 characters.",
    ]
