"""Files of Office before 2007: read where LibreOffice is, refused in a sentence where it is not."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import openpyxl
import pytest

from retrieval.errors import ExtractError, UnknownKind
from retrieval.extraction.extract import extract
from retrieval.extraction.formats import OLDER, format_of, formats_here, suffixes_here
from retrieval.extraction.office.older import program

_OASIS = "urn:oasis:names:tc:opendocument:xmlns"
OPEN_DOCUMENT = (
    f'xmlns:office="{_OASIS}:office:1.0" xmlns:svg="{_OASIS}:svg-compatible:1.0" xmlns:text="{_OASIS}:text:1.0" '
    f'xmlns:draw="{_OASIS}:drawing:1.0" xmlns:table="{_OASIS}:table:1.0" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'office:version="1.2" office:mimetype="application/vnd.oasis.opendocument.text"'
)
OLE = b"\xd0\xcf\x11\xe0" + bytes(2000)
needs_libreoffice = pytest.mark.skipif(program() is None, reason="LibreOffice is not installed")


@cache
def profile() -> tempfile.TemporaryDirectory[str]:
    """LibreOffice's, filled at its first start, which takes a second longer than the next ones."""
    return tempfile.TemporaryDirectory()


def written_by_libreoffice(path: Path, suffix: str) -> Path:
    """The file in another format, in its place."""
    command = [program(), f"-env:UserInstallation={Path(profile().name).as_uri()}", "--headless"]
    command += ["--convert-to", suffix[1:], "--outdir", path.parent, path]
    subprocess.run(command, check=True, capture_output=True)
    path.unlink()
    return path.with_suffix(suffix)


def word_97(folder: Path, body: str) -> Path:
    """A .doc file that LibreOffice wrote of this text of OpenDocument."""
    (folder / "a.fodt").write_text(
        f'<?xml version="1.0"?><office:document {OPEN_DOCUMENT}><office:body><office:text>{body}</office:text>'
        "</office:body></office:document>"
    )
    return written_by_libreoffice(folder / "a.fodt", ".doc")


@pytest.fixture
def office(tmp_path, monkeypatch):
    """A program called soffice that writes what lies beside it, and what it was told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    (folder / "soffice").write_text(
        "#!/bin/sh\n"
        f'echo "$@" > {folder}/told\ncp -r . {folder}/its-folder\n'
        'while [ $# -gt 1 ]; do case "$1" in --convert-to) to=$2;; --outdir) out=$2;; esac; shift; done\n'
        f'[ -f {folder}/new ] && cp {folder}/new "$out/$(basename "${{1%.*}}").$to"\n'
    )
    (folder / "soffice").chmod(0o755)
    return folder


def test_without_libreoffice_one_sentence_says_what_helps(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for suffix in (".doc", ".xls", ".ppt"):
        with pytest.raises(UnknownKind, match=rf"Save the file as {suffix}x and add that, or install LibreOffice"):
            format_of(f"old{suffix}")
        assert suffix not in suffixes_here()
    assert not set(OLDER) & set(formats_here())


def test_what_libreoffice_writes_is_read_in_place_of_the_file(tmp_path, office):
    book = openpyxl.Workbook()
    book.active.append(["Dam", "Height"])
    book.active.append(["Alpha", "31 m"])
    book.save(office / "new")
    (tmp_path / "dams of 1951.xls").write_bytes(OLE)
    document = extract(tmp_path / "dams of 1951.xls")
    assert "Dam: Alpha; Height: 31 m." in document.text and document.pages[0].label == "sheet Sheet"
    assert "--headless" in (office / "told").read_text()
    profile = (office / "its-folder" / "profile" / "user" / "registrymodifications.xcu").read_text()
    assert "DisableMacrosExecution" in profile and "ooInetProxyType" in profile
    assert {".doc", ".xls", ".ppt"} <= set(suffixes_here())


def test_what_libreoffice_cannot_read_is_refused_with_what_to_do(tmp_path, office):
    (tmp_path / "old.ppt").write_bytes(OLE)
    with pytest.raises(ExtractError, match=r"has a password, or is damaged\. Save it as \.pptx"):
        extract(tmp_path / "old.ppt")
    (tmp_path / "empty.doc").write_bytes(b"")
    with pytest.raises(ExtractError, match="empty"):
        extract(tmp_path / "empty.doc")


@needs_libreoffice
def test_a_word_97_file_gives_its_words_and_rows_and_a_picture_that_it_links_is_not_fetched(tmp_path):
    asked = []
    rows = "".join(
        f"<table:table-row>{''.join(f'<table:table-cell><text:p>{cell}</text:p></table:table-cell>' for cell in row)}"
        "</table:table-row>"
        for row in (("Dam", "Height"), ("Alpha", "31 m"))
    )
    table = f'<table:table table:name="A"><table:table-column table:number-columns-repeated="2"/>{rows}</table:table>'

    class Server(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_OPTIONS = do_PROPFIND = do_GET

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        picture = f'<draw:image xlink:href="http://127.0.0.1:{server.server_address[1]}/seen.png"/>'
        frame = f'<text:p><draw:frame svg:width="2cm" svg:height="2cm">{picture}</draw:frame></text:p>'
        old = word_97(tmp_path, f"<text:p>The dam was raised in 1951.</text:p>{table}{frame}")
        assert asked, "LibreOffice itself fetches it: the test shows nothing otherwise"
        asked.clear()
        text = extract(old).text
        assert "The dam was raised in 1951." in text and "Dam: Alpha; Height: 31 m." in text and not asked
        server.shutdown()
