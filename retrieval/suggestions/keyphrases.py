"""Keyphrases: the words and phrases that tell most about a document."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from retrieval.index.terms import function_words


@cache
def _tables() -> dict[str, list[str]]:
    tables: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "words.toml").read_text(encoding="utf-8"))
    return tables


@cache
def word_class(name: str) -> frozenset[str]:
    return frozenset(_tables()[name])


@cache
def asked_verbs() -> dict[str, str]:
    """Verb as it is in a text -> as it is behind "does" or "do"."""
    return dict(_tables()["asked"])  # type: ignore[arg-type]


_WORD = re.compile(r"[^\W\d_][\w’'-]*|[.;:!?,()\[\]|\n\t/]|\d+")
_MOST_WORDS = 3
_MOST_TERMS = 6
_PHRASE_BONUS = 1.6  # for each further word: a phrase says more than its words
_FEWEST = 3  # times that a term stands in the document


def key_terms(text: str) -> list[str]:
    """The most telling terms of up to three words, the strongest first, in their most frequent spelling."""
    seen: Counter[str] = Counter()
    written: dict[str, Counter[str]] = {}
    for phrase in _phrases(text, word_class("common") | function_words(text)):
        key = phrase.casefold()
        seen[key] += 1
        written.setdefault(key, Counter())[phrase] += 1
    scores = {
        key: times * _PHRASE_BONUS ** (len(key.split()) - 1) * min(1.0, len(key) / 6)
        for key, times in seen.items()
        if times >= _FEWEST
    }
    chosen: list[str] = []
    for key in sorted(scores, key=lambda each: (-scores[each], each)):
        if any(_shares(key, other) for other in chosen):
            continue
        chosen.append(key)
        if len(chosen) == _MOST_TERMS:
            break
    return [written[key].most_common(1)[0][0] for key in chosen]


def _phrases(text: str, common: frozenset[str]) -> Iterator[str]:
    """Runs of one to three words of a sentence that all tell something."""
    run: list[str] = []
    for match in _WORD.finditer(text):
        word = _without_article(match[0], common)
        if not word[0].isalpha():
            run.clear()
            continue
        run.append(word)
        for length in range(1, min(_MOST_WORDS, len(run)) + 1):
            words = run[-length:]
            if any(len(each) < 3 or each.casefold() in common for each in words):
                continue
            yield " ".join(words)


def _without_article(word: str, common: frozenset[str]) -> str:
    """ "l’accord" as "accord"."""
    head, mark, rest = word.replace("’", "'").partition("'")
    is_article = mark and len(rest) > len(head) and {head.casefold(), f"{head.casefold()}'"} & common
    return rest if is_article else word


def _shares(one: str, other: str) -> bool:
    """Whether both have a word in common, plural or not."""
    first, second = ({word.rstrip("s") for word in re.split(r"[ -]", each)} for each in (one, other))
    return bool(first & second)
