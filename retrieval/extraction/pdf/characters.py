"""The characters of one PDF page as PDFium sees them, in display coordinates.

Axes: N visible characters of the page, in the order in which the file draws them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.extraction.pdf.things import TextThings
from retrieval.extraction.pdf.unseen import SLANTED, inside_any, is_hidden, is_watermark, texts_of

HYPHEN = 0x2010  # PDFium marks a hyphen at a line's end as 0x02 or 0xFFFE; a Unicode hyphen until lines are joined
_LINE_END_HYPHENS = (0x02, 0xFFFE)
_ACCENTS = {0xB4: 0x301, 0x60: 0x300, 0x2C6: 0x302, 0xA8: 0x308, 0x2DC: 0x303, 0xB8: 0x327, 0x2C7: 0x30C, 0x2D8: 0x306,
            0x2DA: 0x30A, 0x2DD: 0x30B, 0xAF: 0x304}  # fmt: skip
_ALONE = {combining: alone for alone, combining in reversed(_ACCENTS.items())}
_WHITE = np.array([*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
                   0x3000])  # fmt: skip
_INVISIBLE = np.array([0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2060, 0xFEFF, 0xFFFF, *range(0x202A, 0x202F)])
PRINTED_RULE = re.compile(r"(?:[-_=–—*~] ?){5,}")  # noqa: RUF001 (as printed)
"""A line that is drawn with characters."""
_SLANT = 0.11  # of a quarter turn; text that leans less runs along or across the page


Corners = tuple[float, float, float, float]
"""Left, top, right and bottom."""


@dataclass(frozen=True)
class Field:
    """A field of a form, in points as displayed. `value`: what was filled in, or for a box whether it is ticked
    (TICKED, EMPTY). `is_comb`: each letter stands in a cell of its own."""

    box: Corners
    value: str
    is_comb: bool = False


@dataclass(frozen=True)
class PageCharacters:
    """Points (1/72 inch), origin top left of the displayed page, y downwards.

    `box_N4` spans the line's height (ascent to descent) and the advance; `origin_N2` is the point on the baseline;
    `turn_N` is the direction of the text as displayed, in quarter turns clockwise (SLANTED and degrees for other text);
    `spaced_N` tells whether white space precedes the character: 0 none, 1 inferred by PDFium, 2 present in the file;
    `ink_N4` is the box of the ink; `accent_N` is the combining mark (0: none) that the file prints over the character
    as a separate glyph, as TeX does.
    `unreadable` counts glyphs whose character code cannot be known. `is_form`: the page has fields, and what was filled
    in. `hidden` and `watermarks`: texts of the file that are no part of what the page says. `fields` that are filled
    in.
    """

    width: float
    height: float
    code_N: np.ndarray
    box_N4: np.ndarray
    origin_N2: np.ndarray
    size_N: np.ndarray
    weight_N: np.ndarray
    turn_N: np.ndarray
    spaced_N: np.ndarray
    ink_N4: np.ndarray
    accent_N: np.ndarray
    unreadable: int
    is_form: bool = False
    hidden: tuple[str, ...] = ()
    watermarks: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()

    @cached_property
    def middle_N2(self) -> np.ndarray:
        """Centres of the ink; a character is inside a box if its centre is."""
        middle_N2: np.ndarray = (self.ink_N4[:, :2] + self.ink_N4[:, 2:]) / 2
        return middle_N2

    def within(self, box: Sequence[float]) -> np.ndarray:
        """inside_N: which characters have their middle in a box."""
        return inside_any(self.middle_N2, [box])

    @cached_property
    def filled_N(self) -> np.ndarray:
        """Which characters were filled into a field."""
        return inside_any(self.middle_N2, [field.box for field in self.fields])

    def only(self, chosen_N: np.ndarray) -> PageCharacters:
        """The page with these characters."""
        names = [each.name for each in fields(self) if each.name.endswith(("_N", "_N2", "_N4"))]
        chosen: dict[str, Any] = {name: getattr(self, name)[chosen_N] for name in names}
        return replace(self, **chosen)


def read_characters(page: pdfium.PdfPage, text_page: pdfium.PdfTextPage, is_form: bool = False) -> PageCharacters:
    """All characters of a page that its reader sees; the others are told."""
    raw, count = text_page.raw, text_page.count_chars()
    code_N = np.fromiter((pdfium_c.FPDFText_GetUnicode(raw, i) for i in range(count)), np.uint32, count)
    _join_surrogates(code_N)
    generated_N = np.fromiter((pdfium_c.FPDFText_IsGenerated(raw, i) for i in range(count)), np.int8, count) == 1
    white_N = np.isin(code_N, _WHITE) | generated_N
    unknown_N = np.fromiter((pdfium_c.FPDFText_HasUnicodeMapError(raw, i) for i in range(count)), np.int8, count) == 1
    real_N = ~white_N & (code_N != 0) & ~np.isin(code_N, _INVISIBLE)
    real = np.flatnonzero(real_N)
    # white space between this visible character and the one before it
    any_before, file_before = (np.diff(np.cumsum(w)[real], prepend=0) > 0 for w in (white_N, white_N & ~generated_N))
    spaced = any_before.astype(np.int8) + file_before

    code = code_N[real]
    code[np.isin(code, _LINE_END_HYPHENS)] = HYPHEN
    loose, tight, origin = _geometry(raw, real)
    things = TextThings.read(raw, real.tolist())
    matrix, size, weight = things.matrix_T6[things.of_N], things.size_T[things.of_N], things.weight_T[things.of_N]
    box = _line_boxes(loose, tight, origin, matrix, size)
    scale = np.hypot(matrix[:, 2], matrix[:, 3])
    size = np.where(scale > 0, size * scale, size)

    show = Display(page)
    turn = _turns(matrix, show.rotation)
    box, origin = show.boxes(box), show.points(origin)
    ink = show.boxes(tight)
    middle = (ink[:, :2] + ink[:, 2:]) / 2
    box[:, 0::2] = box[:, 0::2].clip(0, show.width)
    box[:, 1::2] = box[:, 1::2].clip(0, show.height)
    owner = _owners_of_accents(code, box, origin, size)
    accent = np.zeros(len(code), np.int32)
    for mark, letter in owner.items():
        accent[letter] = _ACCENTS[int(code[mark])]
        box[letter, :2] = np.minimum(box[letter, :2], box[mark, :2])
        box[letter, 2:] = np.maximum(box[letter, 2:], box[mark, 2:])
    hidden = ~((middle >= 0) & (middle <= (show.width, show.height))).all(axis=1)
    hidden |= is_hidden(page, things, code, (tight[:, :2] + tight[:, 2:]) / 2, size)
    stamped = ~hidden & is_watermark(things, code, ink, size, turn)
    hidden_texts, stamps = texts_of(code, spaced, hidden), texts_of(code, spaced, stamped)
    seen = ~hidden & ~stamped
    seen[list(owner)] = False
    order = _with_lone_marks_in_place(code, box, ink, origin, size, spaced)
    order = order[seen[order]]
    return PageCharacters(
        show.width, show.height, code[order], box[order], origin[order], size[order], weight[order], turn[order],
        spaced[order], ink[order], accent[order], int(((unknown_N | (code_N == 0)) & ~white_N).sum()), is_form,
        tuple(hidden_texts), tuple(stamps),
    )  # fmt: skip


def beside(recognised: PageCharacters, own: PageCharacters) -> PageCharacters:
    """What was recognised on a page where it has no text of its own."""
    return recognised.only(~inside_any(recognised.middle_N2, own.box_N4))


def _join_surrogates(code_N: np.ndarray) -> None:
    """Of a character beyond 0xFFFF PDFium tells two halves: the first becomes the whole, the second invisible. Half of
    one says nothing: its code becomes 0."""
    first = np.flatnonzero((code_N[:-1] & 0xFC00 == 0xD800) & (code_N[1:] & 0xFC00 == 0xDC00))
    code_N[first] = 0x10000 + ((code_N[first] & 0x3FF) << 10) + (code_N[first + 1] & 0x3FF)
    code_N[first + 1] = 0xFFFF
    code_N[(code_N >= 0xD800) & (code_N < 0xE000)] = 0


def _turns(matrix_N6: np.ndarray, rotation: int) -> np.ndarray:
    """`turn_N`: the direction of text; slanted text has its degrees, clockwise, beyond SLANTED."""
    angle_N = -np.arctan2(matrix_N6[:, 1], matrix_N6[:, 0]) / (np.pi / 2) + rotation
    quarter_N = np.round(angle_N).astype(int)
    degrees_N = np.round(90 * angle_N).astype(int) % 360
    turn_N: np.ndarray = np.where(np.abs(angle_N - quarter_N) > _SLANT, SLANTED + degrees_N, quarter_N % 4)
    return turn_N


def _with_lone_marks_in_place(
    code: np.ndarray, box: np.ndarray, ink: np.ndarray, origin: np.ndarray, size: np.ndarray, spaced: np.ndarray
) -> np.ndarray:
    """The order of reading (all indices), in which a combining mark that stands over no letter comes before the letter
    to its right. Some TeX fonts print an opening quotation mark so; PDFium lists it at the end of the line. Such a mark
    becomes the character that stands alone, on the line of that letter (`code`, `box`, `origin`, `spaced` change)."""
    place = np.arange(len(code), dtype=float)
    for mark in np.flatnonzero(np.isin(code, list(_ALONE))).tolist():
        near = np.arange(max(0, mark - 200), min(len(code), mark + 200))
        near = near[(np.abs(origin[near, 1] - origin[mark, 1]) < 0.6 * size[mark]) & (near != mark)]
        shared = np.minimum(ink[near, 2], ink[mark, 2]) - np.maximum(ink[near, 0], ink[mark, 0])
        after = near[ink[near, 2] > ink[mark, 2]]
        if (shared > 0.6 * (ink[mark, 2] - ink[mark, 0])).any() or not len(after):
            continue
        letter = int(after[np.argmin(ink[after, 0])])
        code[mark], origin[mark, 1], place[mark] = _ALONE[int(code[mark])], origin[letter, 1], letter - 0.5
        box[mark, 1::2], box[mark, 2] = box[letter, 1::2], min(box[mark, 2], box[letter, 0])
        left = ink[near, 2].max(where=ink[near, 2] <= ink[mark, 0] + 0.1 * size[mark], initial=-np.inf)
        spaced[mark], spaced[letter] = (2 if ink[mark, 0] - left > 0.15 * size[mark] else 0), 0
    return np.argsort(place, kind="stable")


def _owners_of_accents(code: np.ndarray, box: np.ndarray, origin: np.ndarray, size: np.ndarray) -> dict[int, int]:
    """For each accent printed over a letter (by index) the index of that letter."""
    owners: dict[int, int] = {}
    marks = np.flatnonzero(np.isin(code, list(_ACCENTS)))
    for mark in marks.tolist():
        near = slice(max(0, mark - 200), mark + 200)
        shared = np.minimum(box[near, 2], box[mark, 2]) - np.maximum(box[near, 0], box[mark, 0])
        width = np.minimum(box[near, 2] - box[near, 0], box[mark, 2] - box[mark, 0])
        level = (np.abs(origin[near] - origin[mark]) < 0.6 * size[mark]).all(axis=1)
        over = level & (shared > 0.5 * width) & ~np.isin(code[near], list(_ACCENTS))
        if over.any():
            owners[mark] = near.start + int(np.where(over, shared, -1.0).argmax())
    return owners


def _geometry(raw: pdfium_c.FPDF_TEXTPAGE, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (left, bottom, right, top) of lines and of ink, and origins of characters, in page space."""
    count = len(indices)
    loose = np.zeros((count, 4), np.float32)  # FS_RECTF: left, top, right, bottom
    tight = np.zeros((count, 4), np.float64)  # left, right, bottom, top
    origin = np.zeros((count, 2), np.float64)
    rects = (pdfium_c.FS_RECTF * count).from_buffer(loose) if count else []
    left, right, bottom, top, x, y = (ctypes.c_double() for _ in range(6))
    for row, i in enumerate(indices.tolist()):
        pdfium_c.FPDFText_GetLooseCharBox(raw, i, rects[row])
        pdfium_c.FPDFText_GetCharBox(raw, i, left, right, bottom, top)
        tight[row] = left.value, bottom.value, right.value, top.value
        pdfium_c.FPDFText_GetCharOrigin(raw, i, x, y)
        origin[row] = x.value, y.value
    return loose[:, [0, 3, 2, 1]].astype(np.float64), tight, origin


