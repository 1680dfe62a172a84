"""Excel workbooks: what the cells show, by sheet. Formulas are never computed and macros never run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from lxml import etree
from openpyxl.styles.numbers import BUILTIN_FORMATS
from openpyxl.utils import column_index_from_string
from openpyxl.utils.escape import unescape

from retrieval.errors import ExtractError
from retrieval.extraction.document import Aside, ExtractedDocument
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text
from retrieval.extraction.office.archive import Archive, opened_office
from retrieval.extraction.office.drawings import chart_cells, chart_text, drawn_text
from retrieval.extraction.office.number_formats import shown_number
from retrieval.extraction.office.sheets import Row, Sheet, from_sheets
from retrieval.extraction.parts import Run, too_long, valid_text
from retrieval.extraction.table_rows import Merged, is_number

_WHAT = "Excel workbook"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_CELL = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7})")
_REFERENCE = re.compile(r"(?:'((?:[^']|'')+)'!|([\w.]+)!)?\$?([A-Z]{1,3})\$?(\d{1,7})")
_MOST_DIGITS = 22  # of a whole number, kept as it stands: it is a code
_MOST_MERGED = 100_000  # cells
_DEEPEST_REFERENCE = 20
_THREADED = re.compile(r"\[Threaded comment\].*?(?:Comment|Kommentar)[^:]*:\s*", re.S)


@dataclass(frozen=True)
class _Format:
    code: str = ""
    bold: bool = False
    struck: bool = False
    unseen: bool = False  # in the colour of its ground
    across: bool = False  # its text is printed across this cell and the empty ones beside it that say the same


@dataclass
class _Sheet:
    """A sheet as it is read. `hidden`: rows; `across`: areas that the words of their first cell span; `formulas`: those
    without a stored result, by row and column; `unseen`: cells whose text has the colour of its ground."""

    name: str
    shown: bool
    rows: dict[int, dict[int, str]] = field(default_factory=dict)
    bold: dict[int, bool] = field(default_factory=dict)
    hidden: list[int] = field(default_factory=list)
    across: list[tuple[int, int, int, int]] = field(default_factory=list)
    formulas: dict[tuple[int, int], str] = field(default_factory=dict)
    unseen: list[tuple[int, int]] = field(default_factory=list)
    comments: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    beside: list[str] = field(default_factory=list)


def extract_xlsx(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """The rows of every sheet of a workbook with comments, text boxes and charts; what is hidden is set aside. Raises
    ExtractError."""
    with opened_office(path, _WHAT, ".xls", "xl/workbook.xml") as (archive, main, metadata, notes):
        archive.refuse_declarations()
        try:
            book = _Workbook(archive, main, limits, notes)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise ExtractError(f"The {_WHAT} is damaged ({type(error).__name__}: {str(error)[:150]}).") from error
    return from_sheets(book.sheets(), metadata.get("title", ""), path, metadata, limits, notes, book.asides)


class _Workbook:
    """All sheets of a workbook, whose cells may name each other."""

    def __init__(self, archive: Archive, main: str, limits: ExtractLimits, notes: list[str]):
        self._archive, self._limits, self._notes = archive, limits, notes
        self.asides: list[Aside] = []
        self._characters = 0
        root = archive.parse(main)
        properties = root.find("{*}workbookPr")
        self._from_1904 = properties is not None and properties.get("date1904") in ("1", "true")
        self._formats = self._read_formats(archive.parse_any(archive.related(main, "styles", "xl/styles.xml")))
        strings = archive.related(main, "sharedStrings", "xl/sharedStrings.xml")
        self._strings = [_runs(one) for one in archive.iterate(strings, ("si",))] if strings in archive else []
        parts = archive.relations(main)
        self._sheets: list[_Sheet] = []
        for one in root.iter("{*}sheet"):
            name = parts.get(one.get(f"{_R}id", ""), "")
            if name.startswith("xl/worksheets/") and name in archive:
                sheet = _Sheet(one.get("name", ""), one.get("state", "visible") == "visible")
                self._read(sheet, name)
                self._sheets.append(sheet)
        self._resolve()

    def _read_formats(self, root: etree._Element | None) -> list[_Format]:
        """By the style number of a cell."""
        if root is None:
            return []
        codes = {str(number): code for number, code in BUILTIN_FORMATS.items()}
        codes |= {one.get("numFmtId", ""): one.get("formatCode", "") for one in root.iter("{*}numFmt")}
        fonts = list(root.iterfind("{*}fonts/{*}font"))
        fills = list(root.iterfind("{*}fills/{*}fill"))
        found = []
        for one in root.iterfind("{*}cellXfs/{*}xf"):
            font, fill = _numbered(fonts, one.get("fontId", "0")), _numbered(fills, one.get("fillId", "0"))
            alignment = one.find("{*}alignment")
            format_ = _Format(
                codes.get(one.get("numFmtId", "0"), ""),
                across=alignment is not None and alignment.get("horizontal") == "centerContinuous",
            )
            if font is not None:
                format_ = replace(
                    format_, bold=_is_on(font, "b"), struck=_is_on(font, "strike"), unseen=_is_ground(font, fill)
                )
            found.append(format_)
        return found

    def _read(self, sheet: _Sheet, part: str) -> None:
        hidden_columns: set[int] = set()
        unseen: list[int] = []
        filtered, number, last = False, -1, -1
        merged: list[str] = []
        coloured = self._tables(part)
        tags = ("col", "row", "mergeCell", "filterColumn", "conditionalFormatting")
        for one in self._archive.iterate(part, tags):
            tag = etree.QName(one).localname
            if tag == "col" and one.get("hidden") in ("1", "true") and not int(one.get("outlineLevel", "0")):
                first, last = int(one.get("min", "1")), int(one.get("max", "1"))
                hidden_columns |= set(range(first - 1, min(last, first + 16_384)))
            elif tag == "mergeCell":
                merged.append(one.get("ref", ""))
            elif tag == "filterColumn":
                filtered = True
            elif tag == "conditionalFormatting":
                coloured += one.get("sqref", "").split()
            elif tag == "row":
                stated = one.get("r", "")
                number = int(stated) - 1 if stated.isdigit() else number + 1
                if number in sheet.rows:  # a damaged file repeats a number
                    number = last + 1
                last = max(last, number)
                self._read_row(sheet, number, one)
                if one.get("hidden") in ("1", "true") and not int(one.get("outlineLevel", "0")):
                    unseen.append(number)
        if not filtered:
            sheet.hidden = unseen
            for row in unseen:
                self._hide([text for _, text in sorted(sheet.rows.pop(row, {}).items())])
        for cells in sheet.rows.values():
            self._hide([cells.pop(column) for column in sorted(hidden_columns & set(cells))])
        grounds = [area for one in coloured if (area := _area(one))]
        for y, places in groupby(sheet.unseen, key=lambda place: place[0]):
            columns = [x for _, x in places if not any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in grounds)]
            self._hide([text for x in columns if (text := sheet.rows.get(y, {}).pop(x, ""))])
        self._merge(sheet, merged)
        self._read_beside(sheet, part, hidden_columns)

    def _tables(self, part: str) -> list[str]:
        """The areas of a sheet that a table style colours."""
        names = [name for name in self._archive.relations(part).values() if name.startswith("xl/tables/")]
        return [self._archive.parse(name).get("ref", "") for name in names if name in self._archive]

    def _hide(self, texts: list[str]) -> None:
        if texts:
            self.asides.append(Aside("hidden", "\t".join(texts)))

    def _read_row(self, sheet: _Sheet, number: int, row: etree._Element) -> None:
        cells: dict[int, str] = {}
        bold: list[bool] = []
        column = -1
        for cell in row.iterfind("{*}c"):
            found = _CELL.fullmatch(cell.get("r", ""))
            column = _column(found[1]) if found else column + 1
            format_ = _numbered(self._formats, cell.get("s", "0")) or _Format()
            text = self._text(cell, format_)
            if not text and (formula := cell.find("{*}f")) is not None and (formula.text or "").strip():
                text = "=" + clean_text(formula.text or "").strip()
                sheet.formulas[number, column] = text
            if format_.across and text:
                if not is_number(text):
                    sheet.across.append((column, number, column, number))
            elif format_.across and sheet.across and sheet.across[-1][1:3] == (number, column - 1):
                sheet.across[-1] = (sheet.across[-1][0], number, column, number)
            if text:
                cells[column] = text
                bold.append(format_.bold)
                if format_.unseen:
                    sheet.unseen.append((number, column))
                self._characters += len(text)
                if self._characters > self._limits.characters:
                    raise too_long(self._limits)
        if cells:
            sheet.rows[number], sheet.bold[number] = cells, all(bold)

    def _text(self, cell: etree._Element, format_: _Format) -> str:
        """What a cell shows; what is struck out is set aside."""
        kind, value = cell.get("t", "n"), cell.findtext("{*}v")
        runs: list[Run] = []
        if kind == "s" and value:
            runs = self._strings[int(value)]
        elif kind == "inlineStr":
            runs = [run for one in cell.iterfind("{*}is") for run in _runs(one)]
        elif value is None or value == "":
            return ""
        elif kind == "b":
            runs = [Run("", "TRUE" if value in ("1", "true") else "FALSE")]
        elif kind == "d":
            runs = [Run("", value.removesuffix("T00:00:00").replace("T", " "))]
        elif kind == "n":
            shown = self._number(value, format_.code)
            runs = [Run("", shown) if shown else Run("hidden", value)]
        else:
            runs = [Run("", unescape(value))]
        if format_.struck:
            runs = [Run("deleted", run.text) for run in runs]
        return clean_text(valid_text(runs, self.asides)).strip()

    def _number(self, value: str, code: str) -> str:
        try:
            number: float = int(value) if value.lstrip("-").isdigit() and len(value) <= _MOST_DIGITS else float(value)
        except ValueError:
            return value
        return shown_number(number, code, from_1904=self._from_1904)

    def _merge(self, sheet: _Sheet, merged: list[str]) -> None:
        """The text of a merged cell stands in every row and column that it spans."""
        left = _MOST_MERGED
        areas = [area for one in merged if (area := _area(one))]
        for x0, y0, x1, y1 in [*areas, *(area for area in sheet.across if area[0] < area[2])]:
            text = sheet.rows.get(y0, {}).get(x0, "")
            left -= (x1 - x0 + 1) * (y1 - y0 + 1)
            if not text or left < 0:
                continue
            for y in range(y0, y1 + 1):
                if y == y0 or y in sheet.rows:
                    row = sheet.rows[y] | {x: Merged(text) for x in range(x0, x1 + 1) if (x, y) != (x0, y0)}
                    sheet.rows[y] = dict(sorted(row.items()))

    def _read_beside(self, sheet: _Sheet, part: str, hidden_columns: set[int]) -> None:
        """Comments on cells, and the text boxes, charts and diagrams that lie on a sheet."""
        hidden_rows = set(sheet.hidden)
        parts = sorted(name for name in set(self._archive.relations(part).values()) if name in self._archive)
        threads = any("threadedComment" in name for name in parts)
        for name in parts:
            if "threadedComment" in name or ("comments" in name.lower() and name.endswith(".xml") and not threads):
                for one in self._archive.parse(name).iter("{*}comment", "{*}threadedComment"):
                    found = _CELL.fullmatch(one.get("ref", ""))
                    words = "".join(run.text for run in _runs(one)) or one.findtext("{*}text") or ""
                    words = " ".join(clean_text(_THREADED.sub("", words)).split())
                    row, column = (int(found[2]) - 1, _column(found[1])) if found else (0, 0)
                    if words and (row in hidden_rows or column in hidden_columns):
                        self._hide([words])
                    elif words:
                        sheet.comments.setdefault(row, []).append((column, words))
            elif "/drawings/" in name and name.endswith(".xml"):
                root = self._archive.parse(name)
                fallback = {shape for one in root.iter("{*}Fallback") for shape in one.iter("{*}sp")}
                drawn = ["\n".join(drawn_text(shape)) for shape in root.iter("{*}sp") if shape not in fallback]
                sheet.beside += [f"Text box: {text}" for text in drawn if text]
                targets = self._archive.relations(name)
                for chart in root.iter("{http://schemas.openxmlformats.org/drawingml/2006/chart}chart"):
                    drawing = self._archive.parse_any(targets.get(chart.get(f"{_R}id", ""), ""))
                    if drawing is not None:
                        sheet.beside.append(chart_text(chart_cells(drawing)))

    def _resolve(self) -> None:
        """Put in place of a formula that only names another cell what stands there; count the others."""
        sheets = {sheet.name: sheet for sheet in self._sheets}
        without = 0
        for sheet in self._sheets:
            for (row, column), formula in sheet.formulas.items():
                at, y, x, text = sheet, row, column, formula
                for _ in range(_DEEPEST_REFERENCE):
                    found = _REFERENCE.fullmatch(text[1:]) if text.startswith("=") else None
                    if found is None:
                        break
                    at = sheets.get((found[1] or "").replace("''", "'") or found[2] or at.name, at)
                    y, x = int(found[4]) - 1, _column(found[3])
                    text = at.rows.get(y, {}).get(x, "")
                if text and not text.startswith("="):
                    if column in sheet.rows.get(row, {}):
                        sheet.rows[row][column] = text
                else:
                    without += 1
        if without:
            self._notes.append(f"{without:,} formulas have no stored result: the formulas themselves are shown.")

    def sheets(self) -> Iterator[Sheet]:
        for sheet in self._sheets:
            rows = [
                Row(number, cells, sheet.bold.get(number, False), tuple(sheet.comments.pop(number, ())))
                for number, cells in sorted(sheet.rows.items())
            ]
            beside = [f"Comment: {text}" for texts in sheet.comments.values() for _, text in texts]
            beside += [text for text in sheet.beside if text.strip()]
            yield Sheet(f"sheet {sheet.name}", sheet.shown, rows, beside=beside, hidden=frozenset(sheet.hidden))


def _numbered(among: Sequence[Any], number: str) -> Any | None:
    """The one with that number, from 0."""
    return among[int(number)] if number.isdigit() and int(number) < len(among) else None


def _area(reference: str) -> tuple[int, int, int, int] | None:
    """The first and the last column and row, from 0, of "B2:C9" or "B2"; None for anything else."""
    corners = [_CELL.fullmatch(corner) for corner in reference.split(":")]
    if len(corners) > 2 or not all(corners):
        return None
    (x0, y0), *_, (x1, y1) = [(_column(one[1]), int(one[2]) - 1) for one in corners if one] * 2
    return x0, y0, x1, y1


_WHITE = "white"


def _is_ground(font: etree._Element, fill: etree._Element | None) -> bool:
    """Whether letters have the colour of their cell, or are white in a cell without one."""
    pattern = None if fill is None else fill.find("{*}patternFill")
    kind = "none" if fill is None else "" if pattern is None else pattern.get("patternType", "none")
    ground = _colour(pattern.find("{*}fgColor")) if pattern is not None and kind == "solid" else ""
    own = _colour(font.find("{*}color"))
    return bool(own) and own == (_WHITE if kind == "none" else ground)


def _colour(element: etree._Element | None) -> str:
    """A colour by its name in the file; "" for one that a theme makes lighter or darker, and for none."""
    if element is None or element.get("tint", "0").strip("0."):
        return ""
    stated = element.get("rgb", "")[-6:].upper()
    is_white = stated == "FFFFFF" or element.get("theme") == "0" or element.get("indexed") in ("1", "9")
    return _WHITE if is_white else stated


def _is_on(font: etree._Element, name: str) -> bool:
    found = font.find(f"{{*}}{name}")
    return found is not None and found.get("val", "1") not in ("0", "false")


def _runs(element: etree._Element) -> list[Run]:
    """The texts of an element with rich text, without the reading aids of Japanese."""
    runs: list[Run] = []
    for one in element.iter("{*}t"):
        parent = one.getparent()
        if parent is None or etree.QName(parent).localname == "rPh":
            continue
        properties = parent.find("{*}rPr")
        struck = properties is not None and _is_on(properties, "strike")
        raised = None if properties is None else properties.find("{*}vertAlign")
        is_raised = raised is not None and raised.get("val") == "superscript"
        runs.append(Run("deleted" if struck else "", unescape(one.text or ""), is_raised))
    return runs


def _column(letters: str) -> int:
    number: int = column_index_from_string(letters)
    return number - 1
