"""Word documents (.docx): a zip archive of XML, read without resolving anything and with limits on what it unpacks to.

No pages and no boxes: where a page ends is decided by the printing program, it is not in the file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lxml import etree

from retrieval.extraction.document import Aside, ExtractedDocument
from retrieval.extraction.exhibits import is_table_caption
from retrieval.extraction.figures import Picture, split_pictures
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.mail.attachments import Attachment, attached_parts
from retrieval.extraction.markup import clean_text, read_html
from retrieval.extraction.office.archive import Archive, opened_office
from retrieval.extraction.office.drawings import chart_cells, chart_text, diagram_lines, formula
from retrieval.extraction.office.numbering import BULLET, Numbering, word_numbering
from retrieval.extraction.parts import Block, Cells, Kind, Part, Run, from_parts, remark_text, stated_number, valid_text
from retrieval.extraction.table_rows import Merged, text_rows
from retrieval.extraction.tick_boxes import EMPTY, TICKED, ticked_first

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_BLIP = "{http://schemas.openxmlformats.org/drawingml/2006/main}blip"
_PICTURES = (_BLIP, "{urn:schemas-microsoft-com:vml}imagedata")
_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}chart"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}relIds"
_NAMED_BY = {_BLIP: f"{_R}embed", _DIAGRAM: f"{_R}dm"}  # attributes with the id of what is shown; else r:id
_OBJECT = "{urn:schemas-microsoft-com:office:office}OLEObject"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath"
_PROPERTIES = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr"
_WHAT = "Word document"
_KINDS = ("styles", "numbering", "settings", "footnotes", "endnotes", "comments")
_MOST_SPANNED = 100  # columns
_SILENT = {f"{_W}{name}" for name in ("pPr", "rPr", "txbxContent", "instrText", "delInstrText", "sdtPr", "fldData")}
_DELETED = {f"{_W}del", f"{_W}moveFrom", f"{_W}delText"}
_BOX_SIGNS = dict.fromkeys(("F0FE", "F0FD", "F052", "F053"), TICKED) | dict.fromkeys(("F0A8", "F06F", "F0A3"), EMPTY)
_PAGE_FIELDS = (["PAGE"], ["NUMPAGES"], ["SECTIONPAGES"])


@dataclass(frozen=True)
class _Style:
    """Heading level (1 is the highest, as for a title; 0: running text); list and depth of its automatic number; why
    its text is set aside."""

    level: int = 0
    numbered: tuple[str, int] | None = None
    kind: Kind = ""


@dataclass
class _Shared:
    """What the parts of one document have in common."""

    archive: Archive
    names: Mapping[str, str]
    styles: dict[str, _Style]
    numbering: Numbering
    notes: dict[str, etree._Element] = field(default_factory=dict)
    comments: dict[str, etree._Element] = field(default_factory=dict)
    tables: list[Cells] = field(default_factory=list)
    asides: list[Aside] = field(default_factory=list)
    embedded: list[Attachment] = field(default_factory=list)
    commented: dict[str, list[str]] = field(default_factory=dict)
    """By the id of a comment: the text of its range so far."""
    open_ranges: set[str] = field(default_factory=set)


def extract_docx(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Text, tables, notes, comments, headers, footers and embedded files of a Word document. Raises ExtractError."""
    with opened_office(path, _WHAT, ".doc", "word/document.xml") as (archive, main, metadata, notes):
        names = {kind: archive.related(main, kind, f"word/{kind}.xml") for kind in _KINDS}
        found = {kind: archive.parse_any(name) for kind, name in names.items()}
        shared = _Shared(archive, names, _styles(found["styles"]), word_numbering(found["numbering"]))
        for kind in ("footnote", "endnote"):
            shared.notes |= {f"{kind} {one.get(f'{_W}id')}": one for one in _all(found[f"{kind}s"], kind)}
        shared.comments = {one.get(f"{_W}id", ""): one for one in _all(found["comments"], "comment")}
        blocks, pictures = split_pictures(_sections(_Reader(shared, main), found["settings"]))
        inner = list(attached_parts(shared.embedded, path, limits, notes, "embedded file"))
    label = "the document" if inner else ""
    parts = [Part(label, blocks, tables=shared.tables, pictures=pictures, asides=shared.asides), *inner]
    return from_parts(parts, metadata.get("title", ""), path, metadata, limits, notes)


