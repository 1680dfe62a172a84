"""Printed characters to plain text with the box of each: ligatures, accents, odd spaces, footnote marks.

Axes: N printed characters of a line, C characters of its text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

import numpy as np

from retrieval.extraction.pdf.characters import HYPHEN, PageCharacters
from retrieval.extraction.pdf.layout import Line
from retrieval.extraction.table_rows import Piece, joined_pieces

CELL_BORDER = "\t"
APART = -1
_NOWHERE = -1
_FARTHEST_COUNTED = 8.0  # em between a number and what it counts
_RAISED = dict(zip(map(ord, "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻"), "0123456789+-", strict=True))
_POWER = re.compile(r"(?<![\d.,])(?:10|2)$")
_EXPONENT = re.compile(r"[-−–+]?\d{1,3}")
_MARKS = re.compile(r"\d{1,3}(?:[,–-]\d{1,3})*")
_COUNTER = re.compile(r"[^\w\s]|[(\[]?(?:\d{1,3}(?:\.\d{1,3})*|[A-Za-z]|[ivxlc]{1,5})[.)\]]?|o")

# Private-use codes that Word writes for the bullets of the Symbol and Wingdings fonts.
_BULLETS = {0xF0B7: "•", 0xF0A7: "▪", 0xF0D8: "➢", 0xF0FC: "✓", 0xF076: "❖", 0xF0E0: "→", 0xF06F: "o", 0xF02D: "-"}


@dataclass(frozen=True)
class TextLine:
    """A line of plain text. `box_C4` are fractions of the page, `placed_C` is false for white space; `run_C` numbers
    the pieces of the line (mostly table cells) that other text may separate. Bounds in points.
    `table`: the number of the table of which this is a row, 0 for none, APART for a line in no paragraph."""

    page: int
    column: int
    turn: int
    text: str
    box_C4: np.ndarray
    placed_C: np.ndarray
    run_C: np.ndarray
    x0: float
    y0: float
    x1: float
    y1: float
    base: float
    size: float
    bold: bool
    cells: int
    table: int = 0


@lru_cache(maxsize=4096)
def spell(code: int) -> str:
    """A printed character as plain text; "" if it is not text."""
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
    """The plain text of a printed line, or None if it has none."""
    letters, sources = _spelled(page, line)
    while letters and letters[-1] in (" ", CELL_BORDER):
        letters.pop()
        sources.pop()
    if not letters:
        return None
    source = np.array(sources)
    scale = np.array([page.width, page.height, page.width, page.height])
    placed = source != _NOWHERE
    box, run = _exact_boxes(page, line)
    fractions = np.where(placed[:, None], (box[source] / scale).clip(0, 1), 0.0).astype(np.float32)
    text = "".join(letters)
    assert len(text) == len(source)
    return TextLine(
        page_number, line.column, line.turn, text, fractions, placed, run[source],
        line.x0, line.y0, line.x1, line.y1, line.base, line.size, line.bold, 1 + text.count(CELL_BORDER),
    )  # fmt: skip


def _spelled(page: PageCharacters, line: Line) -> tuple[list[str], list[int]]:
    """The letters of a line, and for each the character of the line that it is of, or _NOWHERE."""
    letters: list[str] = []
    sources: list[int] = []

    def insert(text: str) -> None:
        letters.extend(text)
        sources.extend([_NOWHERE] * len(text))

    codes, accents = page.code_N[line.indices_N].tolist(), page.accent_N[line.indices_N].tolist()
    gaps = line.gaps_N.tolist()
    figures = [
        _RAISED.get(code, chr(code) if up else "") for code, up in zip(codes, line.raised_N.tolist(), strict=True)
    ]
    end, closing = 0, ""  # of raised figures behind a number
    for i, code in enumerate(codes):
        is_turn = i > 0 and bool(figures[i]) != bool(figures[i - 1])
        if i == end:
            insert(closing)
            closing = ""
        if letters and letters[-1] not in (" ", CELL_BORDER):
            if gaps[i]:
                insert(" " if gaps[i] == 1 or _is_counter(letters, page, line, i) else CELL_BORDER)
            elif is_turn and figures[i] and letters[-1].isdigit():
                run = "".join(takewhile(bool, figures[i:]))
                end = i + len(run)
                opening, closing = _around_figures("".join(letters), run, codes[end : end + 1])
                insert(opening)
            elif is_turn and (_is_note_mark(code, letters) if line.raised_N[i] else _after_note(codes, i)):
                insert(" ")
        spelled = figures[i] if i < end and code in _RAISED else spell(code)
        if accents[i] and spelled:
            composed = unicodedata.normalize("NFC", spelled + chr(accents[i]))
            spelled = composed if len(composed) == 1 else spelled
        letters += spelled
        sources += [i] * len(spelled)
    insert(closing)
    return letters, sources


def _around_figures(text: str, run: str, following: list[int]) -> tuple[str, str]:
    """What parts raised figures from the number before them: that of a power of ten or two, or the mark of a note."""
    if following in ([ord("/")], [0x2044]):  # five and a half
        return " ", ""
    if _EXPONENT.fullmatch(run) and (_POWER.search(text) or not run.isdigit()):
        return "^", ""
    return (" [", "]") if _MARKS.fullmatch(run) else ("", "")


def _is_counter(letters: list[str], page: PageCharacters, line: Line, i: int) -> bool:
    """Whether a bullet or a number stands before a wide gap, which is no cell border then ("1.    Introduction")."""
    here, before = page.box_N4[line.indices_N[[i, i - 1]]]
    far = line.turn == 0 and here[0] - before[2] > _FARTHEST_COUNTED * line.size
    return not far and len(letters) <= 8 and _COUNTER.fullmatch("".join(letters)) is not None


def _is_note_mark(code: int, letters: list[str]) -> bool:
    """A raised digit or sign after a word or its punctuation marks a note; the 2 of "x²" does not."""
    if not (0x30 <= code <= 0x39 or chr(code) in "*†‡§¶∗"):
        return False
    tail = "".join(letters[-3:])
    name = tail[-2:-1].isupper() and tail[-1:].islower()  # "Li" may have a note, "cm" has an exponent
    return (len(tail) == 3 and tail.isalpha()) or name or tail[-1:] in tuple(".,;:!?)]}\"'”’")


def _after_note(codes: list[int], i: int) -> bool:
    """Whether the text of a note begins here, after its raised mark at the start of the line."""
    return i <= 2 and chr(codes[i]).isalpha() and all(chr(code) in "0123456789*†‡§¶∗" for code in codes[:i])


def _exact_boxes(page: PageCharacters, line: Line) -> tuple[np.ndarray, np.ndarray]:
    """box_N4 of a line's characters, and the piece of the line (counted from 0) that each belongs to.

    The pieces are as long as possible such that a box around one, or around part of one, encloses no other text. Where
    it would, the line is split at cells, then at words, then at every character; where lines overlap, the boxes shrink
    from the height of the line to the ink.
    """
    indices = line.indices_N
    foreign = np.ones(len(page.code_N), dtype=bool)
    foreign[indices] = False
    middle = page.middle_N2
    box = _clear_of_neighbours(page.box_N4[indices], middle[indices], line.turn % 2)
    ink = _clear_of_neighbours(page.ink_N4[indices], middle[indices], line.turn % 2)
    others = middle[foreign]
    others = others[((others >= box[:, :2].min(axis=0)) & (others <= box[:, 2:].max(axis=0))).all(axis=1)]
    for tried, gap in ((box, 2), (box, 1), (ink, 1)):
        run = np.cumsum(line.gaps_N >= gap)
        first = np.flatnonzero(np.diff(run, prepend=-1))
        low = np.minimum.reduceat(tried[:, :2], first)
        high = np.maximum.reduceat(tried[:, 2:], first)
        if not ((others[:, None] >= low) & (others[:, None] <= high)).all(axis=2).any():
            return tried, run
    return ink, np.arange(len(indices))


def _clear_of_neighbours(box_N4: np.ndarray, middle_N2: np.ndarray, axis: int) -> np.ndarray:
    """Boxes clipped where one extends past the centre of the next character (slanted letters, tight setting)."""
    box = box_N4.copy()
    here, following = middle_N2[:-1, axis], middle_N2[1:, axis]
    margin = np.minimum(0.02, np.abs(following - here) / 2)
    onward, backward = following > here, following < here  # the letters of a ligature share one position
    low, high = axis, axis + 2
    box[:-1, high] = np.where(onward, np.minimum(box[:-1, high], following - margin), box[:-1, high])
    box[1:, low] = np.where(onward, np.maximum(box[1:, low], here + margin), box[1:, low])
    box[:-1, low] = np.where(backward, np.maximum(box[:-1, low], following + margin), box[:-1, low])
    box[1:, high] = np.where(backward, np.minimum(box[1:, high], here - margin), box[1:, high])
    return box


def piece_of(line: TextLine, start: int, end: int) -> Piece:
    """Part of the text of a line, without white space around it."""
    text = line.text[start:end]
    start, end = start + len(text) - len(text.lstrip(" ,;|\t")), end - len(text) + len(text.rstrip(" ,;|\t"))
    part = slice(start, max(start, end))
    run_C = line.run_C[part]
    return Piece(line.text[part], line.placed_C[part], line.box_C4[part], run_C)


def composed(sources: Sequence[TextLine], pieces: Sequence[Piece]) -> TextLine:
    """One line of pieces of others."""
    joined = joined_pieces(pieces)
    x0, y0 = min(line.x0 for line in sources), min(line.y0 for line in sources)
    x1, y1 = max(line.x1 for line in sources), max(line.y1 for line in sources)
    return replace(
        sources[0], text=joined.text, run_C=joined.run_C, box_C4=joined.box_C4, placed_C=joined.placed_C,
        x0=x0, y0=y0, x1=x1, y1=y1, base=sources[-1].base, cells=max(2, sources[0].cells),
    )  # fmt: skip


def unprinted_line(page_number: int, text: str) -> TextLine:
    """A line of text that is printed nowhere."""
    piece = Piece.unprinted(text)
    return TextLine(
        page_number, 0, 0, text, piece.box_C4, piece.placed_C, piece.run_C,
        0.0, 0.0, 0.0, 0.0, 0.0, 0.0, False, 1, APART,
    )  # fmt: skip
