"""Exact text in stored documents: words as typed, or a regular expression, with their places.

Attention finds what a question is about; this finds what is written. Words match in any case, with or without accents,
in any compatibility form (full-width letters, ligatures), and across line breaks, soft hyphens and zero-width
characters.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import regex

from retrieval.errors import InvalidRequest
from retrieval.index.terms import asked_terms, term_id
from retrieval.types.answers import place_of
from retrieval.types.serialisation import Record
from storage.catalogue import Catalogue
from storage.records import Document

LONGEST_PATTERN = 500
SECONDS_A_DOCUMENT = 2.0
"""A regular expression that takes longer in one document is refused."""
_AROUND = 120
_UNSEEN = "[\u00ad\u200b-\u200d\u2060\ufeff]*+"
"""Invisible characters that may be inside a word: soft hyphens, zero-width spaces and joiners."""


@dataclass(frozen=True)
class TextMatch(Record):
    """Characters `start` to `end` of a document's text, on `page` (from 1), with the line around them."""

    document_id: str
    source: str
    title: str
    page: int
    place: str
    start: int
    end: int
    line: str


def fold(character: str) -> str:
    """The folded form of one character: compatibility form, no accents, no case. It may be several characters, or
    none."""
    kept = (one for one in unicodedata.normalize("NFKD", character) if not unicodedata.combining(one))
    return unicodedata.normalize("NFKC", "".join(kept).casefold())


@dataclass(frozen=True)
class Wanted:
    """What to look for: a pattern, and ASCII words without which no text can match it."""

    pattern: regex.Pattern[str]
    words: tuple[bytes, ...] = ()

    @classmethod
    def of_words(cls, words: str) -> Wanted:
        """These words in this order. Raises `InvalidRequest` if there are none, or too many."""
        folded = ["".join(map(fold, word)) for word in unicodedata.normalize("NFC", words).split()]
        folded = [word for word in folded if word]
        if not folded or len(words) > LONGEST_PATTERN:
            raise InvalidRequest(f"Give the words to look for, at most {LONGEST_PATTERN} characters.")
        pattern = regex.compile(r"\s++".join(map(_any_form, folded)))
        return cls(pattern, tuple(word.encode() for word in folded if word.isascii()))

    @classmethod
    def of_expression(cls, expression: str) -> Wanted:
        """A regular expression; case counts unless it says `(?i)`. Raises `InvalidRequest`."""
        if not expression or len(expression) > LONGEST_PATTERN:
            raise InvalidRequest(f"Give a regular expression of at most {LONGEST_PATTERN} characters.")
        try:
            pattern = regex.compile(expression, regex.MULTILINE)
        except regex.error as error:
            raise InvalidRequest(f"{expression!r} is not a regular expression: {error}.") from error
        if pattern.fullmatch(""):
            raise InvalidRequest(f"{expression!r} matches everywhere, even the empty text.")
        return cls(pattern)

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of each match. Raises `InvalidRequest` if the expression takes too long."""
        if self.words:  # tells most texts apart twenty times as fast as the pattern
            apart = unicodedata.normalize("NFKD", text.replace("ß", "ss").replace("ẞ", "ss"))
            plain = apart.encode("ascii", "ignore").lower()
            if not all(word in plain for word in self.words):
                return
        try:
            for match in self.pattern.finditer(text, timeout=SECONDS_A_DOCUMENT):
                yield match.span()
        except TimeoutError as error:
            raise InvalidRequest(
                f"The expression takes over {SECONDS_A_DOCUMENT:g} s in one document. Make it simpler: no repetition "
                "within a repetition."
            ) from error


def documents_holding(catalogue: Catalogue, words: str) -> set[str]:
    """Ids of the documents that hold all of these words, by the inverted index."""
    numbers = {term_id(term) for term in asked_terms(words)}
    return catalogue.documents_with_terms(numbers) if numbers else set()


def blocks_holding(catalogue: Catalogue, words: str, *, most: int) -> list[int]:
    """Ids of the blocks that hold these words in this order; none if there are more than `most`, which tells nothing
    apart, or if there are too many words."""
    if len(words) > LONGEST_PATTERN:
        return []
    wanted, found = Wanted.of_words(words), set[int]()
    for document_id in sorted(documents_holding(catalogue, words)):
        for start, end in wanted.places(catalogue.extracted_text(document_id).text):
            touched = catalogue.blocks_of_document(document_id, start=start, end=end)
            found.update(block.id for block in touched if block.start < end and start < block.end)
            if len(found) > most:
                return []
    return sorted(found)


def matches(catalogue: Catalogue, documents: Sequence[Document], wanted: Wanted, *, each: int) -> Iterator[TextMatch]:
    """Matches in these documents, in order, at most `each` of one document. Reads one document's text at a time."""
    for document in documents:
        if document.state != "ready":
            continue
        text = catalogue.extracted_text(document.id).text
        found = [span for _, span in zip(range(each), wanted.places(text), strict=False)]
        if not found:
            continue
        pages = catalogue.pages(document.id)
        starts = [page.start for page in pages]
        for start, end in found:
            number = max(1, bisect_right(starts, start))
            labels = [page.label for page in pages[number - 1 : number]]
            place = place_of([number], labels, len(pages)) if labels else ""
            yield TextMatch(
                document.id, document.source, document.title, number, place, start, end, _line(text, start, end)
            )


def _line(text: str, start: int, end: int) -> str:
    """The match with what stands around it on its line, as one line; "…" where it is cut."""
    first = max(text.rfind("\n", 0, start) + 1, start - _AROUND)
    stop = text.find("\n", end)
    last = min(len(text) if stop < 0 else stop, end + _AROUND)
    before = "…" if first > 0 and text[first - 1] != "\n" else ""
    behind = "…" if last < len(text) and text[last] != "\n" else ""
    return f"{before}{' '.join(text[first:last].split())}{behind}"


@cache
def _forms() -> Mapping[str, str]:
    """Of each folded character or ligature, all characters of the basic plane that fold to it."""
    forms = defaultdict(list)
    for number in range(0x80, 0x10000):
        character = chr(number)
        if (folded := fold(character)) != character:
            forms[folded].append(character)
    return {folded: "".join(characters) for folded, characters in forms.items()}


def _any_form(word: str) -> str:
    """A pattern for all forms of a folded word, with whatever accents stand on its letters."""
    parts, at = [], 0
    while at < len(word):
        for length in (3, 2):  # ffi, ffl; fi, fl, st, ss
            if joined := _forms().get(word[at : at + length], "") if len(word) >= at + length else "":
                apart = _UNSEEN.join(map(_any_letter, word[at : at + length]))
                parts.append(f"(?:[{regex.escape(joined)}]|{apart})")
                break
        else:
            length = 1
            parts.append(_any_letter(word[at]))
        at += length
    return _UNSEEN.join(parts)


def _any_letter(letter: str) -> str:
    return f"[{regex.escape(letter + letter.upper() + _forms().get(letter, ''))}]\\p{{M}}*+"
