"""Properties of documents: author, date, language, tag, and names of the user's own; and conditions on them.

    author=Lindqvist   author!=Lindqvist   author~lind   date>=2024   date<2024-06   tag=draft   pages>10

Values are compared without regard to case, dates as far as they are written (`date<=2024` includes all of 2024), and
numbers as numbers. Of several values of a property one is enough; `!=` wants none of them.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from storage.names import clean_name

OPERATORS = ("!=", ">=", "<=", "=", "~", ">", "<")
BUILT_IN = ("title", "source", "kind", "added", "pages")
"""What a condition may name beside properties, but nobody can set."""
MOST_VALUES, LONGEST_VALUE = 100, 500
_NAME = re.compile(r"[^\W\d][\w .-]{0,63}")
_CONDITION = re.compile(r"\s*([^\W\d][\w .-]*?)\s*(!=|>=|<=|=|~|>|<)\s*(.*?)\s*", re.DOTALL)
_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?")
_MONTHS = "janfebmaraprmayjunjulaugsepoctnovdec"
_MAIL_DATE = re.compile(
    r"(?:[a-z]{3},\s*)?(\d{1,2})\s+(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\s+(\d{4})\b", re.I
)
_PDF_DATE = re.compile(r"D:(\d{4})(\d{2})?(\d{2})?")
_SAME = {"creationdate": "date", "created": "date", "lang": "language", "keywords": "keyword", "tags": "tag"}
_STATED = ("author", "date", "language", "keyword", "subject")
USUAL = (*_STATED, "tag")
"""Properties that a condition may name also while no document has them."""


@dataclass(frozen=True)
class Condition:
    """`name` and `value` folded as they are compared; `operator` is one of `OPERATORS`."""

    name: str
    operator: str
    value: str


def condition(text: str) -> Condition:
    """`date>=2024` and the like. Raises `ValueError`."""
    found = _CONDITION.fullmatch(text[: LONGEST_VALUE + 100])
    if found is None or not found[3]:
        raise ValueError(
            f"{text!r} is not a condition. Write a name, one of {' '.join(OPERATORS)}, and a value: author=Lindqvist, "
            "date>=2024, title~dam."
        )
    wanted = Condition(checked_property(found[1]), found[2], clean_name(found[3]).casefold())
    if wanted.value[:1] in OPERATORS:
        raise ValueError(f"{text!r}: {found[2] + found[3][0]!r} is not an operator. Use one of {' '.join(OPERATORS)}.")
    if wanted.name in ("date", "added") and wanted.operator != "~" and not _is_day(wanted.value):
        raise ValueError(f"{text!r}: {wanted.value!r} is not a date. Write 2024-01-31, 2024-01 or 2024.")
    if wanted.name == "pages" and (wanted.operator == "~" or not _NUMBER.fullmatch(wanted.value)):
        raise ValueError(f"{text!r}: pages are a number, as in pages>10.")
    return wanted


def checked_property(name: str) -> str:
    """The name as it is kept. Raises `ValueError`."""
    kept = clean_name(name).casefold()
    kept = _SAME.get(kept, kept)
    if not _NAME.fullmatch(kept):
        raise ValueError(
            f"{name!r} cannot be the name of a property: use letters, digits, spaces and dashes, up to 64."
        )
    return kept


def checked_values(name: str, values: Sequence[str]) -> list[str]:
    """Values set by hand, as they are kept; none takes the property away. Raises `ValueError`."""
    if name in BUILT_IN:
        raise ValueError(f"{name} is not set this way: it is what the library itself knows of a document.")
    if len(values) > MOST_VALUES:
        raise ValueError(f"A property has at most {MOST_VALUES} values, not {len(values)}.")
    kept = list(dict.fromkeys(value for value in map(clean_name, values) if value))
    if name == "date" and (wrong := next((value for value in kept if not _DATE.fullmatch(value)), None)):
        raise ValueError(f"{wrong!r} is not a date: write 2024-01-31, 2024-01 or 2024.")
    return kept


def number_of(name: str, value: str) -> float | None:
    """The value as a number; None if it is none, or a date."""
    return float(value) if name != "date" and _NUMBER.fullmatch(value) else None


def is_date(value: str) -> bool:
    return _DATE.fullmatch(value) is not None


def _is_day(value: str) -> bool:
    """True for a date, whole or in part, that the calendar has."""
    with suppress(ValueError):
        return is_date(value) and bool(datetime.date.fromisoformat(value + "-01-01"[len(value) - 4 :]))
    return False


def stated_properties(metadata: Mapping[str, str]) -> dict[str, list[str]]:
    """What a file says of itself, from the metadata that reading it gave."""
    found: dict[str, list[str]] = {}
    for key, value in metadata.items():
        name = _SAME.get(key.casefold(), key.casefold())
        if name not in _STATED:
            continue
        values = re.split(r"[;,]", value) if name == "keyword" else value.split(";")
        if name == "date":
            values = [date] if (date := _stated_date(value)) else []
        kept = list(dict.fromkeys(one for one in map(clean_name, values) if one))[:MOST_VALUES]
        if kept and name not in found:
            found[name] = kept
    return found


def _stated_date(value: str) -> str:
    """A PDF's `D:20240131120000Z`, an e-mail's `Wed, 31 Jan 2024 12:00:00 +0100`, or an ISO date, as 2024-01-31; "" if
    it is none of them."""
    if mail := _MAIL_DATE.match(value.strip()):
        month = _MONTHS.find(mail[2].lower()) // 3 + 1
        value = f"{mail[3]}-{month:02}-{int(mail[1]):02}"
    if pdf := _PDF_DATE.match(value.strip()):
        value = "-".join(part for part in pdf.groups() if part)
    return value.strip()[:10] if _DATE.fullmatch(value.strip()[:10]) else ""