def _all(root: etree._Element | None, name: str) -> Iterator[etree._Element]:
    return iter(()) if root is None else root.iter(_W + name)


def _styles(root: etree._Element | None) -> dict[str, _Style]:
    stated = {one.get(f"{_W}styleId", ""): one for one in _all(root, "style")}
    styles: dict[str, _Style] = {}
    for identity in stated:
        chain = [identity]  # the style and those that it is based on
        while (base := _value(stated[chain[-1]], "basedOn")) in stated and base not in chain:
            chain.append(base)
        level, numbered = 0, None
        kind: Kind = ""
        for style in reversed([stated[one] for one in chain]):
            name = _value(style, "name").lower()
            named = stated_number(name[8:], 0) if name.startswith("heading ") else int(name == "title")
            level = named or _outline_level(style) or level
            numbered = _numbered(style, numbered)
            kind = _kind_of(style.find(f"{_W}rPr"), kind)
        styles[identity] = _Style(level, numbered, kind)
    return styles


def _value(element: etree._Element, path: str) -> str:
    found = element.find("/".join(_W + step for step in path.split("/")))
    return "" if found is None else found.get(f"{_W}val", "")


def _outline_level(element: etree._Element) -> int:
    """Heading level that a paragraph or a style states itself; 0 for running text."""
    stated = _value(element, "pPr/outlineLvl")
    return int(stated) + 1 if stated in tuple("012345678") else 0


def _numbered(element: etree._Element, otherwise: tuple[str, int] | None) -> tuple[str, int] | None:
    """List and depth that a paragraph or a style states, else what its style does."""
    stated = element.find(f"{_W}pPr/{_W}numPr")
    if stated is None:
        return otherwise
    identity, depth = _value(stated, "numId"), _value(stated, "ilvl")
    if identity == "0":
        return None
    usual = otherwise or ("", 0)
    return identity or usual[0], int(depth) if depth in tuple("012345678") else usual[1]


def _kind_of(properties: etree._Element | None, otherwise: Kind) -> Kind:
    """Why text with these properties is set aside."""
    if properties is None:
        return otherwise
    kind = otherwise
    for names, own in ((("vanish",), "hidden"), (("strike", "dstrike"), "deleted")):
        stated = [one for name in names if (one := properties.find(_W + name)) is not None]
        if any(one.get(f"{_W}val", "1") not in ("0", "false", "off") for one in stated):
            return own  # type: ignore[return-value]
        if stated and kind == own:
            kind = ""
    size = _value(properties, "sz")
    return "hidden" if size in ("1", "2", "3") else kind  # a point and a half: nobody reads it


def _is_white(run: etree._Element) -> bool:
    """Whether a run has white letters on a white page. In tables and boxes nobody knows what the ground is."""
    properties = run.find(f"{_W}rPr")
    if properties is None or _value(properties, "color").upper() != "FFFFFF":
        return False
    grounds = ("shd", "highlight", "pPr/shd", "background")
    around = [properties, *run.iterancestors()]
    return not any(
        one.tag in (f"{_W}tbl", f"{_W}txbxContent")
        or any(one.find("/".join(_W + step for step in path.split("/"))) is not None for path in grounds)
        for one in around
    )


def _sections(reader: _Reader, settings: etree._Element | None) -> Iterator[Block | Picture]:
    """The body section by section, each between its own headers and footers where these are not those of before."""
    root = reader.shared.archive.parse(reader.name)
    body = root.find(f"{_W}body")
    even = settings is not None and settings.find(f"{_W}evenAndOddHeaders") is not None
    said: set[str] = set()
    section: list[etree._Element] = []
    for child in root if body is None else body:
        ends = child if child.tag == f"{_W}sectPr" else child.find(f"{_W}pPr/{_W}sectPr")
        if child.tag != f"{_W}sectPr":
            section.append(child)
        if ends is not None:
            yield from _running(reader, ends, "header", said, even)
            yield from reader.items(section)
            yield from _running(reader, ends, "footer", said, even)
            section = []
    yield from reader.items(section)


