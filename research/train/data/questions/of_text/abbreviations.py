"""Questions about abbreviations that a text explains in brackets, both ways.

"Large Hadron Collider (LHC)" and "LHC (Large Hadron Collider)" give "What does LHC stand for?" and "What is the
abbreviation for Large Hadron Collider?". The letters have to be the first letters of words in their order
(as in Schwartz and Hearst 2003, "A simple algorithm for identifying abbreviation definitions", but words whole).
"""

import random
import re
from collections.abc import Iterator

from research.train.data.questions.pseudo_queries import MadeQuestion

_BEHIND = re.compile(r"(?P<words>(?:[\w’'/&-]+ ){1,8})\((?P<short>[A-Z][A-Za-z]{0,6}[A-Z])s?\)")
_BEFORE = re.compile(r"\b(?P<short>[A-Z]{2,7})s? \((?P<words>[A-Za-z][\w’'/& -]{5,70})\)")
_SMALL = frozenset(("of", "and", "the", "for", "in", "on", "to", "a", "an", "with", "by", "&"))
_ASK_LONG = (
    "What does {short} stand for?",
    "What does {short} mean?",
    "What is {short} short for?",
    "What does the abbreviation {short} stand for?",
    "What is the full name of {short}?",
    "Spell out {short}.",
    "{short} meaning",
    "{short} stands for",
    "what is {short}",
)
_ASK_SHORT = (
    "What is the abbreviation for {long}?",
    "How is {long} abbreviated?",
    "What is the acronym of {long}?",
    "Which abbreviation is used for {long}?",
    "What is {long} called for short?",
    "abbreviation {long}",
)


def abbreviation_questions(text: str, random_: random.Random) -> Iterator[MadeQuestion]:
    """One question for each explanation in brackets; two thirds ask for the words, the others for the letters."""
    for pattern in (_BEHIND, _BEFORE):
        for found in pattern.finditer(text):
            words, short = found["words"].rstrip(), found["short"]
            begin = _first_word(words, short) if pattern is _BEHIND else (0 if _spells(words, short) else None)
            if begin is None:
                continue
            start = found.start("words") + begin
            long = (start, start + len(words) - begin)
            if random_.random() < 2 / 3:
                yield MadeQuestion(random_.choice(_ASK_LONG).format(short=short), *long)
            else:
                asked = random_.choice(_ASK_SHORT).format(long=text[slice(*long)])
                yield MadeQuestion(asked, *found.span("short"))


def _first_word(words: str, short: str) -> int | None:
    """Where the shortest run of last words begins whose first letters spell `short`."""
    starts = [found.start() for found in re.finditer(r"(?<![^ ])\S", words)]
    return next((start for start in reversed(starts) if _spells(words[start:], short)), None)


def _spells(words: str, short: str) -> bool:
    """Whether the first letters of the words, small ones left out or not, are those of `short`."""
    parts = [part for part in re.split(r"[ /-]+", words) if part]
    if not parts or parts[0].lower() in _SMALL:
        return False
    every = "".join(part[0] for part in parts).lower()
    main = "".join(part[0] for part in parts if part.lower() not in _SMALL).lower()
    return len(parts) > 1 and short.lower() in (every, main)
