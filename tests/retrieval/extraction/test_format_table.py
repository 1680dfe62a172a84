"""One table of formats: what the command line finds, HTTP accepts and the worker reads is the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import docx
import pytest
from fastapi.testclient import TestClient

from app.cli.ingest import files_below
from retrieval.errors import ExtractError
from retrieval.extraction.extract import extract
from retrieval.extraction.formats import FORMATS, HEAD_BYTES, SUFFIXES, format_of
from retrieval.extraction.worker import _function
from tests.app.api_client import opened, send
from tests.app.serving import FakeSettings
from tests.app.small_library import without_model
from tests.retrieval.pdf_maker import Sheet, make_pdf
from tests.retrieval.reading_here import ReadingHere

WORDS = "The dam was raised in 1951."


def example(folder: Path, suffix: str) -> Path:
    """A small file of the format that holds `WORDS`."""
    path = folder / f"example{suffix}"
    kind = format_of(path).kind
    if kind == "pdf":
        path.write_bytes(make_pdf([Sheet([(72, 700, 12, WORDS)])]))
    elif kind == "docx":
        document = docx.Document()
        document.add_paragraph(WORDS)
        document.save(str(path))
    else:
        path.write_text(f"<p>{WORDS}</p>" if kind == "html" else WORDS)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_worker_reads_every_format_also_with_capitals_and_under_the_name_of_the_kept_copy(
    tmp_path, suffix, monkeypatch
):
    path = example(tmp_path, suffix)
    assert extract(path).text == WORDS
    monkeypatch.setattr("retrieval.extraction.extract._SANDBOX", ReadingHere())  # one process a format is enough
    for name in (f"A NAME{suffix.upper()}", f"kept.{format_of(path).kind}"):
        assert extract(path.rename(tmp_path / name)).text == WORDS
        path = tmp_path / name


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_http_accepts_every_format_and_no_other_content_under_its_name(tmp_path, suffix):
    path = example(tmp_path, suffix)
    for client in served_without_model(tmp_path / "home"):
        assert send(client, path.name, path.read_bytes(), path="uploads").status_code == 201
        other = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
        refused = send(client, path.name, other, path="uploads")
        assert (refused.status_code, refused.json()["error"]["code"]) == (415, "unknown_kind")


def test_the_command_line_finds_every_format_in_a_folder_and_the_page_offers_the_same(tmp_path):
    paths = [example(tmp_path, suffix) for suffix in SUFFIXES]
    (tmp_path / "other.exe").write_bytes(b"MZ")
    assert {path for path, _ in files_below([tmp_path])} == set(paths)
    for client in served_without_model(tmp_path / "home"):
        assert client_formats(client) == (sorted(SUFFIXES), [each.label for each in FORMATS])


def served_without_model(home: Path) -> Iterator[TestClient]:
    with without_model(home) as library:
        yield from opened(library, FakeSettings(home))


def client_formats(client: TestClient) -> tuple[list[str], list[str]]:
    uploads = client.get("/api/v1/preferences").json()["uploads"]
    assert {*SUFFIXES, *(each.media_type for each in FORMATS)} == set(uploads["accept"])
    return uploads["kinds"], uploads["labels"]


def test_no_two_formats_share_a_name_and_every_kind_is_a_name_ending():
    assert len(set(SUFFIXES)) == len(SUFFIXES)
    for each in FORMATS:
        assert format_of(f"kept.{each.kind}") is each and callable(_function(each.extractor))


def test_text_in_utf_16_is_text_and_binary_data_is_not(tmp_path):
    text = format_of("a.txt")
    assert text.matches("Grüße".encode("utf-16")) and text.matches(b"") and not text.matches(b"a\0b")
    assert format_of("a.pdf").matches(b"junk " * 100 + b"%PDF-1.7") and len(b"junk " * 100) < HEAD_BYTES
    with pytest.raises(ExtractError, match=r"\.exe files cannot be read.*\.pdf"):
        format_of("a.exe")
