"""Documents made of named parts instead of printed pages: slides, chapters, attachments, or the whole text as one part.

A part takes the place of a page, and its label says what it is ("slide 4"). There are no boxes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from retrieval.errors import ExtractError
from retrieval.extraction.document import (
    NO_PAGE,
    Aside,
    AsideKind,
    Exhibits,
    ExtractedDocument,
    ExtractedPage,
    ExtractedTable,
    OutlineEntry,
)
from retrieval.extraction.exhibits import table_of, within_limits
from retrieval.extraction.figures import Figures, Picture, captioned
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.table_rows import LONGEST_SUBJECT, alike, subject_of

_LONGEST_TITLE = 300
_LONGEST_HEADING = 500
_LONGEST_LABEL = 120
_OUTLINE_ENTRIES = 20_000
_LABEL = re.compile(r"([^\s:;.!?][^:;.!?]{0,58}): \S")

Block = tuple[int, str]
"""Heading level (1 is the highest; 0: running text) and text."""


Cells = tuple[str, Sequence[Sequence[str]]]
"""A table: its caption, or "", and its rows."""


Kind = AsideKind | Literal[""]
"""Of a run of text: why it is set aside; "" for what a reader of the file sees as valid."""


class Run(NamedTuple):
    """A piece of a paragraph; `is_raised`: printed above its line."""

    kind: Kind
    text: str
    is_raised: bool = False


def valid_text(runs: Iterable[Run], asides: list[Aside]) -> str:
    """The valid words of a paragraph, with what is raised written out. The others go to `asides`, a passage for each
    kind."""
    texts: dict[Kind, list[str]] = {"": []}
    for (kind, is_raised), group in groupby(runs, key=lambda run: (run.kind, run.is_raised)):
        text = "".join(run.text for run in group)
        if is_raised and not kind:
            text = _raised_text("".join(texts[""][-3:])[-8:], text)
        texts.setdefault(kind, []).append(text)
    valid = "".join(texts.pop(""))
    asides += [
        Aside(kind, joined) for kind, pieces in texts.items() if kind and (joined := " ".join("".join(pieces).split()))
    ]
    return valid


_EXPONENT = re.compile(r"[-+\u2212]?\d+")
_BASE = re.compile(r"(?:\b10|(?<![^\W\d_])(?:[A-Za-z\u0370-\u03ff]|[cdkmnµ]m)|\))\Z")


def _raised_text(before: str, raised: str) -> str:
    """What is printed raised behind some text, written out: an exponent behind its base ("10^6", "m^2"), a mark of a
    note apart from the number that it stands at, letters ("1st") as they are."""
    if not _EXPONENT.fullmatch(raised.strip()):
        return raised
    if _BASE.search(before.rstrip()):
        return f"^{raised.strip()}"
    return f" {raised}" if before[-1:].isalnum() else raised


def stated_number(text: str | None, otherwise: int, most: int = 99_999) -> int:
    """A whole number as a file states it, at most `most`; `otherwise` for anything else."""
    return min(int(text), most) if text and text.isascii() and text.isdigit() and len(text) < 12 else otherwise


_ABOUT = 80  # characters of what a note or a comment is about


def remark_text(said: str, about: str, text: str) -> str:
    """A note or a comment as a paragraph of its own. `said`: what it is ("Comment by A. Miller"); `about`: the words
    that it stands at, of which the last are named."""
    about = " ".join(about.split())
    if len(about) > _ABOUT:
        about = "…" + about[-_ABOUT:].partition(" ")[2]
    return f"{said} on “{about}”: {text}" if about else f"{said}: {text}"


@dataclass(frozen=True)
class Part:
    """`label`: what it is, in words ("slide 4"); "" where a file has only one part. `tables`: those in the blocks;
    `pictures`: those between them; `asides`: what was set aside, whatever page it states."""

    label: str
    blocks: Sequence[Block]
    note: str = ""
    tables: Sequence[Cells] = ()
    pictures: Sequence[Picture] = ()
    asides: Sequence[Aside] = ()


def from_parts(
    parts: Iterable[Part],
    title: str,
    path: Path,
    metadata: dict[str, str],
    limits: ExtractLimits,
    notes: Sequence[str] = (),
) -> ExtractedDocument:
    """A document made of these parts. The title defaults to the first heading, then to the file's name. Raises
    ExtractError without text or beyond the limits."""
    texts: list[str] = []
    pages: list[ExtractedPage] = []
    outline: list[OutlineEntry] = []
    tables: list[ExtractedTable] = []
    asides: list[Aside] = []
    figures = Figures(limits)
    position = 0
    for number, part in enumerate(_with_subjects(list(parts))):
        if number >= limits.pages:
            raise ExtractError(f"The file has more than {limits.pages:,} parts. Split it and add the parts.")
        start, end = position, position
        waiting = sorted(captioned(part.pictures, part.blocks), key=lambda picture: -picture.before)
        for at, (level, text) in enumerate(part.blocks):
            while waiting and waiting[-1].before <= at:
                figures.add(waiting.pop(), number, position)
            if not text.strip():
                continue
            if level and len(outline) < _OUTLINE_ENTRIES:
                outline.append(OutlineEntry(" ".join(text.split())[:_LONGEST_HEADING], level - 1, number, position))
            texts.append(text)
            end = position + len(text)
            position = end + 2
            if position > limits.characters:
                raise too_long(limits)
        while waiting:
            figures.add(waiting.pop(), number, end)
        found = (table_of(number, caption, rows) for caption, rows in part.tables)
        tables += [table for table in found if table is not None]
        asides += [replace(one, page=number) for one in part.asides]
        pages.append(ExtractedPage(number, part.label[:_LONGEST_LABEL], 0.0, 0.0, start, end, part.note))
    if not texts:
        raise ExtractError("All text of the file is hidden or deleted." if asides else "The file has no text.")
    if len(pages) == 1 and not pages[0].label:
        outline = [OutlineEntry(entry.title, entry.level, None, entry.start) for entry in outline]
    text = "\n\n".join(texts)
    pages = [replace(page, start=min(page.start, len(text)), end=min(page.end, len(text))) for page in pages]
    title = " ".join(title.split()) or (outline[0].title if outline else path.stem)
    nowhere_N, boxes_N4 = np.full(len(text), NO_PAGE, np.int32), np.zeros((len(text), 4), np.float32)
    return ExtractedDocument(
        title[:_LONGEST_TITLE], text, tuple(pages), tuple(outline), metadata, nowhere_N, nowhere_N, boxes_N4,
        tuple(notes), exhibits=within_limits(Exhibits(figures.all(), tuple(tables))), pictures=figures.pictures(),
        asides=tuple(asides),
    )  # fmt: skip


def _with_subjects(parts: Sequence[Part]) -> Sequence[Part]:
    """The parts; labels that a form has below several headings ("Street: ...") stand behind their heading, and so do
    the rows of tables that only their headings tell apart."""
    forms: list[tuple[int, int, str, list[str]]] = []  # part, block, heading, labels
    tables: list[tuple[int, int, str, list[str]]] = []  # part, block, what stands above, lines
    heading, above = "", ""
    for number, part in enumerate(parts):
        for at, (level, text) in enumerate(part.blocks):
            lines = text.split("\n")
            labels = [_LABEL.match(line) for line in lines]
            if level:
                heading = " ".join(text.split())
            elif "\t" in lines[0] and len(lines) > 2:
                tables.append((number, at, subject_of(above) or subject_of(heading), lines))
            elif heading and len(heading) <= LONGEST_SUBJECT and all(labels):
                forms.append((number, at, heading, [found[1] for found in labels if found]))
            above = text
    below: dict[str, set[str]] = {}
    for _, _, heading, names in forms:
        for name in names:
            below.setdefault(name, set()).add(heading)
    told = [form[:3] for form in forms if any(len(below[name]) > 1 for name in form[3])]
    is_alike = alike([(name, lines) for _, _, name, lines in tables])
    told += [table[:3] for table, one in zip(tables, is_alike, strict=True) if one]
    blocks_of = [list(part.blocks) for part in parts]
    for number, at, heading in told:
        lines, subject = blocks_of[number][at][1].split("\n"), heading.rstrip(":")
        between = "; " if "\t" in lines[0] else ": "
        said = [line if subject in line or "\t" in line else f"{subject}{between}{line}" for line in lines]
        blocks_of[number][at] = (0, "\n".join(said))
    return [replace(part, blocks=blocks) for part, blocks in zip(parts, blocks_of, strict=True)]


def too_long(limits: ExtractLimits) -> ExtractError:
    return ExtractError(f"The text has more than {limits.characters:,} characters. Split the file and add the parts.")
