"""Where the sentences of a text begin and end, and which of them can be answers."""

import re
from collections.abc import Iterator

_BORDER = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z0-9])|\s*\n+\s*")
_ENDS = (".", "!", "?", "…", ":", ";")
# Lines of text with hard line breaks are about this long; headings are shorter, paragraphs longer.
_SHORTEST_LINE, _LONGEST_LINE = 60, 120
_FEWEST_WORDS = 5
_LEADERS = "....."  # dots that lead to a page number
_ROW = re.compile(r"\S: \S.*; .*\S: \S")  # of a table: cells behind the names of their columns


def sentence_borders(text: str, low: int = 0, high: int | None = None) -> Iterator[tuple[int, int]]:
    """(start, end) of every sentence or line between `low` and `high`, without the white space around it."""
    high = len(text) if high is None else high
    width = max(map(len, text[low:high].split("\n")))
    found = (match for match in _BORDER.finditer(text, low, high) if not _goes_on(text, match, width))
    borders = [low, *(match.end() for match in found), high]
    for start, end in zip(borders, borders[1:], strict=False):
        stop = start + len(text[start:end].rstrip())
        if stop > start:
            yield start, stop


def _goes_on(text: str, border: re.Match[str], width: int) -> bool:
    """Whether a line break is inside a sentence: the next line begins in lower case, or its first word did not fit into
    a line of this width, as in text with hard line breaks."""
    if border[0].count("\n") != 1 or text.endswith(_ENDS, 0, border.start()):
        return False
    word = (text[border.end() : border.end() + 100].split() or [""])[0]
    if word[:1].islower():
        return True
    length = border.start() - (text.rfind("\n", 0, border.start()) + 1)
    return length >= _SHORTEST_LINE and length + 1 + len(word) > width <= _LONGEST_LINE


def may_answer(sentence: str) -> bool:
    """False for headings, which repeat the question's words and answer nothing, lines of contents, and questions."""
    if sentence.endswith("?") or _LEADERS in sentence:
        return False
    return len(sentence.split()) >= _FEWEST_WORDS or bool(_ROW.search(sentence))
