"""Nothing is lost in silence: what an independent reader sees of a file is read or set aside, within one word in a
hundred."""

from __future__ import annotations

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

from tests.retrieval.extraction.reading import read, written
from tests.retrieval.extraction.test_other_texts import odt

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
    made.slides[3]._element.set("show", "0")
    made.save(folder / "made.pptx")
    slides = pptx.Presentation(folder / "made.pptx").slides
    texts = [shape.text_frame.text for slide in slides for shape in slide.shapes]
    return folder / "made.pptx", iter([*texts, *(slide.notes_slide.notes_text_frame.text for slide in slides)])


def a_page(folder: Path) -> tuple[Path, Iterator[str]]:
    rows = "".join(f"<tr><td>name{n}</td><td>town{n}</td><td rowspan=1>{n}</td></tr>" for n in range(20))
    page = (
        f"<html><body><h1>Boats</h1><p>Wood <del>old</del> <b>new</b>.</p><p hidden>secret</p><table>{rows}</table>"
        "<template>later</template><ul><li>one<li>two</ul><select><option>red<option selected>blue</select></body>"
    )
    seen = etree.HTML(page.replace("<option>red", "<option>"))
    return written(folder, "made.html", page), seen.itertext()


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


@pytest.mark.parametrize("make", [a_docx, an_xlsx, a_pptx, a_page, an_odt])
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