def _running(
    reader: _Reader, section: etree._Element, which: str, said: set[str], even: bool
) -> Iterator[Block | Picture]:
    """The headers or footers of a section; those that stood before, and those that no page shows, are left out."""
    first = section.find(f"{_W}titlePg") is not None
    for reference in section.findall(f"{_W}{which}Reference"):
        name = reader.parts.get(reference.get(f"{_R}id", ""), "")
        root = reader.shared.archive.parse_any(name)
        if root is None:
            continue
        shown = {"first": first, "even": even}.get(reference.get(f"{_W}type", ""), True)
        inner = _Reader(reader.shared, name)
        items = list(inner.items(root))
        text = "\n".join(item[1] for item in items if not isinstance(item, Picture)).strip()
        if not shown and text:
            reader.shared.asides.append(Aside("hidden", text))
        elif text and text not in said:
            said.add(text)
            yield from ((0, item[1]) if not isinstance(item, Picture) else item for item in items)


class _Reader:
    """Reads one part of a document: its body, a header, a note."""

    def __init__(self, shared: _Shared, name: str):
        self.shared, self.name = shared, name
        self.parts = shared.archive.relations(name)

    def items(self, elements: Iterable[etree._Element], *, in_cell: bool = False) -> Iterator[Block | Picture]:
        """Every paragraph, table and picture in order, also inside content controls and text boxes. A picture stands
        behind its paragraph or table, and so does what is noted there. `in_cell`: a table in a cell is a line."""
        listed: list[str] = []
        before = ""
        for child in elements:
            is_paragraph = child.tag == f"{_W}p"
            beside: list[Block | Picture] = []
            level, text, is_item = self._paragraph(child, beside) if is_paragraph else (0, "", False)
            if is_item:
                listed.append(text)
            if listed and (beside or not is_paragraph or (text and not is_item)):
                yield 0, "\n".join(listed)
                listed = []
            if text and not is_item:
                yield level, text
                before = text
            yield from beside
            if is_paragraph:
                continue
            if child.tag == f"{_W}tbl":
                yield from self._table(child, before, in_cell)
                before = ""
            elif child.tag == f"{_W}altChunk":
                yield from self._chunk(child)
            elif child.tag not in (_FALLBACK, f"{_W}sdtPr", f"{_W}tblPr"):
                yield from self.items(child, in_cell=in_cell)
        if listed:
            yield 0, "\n".join(listed)

    def _paragraph(self, paragraph: etree._Element, beside: list[Block | Picture]) -> tuple[int, str, bool]:
        """Heading level, text with its automatic number, and whether that is an item of a list. What belongs beside it
        (notes, comments, boxes, charts, pictures) is added to `beside`."""
        style = self.shared.styles.get(_value(paragraph, "pPr/pStyle"), _Style())
        level = _outline_level(paragraph) or style.level
        numbered = _numbered(paragraph, style.numbered)
        runs = _Runs(self, style.kind)
        runs.walk(paragraph, "")
        text = valid_text(runs.found, self.shared.asides)
        lines = clean_text(text).split("\n")
        text = ticked_first("\n".join(" ".join(line.split()) for line in lines if line.strip()))
        label = ""
        if numbered is not None and text:
            label = self.shared.numbering.label(*numbered)
            text = f"{label} {text}" if label and not (level and label == BULLET) else text
        beside += [remark for one in runs.remarks if (remark := self.remark(*one)) is not None]
        beside += self.drawn(paragraph)
        return level, text, bool(text) and numbered is not None and not level

    def _table(self, table: etree._Element, before: str, in_cell: bool) -> Iterator[Block | Picture]:
        beside: list[Block | Picture] = []
        rows, heads = self._cells(table, beside)
        if in_cell:
            lines = ([cell for cell in row if cell and not isinstance(cell, Merged)] for row in rows)
            yield 0, "\n".join(" | ".join(line) for line in lines if line)
        else:
            yield 0, "\n".join(text_rows(rows, named=heads))
            self.shared.tables.append((before if is_table_caption(before) else "", rows))
        yield from beside

    def _cells(self, table: etree._Element, beside: list[Block | Picture]) -> tuple[list[list[str]], int]:
        """Row by row, and how many of the first rows are marked as headings. The text of a merged cell stands in every
        row and column that it spans."""
        rows: list[list[str]] = []
        heads = 0
        for row in _inside(table, f"{_W}tr"):
            properties = row.find(f"{_W}trPr")
            gone = properties is not None and properties.find(f"{_W}del") is not None
            cells = [""] * _count(properties, "gridBefore", 0)
            for cell in _inside(row, f"{_W}tc"):
                wide = _count(cell.find(f"{_W}tcPr"), "gridSpan", 1)
                merge = cell.find(f"{_W}tcPr/{_W}vMerge")
                items = list(self.items(cell, in_cell=True))
                beside += [item for item in items if isinstance(item, Picture) or isinstance(item[1], _Remark)]
                texts = [
                    item[1] for item in items if not isinstance(item, Picture) and not isinstance(item[1], _Remark)
                ]
                text = " ".join(" ".join(texts).split())
                if gone and text:
                    self.shared.asides.append(Aside("deleted", text))
                    text = ""
                at = len(cells)
                if merge is not None and merge.get(f"{_W}val", "continue") != "restart" and rows and not text:
                    text = Merged(rows[-1][at]) if at < len(rows[-1]) else ""
                cells += [text, *[Merged(text)] * (wide - 1)]
            if heads == len(rows) and properties is not None and properties.find(f"{_W}tblHeader") is not None:
                heads += 1
            rows.append(cells)
        return rows, heads

    def _chunk(self, element: etree._Element) -> Iterator[Block | Picture]:
        """A text in another format that the program which made the file left for Word to convert."""
        name = self.parts.get(element.get(f"{_R}id", ""), "")
        if name not in self.shared.archive:
            return
        data = self.shared.archive.read(name)
        if name.lower().endswith((".htm", ".html", ".xhtml")):
            page = read_html(data)
            self.shared.asides += page.asides
            self.shared.tables += page.tables
            yield from page.blocks
        else:
            self.shared.embedded.append(Attachment(posixpath.basename(name), data))

    def drawn(self, element: etree._Element) -> Iterator[Block | Picture]:
        """What a paragraph shows beside its words: text boxes, pictures, charts, diagrams, embedded files."""
        archive = self.shared.archive
        for child in element:
            if child.tag in (_FALLBACK, f"{_W}pPr"):
                continue
            target = self.parts.get(child.get(_NAMED_BY.get(child.tag, f"{_R}id"), ""), "")
            if child.tag == f"{_W}txbxContent":
                yield from self.items(child)
                continue
            if child.tag in _PICTURES and target in archive:
                drawing = next(child.iterancestors(f"{_W}drawing"), None)
                named = next(drawing.iter(_PROPERTIES), None) if drawing is not None else None
                yield Picture(archive.read(target), "" if named is None else named.get("descr", ""))
            elif child.tag == _CHART and (root := archive.parse_any(target)) is not None:
                self.shared.tables.append(chart_cells(root))
                yield 0, chart_text(self.shared.tables[-1])
            elif child.tag == _DIAGRAM and (root := archive.parse_any(target)) is not None:
                yield 0, "\n".join(diagram_lines(root))
            elif child.tag == _OBJECT and target in archive:
                self.shared.embedded.append(Attachment(posixpath.basename(target), archive.read(target)))
            yield from self.drawn(child)

    def remark(self, kind: str, identity: str, about: str) -> Block | None:
        """A note or a comment as a block of its own that says what it is about."""
        if kind == "comment":
            element, said = self.shared.comments.pop(identity, None), "Comment"
            if element is not None and element.get(f"{_W}author"):
                said += f" by {element.get(f'{_W}author')}"
        else:
            element, said = self.shared.notes.get(f"{kind} {identity}"), "Note"
        if element is None:
            return None
        inner = _Reader(self.shared, self.shared.names[f"{kind}s"])
        texts = [item[1] for item in inner.items(element) if not isinstance(item, Picture)]
        text = " ".join(" ".join(texts).split())
        return (0, _Remark(remark_text(said, about, text))) if text else None


