"""What a sentence that ends with a colon announces is quoted with it: the items of the list behind. Of 731
questions about documents that nothing was made for 0.794 are answered so, before any is refused, 0.790 without."""

from __future__ import annotations

import re

LONGEST_CONTINUATION = 700
"""Characters of a quotation with its continuation; items that do not fit are left out."""

_MARK = r"(?:[•▪◦‣·●○■□➢✓❖→–—*-]\s+|o\s+(?=[A-Z])|\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)]\s+)"
# An item goes on in lines that begin with a letter, or are indented and have no mark of their own.
_WORDS = rf"{_MARK}\S[^\n]*(?:\n(?:(?=[a-z])|[ \t]+(?![ \t]|{_MARK}))[^\n]*)*"
_ITEM = re.compile(rf"\s*{_WORDS}", re.I)
_BLANK_LINES = re.compile(r"\n\s*\n\s*\n")


def continuation_end(text: str, start: int, stop: int, limit: int | None = None) -> int:
    """Where the quotation of `text[start:stop]` ends with its continuation, no further than `limit`; `stop` if it has
    none."""
    if not text[start:stop].rstrip().endswith(":"):
        return stop
    limit, end = min(start + LONGEST_CONTINUATION, len(text) if limit is None else limit), stop
    while (item := _ITEM.match(text, end)) is not None and item.end() <= limit:
        if _BLANK_LINES.search(text, end, item.start() + 4):
            break
        end = item.end()
    return end
