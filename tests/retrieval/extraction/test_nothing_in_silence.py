"""Nothing is lost in silence: what an independent reader sees of a file is read or set aside, within one word in a
hundred."""

from __future__ import annotations

import csv
import email.policy
import json
import mailbox
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from lxml import etree
from openpyxl.comments import Comment
from openpyxl.styles import Font
from pptx.dml.color import RGBColor
from pypdf import PdfReader
from striprtf.striprtf import rtf_to_text

from retrieval.extraction.formats import FORMATS, format_of
from tests.retrieval.compound_file import outlook_message
from tests.retrieval.extraction.reading import read, written
from tests.retrieval.extraction.test_mail import message
from tests.retrieval.extraction.test_other_texts import epub, mhtml, odt
from tests.retrieval.pdf_maker import Sheet, column, make_pdf

WORD = re.compile(r"\w+")


def a_docx(folder: Path) -> tuple[Path, Iterator[str]]:
    made = docx.Document()
    made.sections[0].header.paragraphs[0].text = "Contract K7731"
    made.sections[0].footer.paragraphs[0].text = "valid until September"
    made.add_heading("Boats", 1)
    for number in range(30):
        paragraph = made.add_paragraph(f"Paragraph {number} about wood and water. ")
        paragraph.add_run(f"struck{number}").font.strike = True
        paragraph.add_run(f" hidden{number}").font.hidden = True
    table = made.add_table(4, 3)
    for number, cell in enumerate(cell for row in table.rows for cell in row.cells):
        cell.text = f"cell{number}"
    table.cell(1, 0).merge(table.cell(2, 0))
    made.save(str(folder / "made.docx"))
    opened = docx.Document(str(folder / "made.docx"))
    texts = [paragraph.text for paragraph in opened.paragraphs]
    texts += [cell.text for row in opened.tables[0].rows for cell in row.cells]
    texts += [paragraph.text for one in opened.sections for paragraph in one.header.paragraphs + one.footer.paragraphs]
    return folder / "made.docx", iter(texts)


def an_xlsx(folder: Path) -> tuple[Path, Iterator[str]]:
    book = openpyxl.Workbook()
    for row in range(40):
        book.active.append([f"name{row}", f"town{row}", row])
    book.active["A3"].comment = Comment("remarked by Ann", "Ann")
    book.active["B5"].font = Font(strike=True)
    book.active["B6"].font = Font(color="FFFFFFFF")
    book.active.row_dimensions[7].hidden = True
    hidden = book.create_sheet("Old")
    hidden.append(["kept", "away"])
    hidden.sheet_state = "hidden"
    book.save(folder / "made.xlsx")
    opened = openpyxl.load_workbook(folder / "made.xlsx")
    cells = (cell for sheet in opened for row in sheet.iter_rows() for cell in row)
    return folder / "made.xlsx", (f"{cell.value} {cell.comment.text if cell.comment else ''}" for cell in cells)


def a_pptx(folder: Path) -> tuple[Path, Iterator[str]]:
    made = pptx.Presentation()
    for number in range(5):
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = f"Title {number}"
        slide.placeholders[1].text = f"Body of slide {number}\nwith two lines"
        slide.notes_slide.notes_text_frame.text = f"Said aloud {number}"
    made.slides[3].element.set("show", "0")
    table = made.slides[2].shapes.add_table(3, 3, 0, 5_000_000, 9_000_000, 900_000).table
    for number, cell in enumerate(table.iter_cells()):
        cell.text = f"cell{number}"
    white = made.slides[1].placeholders[1].text_frame.paragraphs[0].add_run()
    white.text, white.font.color.rgb = " white", RGBColor(255, 255, 255)
    made.save(folder / "made.pptx")
    slides = pptx.Presentation(folder / "made.pptx").slides
    texts = [shape.text_frame.text for slide in slides for shape in slide.shapes if shape.has_text_frame]
    texts += [cell.text for shape in slides[2].shapes if shape.has_table for cell in shape.table.iter_cells()]
    return folder / "made.pptx", iter([*texts, *(slide.notes_slide.notes_text_frame.text for slide in slides)])


def a_page(folder: Path) -> tuple[Path, Iterator[str]]:
    rows = "".join(f"<tr><td>name{n}</td><td>town{n}</td><td rowspan=1>{n}</td></tr>" for n in range(20))
    page = (
        f"<html><body><h1>Boats</h1><p>Wood <del>old</del> <b>new</b>.</p><p hidden>secret</p><table>{rows}</table>"
        "<pre>Quay   Depth  Berths\nNorth  4.5    12\nSouth  3.2    8\n</pre>"
        "<iframe srcdoc='<p>framed 42</p>'></iframe>"
        "<template>later</template><ul><li>one<li>two</ul><select><option>red<option selected>blue</select></body>"
    )
    seen = etree.HTML(page.replace("<option>red", "<option>"))
    return written(folder, "made.html", page), iter([*seen.itertext(), "framed 42"])


