"""Word documents (.docx): a zip archive of XML, read without resolving anything and with limits on what it unpacks to.

No pages and no boxes: where a page ends is decided by the printing program, it is not in the file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from lxml import etree

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.exhibits import is_table_caption
from retrieval.extraction.figures import Picture, split_pictures
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text
from retrieval.extraction.office.archive import core_metadata, opened_archive, parse_part, picture_of, relations
from retrieval.extraction.parts import Block, Cells, from_blocks
from retrieval.extraction.table_rows import text_rows

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_NAMED_BY = {  # elements that show a picture, and their attribute with its id
    "{http://schemas.openxmlformats.org/drawingml/2006/main}blip": f"{_R}embed",
    "{urn:schemas-microsoft-com:vml}imagedata": f"{_R}id",
}
_PROPERTIES = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr"
_WHAT = "Word document"
_MOST_SPANNED = 100  # columns
_OLDER = "This is an old .doc file or a Word document with a password. Save it as .docx without one and retry."

Styles = dict[str, tuple[int, bool]]
"""By style id: heading level (1 is the highest, as for a title; 0: running text), and whether it makes list items."""

Media = Callable[[str], bytes | None]
"""The picture of an id, if the file holds it."""


def extract_docx(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Paragraphs, headings, table rows, foot- and endnotes of a Word document. Raises ExtractError."""
    with opened_archive(path, _WHAT, _OLDER) as archive:
        names = set(archive.namelist())
        if "word/document.xml" not in names:
            raise ExtractError("The file is named .docx but is not a Word document.")
        body = parse_part(archive, "word/document.xml", _WHAT)
        styles = _styles(parse_part(archive, "word/styles.xml", _WHAT)) if "word/styles.xml" in names else {}
        metadata = core_metadata(archive, _WHAT)
        tables: list[Cells] = []
        blocks, pictures = split_pictures(_items(body, styles, tables, _media(archive)))
        for part in ("word/footnotes.xml", "word/endnotes.xml"):
            if part in names:
                blocks += [block for block in _blocks(parse_part(archive, part, _WHAT), {}) if block[1].strip()]
    return from_blocks(blocks, metadata.get("title", ""), path, metadata, limits, tables=tables, pictures=pictures)


def _media(archive: zipfile.ZipFile) -> Media:
    """The pictures of the file by the ids that its text uses."""
    parts = relations(archive, "word/document.xml", _WHAT)
    return lambda identity: picture_of(archive, parts.get(identity, ""))


def _styles(root: etree._Element) -> Styles:
    styles: Styles = {}
    for style in root.iter(f"{_W}style"):
        name = _value(style, "name").lower()
        level = _outline_level(style)
        if name == "title":
            level = 1
        elif name.startswith("heading ") and name[8:].isdigit():
            level = int(name[8:])
        styles[style.get(f"{_W}styleId", "")] = level, _is_numbered(style)
    return styles


def _value(element: etree._Element, path: str) -> str:
    found = element.find("/".join(_W + step for step in path.split("/")))
    return "" if found is None else found.get(f"{_W}val", "")


def _outline_level(element: etree._Element) -> int:
    """Heading level that a paragraph or a style states itself; 0 for running text."""
    stated = _value(element, "pPr/outlineLvl")
    return int(stated) + 1 if stated in tuple("012345678") else 0


def _is_numbered(element: etree._Element) -> bool:
    return element.find(f"{_W}pPr/{_W}numPr") is not None


def _blocks(parent: etree._Element, styles: Styles) -> Iterator[Block]:
    """Every paragraph and table in order, without pictures."""
    return (item for item in _items(parent, styles, None, lambda identity: None) if not isinstance(item, Picture))


