"""Makes a follow-up question stand alone: it gets the words of the conversation that it depends on."""

from __future__ import annotations

import re
from collections.abc import Sequence

TURNS = 6
"""The last turns of a conversation that are considered."""
# Earlier words that a follow-up may bring along; a question has to fit into one local window with its answer.
EARLIER_CHARACTERS = 240

_SHORT = re.compile(
    r"^\s*(?:and|but|or|so|then|also|what about|how about|why|how so|where|when|who|which one)\b.{0,25}$",
    re.IGNORECASE | re.DOTALL,
)
_POINTS = re.compile(
    r"\b(?:it|its|he|him|his|she|her|hers|they|them|their|theirs|this|these|those|former|latter|the same)\b", re.I
)


def leans_on_earlier(question: str) -> bool:
    """Whether a question refers to what was asked before: it has a pronoun, or is only a few words."""
    return _is_cut_short(question) or _POINTS.search(question) is not None


def _is_cut_short(question: str) -> bool:
    return len(question.split()) <= 2 or _SHORT.search(question) is not None


def with_conversation(question: str, earlier: Sequence[str]) -> str:
    """What search is asked; `earlier`: the conversation's questions, oldest first.

    A question that stands alone stays as it is, so that a change of subject is not held back by the old one. A
    follow-up comes `with_subject`.
    """
    return with_subject(question, earlier) if leans_on_earlier(question) else question.strip()


def with_subject(question: str, earlier: Sequence[str]) -> str:
    """The question behind the last one that stands alone, which names the subject; one of only a few words also behind
    the question before it."""
    question = question.strip()
    if not earlier:
        return question
    subject = next((one for one in reversed(earlier) if not leans_on_earlier(one)), earlier[0])
    before = " ".join(dict.fromkeys([subject.strip(), *([earlier[-1].strip()] if _is_cut_short(question) else [])]))
    if len(before) > EARLIER_CHARACTERS:
        before = before[-EARLIER_CHARACTERS:].partition(" ")[2]
    return f"{before} {question}"