def an_odt(folder: Path) -> tuple[Path, Iterator[str]]:
    cells = "".join(f"<table:table-cell><text:p>cell{n}</text:p></table:table-cell>" for n in range(4))
    body = (
        "<text:h text:outline-level='1'>Boats</text:h><text:p>Wood<text:note><text:note-body><text:p>noted</text:p>"
        "</text:note-body></text:note> and water.</text:p><text:section text:display='none'><text:p>secret</text:p>"
        f"</text:section><table:table><table:table-row>{cells}</table:table-row></table:table>"
        "<text:list><text:list-item><text:p>one</text:p></text:list-item></text:list>"
    )
    seen = etree.HTML(body.replace(":", "-"))
    return odt(folder, body), seen.itertext()


def an_ods(folder: Path) -> tuple[Path, Iterator[str]]:
    rows = "".join(
        f"<table:table-row><table:table-cell><text:p>name{n}</text:p></table:table-cell>"
        f"<table:table-cell office:value-type='float' office:value='{n}'><text:p>{n}</text:p></table:table-cell>"
        "</table:table-row>"
        for n in range(30)
    )
    tables = "".join(f"<table:table table:name='{name}'>{rows}</table:table>" for name in ("Old", "New"))
    return odt(folder, tables, "made.ods", kind="spreadsheet"), etree.HTML(tables.replace(":", "-")).itertext()


def an_odp(folder: Path) -> tuple[Path, Iterator[str]]:
    pages = "".join(
        f"<draw:page><draw:frame><draw:text-box><text:p>Title {n}</text:p><text:p>Body{n}</text:p></draw:text-box>"
        f"</draw:frame><presentation:notes><draw:frame><draw:text-box><text:p>Said {n}</text:p></draw:text-box>"
        "</draw:frame></presentation:notes></draw:page>"
        for n in range(5)
    )
    return odt(folder, pages, "made.odp", kind="presentation"), etree.HTML(pages.replace(":", "-")).itertext()


def a_pdf(folder: Path) -> tuple[Path, Iterator[str]]:
    """Two columns, running heads, page numbers, a table, lines drawn out of order."""
    sheets = []
    for number in range(6):
        lines = [*column(320, 700, 20, first=number), *column(72, 700, 20, first=40 + number)]
        lines += [(72, 760, 9, "Harbour papers"), (300, 30, 9, f"{number + 1}"), (72, 30, 9, f"Receipt {number * 377}")]
        lines += [(72 + 90 * n, 300 - 14 * row, 10, f"{row * 7}{n}") for row in range(5) for n in range(4)]
        sheets.append(Sheet(lines))
    path = written(folder, "made.pdf", make_pdf(sheets))
    return path, (page.extract_text() for page in PdfReader(path).pages)


def an_eml(folder: Path) -> tuple[Path, Iterator[str]]:
    made = message("Wood and water. " * 20)
    made.add_alternative("<p>Wood <b>and</b> water.</p>", subtype="html")
    for number in range(3):
        made.add_attachment(f"Attached {number}: words".encode(), "text", "plain", filename=f"note{number}.txt")
    path = written(folder, "made.eml", made.as_bytes())
    opened = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    plain = [part.get_content() for part in opened.walk() if part.get_content_type() == "text/plain"]
    return path, iter([*plain, *(opened[name] for name in ("subject", "from", "to"))])


def an_rtf(folder: Path) -> tuple[Path, Iterator[str]]:
    paragraphs = "".join(rf"Paragraph {n} about {{\b wood}} and {{\v secret{n}}} water.\par " for n in range(30))
    source = r"{\rtf1\ansi{\fonttbl{\f0 Arial;}}\f0 " + paragraphs + "}"
    return written(folder, "made.rtf", source), iter([rtf_to_text(source)])


def an_epub(folder: Path) -> tuple[Path, Iterator[str]]:
    chapters = [(f"Chapter {n}", f"The sea was calm on day {n}.") for n in range(9)]
    return epub(folder, chapters), (word for chapter in chapters for word in chapter)


def a_csv(folder: Path) -> tuple[Path, Iterator[str]]:
    source = "name;town;sum\n" + "".join(f'name{n};"town; {n}";{n},5\n' for n in range(40))
    rows = csv.reader(source.splitlines(), delimiter=";")
    return written(folder, "made.csv", source), (cell for row in list(rows) for cell in row)


def a_json(folder: Path) -> tuple[Path, Iterator[str]]:
    source = {"service": [{"host": f"host{n}", "ports": [n, n + 1], "live": n % 2 == 0} for n in range(30)]}
    values = (value for one in source["service"] for value in (one["host"], *one["ports"]))
    return written(folder, "made.json", json.dumps(source)), map(str, values)


