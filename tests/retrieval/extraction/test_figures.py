"""Figures of documents without printed pages: found at their place, made anew as plain pictures, within limits."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import docx
import pptx
import pytest
from PIL import Image

from retrieval.extraction import character_places, figures, markup
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.extract import ExtractLimits, extract
from retrieval.extraction.figures import MOST_FIGURES, Figures, Picture
from retrieval.extraction.process import ipc
from tests.retrieval.extraction.drawn_pages import MILL, data_address, drawn
from tests.retrieval.extraction.reading import read, written
from tests.retrieval.extraction.test_other_texts import NAMESPACES, PAGE, epub, mhtml, odt
from tests.retrieval.packed import repacked

CAPTION = "Figure 1: The mill in 1850"


def web_page(folder: Path, inside: str) -> ExtractedDocument:
    return read(written(folder, "page.html", f"<h1>Mills</h1><p>Before it.</p>{inside}<p>Behind it.</p>"))


def of_html(folder: Path) -> Path:
    shown = f'<figure><img alt="a mill" src="{data_address()}"><figcaption>{CAPTION}</figcaption></figure>'
    return written(folder, "page.html", f"<h1>Mills</h1><p>Before it.</p>{shown}<p>Behind it.</p>")


def of_mhtml(folder: Path) -> Path:
    page = f"<h1>Mills</h1><p>Before it.</p><img src=3D'mill.png'><p>{CAPTION}</p><p>Behind it.</p>"
    located = "Content-Type: image/png\r\nContent-Location: https://example.org/mill.png"
    saved = mhtml(page).replace(
        "Content-Type: text/html", "Content-Location: https://example.org/a\r\nContent-Type: text/html"
    )
    saved = saved.replace("Content-Type: image/png", located).replace("iVBORw0KGgo=", base64.b64encode(MILL).decode())
    return written(folder, "page.mhtml", saved)


def of_epub(folder: Path) -> Path:
    page = PAGE.format("Mills", f'Before it.</p><p><img src="../art/mill%20one.png"/></p><p>{CAPTION}</p><p>Behind it.')
    made = epub(folder, (("Mills", "words"),))
    name = next(name for name in ("OPS/chapter 0.xhtml",))
    return repacked(made, {name: lambda _old: page.encode()}, {"art/mill one.png": MILL}, "book.epub")


def of_docx(folder: Path) -> Path:
    made = docx.Document()
    made.add_heading("Mills", 1)
    made.add_paragraph("Before it.")
    made.add_picture(io.BytesIO(MILL))
    made.add_paragraph(CAPTION)
    made.add_paragraph("Behind it.")
    made.save(str(folder / "made.docx"))
    return folder / "made.docx"


def of_odt(folder: Path) -> Path:
    link = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
    frame = f'<text:p><draw:frame><draw:image {link} xlink:href="Pictures/mill.png"/></draw:frame></text:p>'
    body = (
        f"<text:h>Mills</text:h><text:p>Before it.</text:p>{frame}<text:p>{CAPTION}</text:p><text:p>Behind it.</text:p>"
    )
    assert "xmlns:draw" in NAMESPACES
    return repacked(odt(folder, body), {}, {"Pictures/mill.png": MILL}, "drawn.odt")


def of_pptx(folder: Path) -> Path:
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[5])
    slide.shapes.title.text = "Mills"
    for words in ("Before it.", None, CAPTION, "Behind it."):
        if words is None:
            slide.shapes.add_picture(io.BytesIO(MILL), 0, 0)
        else:
            slide.shapes.add_textbox(0, 0, 9_000_000, 900_000).text_frame.text = words
    made.save(str(folder / "made.pptx"))
    return folder / "made.pptx"


@pytest.mark.parametrize(
    "make", [of_html, of_mhtml, of_epub, of_docx, of_odt, of_pptx], ids=lambda make: make.__name__[3:]
)
def test_a_figure_stands_at_its_place_with_its_caption(tmp_path, make):
    document = read(make(tmp_path))
    (figure,) = document.exhibits.figures
    assert (figure.caption, figure.page, figure.box) == (CAPTION, 0, None)
    assert document.text[: figure.start].split() == ["Mills", "Before", "it."]
    assert document.text[figure.start :].split("\n\n") == [CAPTION, "Behind it."]
    shown = Image.open(io.BytesIO(document.pictures[figure.picture]))
    assert shown.format == "PNG" and shown.size == (200, 120) == (figure.width, figure.height)
    assert list(shown.getdata()) == list(Image.open(io.BytesIO(MILL)).getdata())


def test_text_is_the_same_with_pictures_and_without(tmp_path):
    assert web_page(tmp_path, f'<img src="{data_address()}">').text == web_page(tmp_path, "").text


def test_pictures_of_other_addresses_are_never_fetched(tmp_path):
    for source in (
        "https://example.org/a.png",
        "a.png",
        "file:///etc/hostname",
        "data:text/html,<b>",
        "data:image/png;base64,?",
    ):
        assert web_page(tmp_path, f'<img src="{source}">').exhibits.figures == ()


def test_icons_damaged_pictures_drawings_in_code_and_what_is_shown_again_and_again_are_left_out(tmp_path):
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    for data, kind in (
        (drawn((40, 200)), "png"),
        (MILL[:300], "png"),
        (svg, "svg+xml"),
        (b"%!PS-Adobe", "png"),
        (b"", "png"),
    ):
        assert web_page(tmp_path, f'<img src="{data_address(data, kind)}">').exhibits.figures == ()
    repeated = web_page(tmp_path, f'<img src="{data_address()}"><p>a</p>' * 5)
    assert repeated.exhibits.figures == () and repeated.pictures == {}
    twice = web_page(tmp_path, f'<img src="{data_address()}"><p>a</p>' * 2)
    assert len(twice.exhibits.figures) == 2 and len(twice.pictures) == 1


def test_what_is_shown_again_and_again_takes_no_place_from_other_figures():
    found = Figures(ExtractLimits())
    for data in (*[MILL] * MOST_FIGURES, drawn((100, 100))):
        found.add(Picture(data), 0, 0)
    assert [(figure.width, figure.height) for figure in found.all()] == [(100, 100)]


def test_a_picture_that_is_repeated_counts_once(tmp_path, monkeypatch):
    for module in (figures, markup):
        monkeypatch.setattr(module, "MOST_FIGURES", 2)
    found = Figures(ExtractLimits())
    for data in (MILL, MILL, drawn((100, 100)), drawn((100, 200))):
        found.add(Picture(data), 0, 0)
    assert len(found.all()) == 3 and {figure.height for figure in found.all()} == {120, 100}
    shown = "".join(f'<p>a</p><img src="{data_address(data)}">' for data in (MILL, MILL, drawn((100, 100))))
    assert len(markup.read_html(shown.encode()).pictures) == 3


def test_a_picture_that_unpacks_to_too_many_pixels_is_left_out(tmp_path):
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 50_000, 50_000, 1, 0, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(100_000)))
        + chunk(b"IEND", b"")
    )
    assert web_page(tmp_path, f'<img src="{data_address(bomb)}">').exhibits.figures == ()


def test_photographs_stay_photographs_and_large_pictures_become_smaller(tmp_path):
    document = web_page(tmp_path, f'<img src="{data_address(drawn((3000, 1500), "JPEG"), "jpeg")}">')
    (figure,) = document.exhibits.figures
    assert figure.picture.endswith(".jpg") and (figure.width, figure.height) == (1400, 700)
    clear = web_page(tmp_path, f'<img src="{data_address(drawn(mode="LA"))}">')
    assert Image.open(io.BytesIO(clear.pictures[clear.exhibits.figures[0].picture])).mode == "RGB"


def test_figures_come_through_the_sandbox_and_are_kept(tmp_path):
    document = extract(of_docx(tmp_path))
    (figure,) = document.exhibits.figures
    character_places.keep(tmp_path / "kept", document)
    found = character_places.kept_exhibits(tmp_path / "kept", document.text)
    assert found == document.exhibits
    assert (tmp_path / "kept" / figure.picture).read_bytes() == document.pictures[figure.picture]


@pytest.mark.parametrize("lie", ["name", "missing", "link", "kind", "place", "size"])
def test_what_a_worker_says_of_pictures_is_checked(tmp_path, lie, monkeypatch):
    document = read(of_html(tmp_path))
    (figure,) = document.exhibits.figures
    name, folder = figure.picture, tmp_path / "result"
    folder.mkdir()
    if lie == "name":
        figure = replace(figure, picture="../../secret.png")
    if lie == "place":
        figure = replace(figure, start=10_000)
    facts = ipc.write_document(folder, replace(document, exhibits=replace(document.exhibits, figures=(figure,))))
    kept = folder / "pictures" / name
    if lie == "missing":
        kept.unlink()
    if lie == "link":
        kept.rename(folder / "elsewhere")
        kept.symlink_to(folder / "elsewhere")
    if lie == "kind":
        kept.write_bytes(b"<script>")
    if lie == "size":
        monkeypatch.setattr(ipc, "_LARGEST_PICTURE", 1000)
    with pytest.raises(ValueError, match="figure|picture"):
        ipc.read_document(folder, facts, ExtractLimits())
