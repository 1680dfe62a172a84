"""Where a passage defines a term, found by the words of the glossary's own definition.

A glossary says what a term means in words of its own; the chapter says it in a sentence. That sentence, if one says
most of it, is the answer to "What is ...?".
"""

from __future__ import annotations

import re
from collections.abc import Set

from model.scoring.sentences import sentence_borders

MOST_SAID = 0.55
"""Share of the definition's words that a sentence must have."""
FEWEST_WORDS = 3
LONGEST_SPAN = 150
"""Characters."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_SMALL = frozenset(
    ("the", "and", "for", "are", "was", "were", "that", "this", "these", "those", "with", "from", "into", "onto")
    + (
        "their",
        "his",
        "her",
        "has",
        "have",
        "had",
        "not",
        "but",
        "who",
        "which",
        "whom",
        "when",
        "where",
        "what",
        "how",
    )
    + (
        "than",
        "then",
        "there",
        "also",
        "can",
        "may",
        "one",
        "two",
        "any",
        "all",
        "such",
        "being",
        "been",
        "use",
        "used",
    )
)
_ASKED = re.compile(
    r"""(?:Define|What\ is|What\ are|What\ does\ the\ term|How\ is|How\ are)\ (?:the\ term\ )?
    [“"]?(.+?)[”"]?(?:\ mean|\ defined)?[.?]?$""",
    re.VERBOSE,
)


def asked_term(question: str) -> str | None:
    """The term that a question asks the meaning of."""
    found = _ASKED.match(question)
    return found[1] if found else None


def defining_span(passage: str, term: str, definition: str) -> tuple[int, int] | None:
    """(start, end) of the words in the passage that define the term, in characters; None if no sentence does."""
    meant = _stems(definition) - _stems(term)
    best: tuple[float, int, int] | None = None
    mentioned = False
    for start, stop in sentence_borders(passage, 0, len(passage)):
        sentence = passage[start:stop]
        names_it = _names(sentence, term)
        shared = meant & _stems(sentence)
        if (names_it or mentioned) and len(shared) >= max(FEWEST_WORDS, MOST_SAID * len(meant)):
            said = len(shared) / len(meant) + 0.2 * names_it
            if best is None or said > best[0]:
                best = (said, start, stop)
        mentioned = names_it
    if best is None:
        return None
    _, start, stop = best
    shared = meant & _stems(passage[start:stop])
    places = [start + m.start() for m in _WORD.finditer(passage[start:stop]) if _stem(m[0]) in shared]
    ends = [start + m.end() for m in _WORD.finditer(passage[start:stop]) if _stem(m[0]) in shared]
    kept = [end for end in ends if end - places[0] <= LONGEST_SPAN]
    return places[0], kept[-1]


def _names(sentence: str, term: str) -> bool:
    return _stems(term) <= _stems(sentence) if _stems(term) else term.lower() in sentence.lower()


def _stems(text: str) -> Set[str]:
    return {_stem(word) for word in _WORD.findall(text)} - _SMALL


def _stem(word: str) -> str:
    """Enough of a word to know it in another form."""
    word = word.lower()
    return word if word in _SMALL else word[:6].rstrip("s")
