"""Text files: plain text, Markdown and web pages. They have no pages and no boxes.

Paragraphs are separated by a blank line, table rows and list items are lines, headings make the outline.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from lxml import etree
from markdown_it import MarkdownIt

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.figures import MOST_FIGURES, Picture, data_of_address
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.parts import Block, from_blocks, too_long
from retrieval.extraction.table_rows import text_rows

_BYTES_A_CHARACTER = 4
_HTML_OVERHEAD = 20  # bytes of markup that are tolerated for each character of text
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
_DECLARED = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)", re.I)
_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def extract_text(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """A .txt file. Raises ExtractError."""
    source, encoding = decode(text_bytes(path, limits))
    return from_blocks([(0, clean_text(source).strip("\n"))], "", path, {"encoding": encoding}, limits)


def extract_markdown(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """A Markdown file. The markup of words stays, as it is readable. Raises ExtractError."""
    source, encoding = decode(text_bytes(path, limits))
    return from_blocks(_markdown_blocks(clean_text(source)), "", path, {"encoding": encoding}, limits)


def extract_html(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """A web page without its scripts and styles. Raises ExtractError."""
    page = read_html(text_bytes(path, limits, overhead=_HTML_OVERHEAD))
    return from_blocks(page.blocks, page.title, path, {"encoding": page.encoding}, limits, pictures=page.pictures)


@dataclass(frozen=True)
class WebPage:
    title: str
    blocks: list[Block]
    encoding: str
    pictures: list[Picture]


def read_html(data: bytes, declared: str = "", fetch: Callable[[str], bytes | None] = data_of_address) -> WebPage:
    """A web page. `declared`: the encoding that its envelope states; `fetch` gives the picture at an address if it came
    with the page."""
    found = _DECLARED.search(data[:4096])
    source, encoding = decode(data, declared or (found[1].decode() if found else ""))
    page = _Page(fetch)
    # Fed in UTF-8, whatever the page declares: it was decoded above.
    parser = etree.HTMLParser(target=page, encoding="utf-8", no_network=True, huge_tree=False)
    parser.feed(source.encode("utf-8", "replace"))
    parser.close()
    return WebPage(page.title, page.blocks, encoding, page.pictures)


def decode(data: bytes, declared: str = "") -> tuple[str, str]:
    """Text and the name of its encoding: by its byte order mark, else UTF-8, else as declared, else Windows-1252.

    Raises ExtractError for binary data.
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            try:
                return data.decode(encoding), encoding
            except UnicodeDecodeError as error:
                raise ExtractError(f"The file begins like {encoding} text but is not: it is damaged.") from error
    if data.count(0) > len(data) // 1000:
        raise ExtractError("The file is not text: it holds binary data.")
    for encoding in ("utf-8", declared, "cp1252"):
        try:
            return data.decode(encoding), encoding
        except (UnicodeDecodeError, LookupError):
            continue
    return data.decode("latin-1"), "latin-1"


def clean_text(text: str) -> str:
    """One kind of line end, no control characters, at most one blank line in a row; the wording is untouched."""
    text = _LINE_ENDS.sub("\n", text).replace("\u00a0", " ")
    text = "".join(
        letter for letter in text if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Cn")
    )
    return _BLANK_LINES.sub("\n\n", text)


def text_bytes(path: Path, limits: ExtractLimits, overhead: int = 1) -> bytes:
    """The content of a text file. `overhead`: bytes of markup for each byte of text. Raises ExtractError."""
    if path.stat().st_size > limits.characters * _BYTES_A_CHARACTER * overhead:
        raise too_long(limits)
    return path.read_bytes()


# --- Markdown --------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"[\s>]*(?:```+|~~~+)$")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_HEADING_MARKS = re.compile(r"^\s*#+\s*|\s#+$|\n\s*(?:=+|-+)$")


