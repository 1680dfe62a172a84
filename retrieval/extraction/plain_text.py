"""Text without markup: paragraphs that were set in lines, tables that are drawn with bars, tabs, colons or spaces, and
tick boxes that are drawn with brackets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from textwrap import dedent

from retrieval.extraction.line_ends import LINE_HYPHENS, Words, join_words
from retrieval.extraction.parts import Block, Cells
from retrieval.extraction.table_rows import LONGEST_NAME, is_number, text_rows
from retrieval.extraction.tick_boxes import ticked_first

_GAP = 2  # columns of spaces between the columns of a table
_MOSTLY_LETTERS = 0.8  # of what is printed
_FEWEST_WORDS = 12
_FULL_LINE = 0.75  # of the longest line: the least width of all but the last
_LISTED = re.compile(r"^[ \t]*(?:[^\w\s(\"'“‘„«¿¡]|\w{1,3}[.)][ \t])", re.M)
_DRAWN = {code: "-" for code in range(0x2500, 0x2580)} | dict.fromkeys(map(ord, "│┃║"), "|")  # lines of characters
_RULE_LINE = re.compile(r"[-=_+|\s]+")
_IN_NUMBERS = re.compile(r"[-+\u2212]?[\d.,]+%?|[-\u2013\u2014]+")
_DRAWING = re.compile(r"\+--|--\+|\|\s*\||__|^\s*\|[^|]*\|$")  # of a tree or a box
_ENTRY = re.compile(r"\S+ +[-\u2013\u2014=:]+ +\S")
_FEWEST_LINES = 3
_FEWEST_ALIKE = 5  # lines of which the first differs from the others
_LONGEST_CODE = 4  # characters
_SHAPES = (str.isupper, str.islower, str.istitle)
_LONGEST_LINE = 400  # characters
_WORD_FIRST = re.compile(r"\w(?!\w*://)")
_NO_FIELDS = re.compile(
    r"(?<!\w)\d?\d:\d\d(?!\w)|\d\d:\d\d:\d\d|(?<![\w:])(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{1,4}(?![\w:])|[{}=]|\);", re.I
)
"""A time, the address of a machine, code: what parts these parts no fields."""


def plain_blocks(text: str) -> tuple[list[Block], list[Cells]]:
    """The paragraphs and tables of a text that is clean, and the cells of the tables."""
    words = Words(line.rstrip() for line in text.split("\n"))
    blocks: list[Block] = []
    tables: list[Cells] = []
    prose: list[str] = []
    heads: dict[str, list[str]] = {}
    for block in text.split("\n\n"):
        above, rows, named = _table_in(block, heads)
        prose += [above] if above else [] if rows else [_entries(block) or _flowing(ticked_first(block), words)]
        if rows:
            rows = [[ticked_first(cell) for cell in row] for row in rows]
            blocks += [(0, "\n\n".join(prose))] if prose else []
            blocks.append((0, "\n".join(text_rows(rows, named=named))))
            tables.append(("", rows))
            prose = []
    return [*blocks, (0, "\n\n".join(prose))], tables


def _table_in(block: str, heads: dict[str, list[str]]) -> tuple[str, list[list[str]], int]:
    """What stands above a table in plain text, its cells, and how many of its rows hold names (-1: none does); no cells
    for any other text. `heads`: by delimiter, the names that comments above stated, which further tables may share."""
    lines = block.split("\n")
    remarks = [*takewhile(lambda line: line.startswith("#"), lines)]
    for delimiter in ":;\t":
        stated = next(filter(None, (_stated_names(line, delimiter) for line in reversed(remarks))), [])
        names = heads[delimiter] = stated or heads.get(delimiter, [])
        rows = _fields(lines[len(remarks) :], delimiter)
        if rows and len(rows[0]) == len(names):
            above = [line for line in remarks if _stated_names(line, delimiter) != names]
            return "\n".join(above), [names, *rows], 1
        if rows and len(rows[0]) > 2 and delimiter != "\t":  # see `_parted`
            return "\n".join(remarks), rows, 1 if _holds_names(rows) else -1
    plain = block.translate(_DRAWN)
    return "", _parted(plain) or _aligned(plain), 1


def _stated_names(remark: str, delimiter: str) -> list[str]:
    """The names of columns that a comment states ("# code:name:capital"); two with a space on neither side or both."""
    fields = [field.strip() for field in remark.strip("# ").split(delimiter)]
    is_even = f"{delimiter} " not in remark.replace(f" {delimiter} ", "")
    is_named = all(fields) and not any(map(is_number, fields)) and max(map(len, fields)) <= LONGEST_NAME
    return fields if is_named and (len(fields) > 2 or (len(fields) == 2 and is_even)) else []


def _fields(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The fields of lines that are parted by colons or semicolons, as many in each, as in /etc/passwd; or by tabs,
    where empty fields at the end of a line may be left out."""
    rows = [[field.strip() for field in re.split(rf"{delimiter}(?!//|\\)", line)] for line in lines]
    if delimiter == "\t":
        wide = max(map(len, rows), default=0)
        rows = [row + [""] * (wide - len(row)) for row in rows if len(row) > 1]
        rows = rows if len(rows) == len(lines) else []
    if len(rows) < _FEWEST_LINES or len(rows[0]) < 2 or {len(row) for row in rows} != {len(rows[0])}:
        return []
    strange = {f"{delimiter} ", "\t"} - {delimiter}
    if not all(_WORD_FIRST.match(line) and not any(one in line for one in strange) for line in lines):
        return []
    if max(len(field) for row in rows for field in row[:-1]) > LONGEST_NAME or max(map(len, lines)) > _LONGEST_LINE:
        return []
    odd = [_NO_FIELDS.search(line) or delimiter not in line.replace(delimiter * 2, "") for line in lines]
    return rows if sum(map(bool, odd)) <= len(lines) / 2 else []


