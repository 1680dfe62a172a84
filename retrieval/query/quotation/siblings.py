"""Rows of one table, and options of one manual, are worded alike; the question's words that only some of them hold tell
which one is asked for.

Keys and the reader see the names of columns that every row repeats, and take a neighbour for the row itself. So a row
gains by the rarity, among its siblings, of the words of the question that it holds.

Axes: S sentences.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from model.scoring.sentences import column_names, is_term
from retrieval.index.terms import asked_terms, terms_of

SIBLING_WEIGHT = 0.16
"""Added to the score of a row that holds all words of the question by which rows of its table differ. Answers are alike
between 0.08 and 0.24 (docs/experiments.md)."""

_POLAR = frozenset({"no", "not", "with", "without"})
"""Small words that tell rows apart: "No desktop", "With desktop"."""
_OPTIONS = frozenset({"an option or a constant"})


def sibling_shares(question: str, sentences: Sequence[tuple[str, str]]) -> Tensor:
    """shares_S of (document, text): how many of the question's words that tell it from its siblings a sentence holds,
    by their rarity among these; 0 for one without siblings."""
    shares = [0.0] * len(sentences)
    groups = [group for group in _siblings(sentences) if len(group) > 1]
    told_apart_by = asked_terms(question) | (terms_of(question) & _POLAR) if groups else set()
    for group in groups:
        held = {number: terms_of(sentences[number][1]) & told_apart_by for number in group}
        counts = Counter(term for terms in held.values() for term in terms)
        rarity = {term: math.log(len(group) / count) for term, count in counts.items()}
        total = sum(rarity.values())
        if total:
            for number, terms in held.items():
                shares[number] = sum(rarity[term] for term in terms) / total
    return torch.tensor(shares)


def _siblings(sentences: Sequence[tuple[str, str]]) -> list[list[int]]:
    """Numbers of sentences of one document that are options, or rows with mostly the same column names."""
    groups: dict[str, list[tuple[frozenset[str], list[int]]]] = defaultdict(list)
    for number, (document, text) in enumerate(sentences):
        form = _OPTIONS if is_term(text.strip().split("\n", 1)[0]) else frozenset(column_names(text))
        if not form:
            continue
        for known, group in groups[document]:
            if 2 * len(form & known) > max(len(form), len(known)):
                group.append(number)
                break
        else:
            groups[document].append((form, [number]))
    return [group for found in groups.values() for _, group in found]
