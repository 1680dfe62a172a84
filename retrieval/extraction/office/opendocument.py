"""OpenDocument texts, as LibreOffice writes them."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path

from lxml import etree

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.exhibits import is_table_caption
from retrieval.extraction.figures import Picture, split_pictures
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text
from retrieval.extraction.office.archive import opened_archive, parse_part, picture_of
from retrieval.extraction.parts import Block, Cells, from_blocks
from retrieval.extraction.table_rows import text_rows

_WHAT = "OpenDocument text"
_OLDER = "The file is named .odt but is a file of another office program. Save it as .odt and retry."
_LOCKED = "This OpenDocument text has a password. Save it without one and retry."
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_META = "{urn:oasis:names:tc:opendocument:xmlns:meta:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_SVG = "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}"
_XLINK = "{http://www.w3.org/1999/xlink}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_MANIFEST = "META-INF/manifest.xml"
_SILENT = {f"{_TEXT}tracked-changes", f"{_OFFICE}annotation", f"{_TEXT}note-citation", f"{_OFFICE}forms"}
_MOST_REPEATED = 100  # cells that a file states once; spreadsheets fill rows with empty ones


def extract_odt(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Headings, paragraphs, lists, tables and notes of a text. Raises ExtractError."""
    with opened_archive(path, _WHAT, _OLDER) as archive:
        names = set(archive.namelist())
        if "content.xml" not in names:
            raise ExtractError("The file is named .odt but is not an OpenDocument text.")
        if _MANIFEST in names and b"encryption-data" in archive.read(_MANIFEST):
            raise ExtractError(_LOCKED)
        body = parse_part(archive, "content.xml", _WHAT).find(f"{_OFFICE}body/{_OFFICE}text")
        if body is None:
            raise ExtractError("The file is named .odt but is not an OpenDocument text.")
        metadata = _metadata(parse_part(archive, "meta.xml", _WHAT)) if "meta.xml" in names else {}
        tables: list[Cells] = []
        blocks, pictures = split_pictures(_items(body, tables, lambda name: picture_of(archive, name)))
        notes = (
            ["The file holds macros: they were neither run nor read."]
            if any(name.startswith(("Basic/", "Scripts/")) for name in names)
            else []
        )
    return from_blocks(blocks, metadata.get("title", ""), path, metadata, limits, notes, tables, pictures)


def _metadata(root: etree._Element) -> dict[str, str]:
    names = {
        "title": f"{_DC}title", "author": f"{_DC}creator", "subject": f"{_DC}subject", "language": f"{_DC}language",
        "created": f"{_META}creation-date", "modified": f"{_DC}date",
    }  # fmt: skip
    found = {ours: next(root.iter(theirs), None) for ours, theirs in names.items()}
    return {key: one.text.strip()[:2000] for key, one in found.items() if one is not None and (one.text or "").strip()}


def _blocks(parent: etree._Element) -> Iterator[Block]:
    """What stands in an element, in order, without pictures."""
    return (item for item in _items(parent, None, lambda name: None) if not isinstance(item, Picture))


def _items(
    parent: etree._Element, tables: list[Cells] | None, media: Callable[[str], bytes | None]
) -> Iterator[Block | Picture]:
    """What stands in an element, in order; also in sections, frames and tables of contents. The cells of tables are
    added to `tables`, those of tables in cells only to their cell."""
    before = ""
    for child in parent:
        if child.tag in _SILENT or not isinstance(child.tag, str):
            continue
        if child.tag == f"{_TEXT}h":
            stated = child.get(f"{_TEXT}outline-level", "1")
            yield int(stated) if stated in tuple("123456789") else 1, " ".join(_words(child).split())
        elif child.tag == f"{_TEXT}p":
            before = _words(child)
            yield 0, before
            for note in child.iter(f"{_TEXT}note-body"):
                yield from _blocks(note)
            yield from _pictures(child, media)
            for frame in child.iter(f"{_DRAW}text-box"):
                yield from _items(frame, tables, lambda name: None)  # its pictures are those of the paragraph
        elif child.tag == f"{_TEXT}list":
            yield 0, "\n".join(f"• {line}" for line in _list_items(child) if line)
            yield from _pictures(child, media)
        elif child.tag == f"{_TABLE}table":
            rows = [_cells(row) for row in child.iter(f"{_TABLE}table-row")]
            yield 0, "\n".join(text_rows(rows))
            if tables is not None:
                tables.append((before if is_table_caption(before) else "", rows))
            yield from _pictures(child, media)
        elif child.tag == f"{_DRAW}frame":
            yield from _pictures(child, media)
            for box in child.iter(f"{_DRAW}text-box"):
                yield from _items(box, tables, lambda name: None)
        else:
            yield from _items(child, tables, media)


def _pictures(element: etree._Element, media: Callable[[str], bytes | None]) -> Iterator[Picture]:
    """One for each frame, which may state the same picture in several formats."""
    for frame in element.iter(f"{_DRAW}frame"):
        addresses = [image.get(f"{_XLINK}href", "") for image in frame.findall(f"{_DRAW}image")]
        held = (media(posixpath.normpath(address)) for address in addresses if address)
        data = next((one for one in held if one is not None), None)
        if data is not None:
            title = next(frame.iter(f"{_SVG}title", f"{_SVG}desc"), None)
            yield Picture(data, (title.text or "") if title is not None else "")


def _list_items(parent: etree._Element) -> Iterator[str]:
    for item in parent:
        yield " ".join(" ".join(_words(one).split()) for one in item if one.tag in (f"{_TEXT}p", f"{_TEXT}h"))
        for inner in item.findall(f"{_TEXT}list"):
            yield from _list_items(inner)


def _cells(row: etree._Element) -> list[str]:
    cells: list[str] = []
    for cell in row:
        if cell.tag not in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
            continue
        repeated = cell.get(f"{_TABLE}number-columns-repeated", "1")
        count = min(int(repeated), _MOST_REPEATED) if repeated.isdigit() and len(repeated) < 9 else 1
        cells += [" ".join(" ".join(text for _, text in _blocks(cell)).split())] * count
    return cells


def _words(element: etree._Element) -> str:
    """The running text of a paragraph, without notes and boxes that stand elsewhere."""
    lines = clean_text("".join(_pieces(element))).split("\n")
    return "\n".join(" ".join(line.split()) for line in lines if line.strip())


def _pieces(element: etree._Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if child.tag in (f"{_TEXT}s", f"{_TEXT}tab"):
            yield " "
        elif child.tag == f"{_TEXT}line-break":
            yield "\n"
        elif isinstance(child.tag, str) and child.tag not in _SILENT and not child.tag.endswith(("}note", "}frame")):
            yield from _pieces(child)
        yield child.tail or ""
