"""Text files: plain text, Markdown and web pages. They have no pages and no boxes.

Paragraphs are separated by a blank line, table rows and list items are lines, headings make the outline.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lxml import etree
from markdown_it import MarkdownIt

from retrieval.extraction.document import Aside, ExtractedDocument
from retrieval.extraction.encodings import decode
from retrieval.extraction.figures import MOST_FIGURES, Picture, data_of_address
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.mathml import formula_of_page
from retrieval.extraction.parts import Block, Cells, Kind, Part, Run, from_parts, stated_number, too_long, valid_text
from retrieval.extraction.plain_text import plain_blocks
from retrieval.extraction.table_rows import Merged, text_rows
from retrieval.extraction.tick_boxes import EMPTY, TICKED, ticked_first

_BYTES_A_CHARACTER = 4
_HTML_OVERHEAD = 20  # bytes of markup that are tolerated for each character of text
_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")


def extract_text(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """A .txt file. Raises ExtractError."""
    source, encoding, notes = decode(text_bytes(path, limits))
    blocks, tables = plain_blocks(clean_text(source).strip("\n"))
    return from_parts([Part("", blocks, tables=tables)], "", path, {"encoding": encoding}, limits, notes)


def extract_markdown(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """A Markdown file. The markup of words stays, as it is readable. Raises ExtractError."""
    source, encoding, notes = decode(text_bytes(path, limits))
    asides: list[Aside] = []
    stated, source = _front_matter(clean_text(source))
    tables: list[Cells] = []
    blocks = [(0, stated), *_markdown_blocks(source, asides, tables)]
    found = {key: value.strip(" '\"") for key, value in _STATEMENT.findall(stated)}
    metadata = {"encoding": encoding} | {key: found[key][:2000] for key in _STATED_IN_FRONT if found.get(key)}
    part = Part("", blocks, tables=tables, asides=asides)
    return from_parts([part], metadata.get("title", ""), path, metadata, limits, notes)


def extract_html(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """A web page without its scripts and styles. Raises ExtractError."""
    page = read_html(text_bytes(path, limits, overhead=_HTML_OVERHEAD))
    return from_parts([page.part("")], page.title, path, {"encoding": page.encoding}, limits, page.notes)


def read_html(data: bytes, declared: str = "", fetch: Callable[[str], bytes | None] = data_of_address) -> WebPage:
    """A web page. `declared`: the encoding that its envelope states; `fetch` gives the picture at an address if it came
    with the page."""
    source, encoding, notes = decode(data, declared)
    page = _parsed(source, fetch)
    page.encoding, page.notes = encoding, notes
    return page


def _parsed(source: str, fetch: Callable[[str], bytes | None], frames: int = 0) -> WebPage:
    source = _MATH.sub(lambda found: html.escape(f" {formula_of_page(found[0])} "), source)
    page = WebPage(source, fetch, frames)
    # Fed in UTF-8, whatever the page declares: it was decoded before.
    parser = etree.HTMLParser(target=page, encoding="utf-8", no_network=True, huge_tree=False)
    parser.feed(source.encode("utf-8", "replace"))
    parser.close()
    return page


def clean_text(text: str) -> str:
    """One kind of line end, letters composed with their accents, no control characters, at most one blank line in a
    row; the wording is untouched."""
    text = unicodedata.normalize("NFC", _LINE_ENDS.sub("\n", text).replace("\u00a0", " "))
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

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S)
_STATEMENT = re.compile(r"^(\w[\w -]*):[ \t]*(.*)$", re.M)
_STATED_IN_FRONT = ("title", "author", "date", "language", "subject")
_FIRST_TAG = re.compile(r"\s*</?([A-Za-z][\w-]*)[\s/>]")
_TASK = re.compile(r"^(\s*(?:[-*+]|\d+[.)]) )\[([ xX])\] (.*)$", re.M)


def _front_matter(source: str) -> tuple[str, str]:
    """What stands between lines of dashes at the head of a file, a statement in each line, and the rest."""
    found = _FRONT_MATTER.match(source)
    if found is None or not _STATEMENT.match(found[1]):
        return "", source
    return found[1].strip("\n"), source[found.end() :]


_FENCE = re.compile(r"[\s>]*(?:```+|~~~+)$")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_HEADING_MARKS = re.compile(r"^\s*#+\s*|\s#+$|\n\s*(?:=+|-+)$")


_SET_ASIDE = re.compile(r"(<!--.*?(?:-->|\Z))|(~~(?=\S).+?~~|<(del|s|strike)>.*?</\3>)", re.S)


def _markdown_blocks(source: str, asides: list[Aside], tables: list[Cells]) -> list[Block]:
    """Headings and blocks as CommonMark sees them, in the words of the source; comments and what is struck out go to
    `asides`, cells to `tables`."""

    def set_aside(text: str) -> str:
        runs: list[Run] = []
        at = 0
        for found in _SET_ASIDE.finditer(text):
            words = re.sub(r"^<!--|-->$|~~|</?(?:del|s|strike)>", "", found[0])
            runs += [Run("", text[at : found.start()]), Run("hidden" if found[1] else "deleted", words)]
            at = found.end()
        return valid_text([*runs, Run("", text[at:])], asides).strip("\n") if runs else text

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
            blocks.append((int(token.tag[1:]), set_aside(_HEADING_MARKS.sub("", text)).strip()))
        elif token.level == 0 and token.type == "table_open":
            rows = list(map(_cells, map(set_aside, lines[start : start + 1] + lines[start + 2 : end])))
            rows = [[ticked_first(cell) for cell in row] for row in rows]
            tables.append(("", rows))
            blocks.append((0, "\n".join(text_rows(rows, named=1))))
        elif token.level == 0 and token.type == "html_block" and _is_html(text):
            page = read_html(set_aside(text).encode(), "utf-8")
            blocks += page.blocks
            asides += page.asides
            tables += page.tables
        elif token.level == 0:
            if token.type in ("fence", "code_block"):
                printed, found = plain_blocks(text)
                blocks += printed if found else [(0, text)]
                tables += found
            else:
                blocks.append((0, ticked_first(_TASK.sub(_task, set_aside(text)))))
    return blocks


def _is_html(text: str) -> bool:
    """Whether a block begins with a part of a web page, and not with a word that its author put between such signs."""
    found = _FIRST_TAG.match(text)
    return found is not None and found[1].lower() in _BLOCK | _HEADINGS.keys() | {"center", "td", "th"}


def _task(found: re.Match[str]) -> str:
    """A task of a list, with its state in words."""
    box, state = (EMPTY, "still to be done") if found[2] == " " else (TICKED, "done")
    return f"{found[1]}{box} {found[3]} ({state})"


def _cells(line: str) -> list[str]:
    line = line.strip()
    line = line[line.startswith("|") : len(line) - line.endswith("|")]
    return [cell.strip().replace("\\|", "|") for cell in _CELL_BORDER.split(line)]


# --- HTML ------------------------------------------------------------------------------------------------------------

_SILENT = {"script", "style", "iframe", "object", "head", "canvas"}
_BLOCK = {
    "address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "header", "hr", "legend", "li", "main", "nav", "ol", "p", "pre",
    "section", "summary", "svg", "table", "tbody", "tfoot", "thead", "tr", "ul",
}  # fmt: skip
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_ROWS = {"tr", "li", "dt", "dd"}
_ROW_GROUPS = {"table", "ul", "ol", "dl"}
_LONGEST_CELL = 300  # characters; a longer one holds a text, and its table only arranges texts on the page
_MOST_SPANNED = 100  # rows and columns of one cell
_MOST_FRAMES = 5  # one in another
_STRUCK = {"del", "s", "strike"}
_UNSEEN = {"template", "noscript"}
_HIDES = re.compile(
    r"display:none|visibility:hidden|mso-hide:all|(?:opacity|font-size|max-height):0(?:\.0*)?(?:px|pt|em|%)?(?:;|!|$)"
    r"|(?:left|top|text-indent):-\d{3,}"
)
_LETTERS = re.compile(r"(?:^|;)color:([^;!]+)")
_GROUND = re.compile(r"(?:^|;)background(?:-color)?:([^;!]+)")
_COLOURS = {
    "white": "#fff", "#ffffff": "#fff", "rgb(255,255,255)": "#fff",
    "black": "#000", "#000000": "#000", "rgb(0,0,0)": "#000",
}  # fmt: skip
_STRIKES = re.compile(r"text-decoration(?:-line)?:[a-z ]*line-through")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_NESTED_RULES = re.compile(r"@[^{}]+\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")  # of other media
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_SIMPLE = re.compile(r"(?:[a-z][\w]*)?[.#]?[\w-]+")
_MATH = re.compile(r"<math\b(?:(?!<math\b).)*?</math\s*>", re.S | re.I)
_OPENED_BY = re.compile(r"(?:href|aria-controls|data-target|data-bs-target)\s*=\s*[\"']?#?([\w-]+)", re.I)


def _kind_of_style(style: str) -> Kind:
    plain = re.sub(r"\s+", "", style.lower())
    if _HIDES.search(plain) or _is_ground(plain):
        return "hidden"
    return "deleted" if _STRIKES.search(re.sub(r"\s*:\s*", ":", style.lower())) else ""


def _is_ground(style: str) -> bool:
    """Whether letters have the colour of their ground."""
    letters, ground = (one and _COLOURS.get(one[1], one[1]) for one in (_LETTERS.search(style), _GROUND.search(style)))
    return letters == "transparent" or (letters is not None and letters == ground)


def _styled(source: str) -> dict[str, Kind]:
    """What the rules of a page's own style sheets hide or strike out, by the simple selector ("p", ".old", "p.old")."""
    found: dict[str, Kind] = {}
    for sheet in re.findall(r"<style\b[^>]*>(.*?)</style", source, re.S | re.I):
        for selectors, style in _RULE.findall(_NESTED_RULES.sub("", _COMMENT.sub("", sheet))):
            kind = _kind_of_style(style)
            found |= {one: kind for one in map(str.strip, selectors.lower().split(",")) if _SIMPLE.fullmatch(one)}
    return {selector: kind for selector, kind in found.items() if kind}


