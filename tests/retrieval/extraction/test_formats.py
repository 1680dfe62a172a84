"""Word documents, web pages, Markdown and plain text: text, headings, tables; no pages, no boxes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import docx as docx_library
import pytest

from retrieval.errors import ExtractError
from retrieval.extraction.extract import ExtractedDocument, ExtractLimits, extract
from retrieval.extraction.formats import format_of, function_named, suffixes_here
from retrieval.extraction.markup import extract_text
from retrieval.extraction.office.word import extract_docx
from tests.retrieval.extraction.reading import SMALL, odd_archive, read, written
from tests.retrieval.packed import repacked

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
STYLES = f'<w:styles {W}><w:style w:styleId="H1"><w:name w:val="heading 1"/></w:style></w:styles>'
CORE = (
    '<cp:coreProperties xmlns:cp="x" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Boats &amp; Mills</dc:title>'
    "<dc:creator>A. Miller</dc:creator></cp:coreProperties>"
)
BODY = """
<w:p><w:pPr><w:pStyle w:val="H1"/></w:pPr><w:r><w:t>Chapter</w:t></w:r></w:p>
<w:p><w:r><w:t xml:space="preserve">One </w:t></w:r><w:ins><w:r><w:t>added</w:t></w:r></w:ins>
  <w:del><w:r><w:delText>removed</w:delText><w:t>gone</w:t></w:r></w:del><w:r><w:br/><w:t>line</w:t></w:r></w:p>
