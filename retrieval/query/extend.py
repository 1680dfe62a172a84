"""A quotation made whole: its continuation and its antecedent. Grammar, not weighing.

- A sentence that introduces a list is quoted with its continuation: the items behind "are as follows:" or under a
  heading.
- A sentence that refers back is quoted with its antecedent: "For this reason, ..." says nothing without the reason.
"""

from __future__ import annotations

import re

LONGEST_CONTINUATION = 700
"""Characters of a quotation with its continuation; items that do not fit are left out."""

_MARK = r"(?:[•▪◦‣·●○■□➢✓❖→–—*-]\s+|o\s+(?=[A-Z])|\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)]\s+)"
# An item goes on in lines that begin with a letter, or are indented and have no mark of their own.
_WORDS = rf"{_MARK}\S[^\n]*(?:\n(?:(?=[a-z])|[ \t]+(?![ \t]|{_MARK}))[^\n]*)*"
_ITEM = re.compile(rf"\s*{_WORDS}", re.I)
_BLANK_LINES = re.compile(r"\n\s*\n\s*\n")
_LONGEST_HEADING = 80
_ENDS = (".", "!", "?", "…", ";", ",")


def is_item(text: str) -> bool:
    """Whether it is an item of a list, mark and all."""
    return re.match(_MARK, text, re.I) is not None


def continuation_end(text: str, start: int, stop: int, limit: int | None = None) -> int:
    """Where the quotation of `text[start:stop]` ends with its continuation, no further than `limit`; `stop` if it has
    none."""
    limit = min(start + LONGEST_CONTINUATION, len(text) if limit is None else limit)
    said = text[start:stop].rstrip()
    is_heading = len(said) <= _LONGEST_HEADING and not said.endswith(_ENDS) and not is_item(said)
    if not (said.endswith(":") or is_heading):
        return stop
    end, items = stop, 0
    while (item := _ITEM.match(text, end)) is not None and item.end() <= limit:
        if _BLANK_LINES.search(text, end, item.start() + 4):
            break
        end, items = item.end(), items + 1
    return end if items >= (1 if said.endswith(":") else 2) else stop


LONGEST_ANTECEDENT = 300
"""Characters of an antecedent: a longer one is not quoted."""

# First words that stand for something said before, by language; alone, or at the head of what is meant ("This rule").
_POINTS_BACK = (
    r"this|these|those|such|it|they|he|she|his|her|its|their|"  # English
    r"dies(?:e[rsnm]?)?|er|sie|es|sein(?:e[rsnm]?)?|ihr(?:e[rsnm]?)?|"  # German
    r"ce(?:la|ci)?|cette|ces|il|elle|ils|elles|"  # French
    r"est[aeo]s?|ello|él|ella|ellos|ellas"  # Spanish
)
_FOLLOWS_FROM = (
    r"as a (?:result|consequence)|therefore|thus|hence|consequently|accordingly|however|nevertheless|instead|"
    r"otherwise|similarly|likewise|conversely|(?:by|in) contrast|in other words|on the other hand|"
    r"the (?:latter|former|process|same)|(?:for|because of|due to|in|at|with|by|from|through|after|of|to do|one of|"
    r"some of|all of|both of|most of|each of|as) (?:this|these|that|those|which|such)|in doing so|to do so|"
    r"deshalb|daher|deswegen|darum|somit|dadurch|damit|jedoch|dagegen|stattdessen|aus diesem grund|in diesem fall|"
    r"donc|ainsi|par conséquent|pour cette raison|cependant|en revanche|dans ce cas|"
    r"por (?:lo tanto|eso|ello|esta razón|tanto)|así|sin embargo|en este caso"
)
_REFERS = re.compile(rf"[\"'“‘(\[]*(?:{_POINTS_BACK}|{_FOLLOWS_FROM})\b", re.I)
# Words that begin so and refer to nothing before them: the document itself, and "it is important to ...".
_PARTS = (
    r"document|paper|article|section|chapter|report|guide|manual|page|book|specification|standard|act|policy|notice|"
    r"rule|agreement|licen[cs]e|version|release|package|program|software|file|study|form|table|figure|"
    r"dokument|artikel|abschnitt|kapitel|bericht|handbuch|anleitung|vertrag|"
    r"rapport|chapitre|contrat|documento|artículo|capítulo|informe|guía|contrato"
)
_OF_ITSELF = re.compile(
    rf"[\"'“‘(\[]*(?:(?:[a-zäü]+ )?(?:this|dies(?:e[rsnm]?)?|ce|cet|cette|este|esta) (?:[\w-]+ )?(?:{_PARTS})s?\b"
    r"|it (?:is|was|has been|may be|would be|will be) (?:\w+ )?\w+ (?:to|that|whether|if)\b"
    r"|es (?:ist|war|gibt|wird|kann|muss)\b|il (?:est|y|faut|s)\b|these days\b|such as\b)",
    re.I,
)
_BLANK_LINE = re.compile(r"\n\s*\n")


def refers_back(sentence: str) -> bool:
    """Whether a sentence begins with words that refer to the sentence before it."""
    return _REFERS.match(sentence) is not None and _OF_ITSELF.match(sentence) is None


def is_antecedent(text: str, start: int, stop: int, following: int) -> bool:
    """Whether the sentence at `following` may refer back to `text[start:stop]`: a sentence of the same paragraph that
    is not too long."""
    said = text[start:stop]
    return (
        stop - start <= LONGEST_ANTECEDENT
        and said.endswith((".", "!", ":", ";", "”", '"', ")"))
        and _BLANK_LINE.search(text, stop, following) is None
    )
