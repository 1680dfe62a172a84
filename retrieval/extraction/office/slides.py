"""PowerPoint files: what stands on each slide, its tables, and the speaker's notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pptx
from lxml import etree

from retrieval.extraction.document import Aside, AsideKind, ExtractedDocument
from retrieval.extraction.figures import Picture, split_pictures
from retrieval.extraction.limits import ExtractLimits, damage_named
from retrieval.extraction.markup import clean_text
from retrieval.extraction.office.archive import opened_office
from retrieval.extraction.office.drawings import (
    Box,
    chart_cells,
    chart_text,
    diagram_lines,
    drawn_text,
    formula,
    headed,
    reading_order,
)
from retrieval.extraction.parts import Block, Cells, Kind, Part, Run, from_parts, remark_text, valid_text
from retrieval.extraction.table_rows import SENTENCE_ENDS, Merged, text_rows

_WHAT = "PowerPoint file"
_DEEPEST_GROUP = 50
_EMU = 914_400  # to an inch
_LONGEST_HEADING = 60  # characters of a line that heads the box below it
_LONGEST_PHRASES = 200  # characters of a box that is one sentence with its heading
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}relIds"
_DATA = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}dm"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_PROPERTIES = f"{_P}cNvPr"
_WHITE, _LIGHT = "FFFFFF", ("bg1", "lt1")
_FILLS = ("solidFill", "gradFill", "blipFill", "pattFill", "grpFill")
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath"
_RUNNING: dict[str, AsideKind] = {"HEADER (14)": "header", "FOOTER (15)": "footer", "DATE (16)": "footer"}
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_TEXT_SHAPES = (f"{_P}sp", f"{_P}grpSp", f"{_P}cxnSp")
_SMALL_PLACEHOLDERS = {"SLIDE_NUMBER (13)", "SLIDE_IMAGE (101)"}


def extract_pptx(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """The slides in order, each a part, with notes behind "Notes:". Raises ExtractError."""
    with opened_office(path, _WHAT, ".ppt", "ppt/presentation.xml") as (archive, _, metadata, notes):
        archive.refuse_declarations()
    with damage_named(_WHAT):
        presentation = pptx.Presentation(str(path))
        parts = [_part(number, slide) for number, slide in enumerate(presentation.slides, 1)]
    title = metadata.get("title", "")
    return from_parts(parts, "" if title == "PowerPoint Presentation" else title, path, metadata, limits, notes)


def _part(number: int, slide: Any) -> Part:
    _choose_alternatives(slide._element)
    reader = _Reader(slide)
    blocks, pictures = split_pictures(reader.items())
    if slide._element.get("show", "1") in ("0", "false"):
        hidden = [Aside("hidden", text) for _, text in blocks if text.strip()]
        return Part(f"slide {number}", [], "hidden slide", asides=reader.asides + hidden)
    return Part(f"slide {number}", blocks, "", reader.tables, pictures, reader.asides)


def _choose_alternatives(slide: etree._Element) -> None:
    """Put shapes in the place of those that a slide states in several ways for programs of several ages: the newest if
    it has text, as a box with a formula does, else the oldest, a picture of what few programs know."""
    for stated in list(slide.iter(f"{_MC}AlternateContent")):
        if stated.getparent().tag not in (f"{_P}spTree", f"{_P}grpSp"):
            continue
        ways = [way for way in stated if len(way)]
        with_text = [way for way in ways if any(shape.tag in _TEXT_SHAPES for shape in way)]
        for shape in list((with_text or ways[-1:] or [()])[0]):
            stated.addprevious(shape)
        stated.getparent().remove(stated)


class _Reader:
    """Reads one slide. The cells of tables and charts are added to `tables`, what is not valid to `asides`."""

    def __init__(self, slide: Any):
        self._slide = slide
        self.tables: list[Cells] = []
        self.asides: list[Aside] = []

    def items(self) -> Iterator[Block | Picture]:
        """The title, then the shapes in the order of reading, comments and notes."""
        slide, title = self._slide, self._slide.shapes.title
        if title is not None and title.has_text_frame and title.text_frame.text.strip():
            yield 1, " ".join(self._paragraphs(title.text_frame, _ground_of(title, slide)))
        own = None if title is None else title.shape_id
        yield from self._shapes([shape for shape in slide.shapes if shape.shape_id != own])
        for relation in slide.part.rels.values():
            if relation.reltype.endswith("/comments") and not relation.is_external:
                for text in _comments(etree.fromstring(relation.target_part.blob)):
                    yield 0, remark_text("Comment", "", text)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            spoken = list(self._paragraphs(slide.notes_slide.notes_text_frame))
            if spoken:
                yield 0, "Notes: " + "\n".join(spoken)

    def _shapes(self, shapes: Sequence[Any], depth: int = 0) -> Iterator[Block | Picture]:
        if depth > _DEEPEST_GROUP:
            raise RecursionError
        boxes = [_box(shape) for shape in shapes]
        items_of = [list(self._shape(shape, depth)) for shape in shapes]
        text_of = [
            items[0][1] if len(items) == 1 and shape.has_text_frame and not isinstance(items[0], Picture) else ""
            for shape, items in zip(shapes, items_of, strict=True)
        ]
        short = ["\n" not in text and 0 < len(text) <= _LONGEST_HEADING for text in text_of]
        heading_of = headed(boxes, short, [bool(text) for text in text_of])
        for below, above in heading_of.items():
            said = _with_heading if len(heading_of) > 1 else "{}\n{}".format
            items_of[below] = [(0, said(text_of[above], text_of[below]))]
            one, other = boxes[above], boxes[below]
            boxes[below] = min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])
        units = [number for number in range(len(shapes)) if number not in heading_of.values()]
        for at in reading_order([boxes[number] for number in units]):
            yield from items_of[units[at]]

    def _shape(self, shape: Any, depth: int) -> Iterator[Block | Picture]:
        drawn = list(shape._element.iter(_DIAGRAM))
        if next(shape._element.iter(_PROPERTIES)).get("hidden", "0") in ("1", "true"):
            self.asides += [Aside("hidden", text) for text in drawn_text(shape._element)]
        elif shape._element.tag == f"{_P}grpSp":
            yield from self._shapes(list(shape.shapes), depth + 1)
        elif (image := _image(shape)) is not None:
            yield Picture(image.blob, shape._element._nvXxPr.cNvPr.get("descr", ""))
        elif shape.has_table:
            rows = list(self._cells(shape.table))
            self.tables.append(("", rows))
            yield 0, "\n".join(text_rows(rows))
        elif shape.has_chart:
            self.tables.append(chart_cells(shape.chart._chartSpace))
            yield 0, chart_text(self.tables[-1])
        elif drawn:
            data = shape.part.related_part(drawn[0].get(_DATA)).blob
            yield 0, "\n".join(diagram_lines(etree.fromstring(data)))
        elif shape.has_text_frame:
            ground = "" if depth else _ground_of(shape, self._slide)  # within groups nobody knows it
            lines = "\n".join(self._paragraphs(shape.text_frame, ground))
            placeholder = str(shape.placeholder_format.type) if shape.is_placeholder else ""
            if lines and placeholder in _RUNNING:
                self.asides.append(Aside(_RUNNING[placeholder], lines))
            elif lines and placeholder not in _SMALL_PLACEHOLDERS:
                yield 0, lines

    def _paragraphs(self, frame: Any, ground: str = "") -> Iterator[str]:
        """`ground`: the colour behind the text, "" if nobody knows it."""
        for paragraph in frame.paragraphs:
            text = " ".join(clean_text(valid_text(_runs(paragraph._p, ground), self.asides)).split())
            if text:
                yield f"• {text}" if paragraph.level else text

    def _cells(self, table: Any) -> Iterator[list[str]]:
        """Row by row; the text of a merged cell stands in every row and column that it spans."""
        merged: dict[tuple[int, int], str] = {}
        for y, row in enumerate(table.rows):
            cells: list[str] = []
            for x, cell in enumerate(row.cells):
                properties = cell._tc.tcPr
                ground = "" if properties is None else _colour(properties)
                text = " ".join(self._paragraphs(cell.text_frame, ground))
                if cell.is_merge_origin:
                    spanned = product(range(y, y + cell.span_height), range(x, x + cell.span_width))
                    merged |= dict.fromkeys(spanned, text)
                cells.append(Merged(merged.get((y, x), "")) if cell.is_spanned else text)
            yield cells


def _comments(root: etree._Element) -> Iterator[str]:
    for one in root.iter("{*}cm"):
        text = " ".join(drawn_text(one)) or " ".join((one.findtext("{*}text") or "").split())
        if text:
            yield text


def _with_heading(heading: str, text: str) -> str:
    """What stands in two boxes, a heading and what is below it: phrases as one sentence, which is understood alone."""
    phrases = text.split("\n")
    is_sentence = len(text) <= _LONGEST_PHRASES and not any(
        phrase.endswith(SENTENCE_ENDS) or phrase.startswith("•") or len(phrase) > _LONGEST_HEADING for phrase in phrases
    )
    return f"{heading.rstrip(':')}: {'; '.join(phrases)}." if is_sentence else f"{heading}\n{text}"


def _box(shape: Any) -> Box:
    left, top, width, height = ((side or 0) / _EMU for side in (shape.left, shape.top, shape.width, shape.height))
    return left, top, left + width, top + height


def _image(shape: Any) -> Any | None:
    """Of a shape that is a picture, also in a placeholder; None for others, and for pictures beyond the file."""
    try:
        return shape.image
    except (AttributeError, KeyError, ValueError):
        return None


def _runs(paragraph: etree._Element, ground: str) -> Iterator[Run]:
    for one in paragraph.iter(f"{_A}t", f"{_A}br", _MATH):
        properties = one.getparent().find(f"{_A}rPr")
        if one.tag == f"{_A}br":
            yield Run("", "\n")
        elif one.tag == _MATH:
            yield Run("", f" {formula(one)} ")
        elif properties is None:
            yield Run("", one.text or "")
        else:
            struck = properties.get("strike", "noStrike") != "noStrike"
            is_unseen = bool(ground) and _colour(properties) == ground
            height = properties.get("baseline", "0").rstrip("%")
            kind: Kind = "deleted" if struck else "hidden" if is_unseen else ""
            yield Run(kind, one.text or "", height.isdigit() and bool(height.strip("0")))


def _colour(properties: etree._Element) -> str:
    """The plain colour that properties of a shape, a cell or some text state; "" for none. The first background of a
    theme is white."""
    fill = properties.find(f"{_A}solidFill")
    if fill is None or not len(fill) or len(fill[0]):
        return ""
    stated = fill[0].get("lastClr") or fill[0].get("val", "")
    return _WHITE if stated in _LIGHT else stated.upper()


def _ground_of(shape: Any, slide: Any) -> str:
    """The colour behind text of a shape that states its own colour: that of the shape, or of the slide where nothing
    else may lie under it; "" if nobody knows it."""
    own = shape._element.find(f"{_P}spPr")
    if own is None or not any(map(_colour, shape._element.iter(f"{_A}rPr"))):
        return ""
    if _is_filled(shape):
        return _colour(own)
    try:
        layout = slide.slide_layout
        levels = (slide, layout, layout.slide_master)
    except KeyError:  # a slide without a layout
        return ""
    others = (one for level in levels for one in level.shapes if one._element is not shape._element)
    if any(_is_filled(one) and _share_place(one, shape) for one in others):
        return ""
    if levels[-1]._element.find(f"{_P}clrMap").get("bg1") != "lt1":  # a dark theme
        return ""
    found = (level._element.find(f"{_P}cSld/{_P}bg") for level in levels)
    background = next((one for one in found if one is not None), None)
    if background is None:
        return _WHITE
    stated, reference = background.find(f"{_P}bgPr"), background.find(f"{_P}bgRef[@idx='1001']/{_A}schemeClr")
    if stated is not None:
        return _colour(stated)
    return _WHITE if reference is not None and reference.get("val") in _LIGHT else ""


def _is_filled(shape: Any) -> bool:
    own = shape._element.find(f"{_P}spPr")
    if own is None or shape._element.tag == f"{_P}pic":
        return True
    if own.find(f"{_A}noFill") is not None:
        return False
    is_styled = any(one.get("idx", "0") != "0" for one in shape._element.iter(f"{_A}fillRef"))
    return is_styled or any(own.find(f"{_A}{fill}") is not None for fill in _FILLS)


def _share_place(one: Any, other: Any) -> bool:
    """Whether two shapes share a part of the slide; so they do if the place of one is not stated."""
    sides = [[side.left, side.top, side.width, side.height] for side in (one, other)]
    if any(None in side for side in sides):
        return True
    (x, y, wide, high), (left, top, width, height) = sides
    return bool(x < left + width and left < x + wide and y < top + height and top < y + high)
