"""What is asked of the model: the question, and for a follow-up the question before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Earlier words that a follow-up may bring along; a question has to fit into one local window with its answer.
EARLIER_CHARACTERS = 240

_LEANS = re.compile(
    r"^\s*(?:and|but|or|so|then|also|what about|how about|why|how so|where|when|who|which one)\b.{0,25}$"
    r"|\b(?:it|its|he|him|his|she|her|hers|they|them|their|theirs|this|these|those|former|latter|the same)\b",
    re.IGNORECASE | re.DOTALL,
)


def leans_on_earlier(question: str) -> bool:
    """Whether a question refers to what was asked before: it has a pronoun, or is only a few words."""
    return len(question.split()) <= 2 or _LEANS.search(question) is not None


def with_conversation(question: str, earlier: Sequence[str]) -> str:
    """The question to be asked of the model; `earlier`: the conversation's questions, oldest first.

    A question that stands by itself is asked by itself, so that a change of subject is not held back by the old one.
    """
    question = question.strip()
    if not earlier or not leans_on_earlier(question):
        return question
    before = earlier[-1].strip()
    if len(before) > EARLIER_CHARACTERS:
        before = before[-EARLIER_CHARACTERS:].partition(" ")[2]
    return f"{before} {question}"