class _Table:
    """The cells of a table while it is read."""

    def __init__(self) -> None:
        self.begins: int | None = None
        """The first of the page's blocks that its rows take."""
        self.arranges = False
        """Whether it only arranges headings or other tables on the page."""
        self.rows: list[dict[int, str]] = []
        self.caption = ""
        self._spanned: dict[int, tuple[int, str]] = {}  # by column: rows that a cell from above still takes, its text
        self._names: list[bool] = []  # for each row, whether all its cells are header cells
        self._cell: list[Run] | None = None
        self._spans = (1, 1)

    def open_row(self, blocks: int) -> None:
        self.begins = blocks if self.begins is None else self.begins
        self.close_cell()
        self.rows.append({})
        self._names.append(True)
        for column, (left, text) in list(self._spanned.items()):
            self.rows[-1][column] = Merged(text)
            self._spanned[column] = (left - 1, text)
            if left == 1:
                del self._spanned[column]

    def open_cell(self, tag: str, attributes: dict[str, str]) -> None:
        self.close_cell()
        if not self.rows:
            self.arranges = True
            return
        self._names[-1] &= tag == "th"
        rows, columns = (stated_number(attributes.get(name), 1, _MOST_SPANNED) for name in ("rowspan", "colspan"))
        self._cell, self._spans = [], (max(1, rows), max(1, columns))

    def add(self, run: Run) -> None:
        if self._cell is not None:
            self._cell.append(run)

    def close_cell(self) -> None:
        if self._cell is None:
            return
        text, row = " ".join(clean_text(valid_text(self._cell, [])).split()), self.rows[-1]
        text, self._cell = ticked_first(text).replace("\n", " "), None
        self.arranges |= len(text) > _LONGEST_CELL
        first = next(column for column in range(len(row) + 1) if column not in row)
        rows, columns = self._spans
        for column in range(first, first + columns):
            row[column] = text if column == first else Merged(text)
            if rows > 1:
                self._spanned[column] = (rows - 1, text)

    def cells(self) -> Cells | None:
        """Its caption and cells; None if it is no table of data."""
        self.close_cell()
        filled = [[row.get(column, "") for column in range(max(row) + 1)] for row in self.rows if any(row.values())]
        if self.arranges or len(filled) < 2 or max(map(len, filled)) < 2:
            return None
        return self.caption, filled

    @property
    def num_heads(self) -> int:
        """How many of its first filled rows are made of header cells."""
        names = [is_names for is_names, row in zip(self._names, self.rows, strict=True) if any(row.values())]
        return next((number for number, is_names in enumerate(names) if not is_names), 0)


