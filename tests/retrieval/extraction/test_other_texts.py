"""OpenDocument, rich text, e-books, saved web pages and program code; and those that are odd, broken or hostile."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from retrieval.errors import ExtractError
from retrieval.extraction.extract import ExtractLimits, extract
from retrieval.extraction.office.sheets import cells_of
from tests.retrieval.extraction.reading import ENTITIES, SMALL, odd_archive, read, written
from tests.retrieval.packed import repacked

NAMESPACES = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{short if short != "draw" else "drawing"}:1.0"'
    for short in ("office", "text", "table", "draw", "meta", "style", "presentation")
)
BODY = """<text:h text:outline-level="2">Mills<text:note><text:note-citation>1</text:note-citation></text:note></text:h>
<text:p>One<text:s/>line<text:line-break/>and <text:span>more</text:span>.<text:note text:id="n1">
<text:note-citation>1</text:note-citation><text:note-body><text:p>A note.</text:p></text:note-body></text:note></text:p>
<text:list><text:list-item><text:p>first</text:p><text:list><text:list-item><text:p>inner</text:p></text:list-item>
</text:list></text:list-item></text:list><text:tracked-changes><text:p>gone</text:p></text:tracked-changes>
<table:table><table:table-row><table:table-cell><text:p>Item</text:p></table:table-cell><table:table-cell><text:p>Cost</text:p>
</table:table-cell></table:table-row><table:table-row><table:table-cell><text:p>Pier</text:p></table:table-cell>
<table:table-cell><text:p>12</text:p></table:table-cell></table:table-row></table:table>
<text:section><text:p>In a section<office:annotation>
<text:p>remark</text:p></office:annotation>.</text:p></text:section>"""
CODE = "import os\n\n\n\ndef area(width, height):\n\treturn width * height\n"
PAGE = "<html><head><title>{0}</title></head><body><h1>{0}</h1><p>{1}</p></body></html>"
RTF = (
    r"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\info{\title Mill papers}{\author A. Miller}}"
    r"\f0 The mill was built in 1850.\par It is red, and K\'f6ln is far: \u937?.\par "
    r"\trowd\cellx1000\cellx2000 Item\cell Cost\cell\row\trowd\cellx1000\cellx2000 Pier\cell 12\cell\row}"
)


def odt(
    folder: Path, body: str = BODY, name: str = "made.odt", *, kind: str = "text", automatic: str = "", styles: str = ""
) -> Path:
    """An OpenDocument file; `automatic`: styles of its content, `styles`: what its styles.xml holds."""
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        content = f"<office:automatic-styles>{automatic}</office:automatic-styles>"
        content += f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
        if styles:
            archive.writestr("styles.xml", f"<office:document-styles {NAMESPACES}>{styles}</office:document-styles>")
        archive.writestr("content.xml", f"<office:document-content {NAMESPACES}>{content}</office:document-content>")
        meta = '<dc:title xmlns:dc="http://purl.org/dc/elements/1.1/">Old mills</dc:title>'
        archive.writestr("meta.xml", f"<office:document-meta {NAMESPACES}>{meta}</office:document-meta>")
    return folder / name


def epub(folder: Path, chapters=(("Start", "The sea was calm."), ("Storm", "Then wind came."))) -> Path:
    with zipfile.ZipFile(folder / "made.epub", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip")
        root = '<rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/>'
        archive.writestr(
            "META-INF/container.xml",
            f'<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">{root}</container>',
        )
        items = "".join(
            f'<item id="c{n}" href="chapter%20{n}.xhtml" media-type="application/xhtml+xml"/>'
            for n in range(len(chapters))
        )
        spine = "".join(f'<itemref idref="c{n}"/>' for n in reversed(range(len(chapters))))
        archive.writestr(
            "OPS/book.opf",
            '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
            f"<dc:title>At sea</dc:title><dc:creator>B. Sailor</dc:creator></metadata><manifest>{items}</manifest>"
            f"<spine>{spine}</spine></package>",
        )
        for number, (heading, words) in enumerate(chapters):
            page = f"<!DOCTYPE html>{PAGE.format(heading, words)}"
            archive.writestr(f"OPS/chapter {number}.xhtml", page)
    return folder / "made.epub"


def mhtml(page: str = PAGE.format("Mill news", "The mill is sold=2E"), kind: str = "text/html; charset=utf-8") -> str:
    return (
        "From: <Saved by Blink>\r\nSnapshot-Content-Location: https://example.org/mill\r\nSubject: Mill\r\n"
        'MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary="B"\r\n\r\n--B\r\n'
        f"Content-Type: {kind}\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{page}\r\n--B\r\n"
        "Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo=\r\n--B--\r\n"
    )


def test_an_opendocument_text_gives_headings_lists_notes_and_tables(tmp_path):
    document = extract(odt(tmp_path))
    assert document.text == (
        "Mills\n\nOne line\nand more.\n\nNote on “One line and more.”: A note.\n\n• first\n• inner\n\n"
        "Item\tCost\nItem: Pier; Cost: 12.\n\nIn a section.\n\nComment on “In a section”: remark"
    )
    assert document.title == "Old mills" and [entry.level for entry in document.outline] == [1]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("cut", "damaged or cut off"),
        ("words", "damaged or cut off"),
        ("encrypted", "another office program"),
        ("foreign", "not an OpenDocument text"),
        ("entities", "declares entities"),
        ("broken xml", "not well-formed"),
        ("emptied", "not well-formed"),
        ("deep", "nested too deeply"),
        ("bomb", "unpacks to"),
    ],
)
def test_odd_opendocument_texts_are_refused_with_their_reason(tmp_path, kind, reason):
    with pytest.raises(ExtractError, match=reason):
        read(odd_archive(odt(tmp_path), kind, "content.xml"))


def test_locked_empty_and_endless_opendocument_texts_are_refused_and_repeated_cells_are_few(tmp_path):
    locked = repacked(odt(tmp_path), {}, {"META-INF/manifest.xml": b"<m><encryption-data/></m>"})
    with pytest.raises(ExtractError, match="has a password"):
        read(locked)
    with pytest.raises(ExtractError, match="no text"):
        read(odt(tmp_path, ""))
    with pytest.raises(ExtractError, match="more than 20,000 characters"):
        read(odt(tmp_path, f"<text:p>{'word ' * 5000}</text:p>"), SMALL)
    cell = '<table:table-cell table:number-columns-repeated="99999999"><text:p>x</text:p></table:table-cell>'
    table = f"<table:table><table:table-row>{cell}</table:table-row></table:table>"
    assert len(read(odt(tmp_path, table)).text) < 500


def cells(*texts: str, times: int = 1) -> str:
    return "".join(
        f'<table:table-cell table:number-columns-repeated="{times}"><text:p>{text}</text:p></table:table-cell>'
        for text in texts
    )


def row(*cells: str, times: int = 1) -> str:
    return f'<table:table-row table:number-rows-repeated="{times}">{"".join(cells)}</table:table-row>'


def test_what_stands_behind_many_equal_cells_rows_and_columns_of_a_sheet_keeps_its_place(tmp_path):
    names = [f"N{number}" for number in range(122)]
    columns = (
        '<table:table-column table:number-columns-repeated="120"/><table:table-column table:visibility="collapse"/>'
    )
    rows = row(cells(*names)) + row(cells("same"), cells("9"), times=300)
    rows += row(cells("last"), cells("", times=120), cells("here"))
    table = f'<table:table table:name="A">{columns}{rows}</table:table>'
    document = read(odt(tmp_path, table, "made.ods", kind="spreadsheet"))
    assert [one.text for one in document.asides] == ["N120"]
    assert document.text.endswith("same; 9.\nlast; here.")
    (box,) = document.boxes(len(document.text) - 5, len(document.text) - 1)
    assert cells_of([box], 122, 1000, 0) == "DR302"


def test_a_number_that_a_file_states_and_that_is_none_counts_as_one(tmp_path):
    cell = "<table:table-cell table:number-columns-repeated='\u00b2'><text:p>Pier</text:p></table:table-cell>"
    table = f"<table:table table:name='A'><table:table-row>{cell}</table:table-row></table:table>"
    assert read(odt(tmp_path, table, "made.ods", kind="spreadsheet")).text == "Pier"


def test_macros_of_an_opendocument_text_are_neither_run_nor_read(tmp_path):
    path = repacked(odt(tmp_path), {}, {"Basic/Standard/Module1.xml": b"Sub Main Shell"})
    document = read(path)
    assert "Shell" not in document.text and "macros" in document.notes[0]


def test_a_list_of_an_opendocument_text_begins_with_the_number_that_its_first_item_states(tmp_path):
    level = '<text:list-level-style-number text:level="1" style:num-format="1" style:num-suffix="."/>'
    items = ['<text:list-item text:start-value="5"><text:p>five</text:p></text:list-item>']
    items.append("<text:list-item><text:p>six</text:p></text:list-item>")
    path = odt(
        tmp_path,
        f'<text:list text:style-name="L">{"".join(items)}</text:list>',
        automatic=f'<text:list-style style:name="L">{level}</text:list-style>',
    )
    assert read(path).text == "5. five\n6. six"


def test_rich_text_gives_paragraphs_letters_and_table_rows(tmp_path):
    document = extract(written(tmp_path, "made.rtf", RTF))
    assert "The mill was built in 1850.\n\nIt is red, and Köln is far: Ω." in document.text
    assert "Item\tCost\nItem: Pier; Cost: 12." in document.text
    assert document.title == "Mill papers" and document.metadata["author"] == "A. Miller"


RAISED = (
    '<style:style style:name="Up" style:family="text"><style:text-properties style:text-position="super 58%"/>'
    '</style:style><style:style style:name="Low" style:family="text">'
    '<style:text-properties style:text-position="-33% 58%"/></style:style>'
    '<style:style style:name="Above" style:family="text"><style:text-properties style:text-position="33% 58%"/>'
    "</style:style>"
)


def test_raised_figures_of_an_opendocument_text_are_written_out(tmp_path):
    body = (
        '<text:p>3 × 10<text:span text:style-name="Up">5</text:span> of CO'
        '<text:span text:style-name="Low">2</text:span>'
        ' on 7 m<text:span text:style-name="Above">2</text:span></text:p>'
    )
    assert read(odt(tmp_path, body, automatic=RAISED)).text == "3 × 10^5 of CO2 on 7 m^2"


def test_tables_on_slides_of_opendocument_are_read_and_page_numbers_are_not(tmp_path):
    rows = "".join(
        f"<table:table-row>{''.join(f'<table:table-cell><text:p>{cell}</text:p></table:table-cell>' for cell in row)}"
        "</table:table-row>"
        for row in (("Item", "Cost"), ("Pier", "12"))
    )
    body = (
        f"<draw:page><draw:frame><table:table>{rows}</table:table></draw:frame>"
        "<draw:frame><draw:text-box><text:p>Slide <text:page-number>&lt;number&gt;</text:page-number></text:p>"
        "</draw:text-box></draw:frame></draw:page>"
    )
    document = read(odt(tmp_path, body, "made.odp", kind="presentation"))
    assert document.text == "Item\tCost\nItem: Pier; Cost: 12.\n\nSlide"
    assert [table.rows for table in document.exhibits.tables] == [(("Item", "Cost"), ("Pier", "12"))]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"Fee{\super\chftn{\*\footnote\pard\plain{\super\chftn} Paid in May.\par}} is 9.\par Later.\par",
         "Fee is 9.\n\nNote on “Fee”: Paid in May.\n\nLater."),
        (r"Oil{\*\atnid B}{\*\atnauthor Bo Li}\chatn{\*\annotation{\*\atndate 1}Ask Kvist.} is dear.\par",
         "Oil is dear.\n\nComment by Bo Li on “Oil”: Ask Kvist."),
        (r"{\shp{\*\shpinst\shpleft7{\sp{\sn type}{\sv 202}}{\shptxt Ferry 7:25.\par}}{\shprslt Ferry 7:25.}}Here.\par",
         "Here.\n\nFerry 7:25."),
        (r"{\*\do\dobxpage\dptxbx{\dptxbxtext Old box\par}\dpx1}Here.\par", "Here.\n\nOld box"),
        (r"10{\super 5} cd, 5 m\super 2\nosupersub  and 174{\super 4} euros\par", "10^5 cd, 5 m^2 and 174 4 euros"),
        (r"A{\footnote one {\strike two} three{\footnote inner}}B\par", "AB\n\nNote on “A”: one three inner"),
        (r"{\v x{\footnote seen}y}z\par", "z\n\nNote: seen"),
        (r"See C:\\docs\\v2\\plain.txt there.\par{\v gone\\}Next.\par", "See C:\\docs\\v2\\plain.txt there.\n\nNext."),
        (f"Sum {'0123456789abcdef' * 4}.\\par", f"Sum {'0123456789abcdef' * 4}."),
        (r"A{\footnote unclosed", "A\n\nNote on “A”: unclosed"),
    ],
)  # fmt: skip
def test_notes_comments_boxes_and_raised_figures_of_rich_text_are_read(tmp_path, source, text):
    text_read = read(written(tmp_path, "made.rtf", "{\\rtf1\\ansi " + source + "}")).text
    assert text_read.replace("  ", " ") == text


def rich_rows(*rows: tuple[str, str]) -> str:
    return "".join(rf"\trowd{edges}\pard\intbl {cells.replace('|', chr(92) + 'cell ')}\row" for edges, cells in rows)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([(r"\clvmgf\cellx100\cellx300\cellx500", "Store|2024|2025|"),
          (r"\clvmrg\cellx100\cellx200\cellx300\cellx400\cellx500", "|Oil|Wax|Oil|Wax|"),
          (r"\cellx102\cellx200\cellx300\cellx400\cellx500", "Loft|1|2|3|4|")],
         "Store: Loft; 2024 / Oil: 1; 2024 / Wax: 2; 2025 / Oil: 3; 2025 / Wax: 4."),
        ([(r"\cellx1000\cellx2000\cellx3000", "Day|Hall|Cost|"), (r"\clvmgf\cellx1000\cellx2000\cellx3000", "Mon|A|1|"),
          (r"\clvmrg\cellx1000\cellx2000\cellx3000", "|B|2|")], "Day: Mon; Hall: B; Cost: 2."),
        ([(r"\cellx1000\cellx2000\cellx3000", "Day|Hall|Cost|"),
          (r"\clmgf\cellx1000\clmrg\cellx2000\cellx3000", "Sun||2|")], "Day: Sun; Hall: Sun; Cost: 2."),
        ([(r"\cellx1000\cellx99999999", "Day|Hall|Cost|"), (r"\cellx1000", "Sun|A|2|")],
         "Day: Sun; Hall: A; Cost: 2."),
    ],
)  # fmt: skip
def test_merged_cells_of_rich_text_are_said_wherever_they_reach(tmp_path, rows, text):
    scaled = [
        (re.sub(r"(?<=cellx)[1-5]0[0-2](?!\d)", lambda found: found[0] + "0", edges), cells) for edges, cells in rows
    ]
    read_text = read(written(tmp_path, "made.rtf", "{\\rtf1\\ansi " + rich_rows(*scaled) + "}")).text
    assert read_text.split("\n")[-1] == text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"only words", "not rich text"),
        (b"{\\rtf1}", "no text"),
        (b"{\\rtf1 {\\pict\\pngblip " + b"89504e47" * 5000 + b"}}", "no text"),
        (b"{\\rtf1 " + b"word " * 6000 + b"}", "more than 20,000 characters"),
        (b"PK\x03\x04", "not rich text"),
    ],
)
def test_odd_rich_text_is_refused_with_its_reason(tmp_path, data, reason):
    with pytest.raises(ExtractError, match=reason):
        read(written(tmp_path, "odd.rtf", data), SMALL)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{\\rtf1 cut off in the mid", "cut off in the mid"),
        (b"{\\rtf1 {\\*\\hidden gone}stays\\par}", "stays"),
        (b"{\\rtf1 " + b"{" * 3000 + b"deep" + b"}" * 3000 + b"}", "deep"),
        (b"{\\rtf1\\ansi\\ansicpg99999 odd page}", "odd page"),
        (b"{\\rtf1 \\u-10179?\\u-8704? face}", "face"),
        (b"{\\rtf1 \\u-8191?\\u-8170?\\u57350? own signs}", "own signs"),
        (b"{\\rtf1\\trowd\\cellx900\\clvmrg Zinc\\cell\\row\\trowd\\clvmrg\\row\\pard}", "Zinc"),
        (b"{\\rtf1 {\\object\\objdata 4d5a90}{\\field{\\*\\fldinst DDEAUTO cmd}{\\fldrslt shown}}}", "shown"),
    ],
)
def test_irregular_rich_text_gives_its_words(tmp_path, data, words):
    text = read(written(tmp_path, "odd.rtf", data)).text
    assert words in text and "gone" not in text and "DDEAUTO" not in text


def test_the_chapters_of_an_e_book_are_parts_in_the_order_of_reading(tmp_path):
    document = extract(epub(tmp_path))
    assert document.text == "Storm\n\nThen wind came.\n\nStart\n\nThe sea was calm."
    assert [page.label for page in document.pages] == ["chapter 1 (Storm)", "chapter 2 (Start)"]
    assert document.title == "At sea" and document.metadata["author"] == "B. Sailor"


@pytest.mark.parametrize(
    ("kind", "part", "reason"),
    [
        ("cut", "", "damaged or cut off"),
        ("words", "", "damaged or cut off"),
        ("encrypted", "", "office program"),
        ("foreign", "", "not an e-book"),
        ("broken xml", "OPS/book.opf", "not well-formed"),
        ("emptied", "META-INF/container.xml", "not well-formed"),
        ("deep", "OPS/book.opf", "nested too deeply"),
        ("bomb", "OPS/chapter 0.xhtml", "unpacks to"),
    ],
)
def test_odd_e_books_are_refused_with_their_reason(tmp_path, kind, part, reason):
    with pytest.raises(ExtractError, match=reason):
        read(odd_archive(epub(tmp_path), kind, part))


def test_protected_empty_and_endless_e_books_are_refused(tmp_path):
    method = b'<x xmlns:e="http://www.w3.org/2001/04/xmlenc#"><e:EncryptionMethod Algorithm="%s"/></x>'
    locked = {"META-INF/encryption.xml": method % b"http://www.w3.org/2001/04/xmlenc#aes128-cbc"}
    with pytest.raises(ExtractError, match="protected against copying"):
        read(repacked(epub(tmp_path), {}, locked))
    fonts = {"META-INF/encryption.xml": method % b"http://www.idpf.org/2008/embedding"}
    assert "calm" in read(repacked(epub(tmp_path), {}, fonts)).text
    with pytest.raises(ExtractError, match="no text"):
        read(epub(tmp_path, [("", "")]))
    with pytest.raises(ExtractError, match="more than 20,000 characters"):
        read(epub(tmp_path, [("Long", "word " * 5000)]), SMALL)


def test_a_chapter_that_is_missing_is_noted_and_entities_of_a_chapter_stay_unresolved(tmp_path):
    path = repacked(epub(tmp_path), {"OPS/book.opf": lambda xml: xml.replace(b"chapter%200", b"../../etc/passwd")})
    assert read(path).notes == ("../etc/passwd.xhtml is missing in the e-book.",)
    bomb = ENTITIES + b"<html><body><p>&c; words</p></body></html>"
    document = read(repacked(epub(tmp_path), {"OPS/chapter 0.xhtml": lambda xml: bomb}))
    assert "words" in document.text and Path("/etc/hostname").read_text().strip() not in document.text


def test_a_web_page_saved_as_one_file_is_read(tmp_path):
    document = extract(written(tmp_path, "made.mhtml", mhtml()))
    assert document.text == "Mill news\n\nThe mill is sold."
    assert document.metadata["address"] == "https://example.org/mill"


def test_frames_that_were_saved_with_a_page_are_read_behind_it(tmp_path):
    frame = "--B\r\nContent-Type: text/html\r\n\r\n<p>{}</p><p hidden>gone</p>\r\n--B--\r\n"
    saved = mhtml().replace("--B--\r\n", frame.format("The buyer is a baker."))
    document = read(written(tmp_path, "made.mht", saved.replace("--B--\r\n", frame.format(""))))
    assert document.text == "Mill news\n\nThe mill is sold.\n\nThe buyer is a baker."
    assert [page.label for page in document.pages] == ["page", "frame 1", "frame 2"]
    assert [(one.page, one.text) for one in document.asides] == [(1, "gone"), (2, "gone")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (mhtml(kind="image/gif"), "holds no web page"),
        ("only words", "holds no web page"),
        (bytes(range(256)), "holds no web page"),
        (mhtml(""), "no text"),
        (mhtml("<p>" + "word " * 6000 + "</p>"), "more than 20,000 characters"),
    ],
)
def test_odd_saved_web_pages_are_refused_with_their_reason(tmp_path, data, reason):
    with pytest.raises(ExtractError, match=reason):
        read(written(tmp_path, "odd.mht", data), SMALL)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (mhtml()[:-30], "The mill"),
        (mhtml(kind="text/html; charset=unknown-8"), "The mill is sold."),
        (mhtml("<p>open <b>tags<div>everywhere"), "everywhere"),
        (mhtml("<script>gone()</script><style>gone</style><p>stays</p>"), "stays"),
        (mhtml("<div>" * 3000 + "deep" + "</div>" * 3000), "deep"),
        (mhtml("<iframe src=3D'file:///etc/passwd'></iframe><img src=3Dhttp://gone.example/>seen"), "seen"),
    ],
    ids=range(6),
)
def test_irregular_saved_web_pages_give_their_words_and_fetch_nothing(tmp_path, data, words):
    text = read(written(tmp_path, "odd.mhtml", data)).text
    assert words in text and "gone" not in text and "root:" not in text


def test_program_code_is_text_whose_places_are_lines(tmp_path):
    document = extract(written(tmp_path, "area.py", CODE))
    assert document.text == "import os\n\ndef area(width, height):\n    return width * height"
    long = "\n".join(f"line_{number} = {number}" for number in range(1, 131))
    pages = read(written(tmp_path, "long.rs", long)).pages
    assert [page.label for page in pages] == ["lines 1–60", "lines 61–120", "lines 121–130"]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("old.c", "// f\xfcr".encode("latin-1"), "für"),
        ("dos.bat", b"echo one\r\necho two\r\n", "echo one\necho two"),
        ("mac.php", b"a = 1\rb = 2", "a = 1\nb = 2"),
        ("wide.ps1", "Grüße".encode("utf-16"), "Grüße"),
        ("one.json", b'{"a": [1, 2]}', "a: 1, 2."),  # data, not code: a sentence
        ("one.yaml", b'{"a": [1, 2]}', '{"a": [1, 2]}'),
        ("form\x0cfeed.txt".replace("\x0c", ""), b"a\x0cb", "a\nb"),
        ("page.xml", ENTITIES + b"<x>&b;</x>", "&b;"),
    ],
)
def test_code_of_every_making_is_read_as_it_stands(tmp_path, name, data, words):
    assert words in read(written(tmp_path, name, data)).text


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"\x7fELF" + bytes(500), "binary data"), (b"\n\n  \n", "no text"), (b"x = 1\n" * 9000, "more than 20,000")],
)
def test_odd_code_is_refused_with_its_reason(tmp_path, data, reason):
    with pytest.raises(ExtractError, match=reason):
        read(written(tmp_path, "odd.py", data), SMALL)


def test_an_endless_part_of_a_file_is_no_part_of_its_own_beyond_the_limit(tmp_path):
    with pytest.raises(ExtractError, match="more than 2 parts"):
        read(written(tmp_path, "long.py", "x = 1\n" * 500), ExtractLimits(pages=2))
