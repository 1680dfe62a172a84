"""One table of formats: what the command line finds, HTTP accepts and the worker reads is the same."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from fastapi.testclient import TestClient
from PIL import Image, ImageDraw, ImageFont

from app.cli.ingest import files_below
from retrieval.errors import ExtractError
from retrieval.extraction.extract import extract
from retrieval.extraction.formats import (
    FORMATS,
    HEAD_BYTES,
    OLDER,
    format_of,
    formats_here,
    function_named,
    suffixes_here,
)
from tests.app.api_client import opened, send
from tests.app.serving import settings_for
from tests.app.small_library import without_model
from tests.retrieval.compound_file import outlook_message
from tests.retrieval.extraction.test_older_office import written_by_libreoffice
from tests.retrieval.extraction.test_other_texts import epub, odt
from tests.retrieval.pdf_maker import Sheet, make_pdf

WORDS = "The dam was raised in 1951."
TRIED = [
    suffix for each in formats_here() for suffix in each.suffixes[:3]
]  # of the many of program code a few are enough
HEADS = {
    "eml": "dam\n\n",
    "mbox": "dam\n\n",
    "ics": "Description: ",
    "msg": "dam\n\nFrom: <sender@example.org>; To: Anna <anna@example.org>.\n\n",
}
"""What the text of an example has before the words."""


def example(folder: Path, suffix: str) -> Path:
    """A small file of the format that holds `WORDS`."""
    path = folder / f"example{suffix}"
    path.write_bytes(contents(suffix))
    return path


@cache
def contents(suffix: str) -> bytes:
    """Made once: LibreOffice takes seconds to start."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"made{suffix}"
        if newer := format_of(path).newer:
            written_by_libreoffice(example(Path(folder), newer), suffix).rename(path)
        else:
            make(path)
        return path.read_bytes()


def make(path: Path) -> None:
    makers = {"pdf": a_pdf, "docx": a_docx, "xlsx": an_xlsx, "pptx": a_pptx, "odt": an_odt, "epub": an_epub}
    makers |= {"ods": an_ods, "odp": an_odp, "msg": a_msg} | dict.fromkeys(("png", "jpg", "tif"), a_picture)
    texts = {"html": f"<p>{WORDS}</p>", "rtf": f"{{\\rtf1 {WORDS}}}", "eml": f"Subject: dam\n\n{WORDS}"}
    texts["mhtml"] = f"Content-Type: text/html\n\n<p>{WORDS}</p>"
    texts["ics"] = f"BEGIN:VCALENDAR\nBEGIN:VEVENT\nDESCRIPTION:{WORDS}\nEND:VEVENT\nEND:VCALENDAR\n"
    texts["mbox"] = f"From a@b Mon Oct 12 10:00:00 2026\nSubject: dam\n\n{WORDS}\n"
    texts |= {"json": f'["{WORDS[:-1]}"]', "xml": f"<p>{WORDS}</p>"}
    kind = format_of(path).kind
    if kind in makers:
        makers[kind](path)
    else:
        path.write_text(texts.get(kind, WORDS))


def a_pdf(path: Path) -> None:
    path.write_bytes(make_pdf([Sheet([(72, 700, 12, WORDS)])]))


def a_docx(path: Path) -> None:
    document = docx.Document()
    document.add_paragraph(WORDS)
    document.save(str(path))


