"""How much a writer is given to read at a time, and in which words it is asked.

Small models lose the question behind many passages, and repeat long instructions instead of following them. So they are
given the first few passages, which are the best, and the sentence that the search would have quoted.
"""

from __future__ import annotations

from dataclasses import dataclass

from retrieval.writers.protocol import Writer
from retrieval.writing.instructions import ANSWER, ANSWER_BRIEFLY

SMALL_WEIGHTS = 1_000_000_000
_SMALL_PASSAGES = 3
SEGMENTS_A_PART = 6


@dataclass(frozen=True)
class Portion:
    """`passages`: for a question; `part`: segments of a whole document at a time; `instruction`: of a question;
    `hinted`: with the sentence that would be quoted."""

    passages: int
    part: int
    instruction: str
    hinted: bool = False


def full_portion(wanted: int) -> Portion:
    """Of a writer that is not small."""
    return Portion(wanted, SEGMENTS_A_PART, ANSWER)


def portion_of(writer: Writer, wanted: int) -> Portion:
    """`wanted`: passages that the question asks for. Raises as `Writer.weights`."""
    weights = writer.weights
    if weights is None or weights >= SMALL_WEIGHTS:
        return full_portion(wanted)
    return Portion(min(wanted, _SMALL_PASSAGES), _SMALL_PASSAGES, ANSWER_BRIEFLY, hinted=True)
