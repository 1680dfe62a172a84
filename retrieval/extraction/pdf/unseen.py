"""Text of a PDF that is no part of what its page says: invisible, white on white, off the page, watermarks.

Axes: N characters of the page, T text objects, B boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.extraction.pdf.things import TextThings, bounds_of, drawn_things, fill_of

SLANTED = 4  # and more: directions of text that runs neither along nor across the page
_FILLED, _INVISIBLE, _CLIPPING = 0, 3, 7  # ways of drawing text
_WHITE = 245
_CLEAR = 12  # of 255
_SMALLEST = 1.0  # points
_LARGE = 1.6  # times the usual size, of a stamp over the text
_FEWEST_LETTERS = 4


def is_hidden(
    page: pdfium.PdfPage, things: TextThings, code_N: np.ndarray, middle_N2: np.ndarray, size_N: np.ndarray
) -> np.ndarray:
    """hidden_N: what nobody sees on the page: invisible or white text, unless it lies over a picture (what was
    recognised in a scan is invisible) or white text over a dark ground; and what is too small to be seen. Signs alone
    are seen: of bullets the shape is drawn, and the text is clear."""
    red_green_blue_T3, opacity_T = things.fill_T4[:, :3], things.fill_T4[:, 3]
    clear_T = np.isin(things.mode_T, (_INVISIBLE, _CLIPPING)) | (opacity_T < _CLEAR)
    white_T = (things.mode_T == _FILLED) & (red_green_blue_T3 >= _WHITE).all(axis=1) & ~clear_T
    hidden_N: np.ndarray = (size_N < _SMALLEST) | (clear_T | white_T)[things.of_N]
    if hidden_N.any():
        word_N = np.array([chr(code).isalnum() for code in code_N.tolist()])
        hidden_N &= np.bincount(things.of_N, word_N)[things.of_N] > 0
        pictures_B4, grounds_B4 = _grounds(page)
        hidden_N &= ~inside_any(middle_N2, pictures_B4)
        hidden_N &= ~(white_T[things.of_N] & inside_any(middle_N2, grounds_B4))
    return hidden_N


def _grounds(page: pdfium.PdfPage) -> tuple[np.ndarray, np.ndarray]:
    """Where the page has pictures or shadings, and where areas that are not white."""
    pictures, areas = [], []
    for thing, kind, outer in drawn_things(page):
        if kind in (pdfium_c.FPDF_PAGEOBJ_IMAGE, pdfium_c.FPDF_PAGEOBJ_SHADING):
            pictures.append(bounds_of(thing, outer))
        elif kind == pdfium_c.FPDF_PAGEOBJ_PATH and min(fill_of(thing)[:3]) < _WHITE:
            areas.append(bounds_of(thing, outer))
    return np.array(pictures).reshape(-1, 4), np.array(areas).reshape(-1, 4)


def inside_any(point_N2: np.ndarray, boxes: Iterable[Sequence[float] | np.ndarray]) -> np.ndarray:
    """inside_N: which points lie in one of some boxes."""
    inside_N = np.zeros(len(point_N2), bool)
    for box in boxes:
        inside_N |= ((point_N2 >= box[:2]) & (point_N2 <= box[2:])).all(axis=1)
    return inside_N


def is_watermark(
    things: TextThings, code_N: np.ndarray, ink_N4: np.ndarray, size_N: np.ndarray, turn_N: np.ndarray
) -> np.ndarray:
    """stamped_N: large or slanted text that other text runs through; with it all text of one slant and size."""
    stamped_N = np.zeros(len(code_N), bool)
    if not len(code_N):
        return stamped_N
    slanted_N = turn_N >= SLANTED
    large_N = size_N > _LARGE * np.median(size_N)
    middle_N2 = (ink_N4[:, :2] + ink_N4[:, 2:]) / 2
    for thing in np.unique(things.of_N[slanted_N | large_N]).tolist():
        own_N = things.of_N == thing
        size, turn = size_N[own_N][0], turn_N[own_N][0]
        letters = sum(chr(code).isalpha() for code in code_N[own_N].tolist())
        others_N2 = middle_N2[(turn_N != turn) | (size_N < size / _LARGE)]
        if letters >= _FEWEST_LETTERS and inside_any(others_N2, ink_N4[own_N]).sum() > 1:
            alike_N = (turn_N == turn) & (np.abs(size_N - size) < 0.5)
            stamped_N |= alike_N if turn >= SLANTED else own_N
    return stamped_N


def texts_of(code_N: np.ndarray, spaced_N: np.ndarray, chosen_N: np.ndarray) -> Iterator[str]:
    """The chosen characters, those drawn together as one text."""
    chosen = np.flatnonzero(chosen_N)
    for part in np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1):
        letters = [
            (" " if spaced else "") + chr(code) for code, spaced in zip(code_N[part], spaced_N[part], strict=True)
        ]
        if text := "".join(letters).strip():
            yield text