def an_xml(folder: Path) -> tuple[Path, Iterator[str]]:
    source = "<ships>" + "".join(f"<ship name='ship{n}'><length>{n} m</length> word{n}</ship>" for n in range(30))
    opened = etree.fromstring(source + "</ships>")
    names = (ship.get("name") for ship in opened)
    return written(folder, "made.xml", source + "</ships>"), iter([*opened.itertext(), *names])


def a_markdown(folder: Path) -> tuple[Path, Iterator[str]]:
    source = "# Boats\n\nWood ~~old~~ and water.\n\n<!-- secret -->\n\n| a | b |\n|---|---|\n" + "".join(
        f"| cell{n} | town{n} |\n" for n in range(20)
    )
    return written(folder, "made.md", source + "\n- [x] one\n- two\n"), iter([source, "one two"])


def an_mbox(folder: Path) -> tuple[Path, Iterator[str]]:
    box = mailbox.mbox(folder / "made.mbox")
    for number in range(5):
        box.add(message(f"Wood and water on day {number}.", subject=f"Day {number}"))
    box.close()
    return folder / "made.mbox", (f"{one['subject']} {one.get_payload()}" for one in mailbox.mbox(folder / "made.mbox"))


def an_outlook_message(folder: Path) -> tuple[Path, Iterator[str]]:
    body = "".join(f"Wood and water on day {number}.\r\n" for number in range(20))
    data = outlook_message("Day of the boats", body, sender="Bob")
    people = "Bob sender@example.org Anna anna@example.org"
    return written(folder, "made.msg", data), iter(["Day of the boats", body, people])


def a_calendar(folder: Path) -> tuple[Path, Iterator[str]]:
    events = [(f"Launch {n}", f"Wood and water {n}", f"Quay {n}") for n in range(20)]
    source = "BEGIN:VCALENDAR\r\n" + "".join(
        f"BEGIN:VEVENT\r\nSUMMARY:{summary}\r\nDESCRIPTION:{said}\r\nLOCATION:{place}\r\nEND:VEVENT\r\n"
        for summary, said, place in events
    )
    return written(folder, "made.ics", source + "END:VCALENDAR\r\n"), (text for event in events for text in event)


def a_saved_page(folder: Path) -> tuple[Path, Iterator[str]]:
    page = "<h1>Boats</h1>" + "".join(f"<p>Wood and water {number}.</p>" for number in range(20))
    return written(folder, "made.mhtml", mhtml(page)), etree.HTML(page).itertext()


def a_text(folder: Path) -> tuple[Path, Iterator[str]]:
    source = "".join(f"Line {n} about wood and water.\n" + "\n" * (n % 5 == 0) + f"  {n}.5  {n}\n" for n in range(60))
    source += (
        "\n# code:name:town\n" + "".join(f"c{n}:name{n}:town{n}\n" for n in range(20)) + "\nLunch: [x] fish [ ] meat\n"
    )
    return written(folder, "made.txt", source), iter([source])


def a_program(folder: Path) -> tuple[Path, Iterator[str]]:
    source = "".join(f"def f{n}(x):\n    return x + {n}  # wood and water\n\n" for n in range(60))
    return written(folder, "made.py", source), iter([source])


MADE = [a_docx, an_xlsx, a_pptx, a_page, an_odt, an_ods, an_odp, a_pdf, an_eml, an_rtf, an_epub, a_csv, a_json, an_xml,
        a_markdown, an_mbox, an_outlook_message, a_calendar, a_saved_page, a_text, a_program]  # fmt: skip


def test_every_format_of_text_has_an_independent_reader_here(tmp_path):
    made = {format_of(make(tmp_path)[0]).kind for make in MADE}
    assert made == {one.kind for one in FORMATS if one.kind == "pdf" or not one.drawn}


@pytest.mark.parametrize("make", MADE)
def test_every_word_that_another_reader_sees_is_read_or_set_aside(
    tmp_path: Path, make: Callable[[Path], tuple[Path, Iterator[str]]]
) -> None:
    path, seen = make(tmp_path)
    document = read(path)
    words = Counter(word for text in seen for word in WORD.findall(text))
    kept = Counter(WORD.findall(document.text)) + Counter(
        word for one in document.asides for word in WORD.findall(one.text)
    )
    missing = words - kept
    assert missing.total() <= 0.01 * words.total(), missing


@pytest.mark.parametrize(
    ("make", "cells"),
    [(a_docx, 11), (an_xlsx, 3 * 39 - 2), (a_pptx, 9), (a_page, 69), (an_odt, 0), (an_ods, 120), (a_csv, 123),
     (a_markdown, 42), (a_text, 63)],
)  # fmt: skip
def test_every_cell_that_is_shown_is_a_cell_of_a_table(
    tmp_path: Path, make: Callable[[Path], tuple[Path, Iterator[str]]], cells: int
) -> None:
    document = read(make(tmp_path)[0])
    assert sum(bool(cell) for table in document.exhibits.tables for row in table.rows for cell in row) == cells
