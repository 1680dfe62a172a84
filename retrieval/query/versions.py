"""Chooses between documents that say the same: the one that the question names, else the latest version.

Axes: S sentences.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set

import torch
from torch import Tensor

from retrieval.index.terms import MONTH_NAMES, dates_in, terms_of

_VERSION = re.compile(r"\b(?:v|version|rev|revision|issue|edition|release)[ .]?(\d+(?:\.\d+)*)\b", re.I)
_STAGES = {"draft": 0, "proposal": 0, "preliminary": 0, "final": 1, "signed": 1, "approved": 1}
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_NUMBERS = re.compile(r"\d+(?:[.,:]\d+)*")
_WORDS = re.compile(r"\w+")
_ALIKE = 0.7  # of the words of two sentences that say the same of two versions


def name_shares(asked: Set[str], names_S: Sequence[str]) -> Tensor:
    """shares_S: the share of the question's distinguishing words that the name of a sentence's document contains; 0
    without such words. `names_S`: the name of each sentence's document."""
    held = {name: terms_of(name) & asked for name in set(names_S)}
    counts = Counter(term for terms in held.values() for term in terms)
    rarity = {term: math.log(len(held) / count) for term, count in counts.items() if count < len(held)}
    total = sum(rarity.values())
    if not total:
        return torch.zeros(len(names_S))
    share = {name: sum(rarity[term] for term in terms & rarity.keys()) / total for name, terms in held.items()}
    return torch.tensor([share[name] for name in names_S])


def earlier_versions(question: str, names_S: Sequence[str], texts_S: Sequence[str]) -> dict[int, list[int]]:
    """Numbers of the sentences that an earlier document says with other numbers or a few other words, by the number of
    the sentence in the later one. None where the question says which version is meant."""
    orders: Mapping[str, Mapping[str, tuple[float, ...]]] = {name: version_of(name) for name in set(names_S)}
    earlier: dict[int, list[int]] = {}
    if sum(map(bool, orders.values())) < 2 or _VERSION.search(question) or _YEAR.search(question):
        return earlier
    words_S = [Counter(_WORDS.findall(_NUMBERS.sub("", text.lower()))) for text in texts_S]
    for one, (name, words) in enumerate(zip(names_S, words_S, strict=True)):
        for other, (other_name, other_words) in enumerate(zip(names_S, words_S, strict=True)):
            if not _is_later(orders[name], orders[other_name]) or texts_S[one] == texts_S[other] or not words:
                continue
            common = sum((words & other_words).values())
            if common >= _ALIKE * max(words.total(), other_words.total()):
                earlier.setdefault(one, []).append(other)
    return earlier


def named_alike(one: str, other: str) -> bool:
    """Whether two documents are called the same but for their versions, stages and dates."""
    left, right = (
        {word for word in _WORDS.findall(_VERSION.sub("", name.lower())) if not _tells_version(word)}
        for name in (one, other)
    )
    return left == right


def _tells_version(word: str) -> bool:
    is_month = len(word) > 2 and any(name.startswith(word) for name in MONTH_NAMES.split())
    return word.isdigit() or word in _STAGES or is_month


def _is_later(one: Mapping[str, tuple[float, ...]], other: Mapping[str, tuple[float, ...]]) -> bool:
    """By the first thing that both state and in which they differ."""
    for key in ("version", "stage", "date"):
        if key in one and key in other and one[key] != other[key]:
            return one[key] > other[key]
    return False


def version_of(name: str) -> dict[str, tuple[float, ...]]:
    """The version that a document's name states: a version number, a stage ("draft", "final"), the latest date."""
    found: dict[str, tuple[float, ...]] = {}
    if stated := _VERSION.search(name):
        found["version"] = tuple(map(float, stated[1].split(".")))
    stages = [_STAGES[word] for word in _WORDS.findall(name.lower()) if word in _STAGES]
    if stages:
        found["stage"] = (float(max(stages)),)
    dates = [tuple(map(float, date.split("-"))) for date in (*_YEAR.findall(name), *dates_in(name))]
    if dates:
        found["date"] = max(dates)
    return found
