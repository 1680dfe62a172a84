"""Text files: plain text, Markdown and web pages. They have no pages and no boxes.

Paragraphs are parted by a blank line, table rows are lines, headings stand alone and make the outline.
"""

from __future__ import annotations

import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument, OutlineEntry, without_pages
from retrieval.extraction.limits import ExtractLimits

_BYTES_A_CHARACTER = 4
_HTML_OVERHEAD = 20  # bytes of markup that are tolerated for each character of text


def extract_markup(path: Path, suffix: str, limits: ExtractLimits) -> ExtractedDocument:
    """A .txt, .md or .html file. Raises ExtractError."""
    overhead = _HTML_OVERHEAD if suffix in (".html", ".htm") else 1
    if path.stat().st_size > limits.characters * _BYTES_A_CHARACTER * overhead:
        raise too_long(limits)
    source, encoding = decode(path.read_bytes())
    metadata = {"encoding": encoding}
    if suffix in (".html", ".htm"):
        blocks, title = _html_blocks(source)
    elif suffix in (".md", ".markdown"):
        blocks, title = _markdown_blocks(source), ""
    else:
        blocks, title = [(0, clean_text(source).strip("\n"))], ""
    return from_blocks(blocks, title, path, metadata, limits)


def from_blocks(
    blocks: list[tuple[int, str]], title: str, path: Path, metadata: dict[str, str], limits: ExtractLimits
) -> ExtractedDocument:
    """A document from (heading level, text); level 0 is running text, the title defaults to the first heading."""
    texts: list[str] = []
    outline: list[OutlineEntry] = []
    position = 0
    for level, text in blocks:
        if not text.strip():
            continue
        if level:
            outline.append(OutlineEntry(" ".join(text.split())[:500], level - 1, None, position))
        texts.append(text)
        position += len(text) + 2
        if position > limits.characters:
            raise too_long(limits)
    if not texts:
        raise ExtractError("The file has no text.")
    title = " ".join(title.split()) or (outline[0].title if outline else path.stem)
    return without_pages(title[:300], "\n\n".join(texts), tuple(outline), metadata)


def too_long(limits: ExtractLimits) -> ExtractError:
    return ExtractError(f"The text has more than {limits.characters:,} characters. Split the file and add the parts.")


def decode(data: bytes) -> tuple[str, str]:
    """Text and the name of its encoding: UTF-8, UTF-16/32 with a byte order mark, else Windows-1252."""
    for mark, encoding in (
        (b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"),
        (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"),
    ):  # fmt: skip
        if data.startswith(mark):
            try:
                return data.decode(encoding), encoding
            except UnicodeDecodeError as error:
                raise ExtractError(f"The file says that it is {encoding} but is not: it is damaged.") from error
    if data.count(0) > len(data) // 1000:
        raise ExtractError("The file is not text: it holds binary data.")
    for encoding in ("utf-8", "cp1252"):
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1"), "latin-1"


_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def clean_text(text: str) -> str:
    """One kind of line end, no control characters, at most one blank line in a row; the wording is untouched."""
    text = _LINE_ENDS.sub("\n", text).replace("\u00a0", " ")
    text = "".join(
        letter for letter in text if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Cn")
    )
    return _BLANK_LINES.sub("\n\n", text)


# --- Markdown --------------------------------------------------------------------------------------------------------

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_FENCE = re.compile(r"\s*(```|~~~)")
_RULE = re.compile(r"\s*([-*_])(?:\s*\1){2,}\s*$|\s*\|?[\s:|-]*-{3,}[\s:|-]*$")


def _markdown_blocks(source: str) -> list[tuple[int, str]]:
    """Headings and blocks between blank lines; the markup of words stays, it is readable as it is."""
    blocks: list[tuple[int, str]] = []
    current: list[str] = []
    fenced = False

    def finish() -> None:
        if current:
            blocks.append((0, "\n".join(current)))
            current.clear()

    for line in clean_text(source).split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
            continue
        heading = None if fenced else _HEADING.match(line)
        if heading:
            finish()
            blocks.append((len(heading[1]), heading[2]))
        elif not fenced and _RULE.match(line):
            if len(current) == 1 and "|" not in line and "-" in line:  # a heading underlined with dashes
                blocks.append((2, current.pop()))
            elif "|" not in line:
                finish()
        elif not fenced and current and re.fullmatch(r"=+\s*", line) and len(current) == 1:
            blocks.append((1, current.pop()))
        elif line.strip():
            current.append(_table_row(line) if line.lstrip().startswith("|") else line.rstrip())
        else:
            finish()
    finish()
    return blocks


def _table_row(line: str) -> str:
    return " | ".join(cell.strip() for cell in line.strip().strip("|").split("|"))


# --- HTML ------------------------------------------------------------------------------------------------------------

_SILENT = {"script", "style", "template", "noscript", "svg", "iframe", "object", "head", "select", "canvas", "math"}
_BLOCK = {
    "address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section",
    "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
}  # fmt: skip
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_ROWS = {"tr", "li", "dt", "dd"}


class _Page(HTMLParser):
    """Collects blocks of text. Rows of tables and lists stay together as lines of one block."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._blocks: list[tuple[int, list[str]]] = []
        self.title = ""
        self._text: list[str] = []
        self._silent = 0
        self._in_title = False
        self._pre = 0
        self._row_open = False  # the next text continues a table or list

    @property
    def blocks(self) -> list[tuple[int, str]]:
        return [(level, "\n".join(rows)) for level, rows in self._blocks]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self.title:
            self._in_title = True
        elif tag in _SILENT:
            self._silent += 1
        elif tag == "br":
            self._text.append("\n")
        elif tag in ("td", "th"):
            if "".join(self._text).strip():
                self._text.append(" | ")
        elif tag in _HEADINGS or tag in _BLOCK:
            self._finish(0)
            self._pre += tag == "pre"
            if tag in ("table", "ul", "ol", "dl"):
                self._row_open = False

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif tag in _HEADINGS:
            self._finish(_HEADINGS[tag])
        elif tag in _BLOCK:
            self._finish(0, row=tag in _ROWS)
            self._pre = max(0, self._pre - (tag == "pre"))
            if tag in ("table", "ul", "ol", "dl"):
                self._row_open = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._silent:
            self._text.append(data if self._pre else re.sub(r"\s+", " ", data))

    def close(self) -> None:
        super().close()
        self._finish(0)

    def _finish(self, level: int, row: bool = False) -> None:
        text = clean_text("".join(self._text))
        self._text.clear()
        lines = [line.strip() if not self._pre else line.rstrip() for line in text.split("\n")]
        text = "\n".join(line for line in lines if line.strip() and line.strip(" |"))
        if not text:
            return
        if row and self._row_open and self._blocks:
            self._blocks[-1][1].append(text)
        else:
            self._blocks.append((level, [" ".join(text.split()) if level else text]))
        self._row_open = row


def _html_blocks(source: str) -> tuple[list[tuple[int, str]], str]:
    # An unclosed <head> or <noscript> must not silence the page.
    source = re.sub(r"<noscript\b[^>]*>|</noscript\s*>", "", source, flags=re.I)
    page = _Page()
    page.feed(source)
    page.close()
    if not page.blocks and re.search(r"<head\b", source, re.I):
        page = _Page()
        page.feed(re.sub(r"</?head\b[^>]*>", "", source, flags=re.I))
        page.close()
    return page.blocks, page.title
