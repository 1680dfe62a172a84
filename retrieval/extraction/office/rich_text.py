"""Rich text (.rtf), as word processors of every age write it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from striprtf.striprtf import rtf_to_text

from retrieval.errors import ExtractError
from retrieval.extraction.document import Aside, ExtractedDocument
from retrieval.extraction.limits import ExtractLimits, damage_named
from retrieval.extraction.markup import clean_text, text_bytes
from retrieval.extraction.parts import Block, Kind, Part, Run, from_parts, remark_text, valid_text
from retrieval.extraction.table_rows import Merged, text_rows

_OVERHEAD = 50  # bytes for each of text: pictures are in the file, too
_DATA = re.compile(rb"(?:[0-9a-fA-F]{64,}+\s*+){8,}+|[0-9a-fA-F]{512,}+")  # of a picture or an object
_TITLE = re.compile(r"\{\\title\s+([^{}]{1,500})\}")
_AUTHOR = re.compile(r"\{\\author\s+([^{}]{1,500})\}")
_HEADER = re.compile(r"\{(?:\\\*)?\\(?:header|footer)[lrf]?(?![a-z])\s?")
_BESIDE = re.compile(r"\{(?:\\\*)?\\(footnote|annotation|shptxt|dptxbxtext)(?![a-z])\s?")
_DRAWING = re.compile(r"\{(?:\\\*)?\\(?:shp|shpinst|do)(?![a-z])\s?")
_ANNOTATOR = re.compile(r"\{\\\*\\atnauthor ([^{}]{1,300})\}")
_WORD = re.compile(
    r"\\(v|strike|striked|deleted|super|nosupersub|plain|trowd|clvmrg|clmrg|cellx|row)(-?\d{1,10})?(?![a-z])[ ]?"
    r"|[{}]|\\[\\{}]"
)
_ESCAPED = ("\\\\", r"\{", r"\}")
_STATES: tuple[tuple[Kind, bool], ...] = tuple(
    (kind, is_raised) for kind in ("", "hidden", "deleted") for is_raised in (False, True)
)
_FIRST_SIGN = 0xE000
"""Private characters from here mark in the text why what follows is set aside, and whether it is raised."""
_SIGNS = {chr(_FIRST_SIGN + number): state for number, state in enumerate(_STATES)}
_NOTE, _COMMENT, _BOX, _SAID, _END, _EDGES, _HERE = map(chr, range(0xE010, 0xE017))
_OWN_SIGNS = re.compile(r"\\u(?:-81(?:9[0-2]|[78]\d)|573(?:4[4-9]|5\d|6[0-6]))(?!\d)")  # of the file, at their places
_KIND_OF_BESIDE = {"footnote": _NOTE, "annotation": _COMMENT}
_SPAN = re.compile(f"([{_NOTE}{_COMMENT}{_BOX}])([^{_END}]*){_END}")
_ROW_EDGES = re.compile(f"{_EDGES}([-0-9mv ]*)$")
_SAME_EDGE = 60  # twentieths of a point
_MOST_COLUMNS = 100


def extract_rtf(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Paragraphs, table rows, notes, comments, text boxes, headers and footers; pictures and embedded objects are left
    out. Raises ExtractError."""
    data = text_bytes(path, limits, overhead=_OVERHEAD)
    if not data.lstrip().startswith(b"{\\rtf"):
        raise ExtractError("The file is named .rtf but is not rich text.")
    source = _DATA.sub(b" ", data).decode("latin-1")
    asides: list[Aside] = []
    with damage_named("rich text"):
        text = str(rtf_to_text(_marked(_OWN_SIGNS.sub(r"\\u-3", source)), errors="replace"))
    metadata = {
        key: " ".join(rtf_to_text("{\\rtf1 " + found[1] + "}", errors="replace").split())
        for key, found in (("title", _TITLE.search(source)), ("author", _AUTHOR.search(source)))
        if found
    }
    blocks = list(_blocks(clean_text(text), asides))
    return from_parts([Part("", blocks, asides=asides)], metadata.get("title", ""), path, metadata, limits)


def _sign(letter: str) -> str:
    return f"\\u{ord(letter) - 65536}?"


