"""Spelling correction: a word of a question that no document holds becomes the nearest word that one does.

Only what looks misspelt is changed: a word that no block holds, that the model's tokenizer splits, and that one edit (a
letter left out, added, changed, or swapped with its neighbour) turns into a word of the library. The answer says what
was changed.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from retrieval.index.exact_text import Wanted
from retrieval.index.terms import SMALL_WORDS, word_id
from storage.catalogue import Catalogue

if TYPE_CHECKING:
    from model.checkpoint.landmark_model import LandmarkModel

SHORTEST = 5
"""Letters of the shortest word that is changed: shorter ones are one letter from many others."""
_TRIED = 3
_WORD = re.compile(r"[^\W\d_]+")


def corrected(catalogue: Catalogue, model: LandmarkModel, question: str) -> str:
    """The question, with its misspelt words replaced by words of the library."""
    return _with_words_held(catalogue, question, lambda word: _may_be_misspelt(word, model))


def nearest_words(catalogue: Catalogue, words: str) -> str:
    """These words, with each that no document holds replaced by the nearest that one does; "" if none is."""
    nearest = _with_words_held(catalogue, words, lambda word: len(word) >= SHORTEST)
    return "" if nearest == words else nearest


def _with_words_held(catalogue: Catalogue, question: str, may_be_misspelt: Callable[[str], bool]) -> str:
    words = [match for match in _WORD.finditer(question) if may_be_misspelt(match[0])]
    held = catalogue.count_terms([word_id(match[0]) for match in words]) if words else {}
    for match in reversed(words):  # from the end on, so that places stay
        if word_id(match[0]) not in held and (right := _nearest(catalogue, match[0].lower())):
            right = right.capitalize() if match[0][0].isupper() else right
            question = question[: match.start()] + right + question[match.end() :]
    return question


def _may_be_misspelt(word: str, model: LandmarkModel) -> bool:
    return len(word) >= SHORTEST and word.lower() not in SMALL_WORDS and len(model.tokenize(f" {word.lower()}").ids) > 1


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
