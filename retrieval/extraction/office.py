"""Word documents (.docx): a zip archive of XML, read without resolving anything and with limits on what it unpacks to.

No pages and no boxes: where a page ends is decided by the printing program, it is not in the file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import Block, clean_text, from_blocks

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_DC = "{http://purl.org/dc/elements/1.1/}"
_PART_BYTES = 256 << 20  # of one part, unpacked
_RATIO = 400  # unpacked to packed, above one megabyte; text seldom packs better than 1:30

Styles = dict[str, tuple[int, bool]]
"""By style id: heading level (1 is the highest, as for a title; 0: running text), and whether it makes list items."""


def extract_docx(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Paragraphs, headings, table rows, foot- and endnotes of a Word document. Raises ExtractError."""
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(b"\xd0\xcf\x11\xe0"):
        raise ExtractError(
            "This is an old .doc file or a Word document with a password. Save it as .docx without one and retry."
        )
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            if "word/document.xml" not in names:
                raise ExtractError("The file is named .docx but is not a Word document.")
            body = _parse(archive, "word/document.xml")
            styles = _styles(_parse(archive, "word/styles.xml")) if "word/styles.xml" in names else {}
            metadata = _metadata(_parse(archive, "docProps/core.xml")) if "docProps/core.xml" in names else {}
            blocks = list(_blocks(body, styles))
            for part in ("word/footnotes.xml", "word/endnotes.xml"):
                if part in names:
                    blocks += [block for block in _blocks(_parse(archive, part), {}) if block[1].strip()]
    except zipfile.BadZipFile as error:
        raise ExtractError("The Word document is damaged or cut off: its archive cannot be opened.") from error
    except (NotImplementedError, RuntimeError) as error:  # unknown packing, or an archive with a password
        raise ExtractError(f"The Word document cannot be unpacked ({error}).") from error
    return from_blocks(blocks, metadata.get("title", ""), path, metadata, limits)


def _parse(archive: zipfile.ZipFile, name: str) -> etree._Element:
    """One XML part. Document type declarations (entities, expansion bombs) and unpacking bombs are refused."""
    info = archive.getinfo(name)
    size = info.file_size  # no more than this is ever unpacked
    if size > _PART_BYTES or (size > 1 << 20 and size > _RATIO * max(1, info.compress_size)):
        raise ExtractError(f"The Word document unpacks to {size / 1e6:,.0f} MB and was refused: it looks malicious.")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        with archive.open(info) as part:
            tree = etree.parse(part, parser)
    except (etree.XMLSyntaxError, EOFError) as error:
        if "Excessive depth" in str(error):
            raise ExtractError("The Word document is nested too deeply: it is damaged or malicious.") from error
        raise ExtractError(f"The Word document is damaged: {name} is not well-formed XML ({error}).") from error
    if tree.docinfo.doctype:
        raise ExtractError("The Word document declares entities, which no Word document needs, and was refused.")
    return tree.getroot()


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


def _metadata(core: etree._Element) -> dict[str, str]:
    names = {"title": "title", "author": "creator", "subject": "subject"}
    found = {ours: core.findtext(_DC + theirs) for ours, theirs in names.items()}
    return {key: value.strip()[:2000] for key, value in found.items() if value and value.strip()}


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
    """Every paragraph and table in order, also inside content controls and text boxes."""
    listed: list[str] = []
    for child in parent:
        if child.tag == f"{_W}p":
            level, is_list = styles.get(_value(child, "pPr/pStyle"), (0, False))
            level, is_list = _outline_level(child) or level, is_list or _is_numbered(child)
            text = _paragraph_text(child)
            if is_list and not level and text:
                listed.append(f"• {text}")
                continue
            if listed:
                yield 0, "\n".join(listed)
                listed = []
            if text:
                yield level, text
            for box in _text_boxes(child):
                yield from _blocks(box, styles)
            continue
        if listed:
            yield 0, "\n".join(listed)
            listed = []
        if child.tag == f"{_W}tbl":
            rows = [_row_text(row, styles) for row in child.iter(f"{_W}tr")]
            yield 0, "\n".join(row for row in rows if row)
        elif child.tag != _FALLBACK:
            yield from _blocks(child, styles)
    if listed:
        yield 0, "\n".join(listed)


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


def _row_text(row: etree._Element, styles: Styles) -> str:
    cells = [" ".join(" ".join(text for _, text in _blocks(cell, styles)).split()) for cell in row.findall(f"{_W}tc")]
    return " | ".join(cells) if any(cells) else ""
