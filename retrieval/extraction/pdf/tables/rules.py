"""The straight lines that a PDF page draws: borders of table cells, and the rules above and below a table.

Legend: R rules. Points (1/72 inch), origin top left of the displayed page, y downwards.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.extraction.pdf.characters import Display
from retrieval.extraction.pdf.things import MOST_THINGS, Matrix, chained, drawn_things, matrix_of

_THICKEST = 3.0  # points; a filled area no higher (or wider) than this is a line
_SHORTEST = 4.0  # points
_SKEW = 0.5  # points
_SAME_LINE = 1.0  # points

Corners = tuple[float, float, float, float]


@dataclass(frozen=True)
class Rules:
    """`level_R3`: y, x0, x1 of the horizontal rules; `upright_R3`: x, y0, y1 of the vertical ones."""

    level_R3: np.ndarray
    upright_R3: np.ndarray

    @classmethod
    def of(cls, ends_R4: np.ndarray) -> Rules:
        """From the corners of straight lines: left, top, right and bottom."""
        size_R2 = ends_R4[:, 2:] - ends_R4[:, :2]
        middle_R2 = (ends_R4[:, 2:] + ends_R4[:, :2]) / 2
        level_R = size_R2[:, 0] >= size_R2[:, 1]
        return cls(
            np.column_stack([middle_R2[:, 1], ends_R4[:, 0], ends_R4[:, 2]])[level_R],
            np.column_stack([middle_R2[:, 0], ends_R4[:, 1], ends_R4[:, 3]])[~level_R],
        )

    @property
    def ends_R4(self) -> np.ndarray:
        return np.concatenate([self.level_R3[:, [1, 0, 2, 0]], self.upright_R3[:, [0, 1, 0, 2]]])


def read_rules(page: pdfium.PdfPage) -> Rules:
    """All straight horizontal and vertical lines of a page, also those drawn as thin filled areas."""
    segments: list[Corners] = []
    for segment in _segments_of_page(page):
        segments.append(segment)
        if len(segments) >= MOST_THINGS:
            break
    return Rules.of(Display(page).boxes(np.array(segments, np.float64).reshape(-1, 4)))


def joined(rules_R3: np.ndarray, reach: float) -> np.ndarray:
    """The rules of one direction, those in one line no more than `reach` apart as one: cells may each have drawn their
    part of it."""
    whole: list[list[float]] = []  # where it stands, from, to
    for place, start, end in rules_R3[np.lexsort((rules_R3[:, 1], np.round(rules_R3[:, 0])))].tolist():
        if whole and abs(whole[-1][0] - place) < _SAME_LINE and start - whole[-1][2] < reach:
            whole[-1][2] = max(whole[-1][2], end)
        else:
            whole.append([place, start, end])
    return np.array(whole, np.float64).reshape(-1, 3)


def _segments_of_page(page: pdfium.PdfPage) -> Iterator[Corners]:
    """Two opposite corners of every straight line that is drawn, in page space."""
    for thing, kind, outer in drawn_things(page):
        if kind == pdfium_c.FPDF_PAGEOBJ_PATH:
            fill, stroke = ctypes.c_int(), ctypes.c_int()
            pdfium_c.FPDFPath_GetDrawMode(thing, fill, stroke)
            if fill.value or stroke.value:
                for points in _subpaths(thing, chained(matrix_of(thing), outer)):
                    yield from _lines_of(points, stroked=bool(stroke.value))


def _lines_of(points: list[tuple[float, float]], *, stroked: bool) -> Iterator[Corners]:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    if min(wide, high) <= _THICKEST:
        if max(wide, high) >= _SHORTEST:
            yield min(xs), min(ys), max(xs), max(ys)
    elif stroked:
        for (x0, y0), (x1, y1) in pairwise(points):
            across, down = abs(x1 - x0), abs(y1 - y0)
            if min(across, down) <= _SKEW and max(across, down) >= _SHORTEST:
                yield min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _subpaths(path: pdfium_c.FPDF_PAGEOBJECT, matrix: Matrix) -> Iterator[list[tuple[float, float]]]:
    """The corners of each part of a path that has straight lines only; a closed one ends where it began."""
    a, b, c, d, e, f = matrix
    x, y = ctypes.c_float(), ctypes.c_float()
    points: list[tuple[float, float]] = []
    curved = False
    for index in range(min(pdfium_c.FPDFPath_CountSegments(path), MOST_THINGS)):
        segment = pdfium_c.FPDFPath_GetPathSegment(path, index)
        kind = pdfium_c.FPDFPathSegment_GetType(segment)
        if kind == pdfium_c.FPDF_SEGMENT_MOVETO:
            if len(points) > 1 and not curved:
                yield points
            points, curved = [], False
        curved |= kind == pdfium_c.FPDF_SEGMENT_BEZIERTO
        pdfium_c.FPDFPathSegment_GetPoint(segment, x, y)
        points.append((a * x.value + c * y.value + e, b * x.value + d * y.value + f))
        if pdfium_c.FPDFPathSegment_GetClose(segment):
            points.append(points[0])
    if len(points) > 1 and not curved:
        yield points
