"""Text in pictures: recognised page by page where a page has none, with boxes; hostile pictures fail alone."""

from __future__ import annotations

import io
import struct
import zlib
from email.message import EmailMessage
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from retrieval.errors import ExtractError, NothingToRead
from retrieval.extraction import extract as reading
from retrieval.extraction.extract import (
    ARRANGING,
    EXTRACTING,
    RECOGNISING,
    ExtractLimits,
    ExtractProgress,
    extract,
    render_page,
    set_ocr,
    try_recognising,
)
from retrieval.extraction.formats import format_of
from retrieval.extraction.ocr.languages import installed_languages, language_files
from tests.retrieval.extraction.reading import read, written
from tests.retrieval.pdf_maker import Sheet, make_pdf

WORDS = ["The crane was raised in 1951.", "The arm lifts forty tonnes."]


def picture(lines=WORDS, size=(1240, 500), *, ground: int = 255, ink: int = 0) -> Image.Image:
    drawn = Image.new("L", size, ground)
    brush = ImageDraw.Draw(drawn)
    for number, line in enumerate(lines):
        brush.text((100, 100 + 120 * number), line, fill=ink, font=ImageFont.load_default(48))
    return drawn


def scan(folder: Path, *, name: str = "scan.pdf", pages=None) -> Path:
    """A PDF whose pages are pictures."""
    first, *others = pages or [picture()]
    first.save(folder / name, "PDF", resolution=150.0, save_all=True, append_images=others)
    return folder / name


@pytest.fixture
def switched_off():
    set_ocr(None)
    yield
    set_ocr("eng")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Path:
    """A PDF with a page of text, a scan and an empty page."""
    import pypdf

    folder = tmp_path_factory.mktemp("mixed")
    (folder / "text.pdf").write_bytes(make_pdf([Sheet([(72, 700, 12, "A page of text that is long enough.")])]))
    (folder / "empty.pdf").write_bytes(make_pdf([Sheet([])]))
    made = pypdf.PdfWriter()
    for part in (folder / "text.pdf", scan(folder), folder / "empty.pdf"):
        made.append(str(part))
    made.write(str(folder / "mixed.pdf"))
    return folder / "mixed.pdf"


def test_only_pages_without_text_are_recognised_and_their_words_have_boxes(mixed, tmp_path, monkeypatch):
    told: list[ExtractProgress] = []
    stages, reads = [], reading._extract

    def noted(*arguments, stage=EXTRACTING):
        stages.append(stage)
        return reads(*arguments, stage=stage)

    monkeypatch.setattr(reading, "_extract", noted)
    document = extract(mixed, kept=tmp_path, watch=told.append)
    assert all(words in document.text for words in WORDS)
    assert {(one.done, one.total) for one in told if one.stage == RECOGNISING} == {(0, 1)}
    assert stages == [EXTRACTING, ARRANGING], "it is not told as if all began anew"
    assert [page.note for page in document.pages[:2]] == ["", ""]
    assert "page 2 was recognised in pictures (OCR)" in " ".join(document.notes)
    start = document.text.index("1951")
    (box,) = document.boxes(start, start + 4)
    drawn, font = picture(), ImageFont.load_default(48)
    before, year = font.getlength("The crane was raised in "), font.getbbox("1951")
    assert box.page == 1
    assert box.x0 * drawn.width == pytest.approx(100 + before, abs=12)
    # The letters of a word share its width, and the full stop is one of them.
    assert box.x1 * drawn.width == pytest.approx(100 + before + font.getlength("1951.") * 4 / 5, abs=12)
    assert 90 < box.y0 * drawn.height < 100 + year[1] < 100 + year[3] < box.y1 * drawn.height < 170


def test_what_was_recognised_is_kept_and_not_recognised_again(mixed, tmp_path, monkeypatch):
    first = extract(mixed, kept=tmp_path)
    monkeypatch.setattr(reading, "_recognise", lambda *arguments: pytest.fail("recognised twice"))
    assert extract(mixed, kept=tmp_path).text == first.text
    (damaged,) = tmp_path.glob("*/1.npz")
    sound = damaged.read_bytes()
    for spoiled in (b"PK\x03\x04 damaged", sound[:600] + b"\xff" * 60 + sound[660:]):
        damaged.write_bytes(spoiled)
        with pytest.raises(pytest.fail.Exception):
            extract(mixed, kept=tmp_path)


