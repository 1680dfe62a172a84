"""Where a line of running text ends: whether a hyphen there belongs to the word, and what parts it from the next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

SPACE, NOTHING = " ", ""
SOFT_HYPHEN = "\u00ad"
LINE_HYPHENS = ("-", "\u2010", SOFT_HYPHEN)
ADDRESS = re.compile(r"(?:https?://|www\.|doi\.org|doi:)\S*$")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LAST_WORD = re.compile(r"[\w-]*$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")


class Words:
    """Word counts of the document, which tell whether a hyphen at the end of a line belongs to the word."""

    def __init__(self, lines: Iterable[str]):
        self._count: Counter[str] = Counter()
        for text in lines:
            if text.endswith(LINE_HYPHENS):
                text = text[: _LAST_WORD.search(text[:-1]).start()]  # type: ignore[union-attr]  # always matches
            self._count.update(word.lower() for word in _WORD.findall(text))

    def keeps_hyphen(self, head: str, tail: str) -> bool:
        """Whether `head`-`tail`, broken after the hyphen, is a compound ("long-term") and not a hyphenated word."""
        if not tail[:1].islower() or not head[-1:].isalpha():
            return True
        head, tail = head.lower(), tail.lower()
        joined, compound = self._count[head.rsplit("-", 1)[-1] + tail], self._count[f"{head}-{tail}"]
        if joined or compound:
            return compound > joined
        if "-" in head or len(head) == 1:  # no word is divided behind its first letter
            return True
        return self._count[head] > 2 and self._count[tail] > 2 and len(head) > 3 and len(tail) > 3


def join_words(text: str, following: str, words: Words) -> tuple[int, str]:
    """Within a paragraph: how many characters of the line stay, and what separates it from the next line."""
    if text.endswith(SOFT_HYPHEN):
        return len(text) - 1, NOTHING
    if text.endswith(LINE_HYPHENS) and len(text) > 1 and text[-2].isalnum():
        head = _LAST_WORD.search(text[:-1])
        tail = _FIRST_WORD.match(following)
        if ADDRESS.search(text) or tail is None or head is None or words.keeps_hyphen(head[0], tail[0]):
            return len(text), NOTHING if following[:1].isalnum() else SPACE
        return len(text) - 1, NOTHING
    if text.endswith(("—", "–")) and len(text) > 1 and not text[-2].isspace():
        return len(text), NOTHING
    if ADDRESS.search(text) and text[-1] in "/._=&?-%#" and not following[:1].isupper():
        return len(text), NOTHING
    return len(text), SPACE
