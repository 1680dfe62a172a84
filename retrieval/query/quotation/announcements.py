"""What announces something is quoted together with it: a list behind "are as follows:" or under a heading, the rows
behind a caption."""

from __future__ import annotations

import re

from model.scoring.sentences import is_row

LONGEST = 700
"""Characters of a quotation with what it announces; items that do not fit are left out."""

_MARK = r"(?:[•▪◦‣·●○■□➢✓❖→–—*-]\s+|o\s+(?=[A-Z])|\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)]\s+)"
# An item goes on in lines that begin with a letter, or are indented and have no mark of their own.
_WORDS = rf"{_MARK}\S[^\n]*(?:\n(?:(?=[a-z])|[ \t]+(?![ \t]|{_MARK}))[^\n]*)*"
_ITEM = re.compile(rf"\s*{_WORDS}", re.I)
_ITEM_OF_LINES = re.compile(rf"^[ \t]*{_WORDS}", re.I | re.M)
_ROW = re.compile(r"\s*[^\n:;]{1,100}: [^\n;]{0,300};[^\n:]{0,100}: [^\n]*")
_COLUMN_NAMES = re.compile(r"\s*[^\n]*\t[^\n]*(?=\n)")
_CAPTION = re.compile(r"(?:table|tab\.|tabelle|tableau|tabla)\s+[\w.-]{1,8}[.:]?(?:\s|$)", re.I)
_BLANK_LINES = re.compile(r"\n\s*\n\s*\n")
_LONGEST_HEADING = 80
_ENDS = (".", "!", "?", "…", ";", ",")


def is_item(text: str) -> bool:
    """Whether it is an item of a list, mark and all."""
    return re.match(_MARK, text, re.I) is not None


def announced_end(text: str, start: int, stop: int, limit: int | None = None) -> int:
    """Where the quotation of `text[start:stop]` ends with what it announces, no further than `limit`; `stop` if it
    announces nothing."""
    limit = min(start + LONGEST, len(text) if limit is None else limit)
    said = text[start:stop].rstrip()
    is_caption = bool(_CAPTION.match(said))
    is_heading = len(said) <= _LONGEST_HEADING and not said.endswith(_ENDS) and not is_item(said)
    if not (said.endswith(":") or is_caption or is_heading):
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
    fewest = 1 if said.endswith(":") or is_caption else 2
    return end if items >= fewest else stop


def captioned_start(text: str, start: int, limit: int) -> int:
    """Where the rows of a table begin whose caption stands below them, at `start`, no earlier than `limit` and no more
    than may be quoted; `start` if they do not stand right before it."""
    if not _CAPTION.match(text, start):
        return start
    begin = start
    while begin > limit:
        stop = limit + len(text[limit:begin].rstrip())
        line = text.rfind("\n", 0, stop) + 1
        if line < max(limit, start - LONGEST) or text.count("\n", stop, begin) > 2 or not is_row(text[line:stop]):
            break
        begin = line
    return begin


def goes_on(text: str, position: int) -> bool:
    """Whether a list that begins before `position` has an item, or a part of one, behind it."""
    before: int | None = None
    for item in _ITEM_OF_LINES.finditer(text, max(0, position - LONGEST), min(len(text), position + LONGEST)):
        follows = before is not None and not text[before : item.start()].strip()
        if item.end() > position:
            return item.start() < position or (follows and not _BLANK_LINES.search(text, before or 0, item.start()))
        before = item.end()
    return False
