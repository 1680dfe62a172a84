"""Two sentences that stand side by side and answer about equally well are quoted as one."""

from __future__ import annotations

import re
from dataclasses import replace

from model.scoring.sentences import is_row
from retrieval.query.quotation.announcements import is_item
from retrieval.query.quotation.placed_sentences import Sentence

TIE = 3.0
"""So much less may the second be worth, as a logarithm (a twentieth of the chance, if they match as well)."""
LONGEST = 500
"""Characters of both."""

_ENDS = (".", "!", "…", "”", '"', ")")
_BLANK_LINE = re.compile(r"\n\s*\n")


def joined(first: Sentence, second: Sentence, text: str) -> Sentence | None:
    """The first with the second, if both are prose of one paragraph of `text` and nothing stands between them."""
    before, after = sorted((first, second), key=lambda sentence: sentence.start)
    between = text[before.stop : after.start]
    if first.run != second.run or between.strip() or _BLANK_LINE.search(between) or after.stop - before.start > LONGEST:
        return None
    if not before.text.rstrip().endswith(_ENDS):  # a heading
        return None
    if any(each.announced or is_item(each.text) or is_row(each.text) for each in (first, second)):
        return None
    if second is after:
        return replace(first, announced=second.places)
    return replace(first, antecedent=second.antecedent + second.places)