def _marked(source: str) -> str:
    """With a sign of its own wherever text begins to be hidden, struck out or raised, and where that ends; headers and
    footers as paragraphs where they are stated; notes, comments and text boxes between signs; the edges of its cells
    at the end of every row."""
    written: list[str] = []
    groups: list[set[str]] = [set()]
    ends: dict[int, str] = {}  # by depth of an open group: what is written at its end
    edges: list[str] = []
    shown = _STATES[0]
    annotator = ""
    at = 0
    for found in _WORD.finditer(source):
        if found.start() < at or found[0] in _ESCAPED:
            continue
        written.append(source[at : found.start()])
        at, before = found.end(), set(groups[-1])
        word, opened = found[1] or found[0], ""
        if word == "{":
            groups.append(set(groups[-1]))
            if stated := _ANNOTATOR.match(source, found.start()):
                annotator = stated[1]
            if header := _HEADER.match(source, found.start()):
                written.append("\\par ")
                at, ends[len(groups)] = header.end(), "\\par "
            elif beside := _BESIDE.match(source, found.start()):
                at, opened = beside.end(), " "
                if _sign(_END) not in ends.values():
                    groups[-1].clear()
                    ends[len(groups)] = _sign(_END)
                    opened = _sign(_KIND_OF_BESIDE.get(beside[1], _BOX))
                    opened += annotator + _sign(_SAID) if beside[1] == "annotation" else ""
            elif drawing := _DRAWING.match(source, found.start()):
                at = drawing.end()
        elif word == "}":
            written.append(ends.pop(len(groups), ""))
            groups.pop() if len(groups) > 1 else groups[-1].clear()
        elif word == "plain":
            groups[-1].clear()
        elif word == "trowd":
            edges = [""]
        elif word in ("clvmrg", "clmrg") and edges:
            edges[-1] = "v" if word == "clvmrg" else "m"
        elif word == "cellx" and edges:
            edges[-1:] = [f"{found[2] or 0}{edges[-1]}", ""]
        elif word == "row":
            written.append(f"{_sign(_EDGES)}{' '.join(edges[:-1])}" if edges else "")
        elif word == "nosupersub" or found[2] == "0":
            groups[-1].discard("super" if word == "nosupersub" else word)
        else:
            groups[-1].add(word)
        state = _state(groups[-1])
        # Behind what opens a group, in front of what ends one: the sign belongs to the text, not to a destination.
        sign = _sign(chr(_FIRST_SIGN + _STATES.index(state))) if state != shown else ""
        written.append(f"{found[0]}{opened}{sign}")
        shown = state if groups[-1] != before or found[0] in "{}" else shown
    return "".join([*written, source[at:]])


def _state(words: set[str]) -> tuple[Kind, bool]:
    kind: Kind = "hidden" if "v" in words else "deleted" if words & {"strike", "striked", "deleted"} else ""
    return kind, "super" in words


def _valid_line(line: str, state: tuple[Kind, bool], asides: list[Aside]) -> tuple[str, tuple[Kind, bool]]:
    """The valid words of a line that begins with text in this state, and the state at its end."""
    runs: list[Run] = []
    for piece in re.split(f"([{''.join(_SIGNS)}])", line):
        if piece in _SIGNS:
            state = _SIGNS[piece]
        else:
            kind, is_raised = state
            runs.append(Run(kind, piece, is_raised))
    return valid_text(runs, asides), state


def _blocks(text: str, asides: list[Aside]) -> Iterator[Block]:
    """Every line is a paragraph; lines of cells, which end with a bar, are the rows of tables. Notes, comments and text
    boxes stand behind their paragraph or table."""
    spans = _SPAN.finditer(text)
    rows: list[list[str]] = []
    edges: list[str] = []
    beside: list[Block] = []
    state = _STATES[0]
    for line in [*_SPAN.sub(_HERE, text).split("\n"), ""]:
        valid = ""
        line, stated = _ROW_EDGES.sub("", line), _ROW_EDGES.search(line)
        for number, piece in enumerate(line.split(_HERE)):
            beside += _beside(next(spans), valid, asides) if number else []
            words, state = _valid_line(piece, state, asides)
            valid += words
        if valid.rstrip().endswith("|"):
            rows.append([" ".join(cell.split()) for cell in valid.rstrip()[:-1].split("|")])
            edges.append(stated[1] if stated else "")
            continue
        if rows:
            yield 0, "\n".join(text_rows(_with_merged(rows, edges)))
            yield from beside
            rows, edges, beside = [], [], []
        yield 0, " ".join(valid.split())
        yield from beside
        beside = []


def _beside(span: re.Match[str], about: str, asides: list[Aside]) -> Iterator[Block]:
    """A note, a comment or a text box."""
    said, _, stated = span[2].rpartition(_SAID)
    lines: list[str] = []
    state = _STATES[0]
    for line in stated.split("\n"):
        words, state = _valid_line(line, state, asides)
        lines.append(" ".join(words.split()))
    text = " ".join(filter(None, lines))
    if span[1] == _BOX:
        yield from ((0, line) for line in lines)
    elif text:
        said = "Note" if span[1] == _NOTE else f"Comment by {said}" if said else "Comment"
        yield 0, remark_text(said, about.rpartition("|")[2], text)


def _with_merged(rows: list[list[str]], stated: Sequence[str]) -> list[list[str]]:
    """The rows of a table, the text of merged cells in all that they span. `stated`: the right edges of the cells of
    each row; "v" behind one that goes on from above, "m" behind one that goes on from the left."""
    edges = [[int(one.rstrip("mv")) for one in row.split()] for row in stated]
    if any(len(row) != len(own) for row, own in zip(rows, edges, strict=True)):
        return rows
    columns: list[int] = []
    for edge in sorted({edge for row in edges for edge in row}):
        columns += [edge] if not columns or edge - columns[-1] > _SAME_EDGE else []
    if len(columns) > _MOST_COLUMNS:
        return rows
    whole: list[list[str]] = []
    for row, own, marks in zip(rows, edges, stated, strict=True):
        cells: list[str] = []
        for text, edge, mark in zip(row, own, marks.split(), strict=True):
            if mark.endswith("m") and cells:
                text = Merged(cells[-1])
            elif mark.endswith("v") and whole and not text:
                text = Merged(whole[-1][len(cells)]) if len(cells) < len(whole[-1]) else ""
            spanned = sum(column <= edge for column in columns) - len(cells)
            cells += [text, *[Merged(text)] * (spanned - 1)] if spanned > 0 else [text]
        whole.append(cells)
    return whole
