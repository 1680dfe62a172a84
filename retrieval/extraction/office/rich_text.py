"""Rich text (.rtf), as word processors of every age write it."""

from __future__ import annotations

import re
from pathlib import Path

from striprtf.striprtf import rtf_to_text

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text, text_bytes
from retrieval.extraction.parts import Block, from_blocks
from retrieval.extraction.table_rows import text_rows

_OVERHEAD = 50  # bytes for each of text: pictures are in the file, too
_DATA = re.compile(rb"(?:[0-9a-fA-F]{64,}\s*)+")  # of a picture or an object
_TITLE = re.compile(r"\{\\title\s+([^{}]{1,500})\}")
_AUTHOR = re.compile(r"\{\\author\s+([^{}]{1,500})\}")


def extract_rtf(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Paragraphs and table rows; pictures and embedded objects are left out. Raises ExtractError."""
    data = text_bytes(path, limits, overhead=_OVERHEAD)
    if not data.lstrip().startswith(b"{\\rtf"):
        raise ExtractError("The file is named .rtf but is not rich text.")
    source = _DATA.sub(b" ", data).decode("latin-1")
    try:
        text = str(rtf_to_text(source, errors="replace"))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # a third-party parser on a possibly hostile file may raise anything
        raise ExtractError(f"The rich text is damaged ({type(error).__name__}: {str(error)[:150]}).") from error
    metadata = {
        key: " ".join(rtf_to_text("{\\rtf1 " + found[1] + "}", errors="replace").split())
        for key, found in (("title", _TITLE.search(source)), ("author", _AUTHOR.search(source)))
        if found
    }
    return from_blocks(_blocks(text), metadata.get("title", ""), path, metadata, limits)


def _blocks(text: str) -> list[Block]:
    """Every line is a paragraph; lines of cells, which end with a bar, are the rows of tables."""
    blocks: list[Block] = []
    rows: list[list[str]] = []
    for line in [*clean_text(text).split("\n"), ""]:
        if line.rstrip().endswith("|"):
            rows.append([" ".join(cell.split()) for cell in line.rstrip()[:-1].split("|")])
            continue
        if rows:
            blocks.append((0, "\n".join(text_rows(rows))))
            rows = []
        blocks.append((0, " ".join(line.split())))
    return blocks