def an_xlsx(path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append([WORDS])
    book.save(path)


def a_pptx(path: Path) -> None:
    made = pptx.Presentation()
    box = made.slides.add_slide(made.slide_layouts[6]).shapes.add_textbox(0, 0, 9_000_000, 900_000)
    box.text_frame.text = WORDS
    made.save(path)


def an_odt(path: Path) -> None:
    odt(path.parent, f"<text:p>{WORDS}</text:p>", path.name)


def an_ods(path: Path) -> None:
    cell = f"<table:table-cell><text:p>{WORDS}</text:p></table:table-cell>"
    table = f'<table:table table:name="A"><table:table-row>{cell}</table:table-row></table:table>'
    odt(path.parent, table, path.name, kind="spreadsheet")


def an_odp(path: Path) -> None:
    box = f"<draw:frame><draw:text-box><text:p>{WORDS}</text:p></draw:text-box></draw:frame>"
    odt(path.parent, f"<draw:page>{box}</draw:page>", path.name, kind="presentation")


def an_epub(path: Path) -> None:
    epub(path.parent, [("", WORDS)]).rename(path)


def a_picture(path: Path) -> None:
    drawn = Image.new("L", (900, 200), 255)
    ImageDraw.Draw(drawn).text((60, 60), WORDS, fill=0, font=ImageFont.load_default(48))
    drawn.save(path)


def a_msg(path: Path) -> None:
    path.write_bytes(outlook_message("dam", WORDS))


@pytest.mark.parametrize("suffix", TRIED)
def test_the_worker_reads_every_format_also_with_capitals_and_under_the_name_of_the_kept_copy(tmp_path, suffix):
    path = example(tmp_path, suffix)
    text = HEADS.get(format_of(path).kind, "") + WORDS
    assert extract(path, kept=tmp_path).text == text
    for name in (f"A NAME{suffix.upper()}", f"kept.{format_of(path).kind}"):
        assert extract(path.rename(tmp_path / name), kept=tmp_path).text == text  # a picture is recognised once
        path = tmp_path / name


def test_http_accepts_every_format_and_no_other_content_under_its_name(tmp_path):
    for client in served_without_model(tmp_path / "home"):
        for suffix in TRIED:
            path = example(tmp_path, suffix)
            taken = send(client, path.name, path.read_bytes(), path="uploads")
            assert taken.status_code == 201, suffix
            assert client.delete(f"/api/v1/uploads/{taken.json()['id']}").status_code == 204
            other = b"\0\0\0\x18ftypmp42"
            refused = send(client, path.name, other, path="uploads")
            assert (refused.status_code, refused.json()["error"]["code"]) == (415, "unknown_kind"), suffix


@pytest.mark.parametrize(
    ("name", "said"),
    [("a.mp3", r"^Sound cannot be read\. These can: PDF, Word"), ("a.exe", r"^\.exe files cannot be read\. These can")],
)
def test_what_cannot_be_read_says_in_one_line_what_helps(name, said):
    with pytest.raises(ExtractError, match=said) as refused:
        format_of(name)
    assert len(str(refused.value)) < 330


def test_a_folder_below_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "a.txt").write_text("a")
    (tmp_path / "shut").mkdir()
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert [name for _, name in files_below([tmp_path])] == ["open/a.txt", "shut"]


def test_the_command_line_finds_every_format_in_a_folder_and_the_page_offers_the_same(tmp_path):
    paths = [example(tmp_path, suffix) for suffix in suffixes_here()]
    (tmp_path / "other.exe").write_bytes(b"MZ")
    assert {path for path, _ in files_below([tmp_path])} == set(paths)
    for client in served_without_model(tmp_path / "home"):
        assert client_formats(client) == (sorted(suffixes_here()), [each.label for each in formats_here()])


def served_without_model(home: Path) -> Iterator[TestClient]:
    with without_model(home) as library:
        yield from opened(library, settings_for(home))


def client_formats(client: TestClient) -> tuple[list[str], list[str]]:
    uploads = client.get("/api/v1/preferences").json()["uploads"]
    assert {*suffixes_here(), *(each.media_type for each in formats_here())} == set(uploads["accept"])
    return uploads["kinds"], uploads["labels"]


def test_no_two_formats_share_a_name_and_every_kind_is_a_name_ending():
    suffixes = [suffix for each in (*FORMATS, *OLDER) for suffix in each.suffixes]
    assert len(set(suffixes)) == len(suffixes)
    for each in formats_here():
        assert format_of(f"kept.{each.kind}") is each and callable(function_named(each.extractor))


def test_text_in_utf_16_is_text_and_binary_data_is_not(tmp_path):
    text = format_of("a.txt")
    assert text.matches("Grüße".encode("utf-16")) and text.matches(b"") and not text.matches(b"a\0b")
    assert format_of("a.pdf").matches(b"junk " * 100 + b"%PDF-1.7") and len(b"junk " * 100) < HEAD_BYTES
    with pytest.raises(ExtractError, match=r"^\.exe files cannot be read\. These can: ") as refused:
        format_of("a.exe")
    assert str(refused.value).endswith(f": {', '.join(each.label for each in formats_here())}.")