def _items(
    parent: etree._Element, styles: Styles, tables: list[Cells] | None, media: Media
) -> Iterator[Block | Picture]:
    """Every paragraph, table and picture in order, also inside content controls and text boxes. The cells of tables are
    added to `tables`, those of tables in cells only to their cell. A picture stands behind its paragraph or table."""
    listed: list[str] = []
    before = ""
    for child in parent:
        if child.tag == f"{_W}p":
            level, is_list = styles.get(_value(child, "pPr/pStyle"), (0, False))
            level, is_list = _outline_level(child) or level, is_list or _is_numbered(child)
            text = _paragraph_text(child)
            if is_list and not level and text:
                listed.append(f"• {text}")
                yield from _pictures(child, media)
                continue
            if listed:
                yield 0, "\n".join(listed)
                listed = []
            if text:
                before = text
                yield level, text
            yield from _pictures(child, media)
            for box in _text_boxes(child):
                yield from _items(box, styles, tables, media)
            continue
        if listed:
            yield 0, "\n".join(listed)
            listed = []
        if child.tag == f"{_W}tbl":
            rows = _cells(child, styles)
            if tables is None:  # within a cell of another table
                yield 0, "\n".join(" | ".join(row) for row in rows if any(row))
            else:
                yield 0, "\n".join(text_rows(rows))
                tables.append((before if is_table_caption(before) else "", rows))
            before = ""
            yield from _pictures(child, media, also_in_boxes=True)
        elif child.tag != _FALLBACK:
            yield from _items(child, styles, tables, media)
    if listed:
        yield 0, "\n".join(listed)


def _pictures(element: etree._Element, media: Media, *, also_in_boxes: bool = False) -> Iterator[Picture]:
    for child in element:
        if child.tag == _FALLBACK or (child.tag == f"{_W}txbxContent" and not also_in_boxes):
            continue
        identity = child.get(_NAMED_BY[child.tag]) if child.tag in _NAMED_BY else None
        data = media(identity) if identity else None
        if data is not None:
            drawing = next(child.iterancestors(f"{_W}drawing"), None)
            named = next(drawing.iter(_PROPERTIES), None) if drawing is not None else None
            yield Picture(data, "" if named is None else named.get("descr", ""))
        yield from _pictures(child, media, also_in_boxes=also_in_boxes)


def _paragraph_text(paragraph: etree._Element) -> str:
    pieces: list[str] = []

    def walk(element: etree._Element) -> None:
        for child in element:
            if child.tag == f"{_W}t":
                pieces.append(child.text or "")
            elif child.tag == f"{_W}tab":
                pieces.append(" ")
            elif child.tag in (f"{_W}br", f"{_W}cr"):
                pieces.append("\n")
            elif child.tag == f"{_W}noBreakHyphen":
                pieces.append("-")
            elif child.tag not in (f"{_W}pPr", f"{_W}txbxContent", f"{_W}del", f"{_W}instrText", _FALLBACK):
                walk(child)

    walk(paragraph)
    lines = clean_text("".join(pieces)).split("\n")
    return "\n".join(" ".join(line.split()) for line in lines if line.strip())


def _text_boxes(element: etree._Element) -> Iterator[etree._Element]:
    for child in element:
        if child.tag == f"{_W}txbxContent":
            yield child
        elif child.tag != _FALLBACK:
            yield from _text_boxes(child)


def _cells(table: etree._Element, styles: Styles) -> list[list[str]]:
    """Row by row; a cell that spans several columns is at the left of them."""
    rows = []
    for row in table.iter(f"{_W}tr"):
        if next(row.iterancestors(f"{_W}tbl")) is table:
            cells: list[str] = []
            for cell in row.findall(f"{_W}tc"):
                span = _value(cell, "tcPr/gridSpan")
                wide = min(int(span), _MOST_SPANNED) if span.isdigit() and len(span) < 5 else 1
                cells += [_cell_text(cell, styles), *[""] * (wide - 1)]
            rows.append(cells)
    return rows


def _cell_text(cell: etree._Element, styles: Styles) -> str:
    return " ".join(" ".join(text for _, text in _blocks(cell, styles)).split())
