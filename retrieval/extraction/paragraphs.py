"""Lines of all pages to one running text: paragraphs, headings, table rows, words divided at line ends.

Legend: N characters of the document, C characters of a line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from retrieval.extraction.normalise import LINE_HYPHENS, SOFT_HYPHEN, TextLine

PARAGRAPH, ROW, SPACE, NOTHING = "\n\n", "\n", " ", ""

_SENTENCE_END = re.compile(r"[.!?:;][\"'”’)\]]*\s*\d{0,2}$")
_BULLET = re.compile(r"[•▪◦‣·●○■□➢✓❖–—*-]\s+\S|o\s+[A-Z]")
_NUMBERED = re.compile(r"(?:\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)]|\[\d{1,3}\]|\d{1,2}(?:\.\d{1,2})+\.?)\s+\S")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LAST_WORD = re.compile(r"[\w-]*$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
_ADDRESS = re.compile(r"(?:https?://|www\.|doi\.org|doi:)\S*$")


class Words:
    """The words of the document, to decide whether a hyphen at a line's end belongs to the word."""

    def __init__(self, lines: Sequence[TextLine]):
        self._count: Counter[str] = Counter()
        for line in lines:
            text = line.text
            if text.endswith(LINE_HYPHENS):
                text = text[: _LAST_WORD.search(text[:-1]).start()]  # type: ignore[union-attr]  # always matches
            self._count.update(word.lower() for word in _WORD.findall(text))

    def keeps_hyphen(self, head: str, tail: str) -> bool:
        """`head` + "-" + line end + `tail`: is it a compound ("long-term") rather than a divided word?"""
        if not tail[:1].islower() or not head[-1:].isalpha():
            return True
        head, tail = head.lower(), tail.lower()
        joined, compound = self._count[head.rsplit("-", 1)[-1] + tail], self._count[f"{head}-{tail}"]
        if joined or compound:
            return compound > joined
        if "-" in head:
            return True
        return self._count[head] > 2 and self._count[tail] > 2 and len(head) > 3 and len(tail) > 3


