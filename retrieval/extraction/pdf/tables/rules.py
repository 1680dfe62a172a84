"""The straight lines that a PDF page draws: borders of table cells, the rules above and below a table, and those that
strike words out, as word processors print them.

Axes: N characters of the page, R rules. Points (1/72 inch), origin top left of the displayed page, y downwards.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.extraction.pdf.characters import Corners, Display, PageCharacters
from retrieval.extraction.pdf.things import MOST_THINGS, Matrix, chained, drawn_things, fill_of, matrix_of

_THICKEST = 3.0  # points; a filled area no higher (or wider) than this is a line
_SHORTEST = 4.0  # points
_WHITE = 245
_SKEW = 0.5  # points
_SAME_LINE = 1.0  # points
_LOWEST, _HIGHEST = 0.15, 0.5  # of the size above the baseline: there a line strikes letters out
_OVERHANG = 0.5  # of the size: how much longer or shorter than the words it may be
_FEWEST = 2  # letters


@dataclass(frozen=True)
class Rules:
    """`level_R3`: y, x0, x1 of the horizontal rules; `upright_R3`: x, y0, y1 of the vertical ones; `areas_A4`: what has
    a border or a colour, larger than a line."""

    level_R3: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    upright_R3: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    areas_A4: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))

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
    segments: list[Corners] = []  # two opposite corners of each line
    areas: list[Corners] = []
    for thing, kind, outer in drawn_things(page):
        if kind != pdfium_c.FPDF_PAGEOBJ_PATH:
            continue
        fill, stroke = ctypes.c_int(), ctypes.c_int()
        pdfium_c.FPDFPath_GetDrawMode(thing, fill, stroke)
        if not fill.value and not stroke.value:
            continue
        is_seen = bool(stroke.value) or min(fill_of(thing)[:3]) < _WHITE
        for points in _subpaths(thing, chained(matrix_of(thing), outer)):
            segments += _lines_of(points, stroked=bool(stroke.value))
            xs, ys = zip(*points, strict=True)
            if is_seen and min(max(xs) - min(xs), max(ys) - min(ys)) > _THICKEST:
                areas.append((min(xs), min(ys), max(xs), max(ys)))
        if len(segments) >= MOST_THINGS:
            break
    show = Display(page)
    found = Rules.of(show.boxes(np.array(segments, np.float64).reshape(-1, 4)))
    return replace(found, areas_A4=show.boxes(np.array(areas, np.float64).reshape(-1, 4)))


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


def struck_out(page: PageCharacters, rules: Rules) -> tuple[list[Corners], Rules]:
    """Boxes of what is struck out, in points as displayed, and the other rules. A line strikes out the words that it
    runs through if it begins and ends with them, as no border of a table does."""
    level_R3, boxes = rules.level_R3, list[Corners]()
    strikes_R = np.zeros(len(level_R3), bool)
    upright = np.flatnonzero((page.turn_N == 0) & (page.size_N > 0))
    order = upright[np.argsort(page.origin_N2[upright, 1], kind="stable")]
    base_N = page.origin_N2[order, 1]
    reach = _HIGHEST * float(page.size_N[order].max(initial=0.0))
    for y, start, end in joined(level_R3, _SAME_LINE).tolist():
        near = order[np.searchsorted(base_N, y) : np.searchsorted(base_N, y + reach)]
        above_N = (page.origin_N2[near, 1] - y) / page.size_N[near]
        middle_N = page.middle_N2[near, 0]
        own = near[(middle_N > start) & (middle_N < end) & (above_N > _LOWEST) & (above_N < _HIGHEST)]
        if len(own) < _FEWEST:
            continue
        ink_N4, size = page.ink_N4[own], float(page.size_N[own].max())
        left, right = float(ink_N4[:, 0].min()), float(ink_N4[:, 2].max())
        if abs(left - start) < _OVERHANG * size and abs(right - end) < _OVERHANG * size:
            boxes.append((left, float(ink_N4[:, 1].min()), right, float(ink_N4[:, 3].max())))
            within_R = (level_R3[:, 1] > start - _SAME_LINE) & (level_R3[:, 2] < end + _SAME_LINE)
            strikes_R |= within_R & (np.abs(level_R3[:, 0] - y) < _SAME_LINE)
    return boxes, replace(rules, level_R3=level_R3[~strikes_R]) if boxes else rules
