"""Rare words, numbers and codes of a question that stand in a block just so.

Keys know what a text is about; a name, a number, an option ("-c") or a code ("W2D4") that training never met is like
any other to them. So among the best blocks those gain that hold such a term; which terms are rare is seen from the
same blocks. Nothing is stored for it.

Axes: C blocks.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence, Set

import torch
from torch import Tensor

_SMALL_WORDS = """
    a about above after again all also although an and any are as at be because been before being below between
    both but by can could did do does doing down during each either else ever few for from further had has have
    having he her here hers him his how however i if in into is it its itself just many may me might more most much
    must my no nor not of off on once only or other our out over own per rather same shall she should since so some
    such than that the their them then there therefore these they this those through thus to too under until up
    upon us very was we were what when where whether which while who whom whose why will with within without
    would you your
"""
SMALL_WORDS = frozenset(_SMALL_WORDS.split())
"""Words that say nothing of what a sentence is about."""
RARE = 0.1
"""A term counts if at most this share of the blocks holds it, or a single one."""

_TERM = re.compile(r"(?:(?<![^\s(\[“\"'‘`])--?)?[^\W_]+(?:[-–−.&/+#_:][^\W_]+)*")
_PART = re.compile(r"[^\W_]+")


def term_shares(question: str, terms_C: Sequence[Set[str]]) -> Tensor:
    """shares_C: how many of the question's rare terms each text holds, by their rarity; 0 where there are none.
    `terms_C`: `terms_of` each text."""
    asked = asked_terms(question)
    held = [terms & asked for terms in terms_C]
    counts = Counter(term for terms in held for term in terms)
    most = max(1.0, RARE * len(held))
    rarity = {term: math.log(len(held) / count) for term, count in counts.items() if count <= most}
    total = sum(rarity.values())
    if not total:
        return torch.zeros(len(held))
    return torch.tensor([sum(rarity[term] for term in terms & rarity.keys()) / total for terms in held])


def unmatched_share(question: str, terms: Sequence[Set[str]]) -> float:
    """How many of the question's words, small ones aside, stand in none of the texts; 0 for small words alone.
    `terms`: `terms_of` each text."""
    asked = asked_terms(question)
    return len(asked.difference(*terms)) / max(1, len(asked))


def asked_terms(question: str) -> set[str]:
    """Terms of a question, without small words."""
    words = (match[0] for match in _TERM.finditer(question.lower()))
    return {_form(word) for word in words if word not in SMALL_WORDS}


def terms_of(text: str) -> set[str]:
    """All terms of a text, and the parts of compound ones."""
    words = set(_TERM.findall(text.lower()))
    parts = {part for word in words if not word.isalnum() for part in _PART.findall(word)}
    return {_form(word) for word in words | parts}


def _form(word: str) -> str:
    """Without a plural's ending."""
    return word[:-1] if word.endswith("s") and len(word) > 3 else word
