"""Rare words, numbers and codes of a question that stand in a block just so.

Keys know what a text is about; a name, a number, an option ("-c") or a code ("W2D4") that training never met is like
any other to them. So among the best blocks those gain that hold such a term; which terms are rare is seen from the
same blocks. Nothing is stored for it.

Axes: C blocks, S sentences.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set

import torch
from torch import Tensor

RARE = 0.1
"""A term counts if at most this share of the blocks holds it, or a single one."""


def term_shares(asked: Set[str], terms_C: Sequence[Set[str]]) -> Tensor:
    """shares_C: how many of the question's rare terms each text holds, by their rarity; 0 where there are none.
    `terms_C`: `terms_of` each text."""
    held = [terms & asked for terms in terms_C]
    counts = Counter(term for terms in held for term in terms)
    most = max(1.0, RARE * len(held))
    rarity = {term: math.log(len(held) / count) for term, count in counts.items() if count <= most}
    total = sum(rarity.values())
    if not total:
        return torch.zeros(len(held))
    return torch.tensor([sum(rarity[term] for term in terms & rarity.keys()) / total for terms in held])


def unmatched_share(asked: frozenset[str], terms: Sequence[Set[str]]) -> float:
    """How many of the question's words, small ones aside, stand in none of the texts; 0 for small words alone.
    `terms`: `terms_of` each text."""
    return len(asked.difference(*terms)) / max(1, len(asked))