def test_recognising_is_tried_on_three_pages_which_say_how_long_and_how_much(tmp_path, monkeypatch):
    asked, recognise = [], reading._recognise
    path = scan(tmp_path, pages=[picture([f"Page {number} of the crane."]) for number in range(8)])
    monkeypatch.setattr(
        reading, "_recognise", lambda path, pages, *more: asked.append(pages) or recognise(path, pages, *more)
    )
    seconds, texts = try_recognising(path, range(8))
    assert asked == [[1, 4, 6]] and [f"Page {number}" in text for number, text in zip((1, 4, 6), texts, strict=True)]
    one, (text,) = try_recognising(path, [7])
    assert min(one, seconds) > 0 and "Page 7" in text

    def broken(*_):
        raise ExtractError("damaged")

    monkeypatch.setattr(reading, "_recognise", broken)
    seconds, texts = try_recognising(path, [0])
    assert seconds > 0 and texts == []


def test_switched_off_nothing_is_recognised_and_a_scan_says_how_to_switch_it_on(mixed, tmp_path, switched_off):
    document = extract(mixed)
    assert "crane" not in document.text and document.scanned == (1,)
    with pytest.raises(NothingToRead, match="CAIRN_OCR=auto") as refused:
        extract(scan(tmp_path))
    assert refused.value.pages == (0,)


@pytest.mark.parametrize("name", ["made.png", "made.jpg", "made.jpeg", "made.tif"])
def test_pictures_of_text_are_read_like_scanned_pages(tmp_path, name):
    path = tmp_path / name
    picture().save(path, dpi=(150, 150))
    assert " ".join(extract(path).text.split()) == " ".join(WORDS)
    assert render_page(path, 0, width_px=300).startswith(b"\x89PNG")


def test_every_frame_of_a_tiff_is_a_page(tmp_path):
    path = tmp_path / "fax.tiff"
    pages = [picture([f"This is sheet number {number}"]).convert("1") for number in ("one", "two")]
    pages[0].save(path, save_all=True, append_images=pages[1:], compression="group4")
    document = extract(path)
    assert [document.text[page.start : page.end] for page in document.pages] == [
        "This is sheet number one", "This is sheet number two",
    ]  # fmt: skip


def turned_exif(*, odd: bool) -> bytes:
    """That a picture lies on its side; the width beside it is a text if that is `odd`."""
    width = struct.pack("<HHI4s", 0x0100, 2 if odd else 3, 2 if odd else 1, b"ab" if odd else b"\x08")
    turned = struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0)
    return b"Exif\0\0II*\0\x08\0\0\0\x02\0" + width + turned + bytes(4)


@pytest.mark.parametrize(
    "kind", ["turned by its camera", "odd camera", "transparent", "sixteen bits", "light on dark", "small"]
)
def test_pictures_of_every_making_are_read(tmp_path, kind):
    path, drawn = tmp_path / "odd.png", picture()
    options = {}
    if kind == "turned by its camera" or kind == "odd camera":
        path, options = tmp_path / "odd.jpg", {"exif": turned_exif(odd=kind == "odd camera")}
        drawn = drawn.rotate(90, expand=True)
    elif kind == "transparent":
        see_through = Image.new("RGBA", drawn.size, (0, 0, 0, 0))
        see_through.paste((0, 0, 0, 255), mask=drawn.point(lambda value: 255 - value))
        drawn = see_through
    elif kind == "sixteen bits":
        drawn = Image.fromarray(np.asarray(drawn).astype(np.uint16) * 256)
    elif kind == "light on dark":
        drawn = picture(ground=20, ink=240)
    else:
        drawn = drawn.resize((413, 167), Image.Resampling.LANCZOS)
    drawn.save(path, **options)
    assert "raised in 1951" in extract(path).text


