"""Checks on real PDFs that the boxes of a text span hold the text of that span and nothing else.

    python benchmarks/extraction/check_boxes.py FOLDER [--span 250] [--random 500]

The oracle knows nothing of how boxes were made: it asks PDFium which characters are printed inside the boxes (their
ink's centre lies inside; place on the displayed page by PDFium's own conversion to device pixels) and compares them
with the span, leaving out white space and hyphens and with ligatures spelled out. Text printed over other text may be
found beside it. Exit status 1 if any span differs.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedBox
from retrieval.extraction.extract import ExtractedDocument, extract

_PIXELS = 1_000_000  # wide and high: device pixels as fine fractions of the displayed page


@dataclass(frozen=True)
class WrongSpan:
    """A span whose boxes hold other text than its own."""

    start: int
    end: int
    pages: tuple[int, ...]
    expected: str
    found: str


class PrintedPage:
    """Characters of one page with the centre of their ink as fractions of the displayed page."""

    def __init__(self, page: pdfium.PdfPage):
        text_page = page.get_textpage()
        raw = text_page.raw
        self.letters: list[str] = []
        centres: list[tuple[float, float]] = []
        ink: list[tuple[float, float, float, float]] = []
        left, right, bottom, top = (ctypes.c_double() for _ in range(4))
        x, y = ctypes.c_int(), ctypes.c_int()
        for i in range(text_page.count_chars()):
            letter = plain(chr(pdfium_c.FPDFText_GetUnicode(raw, i)))
            if not letter or pdfium_c.FPDFText_IsGenerated(raw, i) == 1:
                continue
            pdfium_c.FPDFText_GetCharBox(raw, i, left, right, bottom, top)
            ink.append((left.value, bottom.value, right.value, top.value))
            middle = (left.value + right.value) / 2, (bottom.value + top.value) / 2
            pdfium_c.FPDF_PageToDevice(page.raw, 0, 0, _PIXELS, _PIXELS, 0, *middle, x, y)
            self.letters.append(letter)
            centres.append((x.value / _PIXELS, y.value / _PIXELS))
        self.centres = np.array(centres).reshape(-1, 2)
        self.overprinted = overprinted(np.array(ink).reshape(-1, 4))
        text_page.close()

    def inside(self, boxes: list[ExtractedBox]) -> np.ndarray:
        """Numbers of the letters printed in any of the boxes, in the order of drawing."""
        inside = np.zeros(len(self.letters), dtype=bool)
        for box in boxes:
            low, high = (box.x0, box.y0), (box.x1, box.y1)
            inside |= ((self.centres >= np.array(low) - 1e-6) & (self.centres <= np.array(high) + 1e-6)).all(axis=1)
        return np.flatnonzero(inside)


def overprinted(ink_N4: np.ndarray) -> np.ndarray:
    """Which characters have others printed over them, so that no box can hold the one without the other."""
    result = np.zeros(len(ink_N4), dtype=bool)
    middle = (ink_N4[:, :2] + ink_N4[:, 2:]) / 2
    grown = ink_N4 + np.array([-1.0, -1.0, 1.0, 1.0])  # points
    number_N = np.arange(len(ink_N4))
    for first in range(0, len(ink_N4), 256):
        some = slice(first, first + 256)
        x, y = middle[some, :1], middle[some, 1:]
        covers = (x >= grown[:, 0]) & (y >= grown[:, 1]) & (x <= grown[:, 2]) & (y <= grown[:, 3])
        behind = number_N[some, None] - number_N
        covers &= np.abs(behind) > 3  # neighbours in a word may touch
        result[some] |= covers.any(axis=1)
        result |= (covers & (behind > 0)).any(axis=0)  # by a later one
    return result


def plain(text: str) -> str:
    """Letters for comparison: ligatures spelled out, without white space, hyphens, marks and private codes."""
    spelled = unicodedata.normalize("NFKD", text)
    return "".join(
        letter
        for letter in spelled
        if unicodedata.category(letter) not in ("Cc", "Cf", "Cn", "Co", "Cs", "Zs", "Zl", "Zp", "Pd", "Mn", "Sk")
        and letter not in "\u00ad\u2010`´ˆ•▪➢✓❖→"
    )


def wrong_spans(path: Path, document: ExtractedDocument, spans: list[tuple[int, int]]) -> Iterator[WrongSpan]:
    """The spans whose boxes do not hold exactly their text."""
    source = pdfium.PdfDocument(path)
    pages: dict[int, PrintedPage] = {}
    try:
        for start, end in spans:
            start, end = whole_glyphs(document, start, end)
            boxes = document.boxes(start, end)
            numbers = sorted({box.page for box in boxes})
            for number in numbers:
                if number not in pages:
                    pages[number] = PrintedPage(source[number])
            found = ""
            hidden = ""  # may be found or not
            for number in numbers:
                page = pages[number]
                for i in page.inside([box for box in boxes if box.page == number]).tolist():
                    found += page.letters[i]
                    hidden += page.letters[i] if page.overprinted[i] else ""
            # Names of columns that a table row repeats are printed elsewhere.
            printed = document.page_N[start:end] >= 0
            expected = plain("".join(c for c, here in zip(document.text[start:end], printed, strict=True) if here))
            missing, surplus = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
            if missing or surplus - Counter(hidden):
                yield WrongSpan(start, end, tuple(numbers), expected, found)
    finally:
        source.close()


def whole_glyphs(document: ExtractedDocument, start: int, end: int) -> tuple[int, int]:
    """The span grown so that it does not divide a ligature, whose letters share one box."""

    def together(i: int) -> bool:
        same = bool((document.box_N4[i - 1] == document.box_N4[i]).all())
        return same and document.page_N[i - 1] == document.page_N[i] >= 0

    while 0 < start < len(document.text) and together(start):
        start -= 1
    while 0 < end < len(document.text) and together(end):
        end += 1
    return start, end


def spans_of(document: ExtractedDocument, length: int, random_spans: int, seed: int = 0) -> list[tuple[int, int]]:
    """All spans of one length, which cover the text, and some at random places of random lengths."""
    size = len(document.text)
    spans = [(start, min(start + length, size)) for start in range(0, size, length)]
    dice = random.Random(seed)
    for _ in range(random_spans):
        start = dice.randrange(size)
        spans.append((start, min(size, start + dice.randint(1, 3 * length))))
    return spans


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--span", type=int, default=250, help="characters of a span")
    parser.add_argument("--random", type=int, default=500, help="further spans at random places")
    parser.add_argument("--show", type=int, default=0, help="how many wrong spans to print")
    options = parser.parse_args()
    all_right = True
    for path in sorted(options.folder.glob("*.pdf")):
        begin = time.perf_counter()
        try:
            document = extract(path)
        except ExtractError as error:
            print(f"{path.name}: {error.reason}")
            continue
        seconds = time.perf_counter() - begin
        spans = spans_of(document, options.span, options.random)
        wrong = list(wrong_spans(path, document, spans))
        all_right &= not wrong
        share = 100 * (1 - len(wrong) / max(1, len(spans)))
        print(
            f"{path.name}: {share:.2f} % of {len(spans)} spans right, {len(document.pages)} pages, "
            f"{len(document.text)} characters, {seconds:.2f} s to extract ({seconds / len(document.pages):.3f} s/page)"
        )
        for span in wrong[: options.show]:
            print(f"  {span.start}:{span.end} on pages {[page + 1 for page in span.pages]}")
            print(f"    expected {span.expected}\n    found    {span.found}")
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())
