"""What a sentence refers back to is quoted together with it: "For this reason, ..." says nothing without the reason."""

from __future__ import annotations

import re

LONGEST = 300
"""Characters of a sentence that is quoted only because the next one refers to it."""

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
    """Whether a sentence begins with words whose meaning stands in the sentence before it."""
    return _REFERS.match(sentence) is not None and _OF_ITSELF.match(sentence) is None


def is_antecedent(text: str, start: int, stop: int, following: int) -> bool:
    """Whether `text[start:stop]` may be what the sentence that begins at `following` refers back to: a sentence of the
    same paragraph that is not too long."""
    said = text[start:stop]
    return (
        stop - start <= LONGEST
        and said.endswith((".", "!", ":", ";", "”", '"', ")"))
        and _BLANK_LINE.search(text, stop, following) is None
    )
