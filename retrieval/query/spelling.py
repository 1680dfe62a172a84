"""The nearest word of the library for one that no document holds: one edit (a letter left out, added, changed, or
swapped with its neighbour) turns one into the other.

What was looked for exactly and stands nowhere is told so. Questions are asked as they are typed: of 465 in eleven
languages 73 would be changed, 60 of which are not mistyped, and two fewer be answered (docs/experiments.md).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from retrieval.index.exact_text import Wanted
from retrieval.index.terms import word_id
from storage.catalogue import Catalogue

SHORTEST = 5
"""Letters of the shortest word that is looked up: shorter ones are one letter from many others."""
_TRIED = 3
_WORD = re.compile(r"[^\W\d_]+")


def nearest_words(catalogue: Catalogue, words: str) -> str:
    """These words, with each that no document holds replaced by the nearest that one does; "" if none is."""
    looked_up = [match for match in _WORD.finditer(words) if len(match[0]) >= SHORTEST]
    held = catalogue.count_terms([word_id(match[0]) for match in looked_up]) if looked_up else {}
    nearest = words
    for match in reversed(looked_up):  # from the end on, so that places stay
        if word_id(match[0]) not in held and (right := _nearest(catalogue, match[0].lower())):
            right = right.capitalize() if match[0][0].isupper() else right
            nearest = nearest[: match.start()] + right + nearest[match.end() :]
    return "" if nearest == words else nearest


def _nearest(catalogue: Catalogue, word: str) -> str:
    """The word of the library one letter away that most shards hold; "" if there is none."""
    near = {word_id(one): one for one in _one_letter_away(word)}
    counts = catalogue.count_terms(list(near))
    for number in sorted(counts, key=lambda one: counts[one], reverse=True)[:_TRIED]:
        if _stands_in(catalogue, near[number], number):
            return near[number]
    return ""


def _stands_in(catalogue: Catalogue, word: str, number: int) -> bool:
    """Whether a text really holds the word: other words may have its number."""
    for document_id in sorted(catalogue.documents_with_terms([number]))[:_TRIED]:
        if next(Wanted.of_words(word).places(catalogue.extracted_text(document_id).text), None):
            return True
    return False


def _one_letter_away(word: str) -> Iterator[str]:
    letters = sorted(set(string.ascii_lowercase) | set(word))
    for at in range(len(word) + 1):
        head, tail = word[:at], word[at:]
        if tail:
            yield head + tail[1:]
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]
        for letter in letters:
            yield head + letter + tail
            if tail:
                yield head + letter + tail[1:]
