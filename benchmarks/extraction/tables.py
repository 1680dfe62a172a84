"""Tables of PDFs against known cells: which neighbours each cell has, as in the ICDAR 2013 table competition.

    python benchmarks/extraction/tables.py --pdfs FOLDER --cells FILE.json

`--cells`: {"docs": [{"doc": "us-001", "tables": [{"page": 1, "cells": [...]}]}]}, a cell with "row", "col", "rowspan",
"colspan" and "text".
Relations lead from a filled cell to the next filled one to its right and below; white space and case do not count.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from retrieval.extraction.pdf.characters import read_characters
from retrieval.extraction.pdf.layout import lines_of_cell
from retrieval.extraction.pdf.opening import opened, page_of
from retrieval.extraction.pdf.tables.find_tables import find_tables
from retrieval.extraction.pdf.tables.rules import read_rules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, required=True)
    parser.add_argument("--cells", type=Path, required=True)
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    scores = []
    for known in json.loads(arguments.cells.read_text(encoding="utf-8"))["docs"]:
        found = Counter(relation for table in tables_of(arguments.pdfs / f"{known['doc']}.pdf") for relation in table)
        scores.append(max(f_of(found, known[key]) for key in ("tables", "alternative_tables") if key in known))
        print(f"{known['doc']:12} F {scores[-1]:.3f}")
    print(f"F over {len(scores)} documents: {mean(scores):.4f}")


def f_of(found: Counter, known: list[dict]) -> float:
    wanted = Counter(relation for table in known for relation in relations(table["page"], table["cells"]))
    both = (found & wanted).total()
    return 2 * both / max(1, found.total() + wanted.total())


def tables_of(path: Path) -> list[list[tuple]]:
    tables = []
    with opened(path, None) as document:
        for number in range(len(document)):
            page, _, _ = page_of(document, number)
            sheet = read_characters(page, page.get_textpage())
            for grid in find_tables(sheet, read_rules(page)):
                cells = [
                    {
                        "row": cell.row, "rowspan": cell.row_end - cell.row,
                        "col": cell.column, "colspan": cell.column_end - cell.column,
                        "text": "".join(
                            chr(sheet.code_N[i]) for line in lines_of_cell(sheet, cell.members_N, 0)
                            for i in line.indices_N
                        ),
                    }
                    for cell in grid.cells
                ]  # fmt: skip
                tables.append(relations(number + 1, cells))
    return tables


def relations(page: int, cells: list[dict]) -> list[tuple]:
    filled = [cell | {"text": plain(cell["text"])} for cell in cells if plain(cell["text"])]
    pairs = set()
    for along, across in (("col", "row"), ("row", "col")):
        for index, cell in enumerate(filled):
            lines = range(cell[across], cell[across] + span(cell, across))
            for line in lines:
                end = cell[along] + span(cell, along)
                later = [
                    (other[along], n) for n, other in enumerate(filled)
                    if other[along] >= end and other[across] <= line < other[across] + span(other, across)
                ]  # fmt: skip
                if later:
                    pairs.add((index, min(later)[1], along))
    return [(page, filled[a]["text"], filled[b]["text"], along) for a, b, along in pairs]


def span(cell: dict, along: str) -> int:
    return max(1, cell.get(f"{along}span") or 1)


def plain(text: str) -> str:
    dashes = dict.fromkeys(map(ord, "‐‑‒–—−\u00ad"), "-")  # noqa: RUF001 (as printed)
    return "".join(text.translate(dashes).split()).casefold().rstrip("._")


if __name__ == "__main__":
    main()