class _Remark(str):
    """A note or a comment: to a cell, it stands behind the table."""

    __slots__ = ()


_AROUND = {f"{_W}{name}" for name in ("sdt", "sdtContent", "ins", "customXml", "moveTo")}


def _inside(element: etree._Element, tag: str) -> Iterator[etree._Element]:
    """The rows of a table or the cells of a row, also those in content controls and marks of changes."""
    for child in element:
        if child.tag == tag:
            yield child
        elif child.tag in _AROUND:
            yield from _inside(child, tag)


def _count(properties: etree._Element | None, name: str, otherwise: int) -> int:
    return stated_number("" if properties is None else _value(properties, name), otherwise, _MOST_SPANNED)


class _Runs:
    """The text of one paragraph, run by run, with why it is set aside."""

    def __init__(self, reader: _Reader, kind: Kind):
        self.found: list[Run] = []
        self._reader, self._kind, self._is_raised = reader, kind, False
        self._fields: list[list[str]] = []  # of every field that is open: its instruction, and "shown" behind that
        self.remarks: list[tuple[str, str, str]] = []
        """Kind and id of notes and comments, and what they are about."""

    def walk(self, element: etree._Element, kind: Kind) -> None:
        for child in element:
            tag = child.tag
            if tag in _SILENT or tag == _FALLBACK:
                if tag == f"{_W}instrText" and self._fields:
                    self._fields[-1][0] += child.text or ""
                continue
            if tag == f"{_W}r":
                properties = child.find(f"{_W}rPr")
                style = "" if properties is None else _value(properties, "rStyle")
                named = self._reader.shared.styles.get(style, _Style()).kind or self._kind
                own = kind or _kind_of(properties, named) or ("hidden" if _is_white(child) else "")
                self._is_raised = properties is not None and _value(properties, "vertAlign") == "superscript"
                self.walk(child, own)
                self._is_raised = False
            elif tag in _DELETED:
                self.walk(child, "deleted") if tag != f"{_W}delText" else self._add("deleted", child.text or "")
            elif tag == f"{_W}sdt" and child.find(f"{_W}sdtPr/{_W}showingPlcHdr") is not None:
                self.walk(child, "hidden")  # "Click here to enter text"
            elif tag == _MATH:
                self._add(kind, f" {formula(child)} ")
            else:
                self._leaf(child, kind)
                self.walk(child, kind)

    def _leaf(self, child: etree._Element, kind: Kind) -> None:
        tag = child.tag.removeprefix(_W) if isinstance(child.tag, str) else ""
        shared, identity = self._reader.shared, child.get(f"{_W}id", "")
        if tag == "t":
            self._add(kind, child.text or "")
        elif tag in ("tab", "ptab"):
            self._add(kind, "\t")
        elif tag in ("br", "cr"):
            self._add(kind, "\n")
        elif tag == "noBreakHyphen":
            self._add(kind, "-")
        elif tag == "sym":
            self._add(kind, _BOX_SIGNS.get(child.get(f"{_W}char", "").upper(), ""))
        elif tag == "fldChar":
            self._field(child, kind)
        elif tag in ("footnoteReference", "endnoteReference"):
            self.remarks.append((tag.removesuffix("Reference"), identity, self._valid()))
        elif tag == "commentRangeStart":
            shared.commented[identity] = []
            shared.open_ranges.add(identity)
        elif tag == "commentReference":
            words = shared.commented.pop(identity, None)
            shared.open_ranges.discard(identity)
            self.remarks.append(("comment", identity, self._valid() if words is None else "".join(words)))
        elif tag == "commentRangeEnd":
            shared.open_ranges.discard(identity)

    def _field(self, child: etree._Element, kind: Kind) -> None:
        """A field begins, shows its result or ends; of older forms, what was chosen or ticked is in its data."""
        phase = child.get(f"{_W}fldCharType", "")
        if phase == "begin":
            self._fields.append(["", ""])
            choices = child.find(f"{_W}ffData/{_W}ddList")
            box = child.find(f"{_W}ffData/{_W}checkBox")
            if choices is not None:
                entries = [one.get(f"{_W}val", "") for one in choices.findall(f"{_W}listEntry")]
                chosen = stated_number(_value(choices, "result") or _value(choices, "default"), 0)
                self._add(kind, entries[chosen] if chosen < len(entries) else "")
            elif box is not None:
                last = box.find(f"{_W}checked")
                stated_box = box.find(f"{_W}default") if last is None else last
                ticked = stated_box is not None and stated_box.get(f"{_W}val", "1") not in ("0", "false")
                self._add(kind, TICKED if ticked else EMPTY)
        elif phase == "separate" and self._fields:
            self._fields[-1][1] = "shown"
        elif phase == "end" and self._fields:
            self._fields.pop()

    def _add(self, kind: Kind, text: str) -> None:
        if any(shown and field.upper().split()[:1] in _PAGE_FIELDS for field, shown in self._fields):
            return
        self.found.append(Run(kind, text, self._is_raised))
        for identity in () if kind else self._reader.shared.open_ranges:
            self._reader.shared.commented[identity].append(text)

    def _valid(self) -> str:
        return valid_text(self.found, [])
