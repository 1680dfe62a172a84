"""What Office files draw: charts, diagrams (SmartArt) and formulas, as cells, lines and text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lxml import etree

from retrieval.extraction.markup import clean_text
from retrieval.extraction.mathml import grouped
from retrieval.extraction.parts import Cells, stated_number
from retrieval.extraction.table_rows import text_rows

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_DGM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MOST_POINTS = 10_000  # of one series
_DEEPEST = 50


def drawn_text(element: etree._Element) -> Iterator[str]:
    """The paragraphs of a drawing that have text."""
    for paragraph in element.iter(f"{_A}p"):
        text = "".join(" " if one.tag == f"{_A}br" else one.text or "" for one in paragraph.iter(f"{_A}t", f"{_A}br"))
        text = " ".join(clean_text(text).split())
        if text:
            yield text


def chart_cells(chart: etree._Element) -> Cells:
    """The title of a chart, and its values as a table: a row for each category, a column for each series."""
    title = next(chart.iter(f"{_C}title"), None)
    heading = " ".join(drawn_text(title)) if title is not None and title.getparent().tag == f"{_C}chart" else ""
    head, rows = [""], dict[int, list[str]]()
    for number, series in enumerate(chart.iter(f"{_C}ser"), 1):
        head.append(next(iter(_points(series, "tx").values()), ""))
        categories = _points(series, "cat") or _points(series, "xVal")
        for index, value in (_points(series, "val") or _points(series, "yVal")).items():
            row = rows.setdefault(index, [categories.get(index, "")])
            row += [""] * (number - len(row)) + [value]
    return heading, [head, *(row + [""] * (len(head) - len(row)) for _, row in sorted(rows.items()))]


def chart_text(cells: Cells) -> str:
    """The title of a chart, and its rows."""
    title, rows = cells
    return "\n".join(filter(None, [title, *text_rows(rows, named=1)]))


def _points(series: etree._Element, name: str) -> dict[int, str]:
    """The stored values of one part of a series, by number."""
    part = series.find(_C + name)
    if part is None:
        return {}
    found: dict[int, str] = {}
    for number, point in enumerate(part.iter(f"{_C}pt", f"{_C}v")):
        if point.tag == f"{_C}v" and point.getparent().tag == f"{_C}pt":
            continue
        index = stated_number(point.get("idx"), number, 10**8)
        text = point.text if point.tag == f"{_C}v" else point.findtext(f"{_C}v")
        if len(found) < _MOST_POINTS:
            found[index] = _number(clean_text(text or "").strip())
    return found


def _number(text: str) -> str:
    try:
        return f"{float(text):.12g}"
    except ValueError:
        return text


def diagram_lines(data: etree._Element) -> list[str]:
    """The texts of a diagram in its order, those of the first level numbered."""
    texts: dict[str, str] = {}
    roots: list[str] = []
    for point in data.iter(f"{_DGM}pt"):
        identity, kind = point.get("modelId", ""), point.get("type", "node")
        if kind == "doc":
            roots.append(identity)
        elif kind == "node" or kind == "asst":
            texts[identity] = " ".join(drawn_text(point))
    children: dict[str, list[tuple[int, str]]] = {}
    for link in data.iter(f"{_DGM}cxn"):
        if link.get("type", "parOf") == "parOf":
            place = stated_number(link.get("srcOrd"), 0)
            children.setdefault(link.get("srcId", ""), []).append((place, link.get("destId", "")))
    lines: list[str] = []
    seen: set[str] = set()

    def walk(parent: str, depth: int) -> None:
        number = 0
        for _, child in sorted(children.get(parent, ())):
            if child in seen or depth > _DEEPEST:
                continue
            seen.add(child)
            if texts.get(child):
                number += 1
                mark = "•" if depth else "" if texts[child][0].isdigit() else f"{number}."
                lines.append(f"{mark} {texts[child]}".strip())
            walk(child, depth + 1)

    for root in roots:
        walk(root, 0)
    return lines + [text for identity, text in texts.items() if identity not in seen and text]


_OPERATORS = {"∑": "sum", "∏": "product", "∫": "integral"}


def formula(element: etree._Element) -> str:
    """A formula of Word's editor in one line, much like LaTeX: "λ = P/S", "x^2", "sqrt(a + b)"."""
    return " ".join(_formula(element, 0).split())


