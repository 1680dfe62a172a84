"""Files of programs and of programs' settings, as text; their places are line numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.encodings import decode
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text, text_bytes
from retrieval.extraction.parts import Part, from_parts

LINES = 40
"""Lines of one part, at least."""
_MOST_LINES = 60
_TAB = 4


def extract_code(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Raises ExtractError."""
    source, encoding, notes = decode(text_bytes(path, limits))
    return code_document(source, encoding, notes, path, limits)


def code_document(
    source: str, encoding: str, notes: Sequence[str], path: Path, limits: ExtractLimits
) -> ExtractedDocument:
    """The text as it stands."""
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return from_parts(_parts(lines), "", path, {"encoding": encoding}, limits, notes)


def _parts(lines: list[str]) -> Iterator[Part]:
    """Pieces that end at an empty line where there is one soon."""
    first = 0
    while first < len(lines):
        last = min(first + LINES, len(lines))
        while last < min(first + _MOST_LINES, len(lines)) and lines[last - 1].strip():
            last += 1
        text = clean_text("\n".join(line.expandtabs(_TAB).rstrip() for line in lines[first:last])).strip("\n")
        if text.strip():
            yield Part(f"lines {first + 1}–{last}" if last > first + 1 else f"line {last}", [(0, text)])
        first = last
