"""Text in a picture: every character with its box, as Tesseract reads it. Runs inside the worker process only.

Axes: N characters of the picture, in the order of reading.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from retrieval.extraction.pdf.characters import PageCharacters

_LEAST_CONFIDENCE = 30.0  # percent, of a word; what is found in photographs has less
_SURE_LINE = 60.0  # percent; in a line of print, words that are no words (addresses, marks of notes) have little, too
_SAME_SIZE = 0.25  # lines whose height differs by less are of one size
_ASCENT, _DESCENT = 0.95, 0.25  # of the size: what the line of a printed character spans
_SIZE_OF_CAPITALS = 1.4  # size of print to the height of its capitals


Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class _Word:
    """`box` in pixels; `capitals`: how high its letters are above the baseline `base`; `confidence` in percent."""

    text: str
    confidence: float
    box: Box
    base: float
    capitals: float


class Recogniser:
    """Reads pictures in some languages; `folder` holds their models (or links to them)."""

    def __init__(self, folder: Path, languages: str):
        os.environ["OMP_THREAD_LIMIT"] = "1"  # read when the library starts; more threads only get in each other's way
        import tesserocr  # only where there is something to recognise

        self._parts = tesserocr
        self._engine = tesserocr.PyTessBaseAPI(
            path=str(folder), lang=languages, psm=tesserocr.PSM.AUTO, oem=tesserocr.OEM.LSTM_ONLY
        )

    def read(self, picture: Image.Image, width: float, height: float) -> list[PageCharacters]:
        """The characters of a grey picture of a page that is so wide and high, in points, by blocks of print."""
        scale = width / picture.width
        self._engine.SetImage(picture)
        self._engine.SetSourceResolution(max(70, round(72 / scale)))
        self._engine.Recognize()
        blocks = [[kept for line in block if (kept := _trusted(line))] for block in self._blocks()]
        self._engine.Clear()
        sizes = iter(_sizes([line for block in blocks for line in block], scale))
        return [_characters(block, [next(sizes) for _ in block], scale, width, height) for block in blocks if block]

    def _blocks(self) -> Iterator[list[list[_Word]]]:
        level = self._parts.RIL
        iterator = self._engine.GetIterator()
        if iterator is None:
            return
        block: list[list[_Word]] = []
        line: list[_Word] = []
        for word in self._parts.iterate_level(iterator, level.WORD):
            if word.IsAtBeginningOf(level.BLOCK):
                yield block
                block = []
            if word.IsAtBeginningOf(level.TEXTLINE):
                line = []
                block.append(line)
            if word.Empty(level.WORD):  # a picture without words
                continue
            text, box = (word.GetUTF8Text(level.WORD) or "").strip(), word.BoundingBox(level.WORD)
            if text and box:
                base = _baseline(word, level)
                left, top, right, bottom = map(float, box)
                sure = float(word.Confidence(level.WORD))
                line.append(_Word(text, sure, (left, top, right, bottom), base, max(1.0, base - top)))
        yield block


def _trusted(line: Sequence[_Word]) -> list[_Word]:
    """Every word of a line that is print as a whole; of others the words that are sure by themselves."""
    letters = sum(len(word.text) for word in line)
    if sum(word.confidence * len(word.text) for word in line) >= _SURE_LINE * letters:
        return list(line)
    return [word for word in line if word.confidence >= _LEAST_CONFIDENCE]


def _baseline(symbol: Any, level: Any) -> float:
    """The height of the baseline under a word, in pixels."""
    box = symbol.BoundingBox(level.WORD)
    start, end = symbol.Baseline(level.TEXTLINE) or ((box[0], box[3]), (box[2], box[3]))
    middle = (box[0] + box[2]) / 2
    lean = (end[1] - start[1]) / max(1, end[0] - start[0])
    return float(start[1] + lean * (middle - start[0]))


def _characters(
    lines: Sequence[Sequence[_Word]], sizes: Sequence[float], scale: float, width: float, height: float
) -> PageCharacters:
    """Tesseract knows where words are, and letters only roughly: those of a word share its width evenly."""
    codes: list[int] = []
    inks: list[Box] = []
    bases: list[float] = []
    size_parts: list[float] = []
    spaced: list[int] = []
    for line, size in zip(lines, sizes, strict=True):
        for place, word in enumerate(line):
            left, top, right, bottom = word.box
            step = (right - left) / len(word.text)
            codes += map(ord, word.text)
            inks += [(left + n * step, top, left + (n + 1) * step, bottom) for n in range(len(word.text))]
            bases += [word.base] * len(word.text)
            size_parts += [size] * len(word.text)
            spaced += [2 if place else 0, *[0] * (len(word.text) - 1)]
    count = len(codes)
    ink_N4 = (np.array(inks, np.float64).reshape(-1, 4) * scale).clip(0, [width, height, width, height])
    base_N, size_N = np.array(bases, np.float64) * scale, np.array(size_parts, np.float64)
    box_N4 = ink_N4.copy()
    box_N4[:, 1] = (base_N - _ASCENT * size_N).clip(0, height)
    box_N4[:, 3] = (base_N + _DESCENT * size_N).clip(0, height)
    origin_N2 = np.stack([ink_N4[:, 0], base_N], axis=1).reshape(-1, 2)
    return PageCharacters(
        width, height, np.array(codes, np.uint32), box_N4, origin_N2, size_N, np.full(count, 400, np.int32),
        np.zeros(count, int), np.array(spaced, np.int8), ink_N4, np.zeros(count, np.int32), 0,
    )  # fmt: skip


def _sizes(lines: Sequence[Sequence[_Word]], scale: float) -> list[float]:
    """Size of print of each line, in points; lines that differ little have one size, as in print."""
    measured = [_SIZE_OF_CAPITALS * scale * float(np.quantile([word.capitals for word in line], 0.8)) for line in lines]
    return [
        float(np.median([other for other in measured if abs(other - size) < _SAME_SIZE * size])) for size in measured
    ]