def _formula(element: etree._Element, depth: int) -> str:
    if depth > _DEEPEST or not isinstance(element.tag, str):
        return ""
    tag = element.tag.removeprefix(_M)

    def part(name: str) -> str:
        found = element.find(_M + name)
        return "" if found is None else _formula(found, depth + 1).strip()

    if tag == "t":
        return element.text or ""
    if tag == "f":
        return f"{grouped(part('num'))}/{grouped(part('den'))}"
    if tag in ("sSup", "sSub", "sSubSup"):
        sub, sup = part("sub"), part("sup")
        return part("e") + (f"_{grouped(sub)}" if sub else "") + (f"^{grouped(sup)}" if sup else "")
    if tag == "rad":
        return f"root({part('deg')}; {part('e')})" if part("deg") else f"sqrt({part('e')})"
    if tag == "nary":
        sign = element.find(f"{_M}naryPr/{_M}chr")
        shown = "∫" if sign is None else sign.get(f"{_M}val", "")
        return f"{_OPERATORS.get(shown, shown)} from {part('sub')} to {part('sup')} of {part('e')}"
    if tag == "d":
        opens, closes = (element.find(f"{_M}dPr/{_M}{name}Chr") for name in ("beg", "end"))
        inner = ", ".join(_formula(one, depth + 1).strip() for one in element.findall(f"{_M}e"))
        first = "(" if opens is None else opens.get(f"{_M}val", "")
        return first + inner + (")" if closes is None else closes.get(f"{_M}val", ""))
    if tag == "m":
        rows = (", ".join(_formula(e, depth + 1).strip() for e in row) for row in element.findall(f"{_M}mr"))
        return f"[{'; '.join(rows)}]"
    if tag == "func":
        return f"{part('fName')}({part('e')})"
    if tag == "eqArr":
        return "; ".join(_formula(one, depth + 1).strip() for one in element.findall(f"{_M}e"))
    return "".join(_formula(child, depth + 1) for child in element)


Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in inches."""
_BELOW_IN = 0.4  # a heading stands so near above what it heads


_ALIGNED_IN = 0.1


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """The order in which boxes are read: row by row where they stand in a grid, else column by column where a gap parts
    columns, else from top to bottom."""

    def parts(chosen: list[int], near: int, far: int) -> list[list[int]]:
        """Between gaps across one direction."""
        found: list[list[int]] = []
        end = 0.0
        for one in sorted(chosen, key=lambda one: (boxes[one][near], boxes[one][1 - near])):
            if found and boxes[one][near] < end:
                found[-1].append(one)
                end = max(end, boxes[one][far])
            else:
                found.append([one])
                end = boxes[one][far]
        return found

    def ordered(chosen: list[int]) -> list[int]:
        rows, columns = parts(chosen, 1, 3), parts(chosen, 0, 2)
        tops = [[boxes[one][1] for one in row] for row in rows]
        is_grid = min(len(rows), len(columns)) > 1 and all(max(row) - min(row) < _ALIGNED_IN for row in tops)
        for found in (rows, columns) if is_grid else (columns, rows):
            if len(found) > 1:
                return [one for part in found for one in ordered(part)]
        return sorted(chosen, key=lambda one: (boxes[one][1], boxes[one][0]))

    return ordered(list(range(len(boxes))))


def headed(boxes: Sequence[Box], may_head: Sequence[bool], may_be_headed: Sequence[bool]) -> dict[int, int]:
    """For each box with text below a box with one line, its heading, the number of that."""
    found: dict[int, int] = {}
    for one in sorted((one for one in range(len(boxes)) if may_head[one]), key=lambda one: boxes[one][1]):
        below = [
            other for other in range(len(boxes))
            if other != one and may_be_headed[other] and other not in found and other not in found.values()
            and abs(boxes[one][0] - boxes[other][0]) < _BELOW_IN / 2
            and -_BELOW_IN / 2 < boxes[other][1] - boxes[one][3] < _BELOW_IN
        ]  # fmt: skip
        if below and one not in found:
            found[min(below, key=lambda other: boxes[other][1])] = one
    return found
