"""Word's automatic numbers: what stands in front of a paragraph is nowhere in its text, it is counted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lxml import etree

from retrieval.extraction.parts import stated_number

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LEVELS = 9
BULLET = "•"
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
          (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))  # fmt: skip
_LARGEST = 100_000


@dataclass(frozen=True)
class Level:
    """One depth of a list. `kind`: as Word names it ("decimal", "bullet"); `pattern`: "%1.%2" for the numbers of the
    first and the second depth."""

    start: int
    kind: str
    pattern: str


class Numbering:
    """The lists of a document, counted as its paragraphs come. `lists`: by the id that paragraphs use, which list is
    counted, and its levels by depth (from 0)."""

    def __init__(self, lists: Mapping[str, tuple[str, Mapping[int, Level]]]):
        self._lists = lists
        self._counts: dict[str, list[int | None]] = {}

    def restart(self, identity: str, depth: int, at: int | None = None) -> None:
        """Count the next paragraph at this depth as the first, or as number `at`."""
        counted, levels = self._lists.get(identity, ("", {}))
        if depth in levels:
            self._counts.setdefault(counted, [None] * _LEVELS)[depth] = None if at is None else at - 1

    def label(self, identity: str, depth: int) -> str:
        """What stands in front of the next paragraph of a list at this depth (from 0); a bullet where none is counted,
        "" where the list shows nothing."""
        counted, levels = self._lists.get(identity, ("", {}))
        level = levels.get(depth)
        if level is None or level.kind == "bullet":
            return BULLET
        counts = self._counts.setdefault(counted, [None] * _LEVELS)
        before = counts[depth]
        counts[depth] = level.start if before is None else min(before + 1, _LARGEST)
        counts[depth + 1 :] = [None] * (_LEVELS - depth - 1)

        def number(found: re.Match[str]) -> str:
            at = int(found[1]) - 1
            shown = levels.get(at, level)
            count = counts[at]
            return _written(shown.start if count is None else count, shown.kind)

        return re.sub(r"%([1-9])", number, level.pattern).strip()


def word_numbering(root: etree._Element | None) -> Numbering:
    """The numbering of a Word document. `root`: of the part that defines its lists; None: it has none."""
    lists: dict[str, tuple[str, Mapping[int, Level]]] = {}
    if root is None:
        return Numbering(lists)
    abstract = {one.get(f"{_W}abstractNumId", ""): _levels(one) for one in root.iter(f"{_W}abstractNum")}
    for one in root.iter(f"{_W}num"):
        found, identity = one.find(f"{_W}abstractNumId"), one.get(f"{_W}numId", "")
        of = "" if found is None else found.get(f"{_W}val", "")
        levels = dict(abstract.get(of, {}))
        for override in one.iter(f"{_W}lvlOverride"):
            number, start = stated_number(override.get(f"{_W}ilvl"), 0), override.find(f"{_W}startOverride")
            levels |= _levels(override)
            if start is not None and number in levels:
                levels[number] = replace(levels[number], start=stated_number(start.get(f"{_W}val"), 1))
        restarts = one.find(f"{_W}lvlOverride/{_W}startOverride") is not None
        lists[identity] = (f"num {identity}" if restarts else f"list {of}"), levels
    return Numbering(lists)


def _levels(element: etree._Element) -> dict[int, Level]:
    found: dict[int, Level] = {}
    for level in element.findall(f"{_W}lvl"):
        values = {name: level.find(_W + name) for name in ("start", "numFmt", "lvlText")}
        start, kind, pattern = ("" if one is None else one.get(f"{_W}val", "") for one in values.values())
        depth = stated_number(level.get(f"{_W}ilvl"), 0)
        if depth < _LEVELS:
            found[depth] = Level(stated_number(start, 1), kind or "decimal", pattern[:100])
    return found


def _written(count: int, kind: str) -> str:
    if kind in ("lowerLetter", "upperLetter") and count > 0:
        letters = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)
        return letters if kind == "lowerLetter" else letters.upper()
    if kind in ("lowerRoman", "upperRoman"):
        written = ""
        for value, letters in _ROMAN:
            written += letters * (count // value)
            count %= value
        return written if kind == "lowerRoman" else written.upper()
    if kind == "none":
        return ""
    return f"{count:02d}" if kind == "decimalZero" else str(count)