class WebPage:
    """Parser target that collects blocks of text. Rows of tables and lists stay together as lines of one block; a row
    of a table is a sentence (`table_rows`), an item has its mark or number.

    The parser balances the tags. It sends events instead of building a tree, which libxml2 would cut off below 256
    levels (unclosed tags get there).
    """

    def __init__(self, source: str, fetch: Callable[[str], bytes | None], frames: int) -> None:
        self.title, self.encoding, self.notes = "", "", tuple[str, ...]()
        self._frames = frames  # in which it stands
        self.pictures: list[Picture] = []
        self._shown: dict[str, bytes] = {}  # the pictures by their addresses, each once
        self.tables: list[Cells] = []
        self.asides: list[Aside] = []
        self._fetch = fetch
        self._styled = _styled(source)
        self._opened_by_a_script = set(_OPENED_BY.findall(source))
        self._kinds: list[Kind] = [""]  # of every open element
        self._unseen: list[Run] = []  # text that is set aside, of the paragraph that is open
        self._figures: list[int] = []  # for each figure that is open: the pictures before it
        self._blocks: list[tuple[int, list[str]]] = []
        self._text: list[Run] = []  # what else stands in it
        self._open = Counter[str]()  # elements by name; those that are silent by that word
        self._choices: list[tuple[bool, str]] = []  # of the list to choose from that is open
        self._row_open = False  # the next row continues a table or list
        self._tables: list[_Table] = []
        self._lists: list[int | None] = []  # number of the next item, None where items have marks
        self._mark = ""  # of the item that begins
        self._is_labelled = self._begins_label = False  # the next field; the next word
        self._terms: list[str] = []  # of a list of terms: what the next texts say something of
        self._are_terms_said = False
        self._readings: list[str] = []  # how the word that is open is pronounced
        self._after: list[str] = []  # for each date or abbreviation that is open: what it stands for

    @property
    def blocks(self) -> list[Block]:
        return [(level, "\n".join(rows)) for level, rows in self._blocks]

    def part(self, label: str) -> Part:
        return Part(label, self.blocks, tables=self.tables, pictures=self.pictures, asides=self.asides)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        kind = self._kind(tag, attributes)
        if kind != self._kinds[-1]:
            self._write(" ")
        self._kinds.append(kind)
        if tag == "img" and not self._open["silent"]:
            self._picture(attributes)
        elif tag == "iframe" and attributes.get("srcdoc") and self._frames < _MOST_FRAMES and not self._open["silent"]:
            self._frame(attributes["srcdoc"])
        elif tag in ("input", "textarea", "select", "option", "label", "time", "abbr"):
            self._control(tag, attributes)
        elif tag == "br":
            self._text.append(Run("", "\n"))
            self._add_to_cell(Run("", " "))
        elif tag in ("td", "th"):
            if self._so_far().strip():
                self._text.append(Run("", " | "))
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
        elif tag == "select":
            self._choose()
        elif tag == "textarea":
            self._write("\n")
        elif tag == "ruby" and self._readings:
            self._write(f"({''.join(self._readings)})")
            self._readings.clear()
        elif tag == "dt":
            self._end_term()
        elif tag == "legend":
            self._write(" ")  # what is asked stands with the boxes behind it
        elif tag in ("time", "abbr") and self._after:
            meant = self._after.pop()
            if meant and meant not in self._so_far():
                self._write(f" ({meant})")
        elif tag == "sup":  # the next one is another mark
            self._text.append(Run("", ""))
            self._add_to_cell(Run("", ""))
        elif tag in _BLOCK and not self._open["select"]:
            if tag == "dd" and not self._so_far().strip():
                self._say_term()
            self._finish(0, row=tag in _ROWS)
            self._row_open &= tag not in _ROW_GROUPS
            self._end(tag)
        elif tag in ("text", "desc") and self._open["svg"]:
            self._finish(0)
        left = self._kinds.pop() if len(self._kinds) > 1 else ""
        if left != self._kinds[-1]:
            self._unseen.append(Run(left, " "))
        self._count(tag, -1)

    def data(self, data: str) -> None:
        if self._open["title"] and not self._open["svg"]:
            self.title += data
        elif self._open["rt"]:
            self._readings.append(data.strip())
        elif self._open["option"] and self._choices:
            chosen, text = self._choices[-1]
            self._choices[-1] = chosen, text + data
        elif not self._open["silent"] and not self._open["select"] and not self._open["rp"]:
            if self._begins_label and data.strip():
                self._write("\n")
                self._begins_label = False
            self._write(data if self._open["pre"] else re.sub(r"\s", " ", data))

    def close(self) -> None:
        self._finish(0)

    def _kind(self, tag: str, attributes: dict[str, str]) -> Kind:
        """Of an element's text. What a control of the page opens, such as the panel of a tab, is there to be read."""
        if self._kinds[-1] or self._open["silent"]:
            return self._kinds[-1]
        if tag in _STRUCK:
            return "deleted"
        if tag in _UNSEEN:
            return "hidden"
        identity = attributes.get("id", "")
        if (identity and identity in self._opened_by_a_script) or attributes.get("role") == "tabpanel":
            return ""
        if "hidden" in attributes:
            return "hidden"
        names = [*(f".{name}" for name in attributes.get("class", "").lower().split()), f"#{identity.lower()}"]
        selectors = [tag, *names, *(tag + name for name in names)]
        styled: Kind = next((self._styled[one] for one in selectors if one in self._styled), "")
        return _kind_of_style(attributes.get("style", "")) or styled

    def _write(self, text: str) -> None:
        """Add to the paragraph that is open, or to what is set aside."""
        if self._kinds[-1]:
            self._unseen.append(Run(self._kinds[-1], text))
            return
        run = Run("", text, self._open["sup"] > 0)
        self._text.append(run)
        self._add_to_cell(run)

    def _picture(self, attributes: dict[str, str]) -> None:
        caption = " ".join(attributes.get("alt", "").split())
        address, data = attributes.get("src", ""), None
        if not self._kinds[-1]:
            data = self._shown.get(address)
            if data is None and len(self._shown) < MOST_FIGURES:
                data = self._fetch(address)
        if data is not None:
            self._shown[address] = data
            before = len(self._blocks) + bool(self._so_far().strip())  # behind the paragraph in which it stands
            self.pictures.append(Picture(data, caption, before))
        elif caption:
            self._write(f" [{caption}] ")

    def _frame(self, source: str) -> None:
        """A page within the page."""
        page = _parsed(source, self._fetch, self._frames + 1)
        if self._kinds[-1] or self._tables:
            self._write(" ".join(text for _, text in page.blocks))
        else:
            self._finish(0)
            self.pictures += [replace(one, before=one.before + len(self._blocks)) for one in page.pictures]
            self._blocks += page._blocks
            self.tables += page.tables
        self.asides += page.asides

    def _control(self, tag: str, attributes: dict[str, str]) -> None:
        """What was filled into a form; what a date or an abbreviation stands for."""
        kind, value = attributes.get("type", "text").lower(), attributes.get("value", "")
        if tag == "select":
            if self._open["select"]:  # its end is missing
                self._choose()
                self._open["select"] = self._open["option"] = 0
            self._choices.clear()  # those of another list, such as what a field proposes
        elif tag == "option":
            self._choices.append(("selected" in attributes, ""))
        elif tag == "label":
            self._is_labelled = self._begins_label = not self._line_so_far().endswith((TICKED, EMPTY))
        elif tag == "textarea":
            self._fill("", "")
        elif tag == "time":
            self._after.append(attributes.get("datetime", "").strip())
        elif tag == "abbr":
            self._after.append(" ".join(attributes.get("title", "").split()))
        elif tag == "input" and kind in ("checkbox", "radio"):
            behind = self._open["label"] and self._is_labelled and not self._begins_label
            self._write(f" {TICKED if 'checked' in attributes else EMPTY}" + ("\n" if behind else " "))
            self._is_labelled = self._begins_label = False
        elif tag == "input" and kind not in ("hidden", "password", "submit", "button", "image", "file", "reset"):
            self._fill(value)

    def _so_far(self) -> str:
        """Of the paragraph that is open."""
        return "".join(run.text for run in self._text)

    def _line_so_far(self) -> str:
        return self._so_far().rpartition("\n")[2].strip()

    def _fill(self, value: str, end: str = "\n") -> None:
        """Write what a field holds, behind its label."""
        line = self._line_so_far()
        if self._text:
            self._text[-1] = self._text[-1]._replace(text=self._text[-1].text.rstrip(" "))
        between = ": " if self._is_labelled and line[-1:].isalnum() else "\n" if {TICKED, EMPTY} & set(line) else " "
        self._write(between + value.strip() + (end if self._is_labelled else " "))
        self._is_labelled = False

    def _choose(self) -> None:
        """Write what is chosen in a list that ends."""
        chosen = [text.strip() for is_chosen, text in self._choices if is_chosen]
        if self._choices:
            self._fill(", ".join(chosen) or self._choices[0][1])
        self._choices.clear()

    def _add_to_cell(self, run: Run) -> None:
        if self._tables:
            self._tables[-1].add(run)

    def _end_term(self) -> None:
        """A term is said with each text that is given to it."""
        text = " ".join(clean_text(valid_text(self._text, [])).split())
        self._text.clear()
        self._finish(0)
        self._terms += [text] if text else []

    def _say_term(self) -> None:
        """A term without a text of its own."""
        if self._terms and self._mark:
            self._text.append(Run("", self._mark.strip().removesuffix(":")))
            self._mark = ""
            self._finish(0, row=True)

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in _ROW_GROUPS:
            self._say_term()
            self._row_open = False
        if tag == "dl" or (tag == "dt" and self._are_terms_said):
            self._terms.clear()
        self._are_terms_said &= tag != "dt"
        if tag == "table":
            for table in self._tables:
                table.arranges = True
            self._tables.append(_Table())
        elif tag == "figure":
            self._figures.append(len(self.pictures))
        elif tag in ("ul", "ol"):
            self._lists.append(None if tag == "ul" else stated_number(attributes.get("start"), 1))
        elif tag == "dd" and self._terms:
            term, self._are_terms_said = " / ".join(self._terms), True
            self._mark = f"{term} " if term.endswith((":", "?", "!")) else f"{term}: "
        elif tag == "li" and self._lists:
            number = self._lists[-1]
            self._mark = "• " if number is None else f"{number}. "
            self._lists[-1] = None if number is None else number + 1
        elif self._tables:
            if tag == "tr":
                self._tables[-1].open_row(len(self._blocks))
            self._tables[-1].arranges |= tag in _HEADINGS
            self._add_to_cell(Run("", " "))

    def _end(self, tag: str) -> None:
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        if tag == "caption" and self._tables and self._blocks:
            self._tables[-1].caption = " ".join(self._blocks[-1][1])
        if tag == "figcaption" and self._figures and self._blocks:
            first, caption = self._figures[-1], " ".join(self._blocks[-1][1])
            self.pictures[first:] = [replace(one, caption=caption) for one in self.pictures[first:]]
        if tag == "figure" and self._figures:
            self._figures.pop()
        if tag in ("li", "ul", "ol"):
            self._mark = ""
        if tag == "dl" and self._terms and not self._are_terms_said:
            self._mark = " / ".join(self._terms)
            self._say_term()
        if tag == "table" and self._tables:
            table = self._tables.pop()
            cells = table.cells()
            if cells is not None:
                self._blocks[table.begins :] = [(0, text_rows(cells[1], named=table.num_heads))]
                self.tables.append(cells)
                self.pictures = [replace(one, before=min(one.before, len(self._blocks))) for one in self.pictures]

    def _count(self, tag: str, step: int) -> None:
        name = "silent" if tag in _SILENT else tag
        self._open[name] = max(0, self._open[name] + step)

    def _finish(self, level: int, row: bool = False) -> None:
        if self._unseen:
            valid_text(self._unseen, self.asides)
            self._unseen.clear()
        text = "\n".join(map(str.rstrip, clean_text(valid_text(self._text, [])).split("\n")))
        self._text.clear()
        blocks, tables = plain_blocks(text.strip("\n")) if self._open["pre"] else ([], [])
        if tables:
            self._blocks += [(0, block.split("\n")) for _, block in blocks]
            self.tables += tables
            return
        lines = text.split("\n") if self._open["pre"] else [" ".join(line.split()) for line in text.split("\n")]
        text = ticked_first("\n".join(line for line in lines if line.strip(" |\t")))
        if not text:
            return
        text, self._mark = (text if level else self._mark + text), ""
        if row and self._row_open and self._blocks:
            self._blocks[-1][1].append(text)
        else:
            self._blocks.append((level, [" ".join(text.split()) if level else text]))
        self._row_open = row
