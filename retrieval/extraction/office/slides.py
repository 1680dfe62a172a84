"""PowerPoint files: what stands on each slide, its tables, and the speaker's notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pptx
from pptx.enum.shapes import MSO_SHAPE_TYPE

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.figures import Picture, split_pictures
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text
from retrieval.extraction.office.archive import core_metadata, opened_archive, refuse_declarations
from retrieval.extraction.parts import Block, Cells, Part, from_parts
from retrieval.extraction.table_rows import text_rows

_WHAT = "PowerPoint file"
_OLDER = "This is an old .ppt file or a PowerPoint file with a password. Save it as .pptx without one and retry."
_MACROS = "ppt/vbaProject.bin"
_DEEPEST_GROUP = 50
_SMALL_PLACEHOLDERS = {"DATE (16)", "FOOTER (15)", "SLIDE_NUMBER (13)", "HEADER (14)", "SLIDE_IMAGE (101)"}


def extract_pptx(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """The slides in order, each a part, with notes behind "Notes:". Raises ExtractError."""
    notes: list[str] = []
    with opened_archive(path, _WHAT, _OLDER) as archive:
        names = archive.namelist()
        if "ppt/presentation.xml" not in names:
            raise ExtractError("The file is named .pptx but is not a PowerPoint file.")
        refuse_declarations(archive, _WHAT)
        metadata = core_metadata(archive, _WHAT)
        if _MACROS in names:
            notes.append("The file holds macros: they were neither run nor read.")
    try:
        presentation = pptx.Presentation(str(path))
        parts = [_part(number, slide) for number, slide in enumerate(presentation.slides, 1)]
    except (ExtractError, MemoryError, RecursionError):
        raise
    except Exception as error:  # a third-party parser on a possibly hostile file may raise anything
        raise ExtractError(f"The {_WHAT} is damaged ({type(error).__name__}: {str(error)[:150]}).") from error
    title = metadata.get("title", "")
    return from_parts(parts, "" if title == "PowerPoint Presentation" else title, path, metadata, limits, notes)


def _is_shown(slide: Any) -> bool:
    return slide._element.get("show", "1") not in ("0", "false")


def _part(number: int, slide: Any) -> Part:
    tables: list[Cells] = []
    blocks, pictures = split_pictures(_slide_items(slide, tables))
    return Part(f"slide {number}", blocks, "" if _is_shown(slide) else "hidden slide", tables, pictures)


def _slide_items(slide: Any, tables: list[Cells]) -> Iterator[Block | Picture]:
    """The cells of tables and charts are added to `tables`."""
    title = slide.shapes.title
    if title is not None and title.has_text_frame and title.text_frame.text.strip():
        yield 1, " ".join(clean_text(title.text_frame.text).split())
    own = None if title is None else title.shape_id
    yield from _shape_items((shape for shape in slide.shapes if shape.shape_id != own), tables, 0)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        spoken = list(_paragraphs(slide.notes_slide.notes_text_frame))
        if spoken:
            yield 0, "Notes: " + "\n".join(spoken)


def _shape_items(shapes: Iterable[Any], tables: list[Cells], depth: int) -> Iterator[Block | Picture]:
    """In the order of the file, which is that of reading unless shapes were moved."""
    if depth > _DEEPEST_GROUP:
        raise RecursionError
    for shape in shapes:
        if shape.shape_type == MSO_SHAPE_TYPE.GROUP:
            yield from _shape_items(shape.shapes, tables, depth + 1)
        elif (image := _image(shape)) is not None:
            yield Picture(image.blob, shape._element._nvXxPr.cNvPr.get("descr", ""))
        elif getattr(shape, "has_table", False) and shape.has_table:
            rows = [[_cell(cell) for cell in row.cells] for row in shape.table.rows]
            tables.append(("", rows))
            yield 0, "\n".join(text_rows(rows))
        elif getattr(shape, "has_chart", False) and shape.has_chart:
            yield from _chart_blocks(shape.chart, tables)
        elif shape.has_text_frame and not _is_small(shape):
            lines = list(_paragraphs(shape.text_frame))
            if lines:
                yield 0, "\n".join(lines)


def _image(shape: Any) -> Any | None:
    """Of a shape that is a picture, also in a placeholder; None for others, and for pictures beyond the file."""
    try:
        return shape.image
    except (AttributeError, KeyError, ValueError):
        return None


def _is_small(shape: Any) -> bool:
    return shape.is_placeholder and str(shape.placeholder_format.type) in _SMALL_PLACEHOLDERS


def _paragraphs(frame: Any) -> Iterator[str]:
    for paragraph in frame.paragraphs:
        text = " ".join(clean_text(paragraph.text.replace("\v", "\n")).split())
        if text:
            yield f"• {text}" if paragraph.level else text


def _cell(cell: Any) -> str:
    return "" if cell.is_spanned else " ".join(clean_text(cell.text_frame.text).split())


def _chart_blocks(chart: Any, tables: list[Cells]) -> Iterator[Block]:
    """The title of a chart, and its values as a table."""
    title = ""
    if chart.has_title and chart.chart_title.has_text_frame:
        title = " ".join(clean_text(chart.chart_title.text_frame.text).split())
        yield 0, title
    for plot in chart.plots:
        series = list(plot.series)
        head = ["", *(clean_text(one.name or "") for one in series)]
        rows: Sequence[list[str]] = [
            [clean_text(str(category)), *("" if n >= len(one.values) else _value(one.values[n]) for one in series)]
            for n, category in enumerate(plot.categories)
        ]
        tables.append((title, [head, *rows]))
        yield 0, "\n".join(text_rows([head, *rows]))


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:.12g}"
