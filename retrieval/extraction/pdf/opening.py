"""Opening a PDF with PDFium, and what to tell a person when that fails. Runs inside the worker process only."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.errors import ExtractError
from retrieval.extraction.formats import HEAD_BYTES, PDF
from retrieval.extraction.pdf.annotations import Annotations, read_annotations

NEEDS_PASSWORD = "This PDF needs a password to be opened. Give it with the file."
WRONG_PASSWORD = "The password does not open this PDF. Check it and try again."
NO_PAGES = "This PDF has no pages: it is damaged or was cut off. Export it again from its source."

_OTHER_KINDS = {
    b"PK\x03\x04": "a zip archive or an office document (.docx?)",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89PNG": "a PNG image",
    b"<!DOCTYPE": "a web page",
    b"<html": "a web page",
    b"{\\rtf": "an RTF document",
    b"\xd0\xcf\x11\xe0": "an old office document (.doc?)",
    b"%!PS": "PostScript",
}


def check_signature(path: Path) -> None:
    """Raises ExtractError if the file is empty or no PDF at all."""
    with path.open("rb") as file:
        start = file.read(HEAD_BYTES)
    if not start:
        raise ExtractError("The file is empty (0 bytes).")
    if not PDF.matches(start):
        kind = next((name for magic, name in _OTHER_KINDS.items() if start.startswith(magic)), "")
        raise ExtractError("The file is named .pdf but is not a PDF" + (f": its content is {kind}." if kind else "."))


@contextmanager
def opened(path: Path, password: str | None) -> Iterator[pdfium.PdfDocument]:
    """The document while it is in use. A password that the file does not ask for is ignored."""
    check_signature(path)
    document = _open(path, password)
    try:
        if len(document) == 0:
            raise ExtractError(NO_PAGES)
        if document.get_formtype() != pdfium_c.FORMTYPE_NONE:
            logging.getLogger("pypdfium2").setLevel(logging.CRITICAL)  # it tells that dynamic forms are not supported
            document.init_forms()
        yield document
    finally:
        document.close()


def _open(path: Path, password: str | None) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(path, password=password)
    except pdfium.PdfiumError as error:
        code = getattr(error, "err_code", None)
        if code == pdfium_c.FPDF_ERR_PASSWORD:
            if password:
                return _open_without(path, error)
            raise ExtractError(NEEDS_PASSWORD) from error
        if code == pdfium_c.FPDF_ERR_SECURITY:
            raise ExtractError("This PDF is locked with a method that cannot be opened here.") from error
        raise ExtractError(_what_is_damaged(path)) from error


def _open_without(path: Path, refused: pdfium.PdfiumError) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError:
        raise ExtractError(WRONG_PASSWORD) from refused


def _what_is_damaged(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(0, io.SEEK_END)
        file.seek(max(0, file.tell() - 2048))
        has_end = b"%%EOF" in file.read()
    if not has_end:
        return "This PDF cannot be read: it is cut off (was the download complete?). Fetch or export it again."
    if _is_without_pages(path):
        return NO_PAGES
    return "This PDF cannot be read: its inner structure is damaged. Fetch or export it again."


def _is_without_pages(path: Path) -> bool:
    import pypdf

    try:
        return len(pypdf.PdfReader(path, strict=False).pages) == 0
    except Exception:  # a third-party parser on a damaged file may raise anything; then it is simply damaged
        return False


def page_of(document: pdfium.PdfDocument, number: int) -> tuple[pdfium.PdfPage, bool, Annotations]:
    """A page (from 0) with what was filled into its form fields as part of it, whether it has any, and what lies on it.
    Raises PdfiumError if it is damaged."""
    page = document[number]
    annotations = read_annotations(page)
    if document.get_formtype() == pdfium_c.FORMTYPE_NONE:
        return page, False, annotations
    if pdfium_c.FPDFPage_Flatten(page.raw, pdfium_c.FLAT_NORMALDISPLAY) != pdfium_c.FLATTEN_SUCCESS:
        return page, False, annotations
    page.close()
    return document[number], True, annotations


def save_unlocked(path: Path, into: Path, password: str) -> bool:
    """Writes the document without its encryption to the new file `into`; False if it opens without a password.

    What it may be used for (no printing, say) is the reader's duty after that as before.
    """
    check_signature(path)
    if _opens_without(path):
        return False
    document = _open(path, password)
    try:
        with open(os.open(into, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            document.save(file, flags=pdfium_c.FPDF_REMOVE_SECURITY)
            file.flush()
            os.fsync(file.fileno())
    finally:
        document.close()
    return True


def _opens_without(path: Path) -> bool:
    try:
        pdfium.PdfDocument(path).close()
    except pdfium.PdfiumError as error:
        return bool(
            getattr(error, "err_code", None) != pdfium_c.FPDF_ERR_PASSWORD
        )  # other errors are for the reader to tell
    return True
