"""Excel workbooks: what the cells show, by sheet. Formulas are never computed and macros never run."""

from __future__ import annotations

import datetime
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import openpyxl

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text
from retrieval.extraction.office.archive import core_metadata, opened_archive, refuse_declarations
from retrieval.extraction.office.sheets import Row, Sheet, from_sheets, number_text

_WHAT = "Excel workbook"
_OLDER = "This is an old .xls file or an Excel workbook with a password. Save it as .xlsx without one and retry."
_MACROS = "xl/vbaProject.bin"


def extract_xlsx(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """The rows of every sheet of a workbook, hidden ones too. Raises ExtractError."""
    notes: list[str] = []
    with opened_archive(path, _WHAT, _OLDER) as archive:
        names = archive.namelist()
        if not any(name.startswith("xl/") for name in names):
            raise ExtractError("The file is named .xlsx but is not an Excel workbook.")
        refuse_declarations(archive, _WHAT)
        metadata = core_metadata(archive, _WHAT)
        has_formulas = any(_has_formulas(archive, name) for name in names if name.startswith("xl/worksheets/"))
        if _MACROS in names:
            notes.append("The workbook holds macros: they were neither run nor read.")
    formulas = _Formulas()
    document = from_sheets(
        _sheets(path, has_formulas, formulas, notes), metadata.get("title", ""), path, metadata, limits
    )
    if formulas.without_result:
        notes.append(f"{formulas.without_result:,} formulas have no stored result: the formulas themselves are shown.")
    return replace(document, notes=tuple(notes))


class _Formulas:
    """Counts those that no program has computed yet."""

    without_result = 0


def _sheets(path: Path, has_formulas: bool, formulas: _Formulas, notes: list[str]) -> Iterator[Sheet]:
    shown = _opened(path, data_only=True)
    written = _opened(path, data_only=False) if has_formulas else None
    for name in shown.sheetnames:
        sheet = shown[name]
        if not hasattr(sheet, "iter_rows"):  # a chart alone
            continue
        if sheet.sheet_state != "visible":
            notes.append(f"The sheet {name} is hidden in the workbook.")
        yield Sheet(f"sheet {name}", _rows(sheet, written[name] if written is not None else None, formulas))


def _opened(path: Path, *, data_only: bool) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts that openpyxl leaves out: drawings, data validation
            return openpyxl.load_workbook(path, read_only=True, data_only=data_only, keep_links=False)
    except Exception as error:  # a third-party parser on a possibly hostile file may raise anything
        raise _damaged(error) from error


def _rows(shown: Any, written: Any, formulas: _Formulas) -> Iterator[Row]:
    for sheet in (shown, written):
        if sheet is not None:
            sheet.reset_dimensions()  # what the file states may be wrong
    try:
        both = zip_longest(shown.iter_rows(), written.iter_rows() if written is not None else (), fillvalue=())
        for number, (cells, sources) in enumerate(both):
            texts, bold = {}, []
            for column, cell in enumerate(cells):
                text = _text(cell)
                if not text and column < len(sources) and sources[column].data_type == "f":
                    text = _formula(sources[column].value)
                    formulas.without_result += 1
                if text:
                    texts[column] = text
                    bold.append(bool(cell.value is not None and cell.font and cell.font.b))
            yield Row(number, texts, bool(bold) and all(bold))
    except (ExtractError, MemoryError, RecursionError):
        raise
    except Exception as error:  # same
        raise _damaged(error) from error


def _text(cell: Any) -> str:
    """What a cell shows, near enough: dates without a time of day, shares in percent."""
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        if "%" in (cell.number_format or ""):
            return f"{number_text(round(100 * value, 6))}%"
        return number_text(value)
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d" if value.time() == datetime.time() else "%Y-%m-%d %H:%M")
    return clean_text(str(value)).strip()


def _formula(value: Any) -> str:
    text = getattr(value, "text", value)  # of an array of cells
    return clean_text(str(text or "")).strip()


def _has_formulas(archive: zipfile.ZipFile, name: str) -> bool:
    with archive.open(name) as part:
        before = b""
        while piece := part.read(1 << 20):
            if b"<f>" in before + piece or b"<f " in before + piece:
                return True
            before = piece[-2:]
    return False


def _damaged(error: Exception) -> ExtractError:
    if isinstance(error, MemoryError | RecursionError):
        raise error
    return ExtractError(f"The {_WHAT} is damaged or not one ({type(error).__name__}: {str(error)[:150]}).")
