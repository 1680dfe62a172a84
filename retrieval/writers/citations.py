"""The numbers that an answer cites, and the labels of passages in a local writer's prompt.

A stored passage cannot know its number in this question, and its tokens would not know a number put before it later. So
each passage has a label of three digits, made from its text and stored with it. The answer's citations are translated
while it is written; a citation of no passage is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from retrieval.types.answers import Citation

_FIRST, _COUNT = 100, 900
BRACKETS = re.compile(r"\[\s*\d{1,5}(?:\s*[,;]\s*\d{1,5})*\s*\]")
_NUMBER = re.compile(r"\d+")
_BEGUN = re.compile(r"\[[\d\s,;]{0,40}$")


def labels_of(bodies: Sequence[str]) -> list[int]:
    """A label for each body: nearly always the same for the same body, and never the same for two of these."""
    labels: list[int] = []
    for body in bodies:
        label = int.from_bytes(hashlib.sha256(body.encode()).digest()[:4]) % _COUNT
        while label + _FIRST in labels:
            label = (label + 1) % _COUNT
        labels.append(label + _FIRST)
    return labels


def numbers_in(notes: Sequence[str]) -> dict[int, int]:
    """Every number that notes cite, as itself: notes have the numbers that the user sees."""
    cited = (int(number) for note in notes for one in BRACKETS.finditer(note) for number in _NUMBER.findall(one[0]))
    return {number: number for number in cited}


def with_labels(instruction: str, numbers: dict[int, int]) -> str:
    """An instruction whose examples, like [1], are citations that this writer can make."""
    labels = {number: label for label, number in numbers.items()}
    return re.sub(r"\[(\d)\]", lambda example: f"[{labels.get(int(example[1]), example[1])}]", instruction)


class CitationStream:
    """Translates `[label]` in a stream of text; what may become one is held back until it is known.

    numbers: what is shown for each label.
    """

    def __init__(self, numbers: dict[int, int]) -> None:
        self._numbers = numbers
        self._held = ""

    def add(self, text: str) -> str:
        """Text that is final now."""
        self._held += text
        begun = _BEGUN.search(self._held)
        end = begun.start() if begun else len(self._held)
        final, self._held = self._held[:end], self._held[end:]
        return BRACKETS.sub(self._translated, final)

    def flush(self) -> str:
        """What is left at the end of the text."""
        held, self._held = self._held, ""
        return held

    def _translated(self, citation: re.Match[str]) -> str:
        cited = [int(number) for number in _NUMBER.findall(citation[0])]
        shown = dict.fromkeys(self._numbers[label] for label in cited if label in self._numbers)
        return "".join(f"[{number}]" for number in shown)


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
    """The text without citations."""
    return re.sub(r"\s*" + BRACKETS.pattern, "", text)
