"""The features of sentences, of which a ranker weighs the sum: one named function each.

A feature is known before a reader has read the sentences, or only after; `Ranker` (`model.reading.ranker`) names those
that it weighs.

Axes: S sentences, F features.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from model.reading.second_look import FoundSpan
from model.scoring.sentences import column_names, is_hollow, is_question, is_term
from retrieval.index.terms import asked_terms, terms_of
from retrieval.query.sentences import Sentence
from retrieval.query.versions import later_shares, name_shares

RARE = 0.1
"""A code of the question counts if at most this share of the sentences holds it, or a single one."""
LONGEST_BELOW = 600
"""Characters below a heading that asks the same question."""
LEAST_PROBABILITY = 1e-9

_POLAR = frozenset({"no", "not", "with", "without"})
"""Small words that tell rows apart: "No desktop", "With desktop"."""
_OPTIONS = frozenset({"an option or a constant"})
_ALIKE = 0.75  # of the words of a heading and of the question, small ones aside
_FEWEST = 2  # words
_NUMBER = re.compile(r"\W*(?:\d{1,3}(?:\.\d{1,3})*|[A-Za-z])[.)]?\s+")


@dataclass(frozen=True)
class Asked:
    """The words of a question, taken once."""

    text: str

    @cached_property
    def terms(self) -> frozenset[str]:
        """Without small words."""
        return frozenset(asked_terms(self.text))

    @cached_property
    def words(self) -> frozenset[str]:
        """All, and the parts of compound ones."""
        return frozenset(terms_of(self.text))


@dataclass(frozen=True, eq=False)
class Sentences:
    """What may be quoted for a question. `documents`: id of each sentence's; `matches_S`: late-interaction scores;
    `spans`: what a reader says of each, None where none has read."""

    asked: Asked
    items: Sequence[Sentence]
    documents: Sequence[str]
    matches_S: Tensor
    spans: Sequence[FoundSpan] | None = None
    names: Sequence[str] = ()
    """What each sentence's document is called, and how it begins: with its header or its heading."""
    p_none: float | None = None
    """The reader's probability that none answers."""

    @cached_property
    def terms(self) -> list[set[str]]:
        return [terms_of(each.text) for each in self.items]

    @cached_property
    def below_heading_S(self) -> Tensor:
        return heading_match(self)


@dataclass(frozen=True)
class Feature:
    name: str
    stage: Literal["before", "after"]
    of: Callable[[Sentences], Tensor]
    """values_S, finite."""


def late_interaction(sentences: Sentences) -> Tensor:
    """0..1: how well the keys of a sentence's tokens match the question."""
    return sentences.matches_S


def boilerplate(sentences: Sentences) -> Tensor:
    """Late interaction of a sentence that is beside the matter of its document (references, licences, column names,
    page heads), else 0: such text is quoted where nothing else answers as well."""
    return sentences.matches_S * torch.tensor([float(each.is_aside) for each in sentences.items])


def row_overlap(sentences: Sentences) -> Tensor:
    """0..1: how many of the question's words by which rows of one table (or options of one manual) differ a row holds,
    by their rarity among these.

    Keys and readers see the names of columns that every row repeats, and take a neighbour for the row itself. Answers
    are alike for weights between 0.08 and 0.24 beside late interaction (docs/experiments.md).
    """
    shares = [0.0] * len(sentences.items)
    groups = [group for group in _siblings(sentences) if len(group) > 1]
    told_apart_by = sentences.asked.terms | (sentences.asked.words & _POLAR) if groups else frozenset()
    for group in groups:
        held = {number: sentences.terms[number] & told_apart_by for number in group}
        counts = Counter(term for terms in held.values() for term in terms)
        rarity = {term: math.log(len(group) / count) for term, count in counts.items()}
        total = sum(rarity.values())
        if total:
            for number, terms in held.items():
                shares[number] = sum(rarity[term] for term in terms) / total
    return torch.tensor(shares)


