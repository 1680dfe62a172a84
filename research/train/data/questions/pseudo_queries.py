"""Questions made from the text itself: fragments of a block that search for it, and definitions turned around."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.train.data.questions.word_tables import word_table

DEFINES = re.compile(
    r"(?:(?<=[.!?]\s)|(?<=\n)|^)(?:The |(?P<article>An?) )?(?P<term>\w[\w-]*(?: [\w-]+){0,3}) "
    r"(?P<verb>is|are|was|were|refers to|means|is defined as) "
    r"(?P<answer>(?:an?|the|any|one of) [^.;:\n]{12,140}?)(?=[.;])"
)


@dataclass(frozen=True)
class MadeQuestion:
    """A question and the characters of the text that answer it."""

    question: str
    start: int
    stop: int


def pseudo_query(block_ids: Sequence[int], idf_V: NDArray[np.float32], random_: random.Random) -> tuple[int, ...]:
    """A fragment of a block used as a question: with some tokens dropped, or only its rarest tokens."""
    length = random_.randrange(6, 20)
    start = random_.randrange(max(1, len(block_ids) - length))
    fragment = [int(token) for token in block_ids[start : start + length]]
    if random_.random() < 0.5:
        kept = [token for token in fragment if random_.random() < 0.7]
    else:
        median = float(np.quantile(idf_V[fragment], 0.5))
        kept = [token for token in fragment if idf_V[token] >= median]
        if random_.random() < 0.5:
            random_.shuffle(kept)
    return tuple(kept or fragment)


def definitions(text: str, random_: random.Random) -> Iterator[MadeQuestion]:
    """Questions from sentences of the form "A cairn is a pile of stones."."""
    words = word_table("words")
    for found in DEFINES.finditer(text):
        term, verb = found["term"], found["verb"]
        if term.split()[0].lower() in words["not_a_term"]:
            continue
        templates = words["definition_asked"][{"are": "are", "were": "are", "was": "was"}.get(verb, "is")]
        article = f"{found['article'].lower()} " if found["article"] else ""
        question = random_.choice(templates).format(term=term, article=article)
        yield MadeQuestion(question, *found.span("answer"))
