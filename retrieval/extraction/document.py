"""What an extracted document is: its text, its pages, and the place of every character.

Axes: N characters of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

NO_PAGE = -1  # page and line of a character that stands on no page (inserted white space, text files)


class ExtractedBox(NamedTuple):
    """One rectangle in fractions of the displayed page, origin top left; `page` counts from 0."""

    page: int
    x0: float
    y0: float
    x1: float
    y1: float


def line_boxes(page_N: np.ndarray, line_N: np.ndarray, box_N4: np.ndarray) -> list[ExtractedBox]:
    """One box around the characters of each line, in reading order; characters that stand on no page have none."""
    placed = np.flatnonzero(page_N >= 0)
    if placed.size == 0:
        return []
    lines = line_N[placed]
    firsts = np.flatnonzero(np.r_[True, lines[1:] != lines[:-1]])
    low = np.minimum.reduceat(box_N4[placed, :2], firsts, axis=0)
    high = np.maximum.reduceat(box_N4[placed, 2:], firsts, axis=0)
    pages = page_N[placed[firsts]]
    return [
        ExtractedBox(int(page), float(x0), float(y0), float(x1), float(y1))
        for page, (x0, y0), (x1, y1) in zip(pages, low, high, strict=True)
    ]


@dataclass(frozen=True)
class ExtractedPage:
    """One page: `text[start:end]` is what stands on it; sizes in points (1/72 inch) as displayed.

    `number` counts from 0. `label` is the printed page number where the file states it ("iv", "12"), else `number` + 1;
    for files in other parts what the part is, in several words ("slide 4"); "" for files in one part. `note` is "" or
    what is wrong with the page ("no text: scanned image?").
    """

    number: int
    label: str
    width: float
    height: float
    start: int
    end: int
    note: str = ""


@dataclass(frozen=True)
class ExtractedFigure:
    """`caption`: the line below or above it, "" for a picture without one. The box is the picture's, else the line's.

    Where no pages are printed there is no box, but `picture`, the name of one of the document's pictures, of `width`
    by `height` pixels, and `start`, the position of the text behind it.
    """

    page: int
    caption: str
    box: ExtractedBox | None
    picture: str = ""
    start: int | None = None
    width: int = 0
    height: int = 0


@dataclass(frozen=True)
class ExtractedTable:
    """`rows`: its cells as they stand; one that spans several is at their upper left. No box where nothing is drawn."""

    page: int
    caption: str
    box: ExtractedBox | None
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Exhibits:
    figures: tuple[ExtractedFigure, ...] = ()
    tables: tuple[ExtractedTable, ...] = ()


AsideKind = Literal["deleted", "hidden", "header", "footer", "watermark", "line number"]
"""Why some text is no part of what a document says: its author deleted it or struck it out, readers of the file do not
see it, or it is printed again on every page."""


@dataclass(frozen=True)
class Aside:
    """Text that was set aside when the file was read: never searched or quoted, but kept, and found as what it is.

    `page`: on which, or in which part of the file, it stands; from 0.
    """

    kind: AsideKind
    text: str
    page: int = 0


@dataclass(frozen=True)
class OutlineEntry:
    """One heading of the file's table of contents. `level` counts from 0; `start` is a position in the text."""

    title: str
    level: int
    page: int | None = None
    start: int | None = None


@dataclass(frozen=True, eq=False)
class ExtractedDocument:
    """Normalised text with the place of every character.

    `page_N` (int32) is the 0-based page, `line_N` (int32) the printed line or table cell (numbered through the
    document; none spans two columns) and `box_N4` (float32: x0, y0, x1, y1) the box as fractions of the displayed page,
    rotation and CropBox applied, origin top left. White space and files without pages have page and line -1.
    `exhibits`: its figures and tables; `pictures`: PNG or JPEG by name, of figures that have one. `scanned`: pages
    (from 0) without usable text that are pictures, in which some may be recognised. `asides`: what was set aside.
    Files without printed pages have one page for each part, of size 0, and no boxes.
    """

    title: str
    text: str
    pages: tuple[ExtractedPage, ...]
    outline: tuple[OutlineEntry, ...]
    metadata: dict[str, str]
    page_N: np.ndarray
    line_N: np.ndarray
    box_N4: np.ndarray
    notes: tuple[str, ...] = field(default=())
    scanned: tuple[int, ...] = field(default=())
    exhibits: Exhibits = field(default=Exhibits())
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    asides: tuple[Aside, ...] = field(default=())

    def __post_init__(self) -> None:
        length = len(self.text)
        assert self.page_N.shape == self.line_N.shape == (length,) and self.box_N4.shape == (length, 4)

    def boxes(self, start: int, end: int) -> list[ExtractedBox]:
        """Exact line boxes of `text[start:end]`, in reading order; none bridges two lines, columns or pages."""
        if not 0 <= start <= end <= len(self.text):
            raise ValueError(f"no span {start}:{end} in a text of {len(self.text)} characters")
        return line_boxes(self.page_N[start:end], self.line_N[start:end], self.box_N4[start:end])


def aside_notes(asides: Sequence[Aside]) -> list[str]:
    """One note for each kind, saying how much was set aside."""
    notes = []
    for kind in dict.fromkeys(one.kind for one in asides):
        texts = [one.text for one in asides if one.kind == kind]
        passages = "1 passage" if len(texts) == 1 else f"{len(texts):,} passages"
        notes.append(f"Set aside as {kind} text: {passages}, {sum(map(len, texts)):,} characters.")
    return notes
