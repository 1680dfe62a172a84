"""Numbers that a producer hid before headings and that come out glued to them: "311BExcept where noted"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from retrieval.extraction.pdf.text_boxes import TextLine

_HIDDEN = re.compile(r"(\d{1,4})B(?=[A-Z]\w)")
_FEWEST = 3  # with fewer, "4BAll" may be a name


def without_hidden_numbers(pages: Sequence[Sequence[TextLine]]) -> list[list[TextLine]]:
    """The lines without counters "0B", "1B", "2B" ... at their beginning, if these only ever rise."""
    numbers = [int(found[1]) for lines in pages for line in lines if (found := _HIDDEN.match(line.text))]
    if len(numbers) < _FEWEST or any(following <= number for number, following in pairwise(numbers)):
        return [list(lines) for lines in pages]
    return [[_without(line) for line in lines] for lines in pages]


def _without(line: TextLine) -> TextLine:
    found = _HIDDEN.match(line.text)
    if found is None:
        return line
    cut = found.end()
    return replace(
        line, text=line.text[cut:], box_C4=line.box_C4[cut:], placed_C=line.placed_C[cut:], run_C=line.run_C[cut:]
    )
