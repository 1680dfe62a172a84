"""OpenDocument files, as LibreOffice writes them: texts (.odt), sheets (.ods) and presentations (.odp)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lxml import etree

from retrieval.errors import ExtractError
from retrieval.extraction.document import Aside, ExtractedDocument
from retrieval.extraction.exhibits import is_table_caption
from retrieval.extraction.figures import Picture, split_pictures
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text
from retrieval.extraction.mathml import mathml
from retrieval.extraction.office.archive import MACROS, Archive, opened_archive, stated
from retrieval.extraction.office.drawings import Box, reading_order
from retrieval.extraction.office.numbering import BULLET, Level, Numbering
from retrieval.extraction.office.sheets import Row, Sheet, from_sheets
from retrieval.extraction.parts import Block, Cells, Kind, Part, Run, from_parts, remark_text, stated_number, valid_text
from retrieval.extraction.table_rows import Merged, text_rows

_LOCKED = "This OpenDocument file has a password. Save it without one and retry."
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_META = "{urn:oasis:names:tc:opendocument:xmlns:meta:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_SHOW = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}"
_SVG = "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}"
_XLINK = "{http://www.w3.org/1999/xlink}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_DATES = {"created": f"{_META}creation-date", "modified": f"{_DC}date"}
_MANIFEST = "META-INF/manifest.xml"
_SILENT = {
    f"{_TEXT}tracked-changes", f"{_OFFICE}annotation", f"{_TEXT}note-citation", f"{_OFFICE}forms",
    f"{_TEXT}page-number", f"{_TEXT}page-count",
}  # fmt: skip
_MOST_REPEATED = 100  # cells or rows with text that a file states once
_MOST_ROWS, _MOST_COLUMNS = 1_048_576, 16_384
_NUMBERS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_OUTLINE = "headings"
_LENGTH = re.compile(r"(-?[\d.]+)(cm|mm|in|pt|pc|px)?")
_INCHES = {"cm": 1 / 2.54, "mm": 1 / 25.4, "in": 1.0, "pt": 1 / 72, "pc": 1 / 6, "px": 1 / 96}


def extract_odt(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Headings, paragraphs, lists, tables, notes, comments, headers and footers of a text. Raises ExtractError."""
    with _opened(path, "OpenDocument text", "text") as file:
        blocks, pictures = split_pictures(file.text())
    part = Part("", blocks, tables=file.tables, pictures=pictures, asides=file.asides)
    return from_parts([part], file.title, path, file.metadata, limits, file.notes)


