"""Rich text (.rtf), as word processors of every age write it."""

from __future__ import annotations

import re
from pathlib import Path

from striprtf.striprtf import rtf_to_text

from retrieval.errors import ExtractError
from retrieval.extraction.document import Aside, ExtractedDocument
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text, text_bytes
from retrieval.extraction.parts import Block, Kind, from_blocks, valid_text
from retrieval.extraction.table_rows import text_rows

_OVERHEAD = 50  # bytes for each of text: pictures are in the file, too
_DATA = re.compile(rb"(?:[0-9a-fA-F]{64,}\s*)+")  # of a picture or an object
_TITLE = re.compile(r"\{\\title\s+([^{}]{1,500})\}")
_HEADER = re.compile(r"\{(?:\\\*)?\\(?:header|footer)[lrf]?(?![a-z])\s?")
_WORD = re.compile(r"\\(v|strike|striked|deleted|plain)(-?\d+)?(?![a-z])[ ]?|(?<!\\)[{}]")
_KINDS: dict[str, Kind] = {"\ue000": "", "\ue001": "hidden", "\ue002": "deleted"}
"""Private characters, which mark in the text what follows."""
_MARKS = {kind: f"\\u{ord(mark) - 65536}?" for mark, kind in _KINDS.items()}
_AUTHOR = re.compile(r"\{\\author\s+([^{}]{1,500})\}")


def extract_rtf(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Paragraphs and table rows; pictures and embedded objects are left out. Raises ExtractError."""
    data = text_bytes(path, limits, overhead=_OVERHEAD)
    if not data.lstrip().startswith(b"{\\rtf"):
        raise ExtractError("The file is named .rtf but is not rich text.")
    source = _DATA.sub(b" ", data).decode("latin-1")
    asides: list[Aside] = []
    try:
        text = str(rtf_to_text(_marked(source), errors="replace"))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # a third-party parser on a possibly hostile file may raise anything
        raise ExtractError(f"The rich text is damaged ({type(error).__name__}: {str(error)[:150]}).") from error
    metadata = {
        key: " ".join(rtf_to_text("{\\rtf1 " + found[1] + "}", errors="replace").split())
        for key, found in (("title", _TITLE.search(source)), ("author", _AUTHOR.search(source)))
        if found
    }
    blocks = _blocks(text, asides)
    return from_blocks(blocks, metadata.get("title", ""), path, metadata, limits, asides=asides)


def _marked(source: str) -> str:
    """With a mark of its own wherever text begins to be hidden or struck out, and where it ends; headers and footers
    as paragraphs where they are stated."""
    written: list[str] = []
    groups: list[set[str]] = [set()]
    headers: list[int] = []  # depths of the groups that are open and hold one
    shown: Kind = ""
    at = 0
    for found in _WORD.finditer(source):
        written.append(source[at : found.start()])
        at, before = found.end(), set(groups[-1])
        if found[0] == "{":
            groups.append(set(groups[-1]))
            header = _HEADER.match(source, found.start())
            if header is not None:
                written.append("\\par ")
                at, headers = header.end(), [*headers, len(groups)]
        elif found[0] == "}":
            if len(groups) in headers:
                written.append("\\par ")
                headers.remove(len(groups))
            groups.pop() if len(groups) > 1 else groups[-1].clear()
        elif found[1] == "plain":
            groups[-1].clear()
        elif found[2] == "0":
            groups[-1].discard(found[1])
        else:
            groups[-1].add(found[1])
        kind: Kind = "hidden" if "v" in groups[-1] else "deleted" if groups[-1] else ""
        # Behind what opens a group, in front of what ends one: the mark belongs to the text, not to a destination.
        written += [found[0], _MARKS[kind]] if kind != shown and found[0] != "}" else [found[0]]
        if kind != shown and found[0] == "}":
            written.append(_MARKS[kind])
        shown = kind if groups[-1] != before or found[0] in "{}" else shown
    return "".join([*written, source[at:]])


def _valid_line(line: str, kind: Kind, asides: list[Aside]) -> tuple[str, Kind]:
    """The valid words of a line that begins with text of this kind, and the kind at its end."""
    runs: list[tuple[Kind, str]] = []
    for piece in re.split(f"([{''.join(_KINDS)}])", line):
        kind = _KINDS.get(piece, kind)
        runs.append((kind, "" if piece in _KINDS else piece))
    return valid_text(runs, asides), kind


def _blocks(text: str, asides: list[Aside]) -> list[Block]:
    """Every line is a paragraph; lines of cells, which end with a bar, are the rows of tables."""
    blocks: list[Block] = []
    rows: list[list[str]] = []
    kind: Kind = ""
    for line in [*clean_text(text).split("\n"), ""]:
        line, kind = _valid_line(line, kind, asides)
        if line.rstrip().endswith("|"):
            rows.append([" ".join(cell.split()) for cell in line.rstrip()[:-1].split("|")])
            continue
        if rows:
            blocks.append((0, "\n".join(text_rows(rows))))
            rows = []
        blocks.append((0, " ".join(line.split())))
    return blocks
