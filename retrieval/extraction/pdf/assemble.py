"""Pages of lines to a document: running heads left out, lines joined to running text, pages without text told, and its
title: what its metadata states if that is a title, else the largest text of its first page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from retrieval.errors import ExtractError, NothingToRead
from retrieval.extraction.document import (
    NO_PAGE,
    Aside,
    Exhibits,
    ExtractedBox,
    ExtractedDocument,
    ExtractedFigure,
    ExtractedPage,
    ExtractedTable,
    OutlineEntry,
)
from retrieval.extraction.exhibits import (
    caption_of,
    is_figure_caption,
    is_table_caption,
    nearest_caption,
    within_limits,
)
from retrieval.extraction.parts import Part
from retrieval.extraction.pdf.characters import PageCharacters, extent
from retrieval.extraction.pdf.forms import with_pairs
from retrieval.extraction.pdf.headers_footers import find_headers_footers, said_once, without_hidden_numbers
from retrieval.extraction.pdf.layout import line_numbers, read_lines, torn_by_boxes
from retrieval.extraction.pdf.paragraphs import ends_sentence, join_lines
from retrieval.extraction.pdf.tables.find_tables import find_tables
from retrieval.extraction.pdf.tables.rows import Names, read_table
from retrieval.extraction.pdf.tables.rules import Rules
from retrieval.extraction.pdf.text_boxes import TextLine, composed, piece_of, plain_line
from retrieval.extraction.pdf.unseen import texts_of
from retrieval.extraction.table_rows import Piece, alike, subject_of

NO_TEXT = "no text: scanned image?"
ONLY_HEADERS = "no text beside running heads: scanned image?"
DAMAGED = "damaged page: cannot be read"
UNREADABLE = "text without character codes: cannot be read"
WORDLESS = "no text, and none was recognised in the picture"
_LINES_A_PAGE = 100_000  # more than any page has; numbers the tables of a document
_CAPTION_REACH = 0.12  # of the height of the page, between a caption and what it is about
_MOST_SHOWN = 20  # page numbers in a note
_LONGEST_TITLE = 300
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
_MISREAD = re.compile(r"^[^\w\"'“„«(¿¡]|\s[^\w\s&+/–—-](?=\s|$)|\s[b-df-hj-np-tv-xz]$")  # a sign or a letter by itself
_NUMBERED_LABEL = re.compile(r":.*\d")


@dataclass(frozen=True)
class Page:
    """One page as it was read; its span in the text is filled in later.

    `is_picture`: text may be recognised on it if it has none; `recognised`: that was done. `pictures`: where it shows
    some.
    """

    facts: ExtractedPage
    lines: Sequence[TextLine]
    is_picture: bool = False
    recognised: bool = False
    tables: Sequence[ExtractedTable] = ()
    pictures: Sequence[ExtractedBox] = ()
    asides: Sequence[Aside] = ()


@dataclass(frozen=True)
class PageLines:
    """The lines of a page, its tables, and the column names of the last one."""

    lines: list[TextLine]
    tables: list[ExtractedTable]
    names: Names | None
    asides: Sequence[Aside] = ()
    cut: tuple[TextLine, TextLine] | None = None
    """The last row of the page before as it was read there, and the whole of it."""


def may_be_title(recognised: str) -> bool:
    """Whether what was recognised in the largest print of a scan may be its title: words, misread nowhere, and no label
    with a number or a stamp of date and time."""
    letters, digits = sum(map(str.isalpha, recognised)), sum(map(str.isdigit, recognised))
    return 2 * letters > digits and not _MISREAD.search(recognised) and not _NUMBERED_LABEL.search(recognised)


def read_page(number: int, sheet: PageCharacters, rules: Rules, names: Names | None) -> PageLines:
    """The lines and tables of a page. `names`: column names of the last table of the page before."""
    lines: list[TextLine] = []
    tables: list[ExtractedTable] = []
    found, cut = None, None
    asides: list[Aside] = []
    numbers_N = line_numbers(sheet)
    if numbers_N.any():
        numbers = texts_of(sheet.code_N, sheet.spaced_N, numbers_N)
        asides.append(Aside("line number", " ".join(numbers), number))
        sheet = sheet.only(~numbers_N)
    ordered = read_lines(sheet, find_tables(sheet, rules))
    if torn := torn_by_boxes(sheet, rules.areas_A4, ordered):
        text = read_page(number, sheet.only(~np.any(torn, axis=0)), rules, names)
        boxes = read_blocks(number, [sheet.only(inside_N) for inside_N in torn], rules, after=text.lines)
        whole = max((n for n, line in enumerate(text.lines, 1) if ends_sentence(line)), default=len(text.lines))
        lines = [*text.lines[:whole], *boxes.lines, *text.lines[whole:]]
        return replace(text, lines=lines, tables=[*text.tables, *boxes.tables], asides=[*asides, *text.asides])
    for count, line in enumerate(ordered):
        if line.table is None:
            made = plain_line(number, sheet, line)
            lines += [made] if made is not None else []
        else:
            rows, found, shown, joined = read_table(number, sheet, line, number * _LINES_A_PAGE + count + 1, names)
            cut, names = joined or cut, None
            lines += rows
            tables.append(shown)
    return PageLines(with_pairs(lines, sheet), tables, found, asides, cut)


def read_blocks(
    number: int, blocks: Sequence[PageCharacters], rules: Rules, after: Sequence[TextLine] = ()
) -> PageLines:
    """The same of a page whose blocks of print are known, in the order of reading; lines `after` which they are
    read."""
    lines: list[TextLine] = []
    tables: list[ExtractedTable] = []
    for block in blocks:
        found = read_page(number, block, rules, None)
        column = 1 + max((line.column for line in (*after, *lines)), default=-1)
        lines += [replace(line, column=column + line.column) for line in found.lines]
        tables += found.tables
    return PageLines(lines, tables, None)


def assemble(
    path: Path, read: Sequence[Page], metadata: dict[str, str], outline: tuple[OutlineEntry, ...], notes: list[str]
) -> ExtractedDocument:
    """Raises ExtractError without any text; NothingToRead where some may be recognised."""
    facts = [page.facts for page in read]
    pages_lines = _with_table_names(without_hidden_numbers([list(page.lines) for page in read]))
    recurring = find_headers_footers(pages_lines, [page.height for page in facts])
    heads = [lines[i] for lines, found in zip(pages_lines, recurring, strict=True) for i in sorted(found)]
    kept, left_out = said_once(pages_lines, recurring)
    asides = [aside for page in read for aside in page.asides]
    asides += [_aside_line(line, page.height) for page, lines in zip(facts, left_out, strict=True) for line in lines]
    running = join_lines(kept)
    pages = tuple(
        replace(page.facts, start=start, end=end, note=_note(page, start, end))
        for page, (start, end) in zip(read, running.spans, strict=True)
    )
    scanned = [page.number for page, each in zip(pages, read, strict=True) if page.note and each.is_picture]
    if not running.text.strip():
        reason = _no_text_reason(pages, is_picture=bool(scanned))
        raise NothingToRead(reason, scanned) if scanned else ExtractError(reason)
    if unreadable := [str(page.number + 1) for page in pages if page.note]:
        shown = ", ".join(unreadable[:_MOST_SHOWN]) + (" ..." if len(unreadable) > _MOST_SHOWN else "")
        notes.append(f"{len(unreadable)} of {len(pages)} pages have no readable text (scanned images?): page {shown}.")
    recognised = [str(each.facts.number + 1) for each in read if each.recognised and each.lines]
    if recognised:
        shown = ", ".join(recognised[:_MOST_SHOWN]) + (" ..." if len(recognised) > _MOST_SHOWN else "")
        which = f"page {shown}" if len(recognised) == 1 else f"pages {shown}"
        notes.append(f"The text of {which} was recognised in pictures (OCR): it may have errors.")
    outline = tuple(_with_start(entry, pages) for entry in outline)
    title = _title_of(metadata, kept, heads, path, recognised=any(page.recognised for page in read[:1]))
    return ExtractedDocument(
        title, running.text, pages, outline, metadata,
        running.page_N, running.line_N, running.box_N4, tuple(notes), tuple(scanned),
        _exhibits(read), asides=tuple(asides),
    )  # fmt: skip


def _with_table_names(pages: Sequence[Sequence[TextLine]]) -> list[list[TextLine]]:
    """The lines; rows of tables that only what stands above them tells apart begin with that."""
    tables: dict[int, tuple[str, list[str]]] = {}
    for lines in pages:
        for before, line in zip([None, *lines], lines, strict=False):
            if line.table > 0:
                subject = subject_of(before.text) if before is not None and not before.table else ""
                tables.setdefault(line.table, (subject, []))[1].append(line.text)
    is_alike = dict(zip(tables, alike(list(tables.values())), strict=True))

    def named(line: TextLine) -> TextLine:
        if not is_alike.get(line.table) or "\t" in line.text:
            return line
        return composed([line], [Piece.unprinted(f"{tables[line.table][0]}; "), piece_of(line, 0, len(line.text))])

    return [[named(line) for line in lines] for lines in pages]


def with_parts(document: ExtractedDocument, parts: Sequence[Part]) -> ExtractedDocument:
    """The document with the text of files inside of it at its end, behind their names; it stands on no page."""
    blocks = [text for part in parts for text in (part.label, *(text for _, text in part.blocks)) if text.strip()]
    if not blocks:
        return document
    added = "\n\n" + "\n\n".join(blocks)
    count, last = len(added), document.pages[-1]
    nowhere_N = np.full(count, NO_PAGE, np.int32)
    return replace(
        document,
        text=document.text + added,
        pages=(*document.pages[:-1], replace(last, end=len(document.text) + count)),
        page_N=np.concatenate([document.page_N, nowhere_N]),
        line_N=np.concatenate([document.line_N, nowhere_N]),
        box_N4=np.concatenate([document.box_N4, np.zeros((count, 4), np.float32)]),
        asides=(*document.asides, *(replace(one, page=last.number) for part in parts for one in part.asides)),
    )


def _aside_line(line: TextLine, height: float) -> Aside:
    return Aside("header" if line.y0 < height / 2 else "footer", line.text.replace("\t", " "), line.page)


def _exhibits(read: Sequence[Page]) -> Exhibits:
    """Tables and figures with their captions: lines that say so, near them."""
    figures: list[ExtractedFigure] = []
    tables: list[ExtractedTable] = []
    for page in read:
        of_tables = _captions(page, is_table_caption)
        for table in page.tables:
            assert table.box is not None
            at = nearest_caption(of_tables, table.box, _CAPTION_REACH)
            tables.append(replace(table, caption=of_tables[at][0] if at is not None else ""))
        of_figures = _captions(page, is_figure_caption)
        pictured = {nearest_caption(of_figures, box, _CAPTION_REACH): box for box in page.pictures}
        pictured_alone = [box for box in page.pictures if nearest_caption(of_figures, box, _CAPTION_REACH) is None]
        number = page.facts.number
        figures += [ExtractedFigure(number, text, pictured.get(n, line)) for n, (text, line) in enumerate(of_figures)]
        figures += [ExtractedFigure(number, "", box) for box in pictured_alone]
    return within_limits(Exhibits(tuple(figures), tuple(tables)))


def _captions(page: Page, is_one: Callable[[str], bool]) -> list[tuple[str, ExtractedBox]]:
    found = []
    for line in page.lines:
        if line.table == 0 and is_one(line.text) and line.placed_C.any():
            box = ExtractedBox(page.facts.number, *extent(line.box_C4[line.placed_C]))
            found.append((caption_of(line.text), box))
    return found


def _note(page: Page, start: int, end: int) -> str:
    if page.recognised:
        return "" if end > start else WORDLESS
    return page.facts.note or ("" if end > start else ONLY_HEADERS)


def _no_text_reason(pages: Sequence[ExtractedPage], *, is_picture: bool) -> str:
    """The reason why a document has no text at all. `is_picture`: some may be recognised on its pages."""
    if all(page.note == DAMAGED for page in pages):
        return "No page of this PDF can be loaded: its page tree is damaged or malicious. Export it again."
    if any(page.note == WORDLESS for page in pages):
        return "The file has no text, and none was recognised in its pictures (OCR)."
    if not is_picture:
        return "The file has no text, and its pages show nothing in which some could be recognised (OCR)."
    if all(page.note == UNREADABLE for page in pages):
        return (
            "The text of this file has no character codes, only shapes. Reading shapes (OCR) is switched off: "
            "switch it on with CAIRN_OCR=auto, and add the file again."
        )
    which = f"None of the {len(pages)} pages of this file has" if len(pages) > 1 else "The one page of this file has no"
    return (
        f"{which} text: it is probably a scan. Reading text in pictures (OCR) is switched off: switch it on with "
        "CAIRN_OCR=auto, and add the file again."
    )


def _with_start(entry: OutlineEntry, pages: tuple[ExtractedPage, ...]) -> OutlineEntry:
    if entry.page is None or not 0 <= entry.page < len(pages):
        return OutlineEntry(entry.title, entry.level)
    return OutlineEntry(entry.title, entry.level, entry.page, pages[entry.page].start)


def _title_of(
    metadata: Mapping[str, str],
    pages: Sequence[Sequence[TextLine]],
    heads: Sequence[TextLine],
    path: Path,
    *,
    recognised: bool,
) -> str:
    """The document's title, at worst the file's name. `heads`: lines that were left out as running heads; `recognised`:
    whether the first page was read in a picture."""
    stated = " ".join(metadata.get("title", "").split())
    printed = _largest_text(pages, heads)
    if recognised and not may_be_title(printed):
        printed = ""
    made = _MADE_BY_PROGRAMS.match(stated) or _FILE_NAME.search(stated)
    if len(stated) > 3 and not made and (not printed or _is_printed(stated, pages)):
        return stated[:_LONGEST_TITLE]
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