def _markdown_blocks(source: str) -> list[Block]:
    """Headings and blocks as CommonMark sees them, in the words of the source."""
    # Blocks only: inline markup stays as it is, and link definitions are text like any other.
    parser = MarkdownIt("commonmark").enable("table").disable(["inline", "reference", "text_join"])
    tokens = [(token, token.map[0], token.map[1]) for token in parser.parse(source) if token.map]
    lines = [line.rstrip() for line in source.split("\n")]
    marks = set()  # lines that only mark what stands between them, also inside lists and quotations
    for token, start, end in tokens:
        if token.type in ("fence", "hr"):
            marks |= {start, end - 1} if _FENCE.match(lines[end - 1]) else {start}
    blocks: list[Block] = []
    for token, start, end in tokens:
        text = "\n".join(lines[n] for n in range(start, end) if n not in marks).strip("\n")
        if token.level == 0 and token.type == "heading_open":
            blocks.append((int(token.tag[1:]), _HEADING_MARKS.sub("", text).strip()))
        elif token.level == 0 and token.type == "table_open":
            rows = list(map(_cells, lines[start : start + 1] + lines[start + 2 : end]))
            blocks.append((0, "\n".join(text_rows(rows, has_names=True))))
        elif token.level == 0:
            blocks.append((0, text))
    return blocks


def _cells(line: str) -> list[str]:
    line = line.strip()
    line = line[line.startswith("|") : len(line) - line.endswith("|")]
    return [cell.strip().replace("\\|", "|") for cell in _CELL_BORDER.split(line)]


# --- HTML ------------------------------------------------------------------------------------------------------------

_SILENT = {"script", "style", "template", "svg", "iframe", "object", "head", "select", "canvas", "math"}
_BLOCK = {
    "address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section",
    "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
}  # fmt: skip
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_ROWS = {"tr", "li", "dt", "dd"}
_ROW_GROUPS = {"table", "ul", "ol", "dl"}
_LONGEST_CELL = 300  # characters; a longer one holds a text, and its table only arranges texts on the page
_MOST_SPANNED = 100  # rows and columns of one cell


class _Table:
    """The cells of a table while it is read."""

    def __init__(self) -> None:
        self.begins: int | None = None
        """The first of the page's blocks that its rows take."""
        self.arranges = False
        """Whether it only arranges headings or other tables on the page."""
        self._rows: list[dict[int, str]] = []
        self._spanned: dict[int, tuple[int, str]] = {}  # by column: rows that a cell from above still takes, its text
        self._named = 0  # header cells in the first row
        self._cell: list[str] | None = None
        self._spans = (1, 1)

    def open_row(self, blocks: int) -> None:
        self.begins = blocks if self.begins is None else self.begins
        self.close_cell()
        self._rows.append({})
        for column, (left, text) in list(self._spanned.items()):
            self._rows[-1][column] = text
            self._spanned[column] = (left - 1, text)
            if left == 1:
                del self._spanned[column]

    def open_cell(self, tag: str, attributes: dict[str, str]) -> None:
        self.close_cell()
        if not self._rows:
            self.arranges = True
            return
        self._named += tag == "th" and len(self._rows) == 1
        self._cell, self._spans = [], (_spanned(attributes, "rowspan"), _spanned(attributes, "colspan"))

    def add(self, text: str) -> None:
        if self._cell is not None:
            self._cell.append(text)

    def close_cell(self) -> None:
        if self._cell is None:
            return
        text, row = " ".join("".join(self._cell).split()), self._rows[-1]
        self._cell = None
        self.arranges |= len(text) > _LONGEST_CELL
        first = next(column for column in range(len(row) + 1) if column not in row)
        rows, columns = self._spans
        for column in range(first, first + columns):
            row[column] = text if column == first else ""
            if rows > 1:
                self._spanned[column] = (rows - 1, row[column])

    def lines(self) -> list[str]:
        """A line for each row, with the names of the columns; none if it is no table of data."""
        self.close_cell()
        filled = [[row.get(column, "") for column in range(max(row) + 1)] for row in self._rows if any(row.values())]
        if self.arranges or len(filled) < 2 or max(map(len, filled)) < 2:
            return []
        return text_rows(filled, has_names=self._named > 1 and self._named == len(self._rows[0]))


def _spanned(attributes: dict[str, str], name: str) -> int:
    given = attributes.get(name, "")
    return min(max(1, int(given)), _MOST_SPANNED) if given.isascii() and given.isdigit() else 1