<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>first</w:t></w:r></w:p><w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>second</w:t></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr>
<w:tr><w:tc><w:p/></w:tc><w:tc><w:p><w:r><w:t>d</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
<w:sdt><w:sdtContent><w:p><w:r><w:t>controlled</w:t></w:r></w:p></w:sdtContent></w:sdt>
"""


def docx(folder: Path, body: str = BODY, *, parts: dict[str, str] | None = None) -> Path:
    path = folder / "made.docx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", f"<w:document {W}><w:body>{body}</w:body></w:document>")
        for name, text in ({"word/styles.xml": STYLES, "docProps/core.xml": CORE} | (parts or {})).items():
            archive.writestr(name, text)
    return path


def markup(folder: Path, suffix: str, data: str | bytes) -> ExtractedDocument:
    path = folder / f"made{suffix}"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return function_named(format_of(path).extractor)(path, ExtractLimits(), None)


def test_a_word_document_gives_headings_paragraphs_lists_and_table_rows(tmp_path):
    document = extract(docx(tmp_path))
    assert document.text == "Chapter\n\nOne added\nline\n\n• first\n• second\n\na: b.\nd.\n\ncontrolled"
    assert document.title == "Boats & Mills" and document.metadata["author"] == "A. Miller"
    assert [(entry.title, entry.level, entry.start) for entry in document.outline] == [("Chapter", 0, 0)]


def test_a_document_of_another_program_keeps_its_title_headings_lists_and_tables(tmp_path):
    made = docx_library.Document()
    made.add_heading("Boats", 0)
    made.add_heading("Mills", 2)
    made.add_paragraph("Running text.")
    for item in ("one", "two"):
        made.add_paragraph(item, style="List Bullet")
    table = made.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b"
    path = tmp_path / "other.docx"
    made.save(str(path))
    document = extract(path)
    assert document.text == "Boats\n\nMills\n\nRunning text.\n\n• one\n• two\n\na: b."
    assert [(entry.title, entry.level) for entry in document.outline] == [("Boats", 0), ("Mills", 1)]


def test_parts_of_a_word_document_may_have_other_names_than_usual(tmp_path):
    names = {"word/document.xml": "word/document2.xml", "word/styles.xml": "word/styles2.xml"}
    with zipfile.ZipFile(docx(tmp_path)) as usual, zipfile.ZipFile(tmp_path / "other.docx", "w") as other:
        for name in usual.namelist():
            other.writestr(names.get(name, name), usual.read(name))
        for part, kind, name in (
            ("", "officeDocument", "word/document2.xml"),
            ("document2.xml", "styles", "styles2.xml"),
        ):
            target = f'<r><Relationship Id="r1" Type="http://x/{kind}" Target="{name}"/></r>'
            other.writestr(f"{'word/' if part else ''}_rels/{part}.rels", target)
    document = read(tmp_path / "other.docx")
    assert document.text.startswith("Chapter\n\nOne added") and document.outline[0].title == "Chapter"


def test_a_reference_that_is_spelled_otherwise_than_the_part_finds_it(tmp_path):
    path = docx(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("_rels/.rels", '<r><Relationship Type="x/officeDocument" Target="Word\\Document.xml"/></r>')
    assert read(path).text.startswith("Chapter\n\nOne added")


@pytest.mark.parametrize(
    ("start", "end", "about"),
    [("", "", "The oil"), ('<w:commentRangeStart w:id="4"/>', '<w:commentRangeEnd w:id="4"/>', "oil")],
    ids=["at a point", "on words"],
)
def test_a_comment_in_a_word_document_says_what_it_stands_at(tmp_path, start, end, about):
    comments = f'<w:comments {W}><w:comment w:id="4" w:author="Bo"><w:p><w:r><w:t>Ask.</w:t></w:r></w:p></w:comment>'
    body = (
        f'<w:p><w:r><w:t xml:space="preserve">The </w:t></w:r>{start}<w:r><w:t>oil</w:t></w:r>{end}'
        '<w:r><w:commentReference w:id="4"/></w:r><w:r><w:t xml:space="preserve"> is dear.</w:t></w:r></w:p>'
    )
    document = read(docx(tmp_path, body, parts={"word/comments.xml": f"{comments}</w:comments>"}))
    assert document.text == f"The oil is dear.\n\nComment by Bo on “{about}”: Ask."


def test_formats_without_pages_have_one_page_without_label_and_no_boxes(tmp_path):
    document = extract(docx(tmp_path))
    assert [(page.label, page.start, page.end) for page in document.pages] == [("", 0, len(document.text))]
    assert document.boxes(0, len(document.text)) == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("entities", "declares entities"),
        ("bomb", "unpacks to"),
        ("deep", "nested too deeply"),
        ("broken xml", "not well-formed XML"),
        ("foreign", "not a Word document"),
        ("cut", "damaged or cut off"),
        ("encrypted", "old .doc file or a Word document with a password"),
    ],
)
def test_hostile_and_damaged_word_documents_are_refused(tmp_path, kind, reason):
    with pytest.raises(ExtractError, match=reason):
        read(odd_archive(docx(tmp_path), kind, "word/document.xml"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "no text"),
        ("<w:tbl><w:tr/></w:tbl>", "no text"),
        (f"<w:p><w:r><w:t>{'word ' * 5000}</w:t></w:r></w:p>", "more than 20,000 characters"),
    ],
)
def test_word_documents_without_words_or_with_too_many_are_refused(tmp_path, body, reason):
    with pytest.raises(ExtractError, match=reason):
        extract_docx(docx(tmp_path, body), ExtractLimits(characters=20_000))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<w:p><w:r><w:instrText>DDEAUTO c:\\\\cmd.exe</w:instrText><w:t>shown</w:t></w:r></w:p>", "shown"),
        ("<w:p><w:del><w:r><w:t>DDEAUTO</w:t></w:r></w:del><w:r><w:t>kept</w:t></w:r></w:p>", "kept"),
        ('<w:p><w:pPr><w:outlineLvl w:val="99"/></w:pPr><w:r><w:t>odd level</w:t></w:r></w:p>', "odd level"),
        (
            '<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="99999999"/></w:tcPr><w:p><w:r><w:t>wide</w:t></w:r></w:p>'
            "</w:tc></w:tr></w:tbl>",
            "wide",
        ),
    ],
)
def test_irregular_word_documents_give_their_words_and_run_nothing(tmp_path, body, words):
    path = repacked(docx(tmp_path, body), {}, {"word/vbaProject.bin": b"Sub AutoOpen() DDEAUTO"})
    document = extract_docx(path, ExtractLimits())
    assert document.text == words and not document.exhibits.tables


def test_a_web_page_gives_its_words_and_nothing_of_its_scripts(tmp_path):
    page = """<!DOCTYPE html><html><head><title>My  page</title><style>p{}</style></head><body><h1>Top <b>one</b></h1>
    <p>Para &amp; more<br>next<script>alert(1)</script></p><p>a<!-- hidden -->b</p>
    <table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>
    <ul><li>one</li><li>two</li></ul><div>tail <span>x</span></div><pre>a\n  b</pre></body></html>"""
    document = markup(tmp_path, ".html", page)
    assert document.text == (
        "Top one\n\nPara & more\nnext\n\nab\n\nA\tB\nA: 1; B: 2.\n\n• one\n• two\n\ntail x\n\na\n  b"
    )
    assert document.title == "My page"
    assert [entry.title for entry in document.outline] == ["Top one"]


def test_rows_of_a_web_table_are_sentences_with_the_names_of_their_columns(tmp_path):
    rows = """<table><caption>Table 1. Mills</caption><thead><tr><th>Mill</th><th>Built</th><th>Owner</th></tr></thead>
    <tr><td rowspan="2"><p>Low mill</p></td><td>1850</td><td>Ada</td></tr>
    <tr><td>1870</td><td colspan="1">Bert</td></tr>
    <tr><td>High mill</td><td></td><td>Cleo<br>Dora</td></tr></table>"""
    assert markup(tmp_path, ".html", f"<h1>Mills</h1>{rows}<p>End.</p>").text == (
        "Mills\n\nTable 1. Mills\n\nMill\tBuilt\tOwner\nMill: Low mill; Built: 1850; Owner: Ada.\n"
        "Mill: Low mill; Built: 1870; Owner: Bert.\nMill: High mill; Owner: Cleo Dora.\n\nEnd."
    )
    form = "<table><tr><th>Name</th><td>Low mill</td></tr><tr><th>Owner</th><td>Ada</td></tr></table>"
    assert markup(tmp_path, ".html", form).text == "Name: Low mill.\nOwner: Ada."


@pytest.mark.parametrize(
    ("table", "last"),
    [
        ("<tr><th rowspan=2>Pier<th colspan=2>2024<th colspan=2>2025</tr><tr><th>May<th>June<th>May<th>June</tr>"
         "<tr><td>North<td>1<td>2<td>3<td>4</tr>",
         "Pier: North; 2024 / May: 1; 2024 / June: 2; 2025 / May: 3; 2025 / June: 4."),
        ("<tr><td>Boat<td colspan=2>2024/25</tr><tr><td><td>Fee<td>Paid</tr><tr><td>Tern<td>9<td>8</tr>",
         "Boat: Tern; 2024/25 / Fee: 9; 2024/25 / Paid: 8."),
        ("<tr><th>Store<th>2024<th>2025</tr><tr><td>Oil<td>10<td>11</tr>", "Store: Oil; 2024: 10; 2025: 11."),
        ("<tr><td>Oil<td>10<td>11</tr><tr><td>Wax<td>12<td>13</tr>", "Wax; 12; 13."),
        ("<tr><th>Hut<th>Beds<th>Hut<th>Beds</tr><tr><td>A<td>1<td>B<td>2</tr>", "Hut: A; Beds: 1; Hut: B; Beds: 2."),
        ("<tr><th>Hut<th>Beds<th>Hut</tr><tr><td>A<td>1<td>B</tr>", "A; 1; B."),
        ("<tr><td>A<td colspan=2>10 / 3</tr><tr><td>B<td>4<td>5</tr>", "B; 4; 5."),
    ],
)  # fmt: skip
def test_years_and_repeated_words_are_names_of_columns_where_they_tell_them_apart(tmp_path, table, last):
    text = read(written(tmp_path, "made.html", f"<table>{table}</table>")).text
    assert text.split("\n")[-1] == last


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("<tr><th colspan=3>Tests</tr><tr><th>Name<th>Form<th>Result</tr><tr><td>plain<td>A<td>B</tr>"
         "<tr><td>image<td>C<td>D</tr>",
         "Tests\nName\tForm\tResult\nName: plain; Form: A; Result: B.\nName: image; Form: C; Result: D."),
        ("<tr><th colspan=2>Flag Day</tr><tr><th>Observed by<td>Canada</tr><tr><th>Date<td>15 February</tr>",
         "Flag Day\nObserved by: Canada.\nDate: 15 February."),
    ],
)  # fmt: skip
def test_rows_that_are_known_to_be_heads_may_hold_the_title_of_the_table(tmp_path, table, text):
    assert read(written(tmp_path, "made.html", f"<table>{table}</table>")).text == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<dl><dt>Captain</dt><dd>Mara</dd><dt>Ship:</dt><dd>Tern</dd></dl>", "Captain: Mara\nShip: Tern"),
        ("<dl><dt>How long?</dt><dd><p>Two days.</p><p>Or three.</p></dd></dl>", "How long? Two days.\n\nOr three."),
        ("<dl><dt>Red</dt><dt>Rot</dt><dd>a colour</dd><dd>a name</dd></dl>", "Red / Rot: a colour\nRed / Rot: a name"),
        ("<dl><dt>Empty</dt><dd></dd><dt>Alone</dt></dl>", "Empty\n\nAlone"),
        ("<dl><dt>Crew</dt><dd><ul><li>Ann</ul></dd></dl>", "Crew\n\n• Ann"),
        ("<dl><dt>Out</dt><dd><dl><dt>In</dt><dd>deep</dd></dl></dd></dl><p>After</p>", "Out\n\nIn: deep\n\nAfter"),
        ("<dl><dt>T</dt><dd><table><tr><th>Item<th>Cost</tr><tr><td>Pier<td>9</tr></table></dd></dl>",
         "T\n\nItem\tCost\nItem: Pier; Cost: 9."),
        ("<p>Called <ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby>表.</p>", "Called 漢字(かんじ)表."),
        ('<p>The <abbr title="Port Authority">PA</abbr> and the <abbr title="Port Authority">PA</abbr>.</p>',
         "The PA (Port Authority) and the PA."),
    ],
)  # fmt: skip
def test_terms_words_and_abbreviations_stand_with_what_they_mean(tmp_path, page, text):
    assert markup(tmp_path, ".html", f"<html><body>{page}</body></html>").text == text


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("<label>Name <input value='Otto Rye'></label><label>Class</label><select><option>A<option selected>B</select>",
         "Name: Otto Rye\nClass: B"),
        ("<label for=a>Mail:</label> <input id=a value=x@y> <label>Note</label><textarea>By the window</textarea>",
         "Mail: x@y\nNote: By the window"),
        ("<label>Cabin <input type=checkbox></label> <label><input type=checkbox checked> Meals</label>",
         "Cabin ☐\n☒ Meals"),
        ("Speed <label><input type=radio> Slow</label><label><input type=radio checked> Fast</label>",
         "Speed: ticked ☒ Fast.\nLeft empty: Slow."),
        ("<fieldset><legend>Speed</legend><input type=radio id=s><label for=s>Slow</label><input type=radio checked>"
         "<label>Fast</label></fieldset>", "Speed: ticked ☒ Fast.\nLeft empty: Slow."),
        ("Take <input value=5> copies", "Take 5 copies"),
        ("<datalist><option>Red</datalist>Class <select><option>A<option>B</select>", "Class A"),
        ("Class <select><option>A<option>B\n<select>\n<option>C</select> paid", "Class A C paid"),
        ("<label>Days</label><select multiple><option selected>Mon<option>Tue<option selected>Wed</select>",
         "Days: Mon, Wed"),
        ("<input type=checkbox checked><label>Meals</label><input type=checkbox><label>Cabin</label><input value=7>",
         "☒ Meals.\nLeft empty: Cabin.\n7"),
    ],
)  # fmt: skip
def test_fields_of_web_forms_stand_behind_their_labels(tmp_path, form, text):
    assert markup(tmp_path, ".html", f"<html><body><form>{form}</form></body></html>").text == text


def test_tables_that_arrange_texts_on_a_page_stay_as_they_are(tmp_path):
    inner = "<table><tr><td>Mill</td><td>Built</td></tr><tr><td>Low</td><td>1850</td></tr></table>"
    page = f"<table><tr><td>Menu</td><td><h2>News</h2><p>Today.</p></td></tr><tr><td></td><td>{inner}</td></tr></table>"
    text = markup(tmp_path, ".html", page).text
    assert text == "Menu |\n\nNews\n\nToday.\n\nMill\tBuilt\nMill: Low; Built: 1850."


def test_items_of_a_web_page_have_their_marks_and_numbers(tmp_path):
    page = "<p>Here they are:</p><ul><li><p>one</p></li><li>two<ol start=3><li>a</li><li>b</li></ol></li></ul><p>x</p>"
    text = markup(tmp_path, ".html", page).text
    assert " ".join(text.split()) == "Here they are: • one • two 3. a 4. b x"


def test_bars_within_cells_of_markdown_are_text(tmp_path):
    source = "| a | b |\n|---|---|\n| 1 \\| 2 | |\n| | 3 |\n"
    assert markup(tmp_path, ".md", source).text == "a\tb\na: 1 | 2.\nb: 3."


def test_a_web_page_is_read_in_the_encoding_that_it_declares(tmp_path):
    page = '<html><head><meta charset="shift_jis"></head><body><p>日本語</body></html>'
    assert markup(tmp_path, ".html", page.encode("shift_jis")).text == "日本語"


def test_unclosed_and_deeply_nested_tags_cost_no_text(tmp_path):
    page = "<head><title>T</title><body>" + "<font><div>word " * 2_000 + "<p>last"
    text = markup(tmp_path, ".html", page).text
    assert text.split() == ["word"] * 2_000 + ["last"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("<html><body><div></div></body></html>", "no text"),
        (" \n\t ", "no text"),
        ("<script>document.write('words')</script>", "no text"),
        ("<!-- never closed <p>words", "no text"),
        (bytes(range(256)) * 9, "binary data"),
        (b"%PDF-1.7\n" + bytes(300), "binary data"),
        (b"PK\x03\x04" + bytes(300), "binary data"),
        ("<p>" + "word " * 6000, "more than 20,000 characters"),
    ],
    ids=range(8),
)
def test_odd_web_pages_are_refused_with_their_reason(tmp_path, data, reason):
    with pytest.raises(ExtractError, match=reason):
        read(written(tmp_path, "odd.html", data), SMALL)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("<html><body><p>The mill was sold.<p>It is cl", "The mill was sold.\n\nIt is cl"),
        ("<p>The mill<a href='x", "The mill"),
        (b"<meta charset=unknown-8><p>K\xf6ln</p>", "Köln"),
        ("<p>Grüße</p>".encode("utf-16"), "Grüße"),
        ("<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><p>&a; seen", "&a; seen"),
        ("<iframe src='file:///etc/passwd'></iframe><object data='http://gone.example/'>gone</object>seen", "seen"),
        ("<meta http-equiv=refresh content='0;url=http://gone.example/'><p>seen", "seen"),
        ("<body onload='gone()'><img src=http://gone.example/ onerror='gone()'><p>seen", "seen"),
        ("<div>" * 20_000 + "deep", "deep"),
        ("<p " + "a=b " * 100_000 + ">seen</p>", "seen"),
        ("<table><tr><td colspan=99999999 rowspan=99999999>wide</table>", "wide"),
    ],
    ids=range(11),
)
def test_irregular_web_pages_give_their_words_and_fetch_nothing(tmp_path, data, words):
    text = read(written(tmp_path, "odd.html", data)).text
    assert words in text and "gone" not in text and "root:" not in text


@pytest.mark.parametrize("suffix", suffixes_here())
def test_a_file_without_a_byte_is_said_to_be_empty_whatever_its_name(tmp_path, suffix):
    with pytest.raises(ExtractError, match="empty"):
        extract(written(tmp_path, f"odd{suffix}", b""))


def test_fences_in_lists_and_link_definitions_are_read(tmp_path):
    source = "# A # \n\n* item\n\n  ```sh\n  run\n  ```\n\n[x]: https://example.org\n\n---\n\nTwo\nlines\n==\n"
    document = markup(tmp_path, ".md", source)
    assert document.text == "A\n\n* item\n\n  run\n\n[x]: https://example.org\n\nTwo\nlines"
    assert [(entry.title, entry.level) for entry in document.outline] == [("A", 0), ("Two lines", 0)]


def test_markdown_keeps_headings_paragraphs_and_rows(tmp_path):
    source = "# Title\n\nSome *text*\nmore.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nSub\n---\n```\n# code\n```\n"
    document = markup(tmp_path, ".md", source.replace("\n", "\r\n"))
    assert document.text == "Title\n\nSome *text*\nmore.\n\na\tb\na: 1; b: 2.\n\nSub\n\n# code"
    assert [(entry.title, entry.level) for entry in document.outline] == [("Title", 0), ("Sub", 1)]
    assert document.text[document.outline[1].start :].startswith("Sub")


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ("<table><tr><th>Pump</th><th>Flow</th></tr><tr><td>P1</td><td>40</td></tr></table>",
         "Pump\tFlow\nPump: P1; Flow: 40."),
        ('<p align="center"><img src="x.png" alt="Logo"> Kvist works</p>', "[Logo] Kvist works"),
        ("<details><summary>More</summary>\n\nThe *rest*.\n\n</details>", "More\n\nThe *rest*."),
        ("<h3>Fees</h3>", "Fees"),
        ("<your-name>\nstands here", "<your-name>\nstands here"),
    ],
)  # fmt: skip
def test_blocks_of_markup_in_markdown_are_read_like_web_pages(tmp_path, block, text):
    assert read(written(tmp_path, "made.md", f"Start.\n\n{block}\n\nEnd.\n")).text == f"Start.\n\n{text}\n\nEnd."


def test_a_table_drawn_with_lines_of_characters_is_read_as_one(tmp_path):
    drawn = """┌──────┬───────────┬───────────────┐