def png(width: int, height: int, data: bytes = b"") -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def encoded(kind: str, drawn: Image.Image | None = None) -> bytes:
    buffer = io.BytesIO()
    (drawn or picture()).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("words.png", b"only words", "named like a picture but is none"),
        ("program.png", b"\x89PNG\r\n\x1a\n" + bytes(200), "damaged|none"),
        ("wide.png", png(60_000, 60_000), "million pixels"),
        ("thin.png", png(2**31 - 1, 1), "million pixels|damaged"),
        ("nothing.png", png(0, 0), "damaged|none|pixels"),
        ("many.tif", b"II*\0\x08\0\0\0\xff\xff" + bytes(100), "damaged|none"),
        ("loop.tif", b"II*\0\x08\0\0\0\x01\0\x00\x01\x03\0\x01\0\0\0\x01\0\0\0\x08\0\0\0", "damaged|none"),
        ("head.jpg", b"\xff\xd8\xff\xe0" + bytes(60), "damaged|none"),
        ("foreign.png", encoded("GIF"), "named like a picture but is none"),
    ],
)
def test_hostile_pictures_are_refused_with_their_reason(tmp_path, name, data, reason):
    with pytest.raises(ExtractError, match=reason):
        read(written(tmp_path, name, data))


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("cut.png", encoded("PNG")[:1500], "damaged or cut off"),
        ("bomb.png", png(6000, 6000, zlib.compress(bytes(100))), "damaged or cut off|none was recognised"),
        ("blank.png", encoded("PNG", Image.new("L", (900, 900), 255)), "none was recognised"),
    ],
)
def test_pictures_that_fail_only_when_they_are_recognised_fail_alone(tmp_path, name, data, reason):
    with pytest.raises(ExtractError, match=reason):
        extract(written(tmp_path, name, data))


def test_a_picture_beyond_the_limit_of_pixels_is_refused_before_it_is_unpacked(tmp_path):
    with pytest.raises(ExtractError, match="more than 0 million pixels|million pixels"):
        read(written(tmp_path, "large.png", encoded("PNG")), ExtractLimits(pixels=1000))


def test_a_language_that_is_not_installed_is_named_with_those_that_are():
    assert "eng" in installed_languages() and language_files("eng")[0].is_file()
    with pytest.raises(ValueError, match=r"no language 'xyz'.*eng.*tesseract-ocr-xyz"):
        set_ocr("eng+xyz")
    with pytest.raises(ValueError, match="no language"):
        language_files("../../etc/passwd")
    assert language_files("eng+eng") == language_files("eng"), "each is linked to once"


def test_kinds_of_pictures_are_known_by_their_content():
    assert format_of("a.tif").matches(b"MM\0*") and not format_of("a.tif").matches(b"\x89PNG\r\n\x1a\n")


def test_pictures_in_e_mails_are_read_and_a_bad_one_fails_alone(tmp_path):
    made = EmailMessage()
    made["Subject"], made["From"] = "Harbour plan", "bob@example.org"
    made.set_content("See the pictures.")
    html = "<p>See <img src='cid:one'><img src='cid:logo'></p>"
    made.add_alternative(html, subtype="html")
    related = made.get_payload()[1]
    related.add_related(encoded("PNG", picture(["Inline words of the harbour."])), "image", "png", cid="<one>")
    related.add_related(encoded("PNG", picture(["Logo"], (120, 60))), "image", "png", cid="<logo>")
    made.add_attachment(encoded("JPEG"), "image", "jpeg", filename="crane.jpg")
    made.add_attachment(encoded("PNG")[:900], "image", "png", filename="cut.png")
    made.add_attachment(scan(tmp_path).read_bytes(), "application", "pdf", filename="scan.pdf")
    document = extract(written(tmp_path, "made.eml", made.as_bytes()))
    labels = [page.label for page in document.pages]
    assert labels == ["the message", "picture in the text", "attachment crane.jpg", "attachment scan.pdf, page 1"]
    assert "Inline words of the harbour." in document.text and document.text.count("raised in 1951") == 2
    assert any("cut.png" in note or "picture in it was not read" in note for note in document.notes)
    assert not any("Logo" in page for page in document.text.split())


def test_without_recognition_the_pictures_of_an_e_mail_are_named(tmp_path, switched_off):
    made = EmailMessage()
    made["Subject"], made["From"] = "Plan", "bob@example.org"
    made.set_content("See the picture.")
    made.add_attachment(encoded("PNG"), "image", "png", filename="crane.png")
    document = extract(written(tmp_path, "made.eml", made.as_bytes()))
    assert "See the picture." in document.text and any("crane.png was not read" in note for note in document.notes)


@pytest.mark.parametrize(
    ("printed", "title"), [("Lease of the old mill", "Lease of the old mill"), ("File No.: 40217", "scan")]
)
def test_the_title_of_a_scan_is_its_largest_print_if_that_reads_like_one(tmp_path, printed, title):
    drawn = picture([], (1240, 900))
    brush = ImageDraw.Draw(drawn)
    brush.text((100, 80), printed, fill=0, font=ImageFont.load_default(90))
    for number, line in enumerate((*WORDS, *WORDS)):
        brush.text((100, 300 + 120 * number), line, fill=0, font=ImageFont.load_default(44))
    assert extract(scan(tmp_path, pages=[drawn]), kept=tmp_path).title == title
