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
    logging.getLogger("pypdfium2").setLevel(logging.CRITICAL)  # it logs what is irregular, and every dynamic form
    try:
        if document.get_formtype() != pdfium_c.FORMTYPE_NONE:
            document.init_forms()
        yield document
    finally:
        document.close()


def _open(path: Path, password: str | None) -> pdfium.PdfDocument:
    for tried in (None, password) if password else (None,):
        try:
            return pdfium.PdfDocument(path, password=tried)
        except pdfium.PdfiumError as error:
            if error.err_code == pdfium_c.FPDF_ERR_SECURITY:
                raise ExtractError("This PDF is locked with a method that cannot be opened here.") from error
            if error.err_code != pdfium_c.FPDF_ERR_PASSWORD:
                raise ExtractError(_what_is_damaged(path, error)) from error
    if password:
        raise ExtractError("The password does not open this PDF. Check it and try again.")
    raise ExtractError("This PDF needs a password to be opened. Give it with the file.")


def _what_is_damaged(path: Path, error: pdfium.PdfiumError) -> str:
    with path.open("rb") as file:
        file.seek(0, io.SEEK_END)
        file.seek(max(0, file.tell() - 2048))
        has_end = b"%%EOF" in file.read()
    if not has_end:
        return "This PDF cannot be read: it is cut off (was the download complete?). Fetch or export it again."
    if error.err_code == pdfium_c.FPDF_ERR_SUCCESS:  # it was opened, and has none
        return "This PDF has no pages: it is damaged or was cut off. Export it again from its source."
    return "This PDF cannot be read: its inner structure is damaged. Fetch or export it again."


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
    try:
        pdfium.PdfDocument(path).close()
        return False
    except pdfium.PdfiumError as error:
        if error.err_code != pdfium_c.FPDF_ERR_PASSWORD:
            return False  # other errors are for the reader to tell
    document = _open(path, password)
    try:
        with open(os.open(into, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            document.save(file, flags=pdfium_c.FPDF_REMOVE_SECURITY)
            file.flush()
            os.fsync(file.fileno())
    finally:
        document.close()
    return True
