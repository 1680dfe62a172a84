"""Questions made from the text itself: pieces of a block that look for it, and sentences that say what something is."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def pseudo_question(block_ids: Sequence[int], idf_V: NDArray[np.float32], random_: random.Random) -> tuple[int, ...]:
    """A piece of a block as if it were a question: a stretch of it, with tokens dropped, or only its rarest tokens."""
    length = random_.randrange(6, 20)
    start = random_.randrange(max(1, len(block_ids) - length))
    piece = [int(token) for token in block_ids[start : start + length]]
    if random_.random() < 0.5:
        kept = [token for token in piece if random_.random() < 0.7]
    else:
        bar = float(np.quantile(idf_V[piece], 0.5))
        kept = [token for token in piece if idf_V[token] >= bar]
        if random_.random() < 0.5:
            random_.shuffle(kept)
    return tuple(kept or piece)


DEFINES = re.compile(
    r"(?:(?<=[.!?]\s)|(?<=\n)|^)(?:The |(?P<article>An?) )?(?P<term>\w[\w-]*(?: [\w-]+){0,3}) "
    r"(?P<verb>is|are|was|were|refers to|means|is defined as) "
    r"(?P<said>(?:an?|the|any|one of) [^.;:\n]{12,140}?)(?=[.;])"
)
# fmt: off
NO_TERM = frozenset((
    "a", "i", "it", "this", "that", "there", "he", "she", "they", "these", "those", "what", "which", "who",
    "here", "we", "you", "one", "some", "such", "his", "her", "their", "its", "our", "my", "since", "but",
    "although", "if", "while", "when", "because", "as", "and", "for", "in", "on", "at",
))
# fmt: on
DEFINITION_ASKED = {
    "is": ("What is {term}?", "What is {article}{term}?", "Define {term}.", "What does {term} mean?"),
    "are": ("What are {term}?", "Define {term}.", "What is meant by {term}?"),
    "was": ("Who or what was {term}?", "What was {term}?", "What was {article}{term}?"),
}


@dataclass(frozen=True)
class MadeQuestion:
    """A question and the characters of the text that answer it."""

    question: str
    start: int
    stop: int


def definitions(text: str, random_: random.Random) -> Iterator[MadeQuestion]:
    """Sentences of the form "A cairn is a pile of stones." turned into questions."""
    for found in DEFINES.finditer(text):
        term, verb = found["term"], found["verb"]
        if term.split()[0].lower() in NO_TERM:
            continue
        asked = DEFINITION_ASKED[{"are": "are", "were": "are", "was": "was"}.get(verb, "is")]
        article = f"{found['article'].lower()} " if found["article"] else ""
        yield MadeQuestion(
            random_.choice(asked).format(term=term, article=article), found.start("said"), found.end("said")
        )
