"""From printed characters to plain text, keeping the place of each: ligatures, accents, odd spaces, footnote marks.

Legend: N printed characters of a line, C characters of its text.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from retrieval.extraction.characters import HYPHEN, PageCharacters
from retrieval.extraction.layout import Line

SOFT_HYPHEN = "\u00ad"
LINE_HYPHENS = ("-", chr(HYPHEN), SOFT_HYPHEN)
CELL_BORDER = "\t"
_NOWHERE = -1

# Private-use codes that Word writes for the bullets of the Symbol and Wingdings fonts.
_BULLETS = {0xF0B7: "•", 0xF0A7: "▪", 0xF0D8: "➢", 0xF0FC: "✓", 0xF076: "❖", 0xF0E0: "→", 0xF06F: "o", 0xF02D: "-"}
# TeX prints accents as characters of their own, over the letter that follows.
_ACCENTS = {0xB4: "\u0301", 0x60: "\u0300", 0x2C6: "\u0302", 0xA8: "\u0308", 0x2DC: "\u0303", 0xB8: "\u0327",
            0x2C7: "\u030c", 0x2D8: "\u0306", 0x2DA: "\u030a", 0x2DD: "\u030b", 0xAF: "\u0304"}  # fmt: skip


@dataclass(frozen=True)
class TextLine:
    """A line of plain text. `box_C4` are fractions of the page, `placed_C` false for white space. Bounds in points."""

    page: int
    column: int
    turn: int
    text: str
    box_C4: np.ndarray
    placed_C: np.ndarray
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    bold: bool
    cells: int


@lru_cache(maxsize=4096)
def spell(code: int) -> str:
    """How a printed character is written in plain text; "" for what is no text."""
    if code in _BULLETS:
        return _BULLETS[code]
    if code == HYPHEN or code == 0xAD:
        return chr(code)  # decided when lines are joined
    if code == 0x2011:
        return "-"
    if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        return ""
    letter = chr(code)
    if 0xFB00 <= code < 0xFB50 or 0xFB50 <= code < 0xFE00 or 0xFE70 <= code < 0xFEFD:
        return unicodedata.normalize("NFKC", letter)
    if unicodedata.category(letter) in ("Cc", "Cf", "Cn"):
        return ""
    return letter


def plain_line(page_number: int, page: PageCharacters, line: Line) -> TextLine | None:
    """The plain text of a printed line, or None if nothing of it is text."""
    letters: list[str] = []
    sources: list[int] = []
    codes = page.code_N[line.indices_N].tolist()
    boxes = page.box_N4[line.indices_N]
    raised, gaps = line.raised_N.tolist(), line.gaps_N.tolist()
    pending = ""  # a TeX accent that waits for its letter
    for i, code in enumerate(codes):
        if letters and letters[-1] not in (" ", CELL_BORDER):
            if gaps[i]:
                letters.append(_cell_border(letters) if gaps[i] == 2 else " ")
                sources.append(_NOWHERE)
            elif raised[i] != raised[i - 1] and (_is_note_mark(code, letters) if raised[i] else _after_note(codes, i)):
                letters.append(" ")
                sources.append(_NOWHERE)
        if code in _ACCENTS and i + 1 < len(codes) and _stand_together(boxes[i], boxes[i + 1]):
            pending = _ACCENTS[code]
            continue
        spelled = spell(code)
        if pending:
            composed = unicodedata.normalize("NFC", spelled + pending)
            spelled, pending = composed if len(composed) == 1 else spelled, ""
        elif letters and spelled and unicodedata.combining(spelled):
            composed = unicodedata.normalize("NFC", letters[-1] + spelled)
            if len(composed) == 1:
                letters[-1] = composed
                continue
        letters += spelled
        sources += [i] * len(spelled)
    while letters and letters[-1] in (" ", CELL_BORDER):
        letters.pop()
        sources.pop()
    if not letters:
        return None
    source = np.array(sources)
    scale = np.array([page.width, page.height, page.width, page.height])
    placed = source != _NOWHERE
    fractions = np.where(placed[:, None], boxes[source] / scale, 0.0).astype(np.float32)
    text = "".join(letters)
    assert len(text) == len(source)
    return TextLine(
        page_number, line.column, line.turn, text, fractions, placed, line.x0, line.y0, line.x1, line.y1,
        line.size, line.bold, 1 + text.count(CELL_BORDER),
    )  # fmt: skip


def _cell_border(letters: list[str]) -> str:
    """A wide gap after a bullet or a number is no table: "1.    Introduction"."""
    return " " if len(letters) <= 6 and not any(letter in (" ", CELL_BORDER) for letter in letters) else CELL_BORDER


def _is_note_mark(code: int, letters: list[str]) -> bool:
    """A raised digit or sign after a word or its punctuation is a note's mark, "x" with a 2 is not."""
    if not (0x30 <= code <= 0x39 or chr(code) in "*†‡§¶∗"):
        return False
    tail = "".join(letters[-3:])
    name = tail[-2:-1].isupper() and tail[-1:].islower()  # "Li" with a note, but not "cm" with a 2
    return (len(tail) == 3 and tail.isalpha()) or name or tail[-1:] in tuple(".,;:!?)]}\"'”’")


def _after_note(codes: list[int], i: int) -> bool:
    """Whether the text of a note begins here, behind its raised mark at the start of the line."""
    return i <= 2 and chr(codes[i]).isalpha() and all(chr(code) in "0123456789*†‡§¶∗" for code in codes[:i])


def _stand_together(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two characters are printed over each other."""
    shared = min(first[2], second[2]) - max(first[0], second[0])
    return bool(shared > 0.5 * min(first[2] - first[0], second[2] - second[0]))
