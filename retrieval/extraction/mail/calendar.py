"""Calendar files (.ics), also as invitations within e-mails: what, when, where and with whom, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.encodings import decode
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text, text_bytes
from retrieval.extraction.parts import Block, Part, from_parts
from retrieval.extraction.table_rows import SENTENCE_ENDS

_NAMES = {
    "SUMMARY": "", "DTSTART": "Begins", "DTEND": "Ends", "DUE": "Due", "DURATION": "Lasts", "LOCATION": "Where",
    "ORGANIZER": "Organiser", "ATTENDEE": "Attendee", "RRULE": "Repeats", "STATUS": "Status",
    "DESCRIPTION": "Description", "URL": "Address", "EXDATE": "Not on", "COMPLETED": "Done", "CATEGORIES": "Kind",
    "COMMENT": "Comment", "CONTACT": "Contact",
}  # fmt: skip
_KINDS = ("VEVENT", "VTODO", "VJOURNAL")
_FOLDED = re.compile(r"\r?\n[ \t]")
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z)?)?")
_ESCAPED = re.compile(r"\\([nN,;\\])")
_CALLED = re.compile(r';CN=("[^"]*"|[^;:]*)')
_TAKES_PART = re.compile(r";PARTSTAT=(DECLINED|TENTATIVE|ACCEPTED|DELEGATED)")
_ZONE = re.compile(r';TZID=("[^"]*"|[^;:]+)')
_LINE = re.compile(r'((?:"[^"]*"|[^":])*):(.*)')
"""A name with its parameters, of which some are quoted, and the value."""


def extract_ics(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Every entry of a calendar. Raises ExtractError."""
    source, encoding, notes = decode(text_bytes(path, limits))
    if "BEGIN:VCALENDAR" not in source:
        raise ExtractError("The file is named .ics but is not a calendar.")
    return from_parts([Part("", _entries(source))], "", path, {"encoding": encoding}, limits, notes)


def _entries(source: str) -> list[Block]:
    blocks: list[Block] = []
    entry: list[tuple[str, str]] | None = None
    inner = 0  # alarms within an entry
    for line in re.split(r"\r\n?|\n", _FOLDED.sub("", source)):
        stated = _LINE.fullmatch(line)
        head, value = stated.groups() if stated else line.partition(":")[::2]
        name = head.partition(";")[0].upper()
        if name == "BEGIN":
            if value.strip().upper() in _KINDS:
                entry = []
            else:
                inner += entry is not None
        elif name == "END" and entry is not None and inner:
            inner -= 1
        elif name == "END" and entry is not None:
            blocks += _stated(entry)
            entry = None
        elif entry is not None and not inner and name in _NAMES and value.strip():
            entry.append((name, _value(name, head, value)))
    return blocks


def _stated(entry: list[tuple[str, str]]) -> Iterator[Block]:
    """An entry below its summary, which begins every sentence: "Where" says nothing of what takes place there."""
    summary = next((text for name, text in entry if name == "SUMMARY"), "")
    if summary:
        yield 1, summary
    subject = f"{summary}: " if summary else ""
    named = [(f"{_NAMES[name]}: {text}", text) for name, text in entry if name != "SUMMARY"]
    sentences = [f"{subject}{line}{'' if text.endswith(SENTENCE_ENDS) else '.'}" for line, text in named]
    yield 0, "\n".join(sentences)


def _value(name: str, head: str, value: str) -> str:
    if name in ("DTSTART", "DTEND", "DUE", "EXDATE", "COMPLETED") and _MOMENT.match(value):
        return ", ".join(_moment(head, one) for one in value.strip().split(","))
    called, part = _CALLED.search(head), _TAKES_PART.search(head)
    if name in ("ORGANIZER", "ATTENDEE"):
        address = value.strip().removeprefix("mailto:").removeprefix("MAILTO:")
        who = f"{called[1].strip(chr(34))} <{address}>" if called else address
        return f"{who} ({part[1].lower()})" if part else who
    text = _ESCAPED.sub(lambda one: "\n" if one[1] in "nN" else one[1], value)
    return " ".join(clean_text(text).split())


def _moment(head: str, value: str) -> str:
    found, zone = _MOMENT.match(value), _ZONE.search(head)
    if found is None:
        return value
    time = f" {found[4]}:{found[5]}" if found[4] else ""
    where = f" ({zone[1].strip(chr(34))})" if zone else " UTC" if found[6] else ""
    return f"{found[1]}-{found[2]}-{found[3]}{time}{where if time else ''}"
