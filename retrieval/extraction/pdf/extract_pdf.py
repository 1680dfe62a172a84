"""PDF files: pypdf checks, unlocks and describes them, PDFium reads the text.

Runs inside the worker process only (PDFium is neither thread-safe nor safe from hostile files).
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pypdf
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedBox, ExtractedDocument, ExtractedPage, OutlineEntry
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.mail.attachments import Attachment, attached_parts
from retrieval.extraction.ocr.pictures import kept
from retrieval.extraction.pdf.annotations import remarks, unseen, with_annotations
from retrieval.extraction.pdf.assemble import (
    DAMAGED,
    NO_TEXT,
    UNREADABLE,
    Page,
    assemble,
    read_blocks,
    read_page,
    with_parts,
)
from retrieval.extraction.pdf.characters import Display, PageCharacters, beside, read_characters
from retrieval.extraction.pdf.opening import NEEDS_PASSWORD, WRONG_PASSWORD, check_signature, opened, page_of
from retrieval.extraction.pdf.tables.rows import Names
from retrieval.extraction.pdf.tables.rules import read_rules, struck_out
from retrieval.extraction.pdf.text_boxes import unprinted_line
from retrieval.extraction.pdf.things import string_of
from retrieval.extraction.pdf.unseen import inside_any

STAMPED = "a picture with a few words beside it: scanned image?"
_OUTLINE_ENTRIES = 20_000
_STAMP_CHARACTERS = 300  # that a program may have written beside a scan
_SCAN_SHARE = 0.25  # of the page
_UNREADABLE_SHARE = 0.3  # of the characters; with more, the page is read as a picture
_PICTURE_SHARE = 0.6  # of the page
_PICTURES = 200  # of a page, looked at
_LEAST_PICTURE = 0.03  # of the page
_FOR_PROGRAMS = {"factur-x.xml", "zugferd-invoice.xml", "xrechnung.xml", "order-x.xml"}


def extract_pdf(
    path: Path,
    limits: ExtractLimits,
    password: str | None,
    recognised: Path | None = None,
    tell: Callable[[int, int, int], None] = lambda done, total, characters: None,
) -> ExtractedDocument:
    """Text, character boxes, outline and metadata of a PDF. Raises ExtractError with the reason.

    `recognised`: folder of what was recognised in the pictures of pages; it takes the place of their own text. `tell`
    is called before each page with the number of those read, of all, and of the characters on them.
    """
    check_signature(path)
    notes: list[str] = []
    metadata, outline = _describe(path, password, notes)
    with opened(path, password) as document:
        count = len(document)
        if count > limits.pages:
            raise ExtractError(
                f"This PDF has {count:,} pages; at most {limits.pages:,} are read. Split it and add the parts."
            )
        pages = _read_pages(document, limits, recognised, tell)
        parts = list(attached_parts(_attachments(document, notes), path, limits, notes, "attached file"))
        return with_parts(assemble(path, pages, metadata, outline or _outline_of_pdfium(document), notes), parts)


def _attachments(document: pdfium.PdfDocument, notes: list[str]) -> list[Attachment]:
    """The files inside of the file; those that are damaged are empty. What an invoice repeats for programs is noted."""
    found = []
    for number in range(document.count_attachments()):
        try:
            attachment = document.get_attachment(number)
        except pdfium.PdfiumError:
            notes.append(f"The list of attached files is damaged: file {number + 1} was not found.")
            continue
        name = string_of(pdfium_c.FPDFAttachment_GetName, attachment.raw)
        if name.lower() in _FOR_PROGRAMS:
            notes.append(f"The attached file {name} repeats the invoice for programs; it is not read.")
            continue
        try:
            found.append(Attachment(name, bytes(attachment.get_data())))
        except pdfium.PdfiumError:
            found.append(Attachment(name, b""))
    return found


def _describe(path: Path, password: str | None, notes: list[str]) -> tuple[dict[str, str], tuple[OutlineEntry, ...]]:
    """Metadata and outline, read by pypdf. Its failures are noted, not fatal: PDFium may still read the text."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs every irregularity of a file
    try:
        reader = pypdf.PdfReader(path, strict=False)
        if reader.is_encrypted and not reader.decrypt(password or "") and not reader.decrypt(""):
            raise ExtractError(WRONG_PASSWORD if password else NEEDS_PASSWORD)
        found: dict[str, object] = dict(reader.metadata or {})
        metadata = {
            key.lstrip("/").lower(): str(value)[:2000]
            for key, value in found.items()
            if isinstance(value, str) and value.strip()
        }
        if reader.xfa:
            notes.append("A dynamic form (XFA): only what the file prints without filling in is read.")
    except ExtractError:
        raise
    except Exception as error:  # a third-party parser on a possibly hostile file may raise anything
        notes.append(f"The file is irregular ({type(error).__name__}); metadata and outline may be missing.")
        return {}, ()
    try:
        outline = tuple(_outline_of_pypdf(reader, reader.outline))
    except Exception as error:  # same
        notes.append(f"The table of contents is damaged ({type(error).__name__}) and was left out.")
        outline = ()
    return metadata, outline[:_OUTLINE_ENTRIES]


def _outline_of_pypdf(reader: pypdf.PdfReader, entries: list[Any], level: int = 0) -> list[OutlineEntry]:
    result: list[OutlineEntry] = []
    for entry in entries:
        if isinstance(entry, list):
            result += _outline_of_pypdf(reader, entry, level + 1)
        else:
            page = reader.get_destination_page_number(entry)
            result.append(OutlineEntry(str(entry.title)[:500], level, page if page is not None and page >= 0 else None))
    return result