def _line_boxes(
    loose: np.ndarray, tight: np.ndarray, origin: np.ndarray, matrix: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Boxes of uniform height: those of the font where they are plausible, those of the ink elsewhere."""
    ink = (tight[:, 2] > tight[:, 0]) & (tight[:, 3] > tight[:, 1])
    loose_height = np.minimum(loose[:, 3] - loose[:, 1], loose[:, 2] - loose[:, 0])
    height = size * np.hypot(matrix[:, 2], matrix[:, 3])
    plausible = np.isfinite(loose).all(axis=1) & (loose[:, 2] > loose[:, 0]) & (loose[:, 3] > loose[:, 1])
    plausible &= loose_height < 3 * np.maximum(height, 1)
    both = np.hstack([np.minimum(loose[:, :2], tight[:, :2]), np.maximum(loose[:, 2:], tight[:, 2:])])
    point = np.hstack([origin - 0.1, origin + 0.1])
    return np.where(ink[:, None], np.where(plausible[:, None], both, tight), np.where(plausible[:, None], loose, point))


def extent(box_N4: np.ndarray) -> Corners:
    """The box around some."""
    (x0, y0), (x1, y1) = box_N4[:, :2].min(axis=0).tolist(), box_N4[:, 2:].max(axis=0).tolist()
    return x0, y0, x1, y1


class Display:
    """Page space (y upwards, CropBox and rotation not applied) to display space in points."""

    def __init__(self, page: pdfium.PdfPage):
        bounds = pdfium_c.FS_RECTF()
        pdfium_c.FPDF_GetPageBoundingBox(page.raw, bounds)
        self.left, self.bottom, self.right, self.top = bounds.left, bounds.bottom, bounds.right, bounds.top
        self.rotation = (page.get_rotation() // 90) % 4
        wide, high = self.right - self.left, self.top - self.bottom
        self.width, self.height = (high, wide) if self.rotation % 2 else (wide, high)

    def points(self, xy: np.ndarray) -> np.ndarray:
        x, y = xy[:, 0], xy[:, 1]
        ways = {
            0: (x - self.left, self.top - y),
            1: (y - self.bottom, x - self.left),
            2: (self.right - x, y - self.bottom),
            3: (self.top - y, self.right - x),
        }
        return np.stack(ways[self.rotation], axis=1)

    def boxes(self, box: np.ndarray) -> np.ndarray:
        a, b = self.points(box[:, :2]), self.points(box[:, 2:])
        return np.hstack([np.minimum(a, b), np.maximum(a, b)])
