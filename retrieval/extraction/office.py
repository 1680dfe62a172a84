"""Word documents (.docx): a zip archive of XML, read without resolving anything and with limits on what it unpacks to.

No pages and no boxes: where a page ends is decided by the printing program, it is not in the file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text, from_blocks

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_DC = "{http://purl.org/dc/elements/1.1/}"
_PART_BYTES = 256 << 20  # of one part, unpacked
_RATIO = 400  # unpacked to packed, above one megabyte; text seldom packs better than 1:30
_DEPTH = 200


def extract_docx(path: Path, limits: ExtractLimits) -> ExtractedDocument:
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
            styles = _heading_styles(_parse(archive, "word/styles.xml")) if "word/styles.xml" in names else {}
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


def _parse(archive: zipfile.ZipFile, name: str) -> Element:
    """One XML part. Document type declarations (entities, expansion bombs) and unpacking bombs are refused."""
    info = archive.getinfo(name)
    size = info.file_size
    if size > _PART_BYTES or (size > 1 << 20 and size > _RATIO * max(1, info.compress_size)):
        raise ExtractError(f"The Word document unpacks to {size / 1e6:,.0f} MB: refused, it looks made to do harm.")
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEPTH:
            raise ExtractError("The Word document is nested too deeply: it is damaged or made to do harm.")
        builder.start(_qualified(tag), {_qualified(key): value for key, value in attributes.items()})

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_qualified(tag))

    def refuse(*_: object) -> None:
        raise ExtractError("The Word document declares entities, which no Word document needs: refused.")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        with archive.open(info) as part:
            left = _PART_BYTES
            while data := part.read(1 << 16):
                left -= len(data)
                if left < 0:  # the size that the archive states may be a lie
                    raise ExtractError("The Word document unpacks to more than is allowed and is refused.")
                parser.Parse(data, False)
        parser.Parse(b"", True)
        return builder.close()
    except (expat.ExpatError, AssertionError, EOFError) as error:
        raise ExtractError(f"The Word document is damaged: {name} is not sound XML ({error}).") from error


def _qualified(name: str) -> str:
    return "{" + name if "}" in name else name


def _heading_styles(styles: Element) -> dict[str, int]:
    """Style id -> heading level (1 is the highest; a title counts as 1)."""
    levels: dict[str, int] = {}
    for style in styles.iter(f"{_W}style"):
        key = style.get(f"{_W}styleId", "")
        name_element = style.find(f"{_W}name")
        name = (name_element.get(f"{_W}val", "") if name_element is not None else "").lower()
        outline = style.find(f"{_W}pPr/{_W}outlineLvl")
        if name == "title":
            levels[key] = 1
        elif name.startswith("heading ") and name[8:].isdigit():
            levels[key] = int(name[8:])
        elif outline is not None and outline.get(f"{_W}val", "9").isdigit() and int(outline.get(f"{_W}val", "9")) < 9:
            levels[key] = int(outline.get(f"{_W}val", "9")) + 1
    return levels


def _metadata(core: Element) -> dict[str, str]:
    names = {"title": "title", "author": "creator", "subject": "subject"}
    found = {ours: core.findtext(_DC + theirs) for ours, theirs in names.items()}
    return {key: value.strip()[:2000] for key, value in found.items() if value and value.strip()}


def _blocks(parent: Element, styles: dict[str, int]) -> Iterator[tuple[int, str]]:
    """(heading level or 0, text) of every paragraph and table in order, also inside content controls and text boxes."""
    listed: list[str] = []
    for child in parent:
        if child.tag == f"{_W}p":
            level, is_list = _paragraph_kind(child, styles)
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


def _paragraph_kind(paragraph: Element, styles: dict[str, int]) -> tuple[int, bool]:
    style = paragraph.find(f"{_W}pPr/{_W}pStyle")
    outline = paragraph.find(f"{_W}pPr/{_W}outlineLvl")
    level = styles.get(style.get(f"{_W}val", ""), 0) if style is not None else 0
    if outline is not None and outline.get(f"{_W}val", "9") in "012345678":
        level = int(outline.get(f"{_W}val", "9")) + 1
    return level, paragraph.find(f"{_W}pPr/{_W}numPr") is not None


def _paragraph_text(paragraph: Element) -> str:
    pieces: list[str] = []

    def walk(element: Element) -> None:
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


def _text_boxes(element: Element) -> Iterator[Element]:
    for child in element:
        if child.tag == f"{_W}txbxContent":
            yield child
        elif child.tag != _FALLBACK:
            yield from _text_boxes(child)


def _row_text(row: Element, styles: dict[str, int]) -> str:
    cells = [" ".join(" ".join(text for _, text in _blocks(cell, styles)).split()) for cell in row.findall(f"{_W}tc")]
    return " | ".join(cells) if any(cells) else ""