def _holds_names(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row holds names: in some column all others are alike in a way in which it is not."""
    columns = [(first, others) for first, *others in zip(*rows, strict=True) if first]
    has_figures = any(all(map(str.isdigit, others)) and not first.isdigit() for first, others in columns)
    if has_figures or len(rows) < _FEWEST_ALIKE:
        return has_figures
    sizes = [(len(first), {len(one) for one in others}) for first, others in columns]
    if any(len(of) == 1 and max(of) <= _LONGEST_CODE and first not in of for first, of in sizes):
        return True
    return any(all(map(shape, others)) and not shape(first) for first, others in columns for shape in _SHAPES)


def _flowing(paragraph: str, words: Words) -> str:
    """A paragraph that was set in lines of one width, indented, justified or hyphenated, as running text; any other as
    it is, from its least indent on."""
    paragraph = dedent(paragraph)
    lines = paragraph.split("\n")
    indents = {len(line) - len(line.lstrip()) for line in lines[1:]}
    wide = [len(line.rstrip()) for line in lines]
    letters = sum(map(str.isalpha, paragraph))
    printed = paragraph.split()
    is_prose = len(lines) > 1 and len(printed) >= _FEWEST_WORDS and letters >= _MOSTLY_LETTERS * len("".join(printed))
    if not is_prose or len(indents) > 1 or min(wide[:-1]) < _FULL_LINE * max(wide) or _LISTED.search(paragraph):
        return paragraph
    if not max(indents) and "  " not in paragraph.strip() and not any(line.endswith(LINE_HYPHENS) for line in lines):
        return paragraph
    lines = [" ".join(line.split()) for line in lines]
    joined = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        kept, between = join_words(line, following, words)
        joined += line[:kept] + between
    return joined.strip()


def _parted(block: str) -> list[list[str]]:
    """The cells of a table whose columns are parted by bars or tabs: at least three of each, as many in every line."""
    lines = [line for line in block.split("\n") if not _RULE_LINE.fullmatch(line)]
    if all(line.startswith("|") and line.endswith("|") for line in lines):
        lines = [line[1:-1] for line in lines]
    for delimiter in "|\t":
        rows = [[cell.strip() for cell in line.split(delimiter)] for line in lines]
        if len(rows) > 2 < len(rows[0]) and {len(row) for row in rows} == {len(rows[0])}:
            return rows
    return []


def _aligned(block: str) -> list[list[str]]:
    """The cells of a table whose columns are aligned with spaces, at least three of each, and with numbers or a
    line below their names; [] for any other text. Numbers side by side under as many names are columns of their own."""
    printed = block.split("\n")
    lines = [line.expandtabs(8).rstrip() for line in printed if not _RULE_LINE.fullmatch(line)]
    if len(lines) < 3 or not all("  " in line for line in lines) or any(map(_DRAWING.search, lines)):
        return []
    rows = _columns(lines)
    rows = [rows[0], *(row for row in rows[1:] if row != rows[0])]  # a head may be said again
    is_ruled = _RULE_LINE.fullmatch(printed[1]) is not None and not _entries(block)  # below the names
    if len(rows[0]) < 3 or not (is_ruled or any(is_number(word) for line in lines[1:] for word in line.split())):
        return []
    columns: list[tuple[str, ...]] = []
    for head, *cells in zip(*rows, strict=True):
        parts = [cell.split() for cell in cells]
        apart = all(len(part) == len(head.split()) and all(map(_IN_NUMBERS.fullmatch, part)) for part in parts)
        columns += zip(*([head.split(), *parts] if apart else [[head], *([cell] for cell in cells)]), strict=True)
    return [list(row) for row in zip(*columns, strict=True)]


def _columns(lines: Sequence[str]) -> list[list[str]]:
    """Lines cut where every one of them has a gap."""
    wide = max(map(len, lines), default=0)
    free = [all(at >= len(line) or line[at] == " " for line in lines) for at in range(wide)]
    starts = [at for at in range(wide) if not free[at] and (at == 0 or all(free[max(0, at - _GAP) : at]))]
    ends = [*starts, wide][1:]
    return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]


def _entries(block: str) -> str:
    """What stands in columns of entries ("Coj - Conjurations"), a line each, column by column; "" if nothing does."""
    lines = [line.expandtabs(8).rstrip() for line in block.split("\n") if not _RULE_LINE.fullmatch(line)]
    ruled = len(lines) < block.count("\n") + 1
    columns = list(zip(*_columns(lines), strict=True))
    entries = [cell for column in columns for cell in column[ruled:] if cell]
    if len(columns) < 2 or len(lines) < 3 or not all(map(_ENTRY.match, entries)):
        return ""
    return "\n\n".join("\n".join(filter(None, column)) for column in columns)