class _Page:
    """Parser target that collects blocks of text. Rows of tables and lists stay together as lines of one block; a row
    of a table is a sentence (`table_rows`), an item has its mark or number.

    The parser balances the tags. It sends events instead of building a tree, which libxml2 would cut off below 256
    levels (unclosed tags get there).
    """

    def __init__(self, fetch: Callable[[str], bytes | None]) -> None:
        self.title = ""
        self.pictures: list[Picture] = []
        self._fetch = fetch
        self._figures: list[int] = []  # for each figure that is open: the pictures before it
        self._blocks: list[tuple[int, list[str]]] = []
        self._text: list[str] = []
        self._open: dict[str, int] = {"title": 0, "pre": 0, "silent": 0}
        self._row_open = False  # the next row continues a table or list
        self._tables: list[_Table] = []
        self._lists: list[int | None] = []  # number of the next item, None where items have marks
        self._mark = ""  # of the item that begins

    @property
    def blocks(self) -> list[Block]:
        return [(level, "\n".join(rows)) for level, rows in self._blocks]

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "img" and not self._open["silent"]:
            self._picture(attributes)
        elif tag == "br":
            self._text.append("\n")
            self._add_to_cell(" ")
        elif tag in ("td", "th"):
            if "".join(self._text).strip():
                self._text.append(" | ")
            if self._tables:
                self._tables[-1].open_cell(tag, attributes)
        elif tag in _HEADINGS or tag in _BLOCK:
            self._finish(0)
            self._row_open &= tag not in _ROW_GROUPS
            self._begin(tag, attributes)
        self._count(tag, 1)

    def end(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._finish(_HEADINGS[tag])
        elif tag in _BLOCK:
            self._finish(0, row=tag in _ROWS)
            self._row_open &= tag not in _ROW_GROUPS
            self._end(tag)
        self._count(tag, -1)

    def _picture(self, attributes: dict[str, str]) -> None:
        data = self._fetch(attributes.get("src", "")) if len(self.pictures) < MOST_FIGURES else None
        if data is not None:
            before = len(self._blocks) + bool("".join(self._text).strip())  # behind the paragraph in which it stands
            self.pictures.append(Picture(data, attributes.get("alt", ""), before))

    def data(self, data: str) -> None:
        if self._open["title"]:
            self.title += data
        elif not self._open["silent"]:
            self._text.append(data if self._open["pre"] else re.sub(r"\s", " ", data))
            self._add_to_cell(data)

    def close(self) -> None:
        self._finish(0)

    def _add_to_cell(self, text: str) -> None:
        if self._tables:
            self._tables[-1].add(text)

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "table":
            for table in self._tables:
                table.arranges = True
            self._tables.append(_Table())
        elif tag == "figure":
            self._figures.append(len(self.pictures))
        elif tag in ("ul", "ol"):
            start = attributes.get("start", "1")
            self._lists.append(None if tag == "ul" else int(start) if start.isascii() and start.isdigit() else 1)
        elif tag == "li" and self._lists:
            number = self._lists[-1]
            self._mark = "• " if number is None else f"{number}. "
            self._lists[-1] = None if number is None else number + 1
        elif self._tables:
            if tag == "tr":
                self._tables[-1].open_row(len(self._blocks))
            self._tables[-1].arranges |= tag in _HEADINGS
            self._add_to_cell(" ")

    def _end(self, tag: str) -> None:
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        if tag == "figcaption" and self._figures and self._blocks:
            first, caption = self._figures[-1], " ".join(self._blocks[-1][1])
            self.pictures[first:] = [replace(one, caption=caption) for one in self.pictures[first:]]
        if tag == "figure" and self._figures:
            self._figures.pop()
        if tag in ("li", "ul", "ol"):
            self._mark = ""
        if tag == "table" and self._tables:
            table = self._tables.pop()
            lines = table.lines()
            if lines:
                self._blocks[table.begins :] = [(0, lines)]
                self.pictures = [replace(one, before=min(one.before, len(self._blocks))) for one in self.pictures]

    def _count(self, tag: str, step: int) -> None:
        tag = "silent" if tag in _SILENT else tag
        if tag in self._open:
            self._open[tag] += step

    def _finish(self, level: int, row: bool = False) -> None:
        text = clean_text("".join(self._text))
        self._text.clear()
        lines = [line.rstrip() if self._open["pre"] else " ".join(line.split()) for line in text.split("\n")]
        text = "\n".join(line for line in lines if line.strip(" |\t"))
        if not text:
            return
        text, self._mark = (text if level else self._mark + text), ""
        if row and self._row_open and self._blocks:
            self._blocks[-1][1].append(text)
        else:
            self._blocks.append((level, [" ".join(text.split()) if level else text]))
        self._row_open = row