def extract_ods(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """The rows of every sheet, as they are shown. Raises ExtractError."""
    with _opened(path, "OpenDocument sheet", "spreadsheet") as file:
        return from_sheets(file.sheets(), file.title, path, file.metadata, limits, file.notes, file.asides)


def extract_odp(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """The slides in order, each a part, with notes behind "Notes:". Raises ExtractError."""
    with _opened(path, "OpenDocument presentation", "presentation") as file:
        return from_parts(list(file.slides()), file.title, path, file.metadata, limits, file.notes)


@contextmanager
def _opened(path: Path, what: str, body: str) -> Iterator[_File]:
    older = (
        f"The file is named {path.suffix} but is a file of another office program. Save it as {path.suffix} and retry."
    )
    foreign = ExtractError(f"The file is named {path.suffix} but is not an {what}.")
    with opened_archive(path, what, older) as archive:
        if "content.xml" not in archive:
            raise foreign
        if _MANIFEST in archive and b"encryption-data" in archive.read(_MANIFEST):
            raise ExtractError(_LOCKED)
        content = archive.parse("content.xml")
        root = content.find(f"{_OFFICE}body/{_OFFICE}{body}")
        if root is None:
            raise foreign
        yield _File(archive, root, content)


class _Styles:
    """What the styles of a file say of its text: what is hidden or struck out, and how lists are counted."""

    def __init__(self, roots: Sequence[etree._Element]):
        self._stated = {
            (one.get(f"{_STYLE}family", ""), one.get(f"{_STYLE}name", "")): one
            for root in roots
            for one in root.iter(f"{_STYLE}style")
        }
        self.numbering = Numbering({name: (name, levels) for root in roots for name, levels in _list_levels(root)})

    def find(self, family: str, name: str | None, properties: str, attribute: str) -> str:
        """What a style, or the nearest of those that it is based on, states; "" for nothing."""
        seen: set[str] = set()
        while name and name not in seen:
            seen.add(name)
            style = self._stated.get((family, name))
            if style is None:
                return ""
            found = style.find(f"{_STYLE}{properties}")
            stated = None if found is None else found.get(attribute)
            if stated is not None:
                return str(stated)
            name = style.get(f"{_STYLE}parent-style-name")
        return ""

    def kind(self, family: str, name: str | None) -> Kind:
        """Why text of this style is set aside."""
        if self.find(family, name, "text-properties", f"{_TEXT}display") == "none":
            return "hidden"
        struck = [
            self.find(family, name, "text-properties", f"{_STYLE}text-line-through-{part}")
            for part in ("style", "type")
        ]
        return "deleted" if any(one not in ("", "none") for one in struck) else ""

    def raises(self, name: str | None) -> bool:
        """Whether text of this style is printed raised."""
        position = self.find("text", name, "text-properties", f"{_STYLE}text-position").partition(" ")[0]
        return position == "super" or position.rstrip("%").replace(".", "", 1).strip("0").isdigit()


def _list_levels(root: etree._Element) -> Iterator[tuple[str, dict[int, Level]]]:
    for style in root.iter(f"{_TEXT}list-style", f"{_TEXT}outline-style"):
        levels: dict[int, Level] = {}
        for level in style:
            depth = level.get(f"{_TEXT}level", "") if isinstance(level.tag, str) else ""
            if depth not in tuple("123456789"):
                continue
            kind = _NUMBERS.get(level.get(f"{_STYLE}num-format", ""), "none")
            if level.tag == f"{_TEXT}list-level-style-bullet":
                kind = "bullet"
            stated, shown = level.get(f"{_TEXT}start-value", "1"), level.get(f"{_TEXT}display-levels", "1")
            first = int(depth) - (int(shown) if shown in tuple("123456789") else 1)
            numbers = ".".join(f"%{number}" for number in range(max(0, first) + 1, int(depth) + 1))
            pattern = f"{level.get(f'{_STYLE}num-prefix', '')}{numbers}{level.get(f'{_STYLE}num-suffix', '')}"
            levels[int(depth) - 1] = Level(stated_number(stated, 1), kind, pattern if kind != "none" else "")
        name = _OUTLINE if style.tag == f"{_TEXT}outline-style" else style.get(f"{_STYLE}name", "")
        if any(level.kind != "none" for level in levels.values()):
            yield name, levels


class _File:
    """One OpenDocument file that is open."""

    def __init__(self, archive: Archive, body: etree._Element, content: etree._Element):
        self._archive, self._body = archive, body
        self._master, meta = archive.parse_any("styles.xml"), archive.parse_any("meta.xml")
        self._styles = _Styles([one for one in (self._master, content) if one is not None])
        self.metadata = {} if meta is None else stated(meta, _DATES)
        self.title = self.metadata.get("title", "")
        has_macros = any(name.startswith(("Basic/", "Scripts/")) for name in archive.namelist())
        self.notes = [MACROS] if has_macros else []
        self.tables: list[Cells] = []
        self.asides: list[Aside] = []

    def text(self) -> Iterator[Block | Picture]:
        """The body of a text between its headers and footers; what was deleted while changes were tracked is set
        aside."""
        for gone in self._body.iter(f"{_TEXT}deletion"):
            if words := self._line(gone):
                self.asides.append(Aside("deleted", words))
        yield from self._running("header")
        yield from self._items(self._body, self.tables, "", shows=True)
        yield from self._running("footer")

    def _running(self, which: str) -> Iterator[Block | Picture]:
        """Headers or footers of the pages, each wording once."""
        said: set[str] = set()
        for page in () if self._master is None else self._master.iter(f"{_STYLE}master-page"):
            for name in (which, f"{which}-first", f"{which}-left"):
                one = page.find(_STYLE + name)
                if one is None or one.get(f"{_STYLE}display") == "false":
                    continue
                for block in self._blocks(one):
                    if block[1].strip() and block[1] not in said:
                        said.add(block[1])
                        yield 0, block[1]

    def _blocks(self, parent: etree._Element, kind: Kind = "") -> Iterator[Block]:
        """What stands in an element, in order, without pictures."""
        return (item for item in self._items(parent, None, kind) if not isinstance(item, Picture))

    def _line(self, parent: etree._Element, kind: Kind = "") -> str:
        return " ".join(" ".join(text for _, text in self._blocks(parent, kind)).split())

    def _items(
        self, parent: Iterable[etree._Element], tables: list[Cells] | None, kind: Kind, *, shows: bool = False
    ) -> Iterator[Block | Picture]:
        """What stands in an element, in order; also in sections, frames and tables of contents. The cells of tables are
        added to `tables`, those of tables in cells only to their cell. `kind`: why the whole element is set aside;
        `shows`: with its pictures."""
        before = ""
        for child in parent:
            if child.tag in _SILENT or not isinstance(child.tag, str):
                continue
            if child.tag in (f"{_TEXT}h", f"{_TEXT}p"):
                beside: list[Block] = []
                text = self._words(child, kind, beside)
                if child.tag == f"{_TEXT}h":
                    stated = child.get(f"{_TEXT}outline-level", "1")
                    level = int(stated) if stated in tuple("123456789") else 1
                    number = self._styles.numbering.label(_OUTLINE, level - 1) if text else ""
                    number = "" if number == BULLET or child.get(f"{_TEXT}is-list-header") == "true" else number
                    yield level, " ".join(f"{number} {text}".split())
                else:
                    yield 0, text
                    before = text
                yield from beside
                yield from self._pictures(child) if shows else ()
                for frame in child.iter(f"{_DRAW}frame"):
                    yield from self._object(frame, tables)
                for box in child.iter(f"{_DRAW}text-box"):
                    yield from self._items(box, tables, kind)  # its pictures are the paragraph's
            elif child.tag == f"{_TEXT}list":
                beside = []
                name = child.get(f"{_TEXT}style-name", "")
                if child.get(f"{_TEXT}continue-numbering") != "true" and not child.get(f"{_TEXT}continue-list"):
                    self._styles.numbering.restart(name, 0)
                yield 0, "\n".join(self._list_items(child, name, 0, kind, beside))
                yield from beside
                yield from self._pictures(child) if shows else ()
            elif child.tag == f"{_TABLE}table":
                beside = []
                rows, heads = self._rows(child, kind, beside)
                yield 0, "\n".join(text_rows(rows, named=heads))
                if tables is not None:
                    tables.append((before if is_table_caption(before) else "", rows))
                yield from beside
                yield from self._pictures(child) if shows else ()
            elif child.tag == f"{_DRAW}frame":
                yield from self._pictures(child) if shows else ()
                yield from self._object(child, tables)
                for box in child.iter(f"{_DRAW}text-box"):
                    yield from self._items(box, tables, kind)
                yield from self._items(child.findall(f"{_TABLE}table"), tables, kind, shows=shows)
            else:
                hidden = child.tag == f"{_TEXT}section" and child.get(f"{_TEXT}display", "true") == "none"
                yield from self._items(child, tables, "hidden" if hidden else kind, shows=shows)

    def _object(self, frame: etree._Element, tables: list[Cells] | None) -> Iterator[Block]:
        """The values of a chart."""
        for root in self._objects(frame):
            chart = root.find(f"{_OFFICE}body/{_OFFICE}chart")
            table = None if chart is None else next(chart.iter(f"{_TABLE}table"), None)
            if chart is None or table is None:
                continue
            title = next((" ".join("".join(t.itertext()).split()) for t in chart.iter("{*}title")), "")
            rows, _ = self._rows(table, "", [])
            if tables is not None:
                tables.append((title, rows))
            yield 0, "\n".join(filter(None, [title, *text_rows(rows, named=1)]))

    def _objects(self, frame: etree._Element) -> Iterator[etree._Element]:
        """The charts and formulas that a frame shows, which are files within the file."""
        for one in frame.findall(f"{_DRAW}object"):
            name = posixpath.normpath(posixpath.join(one.get(f"{_XLINK}href", ""), "content.xml"))
            root = self._archive.parse_any(name) if name != "content.xml" else None
            if root is not None:
                yield root

    def _pictures(self, parent: etree._Element) -> Iterator[Picture]:
        """One for each frame, which may state the same picture in several formats."""
        for frame in parent.iter(f"{_DRAW}frame"):
            addresses = [image.get(f"{_XLINK}href", "") for image in frame.findall(f"{_DRAW}image")]
            names = map(posixpath.normpath, addresses)
            name = next((name for name in names if name in self._archive), None)
            if name is not None:
                words = [frame.findtext(f"{_SVG}{element}") for element in ("desc", "title")]
                yield Picture(self._archive.read(name), next((word for word in words if word), ""))

    def _list_items(
        self, parent: etree._Element, name: str, depth: int, kind: Kind, beside: list[Block]
    ) -> Iterator[str]:
        for item in parent:
            if not isinstance(item.tag, str):
                continue
            stated = item.get(f"{_TEXT}start-value", "")
            if stated:
                self._styles.numbering.restart(name, depth, stated_number(stated, 1))
            texts = [self._words(one, kind, beside) for one in item if one.tag in (f"{_TEXT}p", f"{_TEXT}h")]
            text = " ".join(" ".join(texts).split())
            if text and item.tag == f"{_TEXT}list-header":
                yield text
            elif text:
                yield f"{self._styles.numbering.label(name, depth)} {text}".strip()
            for inner in item.findall(f"{_TEXT}list"):
                own = inner.get(f"{_TEXT}style-name", name)
                yield from self._list_items(inner, own, min(depth + 1, 8), kind, beside)

    def _rows(self, table: etree._Element, kind: Kind, beside: list[Block]) -> tuple[list[list[str]], int]:
        """The rows of a table, and how many of them are marked as its heading."""
        heads = sum(1 for group in table.iter(f"{_TABLE}table-header-rows") for _ in group.iter(f"{_TABLE}table-row"))
        above: dict[int, tuple[int, str]] = {}
        return [self._cells(row, above, kind, beside) for row in table.iter(f"{_TABLE}table-row")], heads

    def _cells(
        self,
        row: etree._Element,
        above: dict[int, tuple[int, str]],
        kind: Kind,
        beside: list[Block],
        hidden: Collection[int] = (),
    ) -> list[str]:
        """The cells of a row; the text of a merged one stands in all that it spans. `above`: by column, for how many
        rows cells of the rows before go on, and their text. Comments in `hidden` columns are set aside."""
        found: dict[int, str] = {}
        at = 0
        for cell in row:
            if cell.tag not in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                continue
            count = _repeated(cell, "number-columns-repeated", _MOST_COLUMNS)
            if cell.tag == f"{_TABLE}covered-table-cell":
                for column in [column for column in above if at <= column < at + count]:
                    left, text = above[column]
                    above[column] = (left - 1, text)
                    if left > 0:
                        found[column] = Merged(text)
                at += count
                continue
            own: Kind = kind or self._styles.kind("table-cell", cell.get(f"{_TABLE}style-name"))
            text = self._line(cell, own)
            for one in cell.findall(f"{_OFFICE}annotation"):
                beside += self._remark(one, text, "hidden" if at in hidden else "")
            wide = _repeated(cell, "number-columns-spanned", _MOST_REPEATED)
            high = _repeated(cell, "number-rows-spanned", _MOST_ROWS)
            for column in range(at, at + wide):
                if column > at or high > 1:
                    above[column] = (high if column > at else high - 1, text)
            if text:
                found |= dict.fromkeys(range(at, at + min(count, _MOST_REPEATED)), text)
            at += count
        # Files state empty cells up to the last column that there can be.
        width = min(at, max(found, default=-1) + 1 + _MOST_REPEATED)
        return [found.get(column, "") for column in range(width)]

    def _words(self, element: etree._Element, kind: Kind, beside: list[Block]) -> str:
        """The running text of a paragraph, without boxes that stand elsewhere; notes and comments go to `beside`."""
        own = kind or self._styles.kind("paragraph", element.get(f"{_TEXT}style-name"))
        hides = element.find(f".//{_TEXT}hidden-paragraph")
        if hides is not None and hides.get(f"{_TEXT}is-hidden", "true") != "false":
            own = "hidden"
        runs: list[Run] = []
        self._runs(element, own, False, runs, beside)
        lines = clean_text(valid_text(runs, self.asides)).split("\n")
        return "\n".join(" ".join(line.split()) for line in lines if line.strip())

    def _runs(self, element: etree._Element, kind: Kind, is_raised: bool, runs: list[Run], beside: list[Block]) -> None:
        runs.append(Run(kind, element.text or "", is_raised))
        for child in element:
            if child.tag in (f"{_TEXT}s", f"{_TEXT}tab"):
                runs.append(Run(kind, " ", is_raised))
            elif child.tag == f"{_TEXT}line-break":
                runs.append(Run(kind, "\n", is_raised))
            elif child.tag in (f"{_TEXT}note", f"{_OFFICE}annotation"):
                beside += self._remark(child, valid_text(runs, []))
            elif child.tag == f"{_TEXT}hidden-text":
                runs.append(Run("hidden", child.get(f"{_TEXT}string-value", "") or "".join(child.itertext())))
            elif isinstance(child.tag, str) and child.tag.endswith("}frame"):
                formulas = [root for root in self._objects(child) if etree.QName(root).localname == "math"]
                runs += [Run(kind, f" {mathml(root)} ") for root in formulas]
            elif isinstance(child.tag, str) and child.tag not in _SILENT:
                style = child.get(f"{_TEXT}style-name") if child.tag == f"{_TEXT}span" else None
                own = kind or self._styles.kind("text", style)
                self._runs(child, own, is_raised or self._styles.raises(style), runs, beside)
            runs.append(Run(kind, child.tail or "", is_raised))

    def _remark(self, element: etree._Element, about: str, kind: Kind = "") -> Iterator[Block]:
        """A note or a comment as a block of its own."""
        author = (element.findtext(f"{_DC}creator") or "").strip()
        said, body = f"Comment by {author}" if author else "Comment", element
        if element.tag == f"{_TEXT}note":
            said, body = "Note", element.find(f"{_TEXT}note-body")
        if body is not None and (text := self._line(body, kind)):
            yield 0, remark_text(said, about, text)

    def sheets(self) -> Iterator[Sheet]:
        for table in self._body.findall(f"{_TABLE}table"):
            name = table.get(f"{_TABLE}name", "")
            shown = self._styles.find("table", table.get(f"{_TABLE}style-name"), "table-properties", f"{_TABLE}display")
            noted: list[Block] = []
            left_out: set[int] = set()
            rows = list(self._sheet_rows(table, noted, left_out))
            for shape in table.findall(f"{_TABLE}shapes"):
                noted += self._blocks(shape)
            beside = [text for _, text in noted if text.strip()]
            yield Sheet(f"sheet {name}", shown != "false", rows, beside=beside, hidden=left_out)

    def _sheet_rows(self, table: etree._Element, beside: list[Block], left_out: set[int]) -> Iterator[Row]:
        """Rows with what is shown in them; the numbers of those that are hidden, or repeated too often, are added to
        `left_out`."""
        columns: list[bool] = []
        for one in table.iter(f"{_TABLE}table-column"):
            hides = one.get(f"{_TABLE}visibility", "visible") == "collapse"
            columns += [hides] * _repeated(one, "number-columns-repeated", _MOST_COLUMNS)
        hidden_columns = {column for column, hides in enumerate(columns) if hides}
        number, above = 0, dict[int, tuple[int, str]]()
        between: list[range] = []  # the two rows with text; behind the last one, files state all rows that there can be
        for row in table.iter(f"{_TABLE}table-row"):
            hides = row.get(f"{_TABLE}visibility", "visible") == "collapse"
            hidden = range(_MOST_COLUMNS) if hides else hidden_columns
            cells = {column: text for column, text in enumerate(self._cells(row, above, "", beside, hidden)) if text}
            unseen = [column for column in cells if column in hidden]
            if unseen:
                self.asides.append(Aside("hidden", "\t".join(cells.pop(column) for column in unseen)))
            count = _repeated(row, "number-rows-repeated", _MOST_ROWS)
            shown = min(count, _MOST_REPEATED) if cells else 0
            if shown:
                left_out.update(*between)
                between.clear()
            yield from (Row(number + one, cells) for one in range(shown))
            if cells or hides:
                between.append(range(number + shown, number + count))
            number += count

    def slides(self) -> Iterator[Part]:
        for number, page in enumerate(self._body.findall(f"{_DRAW}page"), 1):
            self.tables, self.asides = [], []
            name = page.get(f"{_DRAW}style-name")
            hidden = (
                self._styles.find("drawing-page", name, "drawing-page-properties", f"{_SHOW}visibility") == "hidden"
            )
            kind: Kind = "hidden" if hidden else ""
            blocks, pictures = split_pictures(self._slide(page, kind))
            yield Part(
                f"slide {number}", blocks, "hidden slide" if hidden else "", self.tables, pictures, self.asides
            )  # fmt: skip

    def _slide(self, page: etree._Element, kind: Kind) -> Iterator[Block | Picture]:
        """The title of a slide, the rest in the order of reading, and the notes to it."""
        shapes = [one for one in page if isinstance(one.tag, str) and one.tag != f"{_SHOW}notes"]
        titles = [one for one in shapes if one.get(f"{_SHOW}class") == "title"]
        others = [one for one in shapes if one not in titles]
        for shape in (*titles, *(others[at] for at in reading_order([_box(one) for one in others]))):
            for item in self._items([shape], self.tables, kind, shows=True):
                yield item if isinstance(item, Picture) or shape not in titles else (1, " ".join(item[1].split()))
        for notes in page.findall(f"{_SHOW}notes"):
            spoken = [text for _, text in self._blocks(notes, kind) if text.strip()]
            if spoken:
                yield 0, "Notes: " + "\n".join(spoken)


def _box(shape: etree._Element) -> Box:
    left, top, width, height = (_inches(shape.get(f"{_SVG}{side}", "")) for side in ("x", "y", "width", "height"))
    return left, top, left + width, top + height


def _inches(length: str) -> float:
    found = _LENGTH.fullmatch(length.strip())
    return float(found[1]) * _INCHES[found[2] or "in"] if found and found[1].count(".") < 2 else 0.0


def _repeated(element: etree._Element, name: str, most: int) -> int:
    return max(1, stated_number(element.get(f"{_TABLE}{name}"), 1, most))