│Key   │Function   │Description    │
├──────┼───────────┼───────────────┤
│Esc b │<back-word>│move back      │
├──────┼───────────┼───────────────┤
│^U    │<kill-line>│delete the line│
└──────┴───────────┴───────────────┘"""
    assert markup(tmp_path, ".txt", drawn).text.split("\n") == [
        "Key\tFunction\tDescription",
        "Key: Esc b; Function: <back-word>; Description: move back.",
        "Key: ^U; Function: <kill-line>; Description: delete the line.",
    ]


def test_the_parts_of_a_wide_row_begin_with_the_cell_that_tells_it_from_others(tmp_path):
    names = ["Kind", "Number", *(f"Column {n}" for n in range(9))]
    rows = [names, *([kind, str(n), *["x" * 50] * 9] for n, kind in enumerate(("Reactor", "Reactor", "Fuel"), 461))]
    text = markup(tmp_path, ".txt", "\n".join(map("|".join, rows))).text
    parts = [line for line in text.split("\n")[1:] if line.startswith("Kind: Reactor; Number: 462; Column")]
    assert len(parts) > 2 and sum("Column 8: x" in line for line in parts) == 1


def test_where_no_column_tells_all_rows_apart_the_one_that_tells_most_does_and_measures_do_not(tmp_path):
    names = ["Study", "Bird", "Length", *(f"Column {n}" for n in range(9))]
    birds = [("N1A1", "39.1"), ("N1A2", "39.5"), ("N2A1", "40.3"), ("N1A1", "36.7")]
    rows = [names, *(["PAL", bird, length, *["x" * 50] * 9] for bird, length in birds)]
    text = markup(tmp_path, ".txt", "\n".join(map("|".join, rows))).text
    assert sum(line.startswith("Study: PAL; Bird: N2A1; Column") for line in text.split("\n")) > 2


def test_paragraphs_of_plain_text_that_were_set_in_lines_are_running_text(tmp_path):
    text = markup(
        tmp_path,
        ".txt",
        """          1.  The long-term view

               After several days of  uneventful  travel  you see the
          ruins.   It is a long-term view:  your last meal  out-
          side, and above you, in the open, there is the  long-
          term sky.  That was the meal outside of the ruins.

          To do:
            - eat
            - sleep well

          Ann Lee
          12 Mill Lane, Oxford, the United Kingdom of Britain