def _outline_of_pdfium(document: pdfium.PdfDocument) -> tuple[OutlineEntry, ...]:
    entries: list[OutlineEntry] = []
    for bookmark in islice(document.get_toc(max_depth=15), _OUTLINE_ENTRIES):
        target = bookmark.get_dest()
        page = target.get_index() if target is not None else None
        title = string_of(pdfium_c.FPDFBookmark_GetTitle, bookmark.raw)
        entries.append(OutlineEntry(title[:500], bookmark.level, page))
    return tuple(entries)


def _read_pages(
    document: pdfium.PdfDocument, limits: ExtractLimits, recognised: Path | None, tell: Callable[[int, int, int], None]
) -> list[Page]:
    pages: list[Page] = []
    characters = 0
    names: Names | None = None
    for number in range(len(document)):
        tell(number, len(document), characters)
        label = string_of(pdfium_c.FPDF_GetPageLabel, document.raw, number) or str(number + 1)
        try:
            page, is_form, annotations = page_of(document, number)
        except pdfium.PdfiumError:
            pages.append(Page(ExtractedPage(number, label, 0.0, 0.0, 0, 0, DAMAGED), []))
            continue
        text_page = page.get_textpage()
        characters += text_page.count_chars()
        if characters > limits.characters:
            raise ExtractError(
                f"The text has more than {limits.characters:,} characters (page {number + 1} of {len(document)}). "
                "Split the file and add the parts."
            )
        sheet, found = read_characters(page, text_page, is_form), kept(recognised, number)
        struck, rules = struck_out(sheet, read_rules(page))
        struck += [box for comment in annotations.comments if comment.is_struck for box in comment.boxes]
        struck_N = inside_any(sheet.middle_N2, struck)
        said, asides = remarks(sheet, annotations.comments), unseen(number, sheet, struck_N)
        sheet = with_annotations(sheet, annotations.fields, struck_N)
        boxes = _picture_boxes(page, number)
        pictures = [box for box in boxes if _LEAST_PICTURE < _area(box) < _PICTURE_SHARE]  # no ornament, no ground
        note = _note(sheet, max(map(_area, boxes), default=0.0))
        facts = ExtractedPage(number, label, sheet.width, sheet.height, 0, 0, note)
        if found is not None:
            blocks = found if facts.note == UNREADABLE else [sheet, *(beside(block, sheet) for block in found)]
            read = read_blocks(number, blocks, rules)
        else:
            if names is not None and not any(line is names.last_line for line in pages[-1].lines):
                names = replace(names, last_line=None)  # nothing is left there that a row of this page could go on with
            read = read_page(number, sheet, rules, names)
        names = read.names
        if read.cut is not None:
            part, whole = read.cut
            pages[-1] = replace(pages[-1], lines=[whole if line is part else line for line in pages[-1].lines])
        is_picture = found is None and pdfium_c.FPDFPage_CountObjects(page.raw) > 0
        lines = [*read.lines, *(unprinted_line(number, text) for text in said)]
        pages.append(Page(facts, lines, is_picture, found is not None, read.tables, pictures, [*asides, *read.asides]))
        text_page.close()
        page.close()
    return pages


def _note(sheet: PageCharacters, largest_picture: float) -> str:
    """What is wrong with a page. `largest_picture`: the part of it that is covered by one."""
    if not len(sheet.code_N):
        return UNREADABLE if sheet.unreadable else NO_TEXT
    if sheet.unreadable > _UNREADABLE_SHARE * len(sheet.code_N):
        return UNREADABLE
    return STAMPED if len(sheet.code_N) <= _STAMP_CHARACTERS and largest_picture > _SCAN_SHARE else ""


def _picture_boxes(page: pdfium.PdfPage, number: int) -> list[ExtractedBox]:
    show = Display(page)
    if show.width <= 0 or show.height <= 0:
        return []
    pictures = islice(page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE], max_depth=1), _PICTURES)
    bounds = np.array([picture.get_bounds() for picture in pictures], np.float64).reshape(-1, 4)
    boxes = (show.boxes(bounds) / [show.width, show.height, show.width, show.height]).clip(0, 1)
    return [ExtractedBox(number, *box) for box in boxes.tolist()]


def _area(box: ExtractedBox) -> float:
    return (box.x1 - box.x0) * (box.y1 - box.y0)


def render_pdf_page(path: Path, page: int, width_px: int, limits: ExtractLimits, password: str | None) -> bytes:
    """One page as PNG, `width_px` wide; narrower where the image would pass `limits.pixels`. Raises ExtractError."""
    with opened(path, password) as document:
        if not 0 <= page < len(document):
            raise ExtractError(f"There is no page {page + 1}: the document has {len(document)} pages.")
        try:
            sheet, _, _ = page_of(document, page)
        except pdfium.PdfiumError as error:
            raise ExtractError(f"Page {page + 1} is damaged and cannot be drawn.") from error
        wide, high = sheet.get_size()
        if wide <= 0 or high <= 0:
            raise ExtractError(f"Page {page + 1} has no size and cannot be drawn.")
        scale = min(width_px / wide, (limits.pixels / (wide * high)) ** 0.5)
        if wide * scale < 1 or high * scale < 1:
            raise ExtractError(f"Page {page + 1} measures {wide:.0f} x {high:.0f} points and cannot be drawn.")
        buffer = io.BytesIO()
        sheet.render(scale=scale).to_pil().convert("RGB").save(buffer, "PNG", compress_level=3)
        return buffer.getvalue()
