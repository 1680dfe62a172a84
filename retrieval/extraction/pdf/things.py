"""What a PDF page draws: paths, pictures, shadings and texts, those inside of forms too.

Axes: N characters, T text objects.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

MOST_THINGS = 20_000  # of a page; maps and plots have more, and no tables worth the time
_DEEPEST = 3  # forms inside forms
_LONGEST = 20_000  # characters of one text beside those of the page

Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def drawn_things(page: pdfium.PdfPage) -> Iterator[tuple[pdfium_c.FPDF_PAGEOBJECT, int, Matrix]]:
    """Each object in the order of drawing, its kind, and the matrix from its form to page space."""
    raw = page.raw
    outermost = (pdfium_c.FPDFPage_GetObject(raw, index) for index in range(pdfium_c.FPDFPage_CountObjects(raw)))
    yield from islice((found for thing in outermost for found in _inside(thing, _IDENTITY, 0)), MOST_THINGS)


def _inside(
    thing: pdfium_c.FPDF_PAGEOBJECT, outer: Matrix, depth: int
) -> Iterator[tuple[pdfium_c.FPDF_PAGEOBJECT, int, Matrix]]:
    kind = pdfium_c.FPDFPageObj_GetType(thing)
    if kind != pdfium_c.FPDF_PAGEOBJ_FORM:
        yield thing, kind, outer
    elif depth < _DEEPEST:
        matrix = chained(matrix_of(thing), outer)
        for index in range(pdfium_c.FPDFFormObj_CountObjects(thing)):
            yield from _inside(pdfium_c.FPDFFormObj_GetObject(thing, index), matrix, depth + 1)


def matrix_of(thing: pdfium_c.FPDF_PAGEOBJECT) -> Matrix:
    found = pdfium_c.FS_MATRIX()
    if not pdfium_c.FPDFPageObj_GetMatrix(thing, found):
        return _IDENTITY
    return found.a, found.b, found.c, found.d, found.e, found.f


def chained(inner: Matrix, outer: Matrix) -> Matrix:
    """First `inner`, then `outer`."""
    a, b, c, d, e, f = inner
    p, q, r, s, t, u = outer
    return a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u


def string_of(function: Callable[..., int], *arguments: object) -> str:
    """What a function of PDFium writes into a buffer, in UTF-16: a title, a name, a comment, what was filled in."""
    size = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(max(2, size))
    function(*arguments, ctypes.cast(buffer, ctypes.POINTER(pdfium_c.FPDF_WCHAR)), size)
    return buffer.raw[:-2].decode("utf-16-le", "replace")[:_LONGEST].replace("\r", "\n")


def bounds_of(thing: pdfium_c.FPDF_PAGEOBJECT, outer: Matrix) -> tuple[float, float, float, float]:
    """Left, bottom, right and top of an object in page space."""
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    pdfium_c.FPDFPageObj_GetBounds(thing, left, bottom, right, top)
    a, b, c, d, e, f = outer
    corners = [(x, y) for x in (left.value, right.value) for y in (bottom.value, top.value)]
    xs, ys = [a * x + c * y + e for x, y in corners], [b * x + d * y + f for x, y in corners]
    return min(xs), min(ys), max(xs), max(ys)


def fill_of(thing: pdfium_c.FPDF_PAGEOBJECT) -> tuple[int, int, int, int]:
    """Red, green, blue and opacity, from 0 to 255; black for what is no plain colour."""
    red, green, blue, opacity = (ctypes.c_uint() for _ in range(4))
    if not pdfium_c.FPDFPageObj_GetFillColor(thing, red, green, blue, opacity):
        return 0, 0, 0, 255
    return red.value, green.value, blue.value, opacity.value


@dataclass(frozen=True)
class TextThings:
    """The text objects of a page: `of_N` is the one of each character, `mode_T` how it is drawn (0 to 7 in the words of
    the format), `fill_T4` its colour and opacity."""

    of_N: np.ndarray
    matrix_T6: np.ndarray
    size_T: np.ndarray
    weight_T: np.ndarray
    mode_T: np.ndarray
    fill_T4: np.ndarray

    @classmethod
    def read(cls, raw: pdfium_c.FPDF_TEXTPAGE, indices: list[int]) -> TextThings:
        """Of the characters with these numbers."""
        of_N = np.zeros(len(indices), int)
        matrices, sizes, weights, modes, fills = [], [], [], [], []
        last = None
        for row, i in enumerate(indices):
            thing = pdfium_c.FPDFText_GetTextObject(raw, i)
            address = ctypes.addressof(thing.contents) if thing else None
            if address is None or address != last:
                matrix = pdfium_c.FS_MATRIX()
                pdfium_c.FPDFText_GetMatrix(raw, i, matrix)
                matrices.append((matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f))
                sizes.append(pdfium_c.FPDFText_GetFontSize(raw, i))
                weights.append(pdfium_c.FPDFText_GetFontWeight(raw, i))
                modes.append(pdfium_c.FPDFTextObj_GetTextRenderMode(thing) if thing else 0)
                fills.append(fill_of(thing) if thing else (0, 0, 0, 255))
                last = address
            of_N[row] = len(sizes) - 1
        return cls(
            of_N,
            np.array(matrices, np.float64).reshape(-1, 6),
            np.array(sizes, np.float64),
            np.array(weights, np.int32),
            np.array(modes, int),
            np.array(fills, int).reshape(-1, 4),
        )
