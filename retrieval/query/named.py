"""What a question names, and which sentences are about another of its kind: a part by its code, a rule or a section by
its number, the row of a table by what stands in its cells; and what a message quotes of another.

Axes: S sentences.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import groupby

from model.scoring.sentences import cells_of
from retrieval.extraction.parts import EARLIER
from retrieval.index.terms import SMALL_WORDS, terms_of

_NUMBER = re.compile(r"(?:\b([^\W\d_]{3,})|(§))\s?(\d{1,3}(?:\.\d{1,3})*)(?![\w.,:]*\d)")
_LABEL = re.compile(
    r"^[ \t#*]*(?:([^\W\d_]{3,}|§) ?)?\(?(\d{1,3}(?:\.\d{1,3})*)(?=[.):][ \t]+\S|[ \t]+[^\Wa-zà-ÿ_]|[.):]?$)", re.M
)
_LONGEST_BEFORE = 40  # characters of a line before its number
_PARTS = """
    § section sec chapter clause article paragraph rule item step point
    abschnitt kapitel klausel artikel absatz regel punkt schritt ziffer
    chapitre paragraphe règle étape sección capítulo cláusula artículo párrafo regla punto paso
"""
_DIVISIONS = frozenset(_PARTS.split())
"""What the parts of documents are called that begin with a number alone."""
_DATES = """
    monday tuesday wednesday thursday friday saturday sunday
    january february march april june july august september october november december
"""
_SHORTENED = {name[:3]: name for name in _DATES.split()}
"""Days and months as the heads of columns shorten them."""
_MONTHS = tuple(_DATES.split()[7:11]) + ("may",) + tuple(_DATES.split()[11:])
_DAY = re.compile(r"\d{4}-(0[1-9]|1[0-2])(?:-\d\d)?")
"""As sheets write it: "2015-12-01"."""


def of_other_code(asked: Set[str], terms_S: Sequence[Set[str]]) -> list[bool]:
    """Whether a sentence names a code of the kind asked for ("VK-2040-A" or "C157"), but not that one."""
    codes = {term for term in asked if is_code(term)}
    kinds = set(map(kind_of, codes))
    named = [{term for term in terms if is_code(term) and kind_of(term) in kinds} for terms in terms_S]
    return [bool(those) and not those & codes for those in named]


def is_code(term: str) -> bool:
    """Whether a term is made of letters and digits: a part, a form, a version."""
    return any(map(str.isdigit, term)) and any(map(str.isalpha, term))


def kind_of(code: str) -> str:
    """What codes of one series have in common: runs of letters as "a", of digits as "0", and what is between."""
    kinds = ("0" if letter.isdigit() else "a" if letter.isalpha() else letter for letter in code)
    return "".join(kind for kind, _ in groupby(kinds))


def of_other_row(asked: Set[str], texts_S: Sequence[str], documents_S: Sequence[str]) -> list[bool]:
    """Whether a sentence is the row of a table of which another row holds the same of the question's words and more."""
    tables: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, (text, document) in enumerate(zip(texts_S, documents_S, strict=True)):
        if names := [name for name, _ in cells_of(text)]:
            tables[document, *names[1:]].append(number)
    others = [False] * len(texts_S)
    for rows in tables.values():
        held = {row: full_terms(texts_S[row]) & asked for row in rows}
        for row in rows:
            others[row] = any(held[row] < more for more in held.values())
    return others


def of_earlier_message(
    asked: Set[str],
    terms_S: Sequence[Set[str]],
    texts: Mapping[str, str],
    documents_S: Sequence[str],
    starts_S: Sequence[int],
) -> list[bool]:
    """Whether a sentence is quoted from an earlier message by one that holds the same of the question's words."""
    quoted = [_is_quoted(texts.get(one, ""), start) for one, start in zip(documents_S, starts_S, strict=True)]
    own: dict[str, list[Set[str]]] = defaultdict(list)
    for document, terms, is_quoted in zip(documents_S, terms_S, quoted, strict=True):
        if not is_quoted:
            own[document].append(terms & asked)
    return [
        is_quoted and bool(held := terms & asked) and any(held <= more for more in own[document])
        for document, terms, is_quoted in zip(documents_S, terms_S, quoted, strict=True)
    ]


def _is_quoted(text: str, start: int) -> bool:
    return text.startswith(EARLIER, text.rfind("\n\n", 0, start) + 2)


def is_named_row(asked: Set[str], text: str) -> bool:
    """Whether a question names a row by its first cell, and the column of another of its cells."""
    (name, first), *others = cells_of(text) or [("", "")]
    own = full_terms(first) - SMALL_WORDS
    if not own or not own <= asked or (all(map(str.isdigit, own)) and not full_terms(name) <= asked):
        return False
    columns = (full_terms(column) for column, _ in others)
    return any(terms and terms <= asked and not terms <= own for terms in columns)


def full_terms(text: str) -> set[str]:
    """Terms of a text, days and months in full, and the months of dates in numbers by name."""
    terms = terms_of(text)
    months = {_MONTHS[int(day[1]) - 1] for term in terms if (day := _DAY.fullmatch(term))}
    return {_SHORTENED.get(term, term) for term in terms} | months


def numbers_in(question: str) -> set[tuple[str, str]]:
    """What a question names by a number, with the word before it: {("rule", "8")}."""
    return {((found[1] or found[2]).lower(), found[3]) for found in _NUMBER.finditer(question)}


def numbered(text: str, word: str, number: str) -> Iterator[tuple[int, int]]:
    """(start, end) of what stands in a text under a number: from a line that begins with it, alone or with its word, to
    the next such line that does not belong to it."""
    at = text.find(number)
    while at >= 0:
        start = text.rfind("\n", max(0, at - _LONGEST_BEFORE), at) + 1
        found = _LABEL.match(text, start) if start or at <= _LONGEST_BEFORE else None
        if found is not None and found.span(2) == (at, at + len(number)) and _is_label(found, word):
            further = (each for each in _LABEL.finditer(text, found.end()) if _is_label(each, word))
            following = (each.start() for each in further if not each[2].startswith(f"{number}."))
            yield start, next(following, len(text))
        at = text.find(number, at + 1)


def _is_label(found: re.Match[str], word: str) -> bool:
    return found[1].lower() == word if found[1] else word in _DIVISIONS


def in_numbered(
    question: str, texts: Mapping[str, str], documents_S: Sequence[str], starts_S: Sequence[int]
) -> list[bool]:
    """Whether a sentence stands under a number that the question names; `starts_S`: where it begins in its document."""
    spans = {
        document: [span for word, number in numbers_in(question) for span in numbered(text, word, number)]
        for document, text in texts.items()
    }
    return [
        any(start <= begins < end for start, end in spans.get(document, ()))
        for document, begins in zip(documents_S, starts_S, strict=True)
    ]
