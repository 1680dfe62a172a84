"""The numbers that an answer cites."""

from __future__ import annotations

import re
from collections.abc import Mapping

from retrieval.types.written import Citation

BRACKETS = re.compile(r"\[\s*\d{1,5}(?:\s*[,;]\s*\d{1,5})*\s*\]")
_NUMBER = re.compile(r"\d+")


def citations_in(text: str, passage_of: Mapping[int, int]) -> tuple[Citation, ...]:
    """Every number in square brackets that a passage has. `passage_of`: its index among the answer's passages.

    The place of a number that stands alone in its brackets includes them. Other numbers stay text.
    """
    found = []
    for brackets in BRACKETS.finditer(text):
        numbers = list(_NUMBER.finditer(brackets[0]))
        for number in numbers:
            if int(number[0]) not in passage_of:
                continue
            first = brackets.start()
            start, end = brackets.span() if len(numbers) == 1 else (first + number.start(), first + number.end())
            found.append(Citation(int(number[0]), passage_of[int(number[0])], start, end))
    return tuple(found)


def without_citations(text: str) -> str:
    """The words alone."""
    return re.sub(r"\s*" + BRACKETS.pattern, "", text)
