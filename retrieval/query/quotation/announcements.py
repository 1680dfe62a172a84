"""What announces something is quoted together with it: a list behind "are as follows:", the rows behind a caption."""

from __future__ import annotations

import re

LONGEST = 500
"""Characters of a quotation with what it announces; items that do not fit are left out."""

_MARK = r"(?:[•▪◦‣·●○■□➢✓❖→–—*-]\s+|o\s+(?=[A-Z])|\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)]\s+)"
# An item goes on in lines that begin with a letter, or are indented and have no mark of their own.
_ITEM = re.compile(rf"\s*{_MARK}\S[^\n]*(?:\n(?:(?=[a-z])|[ \t]+(?![ \t]|{_MARK}))[^\n]*)*", re.I)
_ROW = re.compile(r"\s*[^\n:;]{1,100}: [^\n;]{0,300};[^\n:]{0,100}: [^\n]*")
_COLUMN_NAMES = re.compile(r"\s*[^\n]*\t[^\n]*(?=\n)")
_CAPTION = re.compile(r"(?:table|tab\.|tabelle|tableau|tabla)\s+[\w.-]{1,8}[.:]?(?:\s|$)", re.I)
_BLANK_LINES = re.compile(r"\n\s*\n\s*\n")


def announced_end(text: str, start: int, stop: int, limit: int | None = None) -> int:
    """Where the quotation of `text[start:stop]` ends with what it announces, no further than `limit`; `stop` if it
    announces nothing."""
    limit = min(start + LONGEST, len(text) if limit is None else limit)
    said = text[start:stop].rstrip()
    is_caption = bool(_CAPTION.match(said))
    if not (said.endswith(":") or is_caption):
        return stop
    end = stop
    if is_caption and (names := _COLUMN_NAMES.match(text, end)) is not None:
        end = names.end()
    items = 0
    pattern = _ROW if is_caption else _ITEM
    while (item := pattern.match(text, end)) is not None and item.end() <= limit:
        if _BLANK_LINES.search(text, end, item.start() + 4):
            break
        end, items = item.end(), items + 1
    return end if items else stop