def _siblings(sentences: Sentences) -> list[list[int]]:
    """Numbers of sentences of one document that are options, or rows with mostly the same column names."""
    groups: dict[str, list[tuple[frozenset[str], list[int]]]] = defaultdict(list)
    for number, (document, sentence) in enumerate(zip(sentences.documents, sentences.items, strict=True)):
        form = _OPTIONS if is_term(sentence.text.strip().split("\n", 1)[0]) else frozenset(column_names(sentence.text))
        if not form:
            continue
        for known, group in groups[document]:
            if 2 * len(form & known) > max(len(form), len(known)):
                group.append(number)
                break
        else:
            groups[document].append((form, [number]))
    return [group for found in groups.values() for _, group in found]


def code_match(sentences: Sentences) -> Tensor:
    """0..1: how many of the question's codes ("Ctrl+G", "W2D4", "-c") a sentence holds, by their rarity; 0 where none
    is rare. A reader cannot know what a code means, only that it stands there."""
    codes = {term for term in sentences.asked.terms if is_code(term)}
    count = len(sentences.items)
    if not codes:
        return torch.zeros(count)
    held = [terms & codes for terms in sentences.terms]
    counts = Counter(code for each in held for code in each)
    rarity = {code: math.log(count / times) for code, times in counts.items() if times <= RARE * count + 1}
    total = sum(rarity.values())
    if not total:
        return torch.zeros(count)
    return torch.tensor([sum(rarity[code] for code in each & rarity.keys()) / total for each in held])


def is_code(term: str) -> bool:
    """Whether a term is neither a plain word nor a plain number."""
    return not term.isalpha() and not term.isdecimal()


def name_match(sentences: Sentences) -> Tensor:
    """0..1: how many of the question's words that tell documents apart a sentence's document is called by."""
    return name_shares(sentences.asked.terms, sentences.names or [""] * len(sentences.items))


def later_version(sentences: Sentences) -> Tensor:
    """0 or 1: whether a sentence of another version says the same with other numbers, and this is the later one."""
    names = sentences.names or [""] * len(sentences.items)
    return later_shares(sentences.asked.text, names, [each.text for each in sentences.items])


def heading_match(sentences: Sentences) -> Tensor:
    """0 or 1: whether a sentence stands below a heading that asks the same question, as in forms and lists of questions
    and answers."""
    below_S = torch.zeros(len(sentences.items))
    if len(sentences.asked.terms) < _FEWEST:
        return below_S
    for number, heading in enumerate(sentences.items):
        if is_question(heading.text) and not is_hollow(heading.text) and _asks(sentences.asked.terms, heading.text):
            below_S[list(_below(sentences.items, number))] = 1.0
    return below_S


def _asks(asked: frozenset[str], heading: str) -> bool:
    terms = asked_terms(_NUMBER.sub("", heading, count=1) if _NUMBER.match(heading) else heading)
    return len(asked & terms) >= max(_FEWEST, _ALIKE * max(len(asked), len(terms)))


def _below(items: Sequence[Sentence], number: int) -> Iterator[int]:
    """Numbers of the sentences that follow a heading, up to the next one that asks."""
    heading = items[number]
    for below in range(number + 1, len(items)):
        each = items[below]
        if each.run != heading.run or each.start > heading.stop + LONGEST_BELOW or is_question(each.text):
            return
        yield below


def reader_logprob(sentences: Sentences) -> Tensor:
    """Natural logarithm of the probability that the answer stands in a sentence, as its reader says."""
    assert sentences.spans is not None, "weighed after reading"
    return torch.tensor([span.chance for span in sentences.spans]).clamp_min(LEAST_PROBABILITY).log()


FEATURES = {
    feature.name: feature
    for feature in (
        Feature("late_interaction", "before", late_interaction),
        Feature("boilerplate", "before", boilerplate),
        Feature("row_overlap", "before", row_overlap),
        Feature("code_match", "before", code_match),
        Feature("name_match", "before", name_match),
        Feature("later_version", "before", later_version),
        Feature("heading_match", "after", lambda sentences: sentences.below_heading_S),
        Feature("reader_logprob", "after", reader_logprob),
    )
}


def table(sentences: Sentences, names: Sequence[str]) -> Tensor:
    """features_SF of these names, in their order; those that only reading gives are 0 where nothing was read."""
    missing = torch.zeros(len(sentences.items))
    known = [FEATURES[name] for name in names]
    of = [each.of(sentences) if each.stage == "before" or sentences.spans is not None else missing for each in known]
    return torch.stack(of, 1)