def join_lines(pages: Sequence[Sequence[TextLine]]) -> tuple[str, np.ndarray, np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """Text, page_N, line_N, box_N4 and the span of each page's characters."""
    lines = [line for page in pages for line in page]
    words = Words(lines)
    margins = _margins(lines)
    texts: list[str] = []
    page_parts: list[np.ndarray] = []
    line_parts: list[np.ndarray] = []
    box_parts: list[np.ndarray] = []
    spans = [[-1, -1] for _ in pages]
    position = 0
    first_of_paragraph = True
    for number, line in enumerate(lines):
        text, box, placed = line.text, line.box_C4, line.placed_C
        following = lines[number + 1] if number + 1 < len(lines) else None
        separator = "" if following is None else _separator(line, following, margins, first_of_paragraph)
        if separator == SPACE and following is not None:
            kept, separator = _join_words(text, following.text, words)
            text, box, placed = text[:kept], box[:kept], placed[:kept]
        first_of_paragraph = separator in (PARAGRAPH, ROW)
        plain = text.replace("\u2010", "-")
        if SOFT_HYPHEN in plain:  # inside a line it is not printed
            keep = np.array([letter != SOFT_HYPHEN for letter in plain], dtype=bool)
            plain, box, placed = plain.replace(SOFT_HYPHEN, ""), box[keep], placed[keep]
        texts += [plain, separator]
        blank = len(separator)
        page_parts += [np.where(placed, line.page, -1).astype(np.int32), np.full(blank, -1, np.int32)]
        line_parts += [np.where(placed, number, -1).astype(np.int32), np.full(blank, -1, np.int32)]
        box_parts += [box, np.zeros((blank, 4), np.float32)]
        span = spans[line.page]
        if span[0] < 0:
            span[0] = position
        span[1] = position + len(plain)
        position += len(plain) + blank
    last = 0
    for span in spans:  # a page without text is an empty span where it would stand
        if span[0] < 0:
            span[:] = last, last
        last = span[1]
    empty = np.zeros(0, np.int32)
    return (
        "".join(texts),
        np.concatenate([empty, *page_parts]),
        np.concatenate([empty, *line_parts]),
        np.concatenate([np.zeros((0, 4), np.float32), *box_parts]),
        [(start, end) for start, end in spans],
    )


class _Margins:
    """Left and right edge and usual line distance of one column on one page."""

    def __init__(self, lines: Sequence[TextLine]):
        self.left = min(line.x0 for line in lines)
        self.right = max(line.x1 for line in lines)
        steps = [
            below.y1 - above.y1
            for above, below in zip(lines[:-1], lines[1:], strict=True)
            if abs(above.size - below.size) < 0.1 * above.size and 0.5 < (below.y1 - above.y1) / max(above.size, 1) < 2.2
        ]
        self.step = float(np.median(steps)) if steps else 0.0


def _margins(lines: Sequence[TextLine]) -> dict[tuple[int, int], _Margins]:
    columns: dict[tuple[int, int], list[TextLine]] = {}
    for line in lines:
        columns.setdefault((line.page, line.column), []).append(line)
    return {key: _Margins(members) for key, members in columns.items()}


def _separator(a: TextLine, b: TextLine, margins: dict[tuple[int, int], _Margins], a_is_first: bool) -> str:
    """What stands between two lines that follow each other."""
    margin = margins[a.page, a.column]
    em = max(a.size, 1.0)
    ends = bool(_SENTENCE_END.search(a.text))
    hyphen = a.text.endswith(LINE_HYPHENS) and len(a.text) > 1 and a.text[-2].isalpha()
    short = a.x1 < margin.right - 2 * em
    if a.turn != b.turn or abs(a.size - b.size) > 0.12 * max(a.size, b.size):
        return PARAGRAPH
    if a.cells > 1 or b.cells > 1:
        near = (a.page, a.column) == (b.page, b.column) and 0 <= b.y0 - a.y0 < 3 * em
        return ROW if near else PARAGRAPH
    if a.bold != b.bold and (short or b.bold):
        return PARAGRAPH
    if _BULLET.match(b.text):
        return PARAGRAPH if (a.page, a.column) != (b.page, b.column) else ROW
    if (a.page, a.column) != (b.page, b.column):
        other = margins[b.page, b.column]
        indented = b.x0 > other.left + 0.8 * em
        if hyphen or (not ends and b.text[:1].islower()):
            return SPACE
        return PARAGRAPH if ends or short or indented or b.text[:1].isdigit() else SPACE
    step = b.y1 - a.y1
    if step <= 0 and b.x0 < a.x1 or step < -em:
        return PARAGRAPH  # another box
    if step > max(1.35 * margin.step, 1.2 * em) if margin.step else step > 1.9 * em:
        return PARAGRAPH
    if _NUMBERED.match(b.text) and (ends or short) and b.x0 <= a.x0 + 3 * em:
        return PARAGRAPH
    indent = b.x0 - a.x0
    if (ends or short) and not hyphen:
        if 0.8 * em < indent < 6 * em and b.text[:1].isupper():
            return PARAGRAPH
        if indent < -0.8 * em and not a_is_first:
            return PARAGRAPH
        width = margin.right - margin.left
        if ends and a.x1 < margin.right - 0.12 * width and not a.text.endswith((",", ";")):
            return PARAGRAPH
        if a.x1 < margin.left + 0.5 * width and not b.text[:1].islower():
            return ROW
    return SPACE


def _join_words(text: str, following: str, words: Words) -> tuple[int, str]:
    """Within a paragraph: how many characters of the line stay, and what stands before the next line."""
    if text.endswith(SOFT_HYPHEN):
        return len(text) - 1, NOTHING
    if text.endswith(LINE_HYPHENS) and len(text) > 1 and text[-2].isalnum():
        head = _LAST_WORD.search(text[:-1])
        tail = _FIRST_WORD.match(following)
        if _ADDRESS.search(text) or tail is None or head is None or words.keeps_hyphen(head[0], tail[0]):
            return len(text), NOTHING if following[:1].isalnum() else SPACE
        return len(text) - 1, NOTHING
    if text.endswith("—") and len(text) > 1 and not text[-2].isspace():
        return len(text), NOTHING
    if _ADDRESS.search(text) and text[-1] in "/._=&?-%#" and not following[:1].isupper():
        return len(text), NOTHING
    return len(text), SPACE
