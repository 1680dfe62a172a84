"""Where a text is beside its matter: nothing is asked about references, licences and what stands on every page."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

Span = tuple[int, int]

_PARAGRAPH = re.compile(r"[^\n](?:[^\n]+|\n(?!\s*\n))*")
_REFERENCES = re.compile(
    r"(?:(?:\d{1,2}|[IVX]{1,4}|[A-Z])\.?\s+)?(?:references|bibliography|works cited|literature(?: cited)?"
    r"|literatur(?:verzeichnis)?|références|bibliographie|referencias|bibliografía)\s*:?",
    re.I,
)
_CITED = re.compile(r"\b(?:19|20)\d\d[a-z]?\b|\bet al\b|\bdoi\b|https?:|\bpp\.|\bVol\.|\bIn\s+Proc|arXiv", re.I)
_HEADING = re.compile(r"(?:(?:\d{1,2}(?:\.\d{1,2})*|[A-Z]|[IVX]{1,4})\.?\s+)?[A-Z][\w’'-]*(?:[ :&/]+[\w’'()–-]+){0,8}")
_LICENCE = re.compile(
    r"creative\s+commons|all\s+rights\s+reserved|retain\s+copyright|copyright\s+(?:\(c\)|©|\d{4}|holder)|(?:©|\(c\))\s*\d{4}"
    r"|licensed\s+under|permission\s+to\s+make\s+digital|under\s+the\s+terms\s+of\s+the\s+licen[cs]e|CC[ -]BY",
    re.I,
)
_LONGEST_LICENCE = 700  # characters of a paragraph; a longer one is about more than its licence
_LONGEST_HEAD = 160
_OFTEN = 4  # times that a line stands in the document before it counts as repeated
_FEWEST_CITED = 0.6  # of the paragraphs of a list of references
_DIGITS = re.compile(r"\d+")


class Asides:
    """Where a text is beside its matter: references, licences, names of columns, what stands on page after page.

    Found in the text alone, so documents that were stored before are no exception.
    """

    def __init__(self, text: str):
        found = sorted([*_references(text), *_licences(text), *_repeated(text), *_column_names(text)])
        self._starts = [start for start, _ in found]
        self._ends: list[int] = []
        for _, end in found:  # the furthest end so far, because spans may overlap
            self._ends.append(max(end, self._ends[-1] if self._ends else 0))

    def __contains__(self, position: int) -> bool:
        before = bisect_right(self._starts, position)
        return before > 0 and position < self._ends[before - 1]


def _paragraphs(text: str) -> Iterator[tuple[Span, str]]:
    for match in _PARAGRAPH.finditer(text):
        yield match.span(), match[0].strip()


def _references(text: str) -> Iterator[Span]:
    """From a heading "References" to the next heading, if most of what stands between cites something."""
    begun: int | None = None
    last = 0
    cites: list[bool] = []
    for (start, end), paragraph in [*_paragraphs(text), ((len(text), len(text)), "The End")]:
        if begun is not None and (_is_heading(paragraph) or start == len(text)):
            if cites and sum(cites) >= _FEWEST_CITED * len(cites):
                yield begun, last
            begun = None
        if _REFERENCES.fullmatch(paragraph):
            begun, cites = start, []
        elif begun is not None:
            cites.append(bool(_CITED.search(paragraph)))
        last = end


def _is_heading(paragraph: str) -> bool:
    return len(paragraph) < 80 and not _CITED.search(paragraph) and bool(_HEADING.fullmatch(paragraph))


def _licences(text: str) -> Iterator[Span]:
    for span, paragraph in _paragraphs(text):
        if len(paragraph) <= _LONGEST_LICENCE and _LICENCE.search(paragraph):
            yield span


def _repeated(text: str) -> Iterator[Span]:
    lines = [(match.span(), _DIGITS.sub("#", match[0].strip().lower())) for match in re.finditer(r"[^\n]+", text)]
    counts = Counter(line for _, line in lines)
    for span, line in lines:
        if counts[line] >= _OFTEN and 0 < len(line) <= _LONGEST_HEAD:
            yield span


def _column_names(text: str) -> Iterator[Span]:
    """Lines of cells whose text stands before those of the next line."""
    start = 0
    lines = text.split("\n")
    for line, following in zip(lines, lines[1:], strict=False):
        if "\t" in line and any(f"{name}: " in following for name in line.split("\t") if name):
            yield start, start + len(line)
        start += len(line) + 1
