"""Whether a writer says that the documents do not say: as it was told to, or, in English, in words of its own."""

from __future__ import annotations

import re

from model.scoring.sentences import sentence_borders
from retrieval.types.outcomes import NOTHING_FOUND

_SOURCES = r"(?:passages?|documents?|texts?|context|sources?|notes|excerpts?|information)"
_SAY = (
    r"(?:mention|say|state|contain|provide|specify|include|give|answer|address|tell|indicate|discuss|describe|explain|"
    r"have)"
)
_SAID = r"(?:mentioned|said|stated|specified|provided|given|answered|found|available|indicated|contained|described)"
_NOT = r"(?:not|n['’]t)"
_REFUSAL = re.compile(
    rf"\b{_SOURCES}\b[^.!?;]{{0,60}}?\b(?:do|does|did)(?: {_NOT}|{_NOT})\b[^.!?;]{{0,30}}?\b{_SAY}\b"
    rf"|\bnot (?:\w+ ){{0,2}}?{_SAID} (?:\w+ )?(?:in|by|from) (?:\w+ ){{0,3}}?{_SOURCES}\b"
    rf"|\bno (?:\w+ )?(?:answer|mention|information) (?:\w+ ){{0,2}}?(?:to|of|about|on|for|in|regarding)\b"
    rf"|\b(?:I|we) (?:can(?:not|['’]t| not)|could(?: not|n['’]t)) (?:find|answer|determine|tell)\b",
    re.IGNORECASE,
)


def refuses(text: str) -> bool:
    """Whether this is all that a text says. With anything else beside, it is an answer."""
    sentences = [text[start:end] for start, end in sentence_borders(text) if text[start:end].strip()]
    return bool(sentences) and all(is_refusal(sentence) for sentence in sentences)


def is_refusal(sentence: str) -> bool:
    """Whether a sentence says that the documents do not say."""
    sentence = sentence.strip()
    return sentence.startswith(NOTHING_FOUND.rstrip(".")) or _REFUSAL.search(sentence) is not None
