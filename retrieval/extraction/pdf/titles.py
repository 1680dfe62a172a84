"""The title of a PDF: what its metadata states if that is a title, else the largest text of its first page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from retrieval.extraction.pdf.text_boxes import TextLine

_LONGEST = 300
_LONGEST_PRINTED = 200
_LINES_LOOKED_AT = 40
_PAGES_LOOKED_AT = 3
_MADE_BY_PROGRAMS = re.compile(
    r"(?:microsoft\s+(?:word|powerpoint|excel)\b|untitled|powerpoint presentation|presentation\d*$|document\d*$"
    r"|slide\s*\d+$|title$|no title$|unbenannt|dokument\d*$|sans titre)",
    re.I,
)
_FILE_NAME = re.compile(
    r"\.(?:pdf|docx?|pptx?|xlsx?|tex|dvi|rtf|odt|indd|qxd|p65|fm|html?|ps|eps|txt|md|\d{1,4})$|[\\/]\w+[\\/]|^\S*_\S*$",
    re.I,
)
_FEWEST_PRINTED = 0.5  # of the words of a stated title; those of a template's are not in the text
_WORD = re.compile(r"[^\W_]+")


def title_of(
    metadata: Mapping[str, str], pages: Sequence[Sequence[TextLine]], heads: Sequence[TextLine], path: Path
) -> str:
    """The document's title, at worst the file's name. `heads`: lines that were left out as running heads."""
    stated = " ".join(metadata.get("title", "").split())
    printed = _largest_text(pages, heads)
    made = _MADE_BY_PROGRAMS.match(stated) or _FILE_NAME.search(stated)
    if len(stated) > 3 and not made and (not printed or _is_printed(stated, pages)):
        return stated[:_LONGEST]
    return printed or path.stem


def _is_printed(stated: str, pages: Sequence[Sequence[TextLine]]) -> bool:
    """Whether most words of a stated title stand on the first pages."""
    text = " ".join(line.text for lines in pages[:_PAGES_LOOKED_AT] for line in lines)
    there = {word.lower() for word in _WORD.findall(text)}
    words = [word.lower() for word in _WORD.findall(stated)]
    return sum(word in there for word in words) >= _FEWEST_PRINTED * max(1, len(words))


def _largest_text(pages: Sequence[Sequence[TextLine]], heads: Sequence[TextLine]) -> str:
    """The largest text of the first page that is larger than other text, of the next page too as a cover has little,
    and no part of that page's running head; "" without one."""
    first, other = (
        [line for line in lines if line.turn == 0 and not line.table and line.cells == 1][:_LINES_LOOKED_AT]
        for lines in (*pages[:2], [], [])[:2]
    )
    running = [line.text.lower() for line in heads if first and line.page == first[0].page]
    for size in sorted({line.size for line in first}, reverse=True):
        if sum(line.size < 0.9 * size for line in (*first, *other)) <= 2:
            return ""
        alike = [
            list(group) for near, group in groupby(first, key=lambda line: 0.95 * size < line.size <= size) if near
        ]
        title = " ".join(" ".join(line.text for line in alike[0]).split())
        in_heads = any(title.lower() in text for text in running)
        if 3 < len(title) <= _LONGEST_PRINTED and not in_heads and any(map(str.isalpha, title)):
            return title
    return ""
