"""PDF files: pypdf checks, unlocks and describes them, PDFium reads the text.

Runs inside the worker process only (PDFium is neither thread-safe nor safe from hostile files).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pypdf
import pypdfium2 as pdfium

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument, ExtractedPage, OutlineEntry
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.pdf.characters import PageCharacters, read_characters
from retrieval.extraction.pdf.headers_footers import body_size, find_headers_footers, notes_last
from retrieval.extraction.pdf.hidden_numbers import without_hidden_numbers
from retrieval.extraction.pdf.layout import read_lines
from retrieval.extraction.pdf.normalise import TextLine, plain_line
from retrieval.extraction.pdf.opening import NEEDS_PASSWORD, WRONG_PASSWORD, check_signature, opened
from retrieval.extraction.pdf.paragraphs import join_lines
from retrieval.extraction.pdf.tables.find_tables import find_tables
from retrieval.extraction.pdf.tables.rows import Names, table_lines
from retrieval.extraction.pdf.tables.rules import Rules, read_rules
from retrieval.extraction.pdf.titles import title_of

NO_TEXT = "no text: scanned image?"
ONLY_HEADERS = "no text beside running heads: scanned image?"
DAMAGED = "damaged page: cannot be read"
UNREADABLE = "text without character codes: cannot be read"
_OUTLINE_ENTRIES = 20_000
_LINES_A_PAGE = 100_000  # more than any page has; numbers the tables of a document


def extract_pdf(path: Path, limits: ExtractLimits, password: str | None) -> ExtractedDocument:
    """Text, character boxes, outline and metadata of a PDF. Raises ExtractError with the reason."""
    check_signature(path)
    notes: list[str] = []
    metadata, outline = _describe(path, password, notes)
    with opened(path, password) as document:
        count = len(document)
        if count > limits.pages:
            raise ExtractError(
                f"This PDF has {count:,} pages; at most {limits.pages:,} are read. Split it and add the parts."
            )
        pages_lines, facts = _read_pages(document, limits)
        return _assemble(path, pages_lines, facts, metadata, outline or _outline_of_pdfium(document), notes)


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
        entries.append(OutlineEntry(bookmark.get_title()[:500], bookmark.level, page))
    return tuple(entries)


def _read_pages(
    document: pdfium.PdfDocument, limits: ExtractLimits
) -> tuple[list[list[TextLine]], list[ExtractedPage]]:
    """The lines of each page, and the pages themselves; their spans in the text are filled in later."""
    all_lines: list[list[TextLine]] = []
    facts: list[ExtractedPage] = []
    characters = 0
    names: Names | None = None
    for number in range(len(document)):
        label = document.get_page_label(number) or str(number + 1)
        try:
            page = document[number]
        except pdfium.PdfiumError:
            facts.append(ExtractedPage(number, label, 0.0, 0.0, 0, 0, DAMAGED))
            all_lines.append([])
            continue
        text_page = page.get_textpage()
        characters += text_page.count_chars()
        if characters > limits.characters:
            raise ExtractError(
                f"The text has more than {limits.characters:,} characters (page {number + 1} of {len(document)}). "
                "Split the file and add the parts."
            )
        sheet = read_characters(page, text_page)
        lines, names = _read_page(number, sheet, read_rules(page), names)
        facts.append(ExtractedPage(number, label, sheet.width, sheet.height, 0, 0, _note(sheet)))
        all_lines.append(lines)
        text_page.close()
        page.close()
    return all_lines, facts


def _read_page(
    number: int, sheet: PageCharacters, rules: Rules, names: Names | None
) -> tuple[list[TextLine], Names | None]:
    """The lines of a page, and the column names of its last table. `names`: those of the page before."""
    lines: list[TextLine] = []
    found = None
    for count, line in enumerate(read_lines(sheet, find_tables(sheet, rules))):
        if line.table is None:
            made = plain_line(number, sheet, line)
            lines += [made] if made is not None else []
        else:
            rows, found = table_lines(number, sheet, line, number * _LINES_A_PAGE + count + 1, names)
            names = None
            lines += rows
    return lines, found


def _note(sheet: PageCharacters) -> str:
    readable = len(sheet.code_N)
    if readable == 0:
        return UNREADABLE if sheet.unreadable else NO_TEXT
    return UNREADABLE if sheet.unreadable > readable else ""


def _assemble(
    path: Path,
    pages_lines: list[list[TextLine]],
    facts: list[ExtractedPage],
    metadata: dict[str, str],
    outline: tuple[OutlineEntry, ...],
    notes: list[str],
) -> ExtractedDocument:
    pages_lines = without_hidden_numbers(pages_lines)
    dropped = find_headers_footers(pages_lines, [page.height for page in facts])
    heads = [lines[i] for lines, out in zip(pages_lines, dropped, strict=True) for i in sorted(out)]
    usual = body_size(pages_lines)
    kept = [
        notes_last([line for i, line in enumerate(lines) if i not in out], usual)
        for lines, out in zip(pages_lines, dropped, strict=True)
    ]
    running = join_lines(kept)
    if not running.text.strip():
        raise ExtractError(_no_text_reason(facts))
    pages = tuple(
        replace(page, start=start, end=end, note=page.note or ("" if end > start else ONLY_HEADERS))
        for page, (start, end) in zip(facts, running.spans, strict=True)
    )
    unreadable = [page.number + 1 for page in pages if page.note]
    if unreadable:
        shown = ", ".join(map(str, unreadable[:20])) + (" ..." if len(unreadable) > 20 else "")
        notes.append(f"{len(unreadable)} of {len(pages)} pages have no readable text (scanned images?): page {shown}.")
    outline = tuple(_with_start(entry, pages) for entry in outline)
    return ExtractedDocument(
        title_of(metadata, kept, heads, path), running.text, pages, outline, metadata,
        running.page_N, running.line_N, running.box_N4, tuple(notes),
    )  # fmt: skip


def _no_text_reason(facts: list[ExtractedPage]) -> str:
    """The reason why a document has no text at all."""
    if all(page.note == DAMAGED for page in facts):
        return "No page of this PDF can be loaded: its page tree is damaged or malicious. Export it again."
    if all(page.note == UNREADABLE for page in facts):
        return (
            "The text of this PDF has no character codes, only shapes. Reading shapes (OCR) is not built in yet. "
            "Make it searchable first, for instance with `ocrmypdf --force-ocr in.pdf out.pdf`, and add the result."
        )
    which = f"None of the {len(facts)} pages of this PDF has" if len(facts) > 1 else "The one page of this PDF has no"
    return (
        f"{which} text: it is probably a scan without text layer. Reading scans (OCR) is not built in yet. "
        "Make it searchable first, for instance with `ocrmypdf in.pdf out.pdf`, and add the result."
    )


def _with_start(entry: OutlineEntry, pages: tuple[ExtractedPage, ...]) -> OutlineEntry:
    if entry.page is None or not 0 <= entry.page < len(pages):
        return OutlineEntry(entry.title, entry.level)
    return OutlineEntry(entry.title, entry.level, entry.page, pages[entry.page].start)
