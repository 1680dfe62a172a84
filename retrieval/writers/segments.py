"""Documents in segments: what a writer reads at a time, cut at paragraph borders, the same for every question.

Works on strings only. Positions are characters of the document's text.
"""

from __future__ import annotations

import re
from bisect import bisect_right

# About 250 tokens of English: a few paragraphs, short enough for a citation to lead to the place, and eight of them fit
# into small windows.
SEGMENT_CHARACTERS = 1000
# A border is looked for in the last part of a segment.
_EARLIEST = 0.5

_BORDERS = (re.compile(r"\n\s*\n"), re.compile(r"[.!?…][\"'”’)\]]*\s+"), re.compile(r"\s+"))


def segments_of(text: str, length: int = SEGMENT_CHARACTERS) -> list[tuple[int, int]]:
    """(start, end) of segments of at most `length` characters that cover `text` without gaps.

    Each ends at the last paragraph border in its second half, else at a sentence, else at a word.
    """
    segments, start = [], 0
    while len(text) - start > length:
        end = _border(text, start + int(length * _EARLIEST), start + length)
        segments.append((start, end))
        start = end
    return [*segments, (start, len(text))] if text else []


def segment_at(segments: list[tuple[int, int]], position: int) -> int:
    """Number of the segment that holds the character at `position`."""
    return bisect_right(segments, (position, len(segments) and segments[-1][1] + 1)) - 1


def _border(text: str, earliest: int, latest: int) -> int:
    for pattern in _BORDERS:
        ends = [match.end() for match in pattern.finditer(text, earliest, latest)]
        if ends:
            return ends[-1]
    return latest
