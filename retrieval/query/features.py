"""The features of sentences, of which a ranker weighs the sum: one named function each.

`Ranker` (`model.reading.ranker`) names those that it weighs.

Axes: S sentences, F features.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from model.reading.span_reader import FoundSpan
from model.scoring.sentences import column_names
from retrieval.index.terms import asked_terms, dates_in, terms_of
from retrieval.query.numbered import in_numbered
from retrieval.query.sentences import Sentence
from retrieval.query.versions import earlier_versions, name_shares

LEAST_PROBABILITY = 1e-9
SHORTEST = 5
"""Characters; shorter sentences count as so long."""


@dataclass(frozen=True)
class QuestionTerms:
    """The terms of a question, extracted once."""

    text: str

    @cached_property
    def terms(self) -> frozenset[str]:
        """The question's terms without small words, and its dates."""
        return frozenset(asked_terms(self.text) | self.dates)

    @cached_property
    def dates(self) -> frozenset[str]:
        """The question's dates in figures, however they are written."""
        return frozenset(dates_in(self.text))


@dataclass(frozen=True, eq=False)
class Sentences:
    """What may be quoted for a question. `documents`: the id of each sentence's document; `matches_S`: late-interaction
    scores; `spans`: a reader's span in each, None where none has read."""

    asked: QuestionTerms
    items: Sequence[Sentence]
    documents: Sequence[str]
    matches_S: Tensor
    spans: Sequence[FoundSpan] | None = None
    names: Sequence[str] = ()
    """What each sentence's document is called, and how it begins: with its header or its heading."""
    p_none: float | None = None
    """The reader's probability that none answers."""
    ranks: Sequence[int] = ()
    """Place of each sentence's first block in the search."""
    block: float = 0.0
    """Late-interaction score of the best block."""
    unmatched: float = 0.0
    """Share of the question's words that no block found holds."""

    titles: Mapping[str, str] = field(default_factory=dict)
    """What the documents are called, by id."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Of the documents, by id."""

    @cached_property
    def terms(self) -> list[set[str]]:
        """The terms of each sentence."""
        return [terms_of(each.text) for each in self.items]

    @cached_property
    def numbered(self) -> list[bool]:
        """Whether a sentence stands in a part that the question names; of several documents with one, in that which
        it calls by name most."""
        there = in_numbered(self.asked.text, self.texts, self.documents, [each.start for each in self.items])
        called = self.named.tolist()
        most = max((share for share, is_there in zip(called, there, strict=True) if is_there), default=0.0)
        return [is_there and share == most for share, is_there in zip(called, there, strict=True)]

    @cached_property
    def named(self) -> Tensor:
        """See `name_match`."""
        return name_shares(self.asked.terms, self.names or [""] * len(self.items))

    @cached_property
    def earlier(self) -> dict[int, list[int]]:
        """By number, the sentences that say the same in earlier versions, see `earlier_versions`."""
        names = self.names or [""] * len(self.items)
        return earlier_versions(self.asked.text, names, [each.text for each in self.items])

    @cached_property
    def others(self) -> list[bool]:
        """Whether a sentence is about another row or numbered part than the one that the question names."""
        names = [column_names(each.text) for each in self.items]
        # by their first column: all parts of a wide row begin with it
        tables = [(of, each[0]) if each else None for of, each in zip(self.documents, names, strict=True)]
        rows = other_rows(self.asked.terms, self.terms, tables)
        return [other or (any(self.numbered) and not there) for other, there in zip(rows, self.numbered, strict=True)]


def late_interaction(sentences: Sentences) -> Tensor:
    """0..1: how well the keys of a sentence's tokens match the question."""
    return sentences.matches_S


def name_match(sentences: Sentences) -> Tensor:
    """0..1: the share of the question's distinguishing words that the name of a sentence's document contains."""
    return sentences.named


def later_version(sentences: Sentences) -> Tensor:
    """0 or 1: whether another version says the same with other numbers, and this one is the later."""
    return torch.tensor([number in sentences.earlier for number in range(len(sentences.items))], dtype=torch.float32)


def term_overlap(sentences: Sentences) -> Tensor:
    """0..1: the share of the question's terms that a sentence holds, weighed by their rarity among these sentences."""
    asked, count = sentences.asked.terms, len(sentences.items)
    held = [terms & asked for terms in sentences.terms]
    counts = Counter(term for terms in held for term in terms)
    rarity = {term: math.log((count + 1) / times) for term, times in counts.items()}
    total = sum(rarity.values()) or 1.0
    return torch.tensor([sum(rarity[term] for term in terms) / total for terms in held])


def of_other(sentences: Sentences) -> Tensor:
    """0 or 1: whether a sentence is about another row or numbered part than the one that the question names."""
    return torch.tensor(sentences.others, dtype=torch.float32)


def in_named(sentences: Sentences) -> Tensor:
    """0 or 1: whether a sentence stands in a part that the question names by its number."""
    return torch.tensor(sentences.numbered, dtype=torch.float32)


def other_rows(asked: Set[str], terms_S: Sequence[Set[str]], tables_S: Sequence[object]) -> list[bool]:
    """Whether another row of a sentence's table holds the same of the question's words and more. `tables_S`: None for
    what is no row."""
    held: dict[object, list[Set[str]]] = defaultdict(list)
    for table, terms in zip(tables_S, terms_S, strict=True):
        held[table].append(terms & asked)
    return [
        table is not None and any(terms & asked < more for more in held[table])
        for table, terms in zip(tables_S, terms_S, strict=True)
    ]


def length(sentences: Sentences) -> Tensor:
    """Natural logarithm of the number of characters: a long sentence shares words by chance."""
    return torch.tensor([math.log(max(SHORTEST, len(each.text))) for each in sentences.items])


def block_rank(sentences: Sentences) -> Tensor:
    """Natural logarithm of the place of a sentence's block in the search, which sees more than the sentence."""
    ranks = sentences.ranks or [0] * len(sentences.items)
    return torch.tensor([math.log1p(rank) for rank in ranks])


def reader_logprob(sentences: Sentences) -> Tensor:
    """Natural logarithm of the probability that the answer stands in a sentence, as its reader says; 0 before one has
    read."""
    if sentences.spans is None:
        return torch.zeros(len(sentences.items))
    return torch.tensor([span.probability for span in sentences.spans]).clamp_min(LEAST_PROBABILITY).log()


FEATURES: dict[str, Callable[[Sentences], Tensor]] = {
    of.__name__: of
    for of in (
        late_interaction,
        name_match,
        later_version,
        term_overlap,
        of_other,
        in_named,
        length,
        block_rank,
        reader_logprob,
    )
}
"""values_S of each, finite, by name."""


def feature_table(sentences: Sentences, names: Sequence[str]) -> Tensor:
    """features_SF of these names, in their order."""
    return torch.stack([FEATURES[name](sentences) for name in names], 1)
