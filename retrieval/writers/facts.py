"""Figures, names and content words of a sentence: what a claim must share with the text that supports it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from retrieval.index.terms import SMALL_WORDS

_WORD = re.compile(r"[^\W_]+(?:[.,:/'’–−-][^\W_]+)*%?")
_FIGURE = re.compile(r"\d")
_COUNTING = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty"""
_TENS = "thirty forty fifty sixty seventy eighty ninety"
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_COUNTING.split())} | {
    word: str(10 * tens) for tens, word in enumerate(_TENS.split(), 3)
}
# "one" is a pronoun more often than a figure.
_NO_FIGURES = ("one", "zero")
_OF_ANSWERS = """
    according document documents passage passages text states stated mentions mentioned says said provides provided
    additionally furthermore following
"""
_STOP = SMALL_WORDS | frozenset(_OF_ANSWERS.split())
_ENDINGS = "ations ation ments ment ings ing ies ied edly ed es ly s e y"
_SHORTEST_STEM = 3


@dataclass(frozen=True)
class Fact:
    """A figure or a name: characters `start` to `end` of its sentence, and the form that is compared."""

    start: int
    end: int
    form: str
    is_figure: bool


def facts_of(sentence: str, *, first_is_name: bool = False) -> list[Fact]:
    """Figures, and words that begin with a capital, unless they only begin the sentence; `first_is_name`: these too."""
    found = []
    words = list(_WORD.finditer(sentence))
    for at, match in enumerate(words):
        word = match[0]
        if _FIGURE.search(word) or (word.lower() in _NUMBER_WORDS and word.lower() not in _NO_FIGURES):
            found += [Fact(match.start(), match.end(), form, True) for form in _figures(word)]
        elif _is_capitalised(word) and (first_is_name or not _only_begins(words, at, sentence)):
            found.append(Fact(match.start(), match.end(), stem(word), False))
    return found


def forms_of(text: str) -> set[str]:
    """Everything in `text` that a fact or a content word is compared with."""
    forms: set[str] = set()
    for match in _WORD.finditer(text):
        word = match[0]
        forms.update(_figures(word) if _FIGURE.search(word) else (stem(word),))
        if word.lower() in _NUMBER_WORDS:
            forms.add(_NUMBER_WORDS[word.lower()])
        if not _FIGURE.search(word):
            forms.update(stem(part) for part in re.split(r"[.,:/'’–-]", word))
    return forms


def content_words(sentence: str) -> list[str]:
    """Stems of the words that carry meaning, figures in the form that is compared."""
    words: list[str] = []
    for match in _WORD.finditer(sentence):
        word = match[0]
        if _FIGURE.search(word):
            words += _figures(word)
        elif word.lower() in _NUMBER_WORDS and word.lower() not in _NO_FIGURES:
            words.append(_NUMBER_WORDS[word.lower()])
        elif word.lower() not in _STOP:
            words.append(stem(word))
    return words


def stem(word: str) -> str:
    """Lower case, without possessive and common endings of English; other languages keep most of their words."""
    word = re.sub(r"['’]s?$", "", word.casefold())
    for suffix in _ENDINGS.split():
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST_STEM:
            return word.removesuffix(suffix)
    return word


def _figures(word: str) -> list[str]:
    """`1,200` and `1200` are one figure; a range or a date in figures is several."""
    lower = word.lower()
    if lower in _NUMBER_WORDS:
        return [_NUMBER_WORDS[lower]]
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", lower).rstrip("%")
    return [part.lstrip("0") or "0" for part in re.split(r"[:/,'’–-]", plain) if part]


def _is_capitalised(word: str) -> bool:
    """The month is no word of grammar."""
    return word[0].isupper() and (word.lower() not in _STOP or word == "May")


def first_word(sentence: str) -> str:
    """Empty if the sentence has none."""
    match = _WORD.search(sentence)
    return match[0] if match else ""


def _only_begins(words: list[re.Match[str]], at: int, sentence: str) -> bool:
    """Whether the capital may come from the beginning of a sentence: the next word is no name, the word no acronym."""
    word = words[at][0]
    before = sentence[: words[at].start()].rstrip()
    begins = not before or before.endswith((".", "!", "?", ":", "-", "*", "|", "•"))
    if not begins or sum(letter.isupper() for letter in word) > 1:
        return False
    following = words[at + 1][0] if at + 1 < len(words) else ""
    return not (following[:1].isupper() and following.lower() not in _STOP)
