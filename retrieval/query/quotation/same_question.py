"""A heading that asks the same question, as in forms and in lists of questions and answers: the answer begins below it.

Axes: S sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from model.scoring.sentences import is_hollow, is_question
from retrieval.index.terms import asked_terms
from retrieval.query.quotation.placed_sentences import Sentence

GAIN = 6.0
"""Added to the logarithm of the second look's chance of a sentence below such a heading: enough to pass a sentence that
only refers there ("see Section 2.2 [What machines does it run on?]")."""
LONGEST = 600
"""Characters below it that count."""

_ALIKE = 0.75  # of the words, small ones aside
_FEWEST = 2  # words
_NUMBER = re.compile(r"\W*(?:\d{1,3}(?:\.\d{1,3})*|[A-Za-z])[.)]?\s+")


def gains_below(question: str, sentences: Sequence[Sentence]) -> Tensor:
    """gain_S of sentences in the order of their texts, those of a run side by side."""
    asked, gain_S = asked_terms(question), torch.zeros(len(sentences))
    if len(asked) < _FEWEST:
        return gain_S
    for number, heading in enumerate(sentences):
        if is_question(heading.text) and not is_hollow(heading.text) and _is_alike(asked, heading.text):
            gain_S[list(_below(sentences, number))] = GAIN
    return gain_S


def _is_alike(asked: set[str], heading: str) -> bool:
    terms = asked_terms(_NUMBER.sub("", heading, count=1) if _NUMBER.match(heading) else heading)
    return len(asked & terms) >= max(_FEWEST, _ALIKE * max(len(asked), len(terms)))


def _below(sentences: Sequence[Sentence], number: int) -> Iterator[int]:
    """Numbers of the sentences that follow a heading, up to the next one that asks."""
    heading = sentences[number]
    for below in range(number + 1, len(sentences)):
        each = sentences[below]
        if each.run != heading.run or each.start > heading.stop + LONGEST or is_question(each.text):
            return
        yield below