""",
    ).text
    _, prose, listed, address = text.split("\n\n")
    assert prose == (
        "After several days of uneventful travel you see the ruins. It is a long-term view: your last meal outside, "
        "and above you, in the open, there is the long-term sky. That was the meal outside of the ruins."
    )
    assert "\n  - eat\n" in listed and "\n" in address, "what is no prose stays as it is"


@pytest.mark.parametrize("bar", ["|", " | ", "\t"])
def test_lines_of_plain_text_that_bars_or_tabs_part_alike_are_rows_of_a_table(tmp_path, bar):
    rows = [("Site", "No", "Event"), ("Red River", "46528", "Lost, found"), ("Monticello", "46649", "")]
    table = "\n".join(bar.join(row) for row in rows)
    text = markup(tmp_path, ".txt", f"Events\n\n{table}\n\nAll of March.").text
    assert text.split("\n\n") == [
        "Events",
        "Site\tNo\tEvent\nSite: Red River; No: 46528; Event: Lost, found.\nSite: Monticello; No: 46649.",
        "All of March.",
    ]
    assert "Site: " not in markup(tmp_path, ".txt", table + f"{bar}one more").text, "as many in every line"


def test_a_table_of_plain_text_keeps_the_indent_of_its_head_and_numbers_side_by_side_are_apart(tmp_path):
    source = (
        "The tables:\n\n"
        "             Str Dex     HP    Note\n"
        "----------------------------------------\n"
        "Human         0  +1      +0%   plain\n"
        "Deep Elf     -2  +2     -20%   frail\n"
        "             Str Dex     HP    Note\n"
        "Felid        --  +4     -40%   no armour\n"
    )
    assert read(written(tmp_path, "table.txt", source)).text == (
        "The tables:\n\nStr\tDex\tHP\tNote\n"
        "Human; Str: 0; Dex: +1; HP: +0%; Note: plain.\n"
        "Deep Elf; Str: -2; Dex: +2; HP: -20%; Note: frail.\n"
        "Felid; Str: --; Dex: +4; HP: -40%; Note: no armour."
    )


def test_an_indented_and_justified_paragraph_after_a_blank_line_is_no_table(tmp_path):
    source = (
        "7.2.  Weapons\n\n"
        "               Given  a  chance,  most monsters in the Mazes of Menace will\n"
        "          gratuitously try to kill you.  You need weapons for  self-defense\n"
        "          (killing  them  first).   Without  a  weapon, you do only 1-2 hit\n"
        "          points of damage (plus bonuses, if any).  Monk characters are  an\n"
        "          exception;  they  normally  do  more damage with bare (or gloved)\n"
        "          hands than they do with weapons.\n"
    )
    assert read(written(tmp_path, "guide.txt", source)).text.endswith(
        "Given a chance, most monsters in the Mazes of Menace will gratuitously try to kill you. You need weapons for "
        "self-defense (killing them first). Without a weapon, you do only 1-2 hit points of damage (plus bonuses, if "
        "any). Monk characters are an exception; they normally do more damage with bare (or gloved) hands than they do "
        "with weapons."
    )


def test_entries_in_columns_are_read_column_by_column(tmp_path):
    source = (
        "General skills         Spellcasting\n"
        "--------------         ------------\n"
        "Arm - Armour           Coj - Conjurations\n"
        "Ddg - Dodging          Hex - Hexes\n"
        "                       Trl - Translocations\n"
    )
    assert read(written(tmp_path, "keys.txt", source)).text == (
        "General skills\nArm - Armour\nDdg - Dodging\n\n"
        "Spellcasting\nCoj - Conjurations\nHex - Hexes\nTrl - Translocations"
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_plain_text_is_read_in_any_usual_encoding(tmp_path, encoding):
    assert (
        markup(tmp_path, ".txt", "Grüße – naïve\r\n\r\n\r\n\r\ncafé".encode(encoding)).text == "Grüße – naïve\n\ncafé"
    )


def test_bytes_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(ExtractError, match="binary"):
        markup(tmp_path, ".txt", bytes(range(256)) * 20)
    with pytest.raises(ExtractError, match="no text"):
        markup(tmp_path, ".txt", "  \n\n ")


def test_text_files_have_a_longest_length(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("word " * 1000)
    with pytest.raises(ExtractError, match="more than 100 characters"):
        extract_text(path, ExtractLimits(characters=100))
