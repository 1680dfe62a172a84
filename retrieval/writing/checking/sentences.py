"""An answer in sentences, each to be looked up for itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from model.scoring.sentences import sentence_borders
from retrieval.writing.checking.facts import content_words
from retrieval.writing.checking.refusals import is_refusal
from retrieval.writing.citations import without_citations
from retrieval.writing.instructions import LEAD_IN

_FEWEST_WORDS = 2
# Marks of lists and tables, and dashes that draw lines.
_MARKS = re.compile(r"^[\s>*•#|–—-]+(?=\S)|^\d{1,2}[.)]\s+|[\s|*]+$")
_RULE = re.compile(r"[\s|:–—=-]*")
# "[2]" after a full stop belongs to the sentence before it.
_LATE_CITATION = re.compile(r"([.!?…])((?:\s*\[\s*\d[\d\s,;]*\])+)")


def claims_of(answer: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, text) of every sentence, item or row that says something; the text without marks and citations."""
    moved = _LATE_CITATION.sub(r"\2\1", answer)  # as long as before: places stay
    for start, end in sentence_borders(moved):
        if _RULE.fullmatch(moved[start:end]) or moved[start:end].endswith((":", "?")):
            continue
        text = " ".join(_MARKS.sub("", _MARKS.sub("", without_citations(moved[start:end]))).split())
        if is_refusal(text):
            continue
        if lead := LEAD_IN.match(text):
            text = text[lead.end() :]
        if len(content_words(text)) >= _FEWEST_WORDS:
            yield start, end, text
