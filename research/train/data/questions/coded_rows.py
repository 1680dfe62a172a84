"""Made questions about rows that a code, a day, an ordinal or a number tells apart.

What pieces of words cannot tell a reader, it must have practised: that row "D6" is not row "D5", that "Rule 17" is not
"Rule 7", that of two boards only one was asked about. The rows around the right one say the same of a neighbouring
code; some questions come with a look-alike of another title, and some without the row that answers.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any

UNANSWERABLE = 0.12
"""Share of questions whose row is left out."""
_LOWER = 0.25
"""Share of questions typed without capitals."""


@dataclass(frozen=True)
class MadeText:
    """Rows, a line each. `span`: characters that answer, or None."""

    title: str
    text: str
    span: tuple[int, int] | None


@dataclass(frozen=True)
class MadeQuestion:
    asked: str
    texts: tuple[MadeText, ...]


@dataclass(frozen=True)
class _Row:
    """A row as it will be written, and the cells that may answer by name."""

    cells: tuple[tuple[str, str], ...]
    asked: bool = False

    def pieces(self, headed: bool) -> list[tuple[str, str]]:
        """What stands before each cell, and the cell. A single cell keeps its number in any case."""
        if len(self.cells) == 1:
            ((name, cell),) = self.cells
            return [(f"{name}{': ' if headed else ' '}", cell)]
        between = ["", *["; " if headed else "  "] * (len(self.cells) - 1)]
        return [
            (gap + (f"{name}: " if headed else ""), cell) for gap, (name, cell) in zip(between, self.cells, strict=True)
        ]


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def make_coded_rows(most: int, *, seed: int = 0) -> list[MadeQuestion]:
    """`most` questions, each over rows of its own."""
    return list(islice((_question(random.Random(f"coded-{seed}-{number}")) for number in count()), most))


def _question(chance: random.Random) -> MadeQuestion:
    asked, titled_rows, column = chance.choice(_KINDS)(chance)
    headed, without = chance.random() < 0.75, chance.random() < UNANSWERABLE
    texts = tuple(
        _written(title, [row for row in rows if not (row.asked and without)], column, headed)
        for title, rows in titled_rows
    )
    return MadeQuestion(asked.lower() if chance.random() < _LOWER else asked, texts)


def _written(title: str, rows: Sequence[_Row], column: str, headed: bool) -> MadeText:
    text, span = "", None
    for row in rows:
        for (name, _), (before, cell) in zip(row.cells, row.pieces(headed), strict=True):
            text += before
            if row.asked and name == column:
                span = (len(text), len(text) + len(cell))
            text += cell
        text += "\n"
    return MadeText(title, text.rstrip("\n"), span)


_Made = tuple[str, list[tuple[str, list[_Row]]], str]
"""A question, rows by title, and the column that answers."""


def _title(chance: random.Random) -> str:
    words = _words()
    return f"{chance.choice(words['makers'])} {chance.choice(words['things'])} {chance.choice(words['revisions'])}"


def _likeness(title: str, chance: random.Random) -> str:
    """Another revision of the same thing."""
    words = _words()
    stem = next(title[: -len(each) - 1] for each in words["revisions"] if title.endswith(f" {each}"))
    return f"{stem} {chance.choice([each for each in words['revisions'] if not title.endswith(each)])}"


def _parts(chance: random.Random) -> _Made:
    words, title = _words(), _title(chance)
    heads = [head.strip() for head in chance.choice(words["list"]["layouts"]).split("|")]
    groups = {letter: [part.strip() for part in line.split("|")] for letter, line in words["parts"].items()}

    def bill() -> list[dict[str, str]]:
        rows = []
        for letter in chance.sample(list(groups), chance.randint(3, 6)):
            numbers = chance.sample(range(1, 200 if letter in "CR" else 12), 9)
            for value in chance.sample(values := groups[letter][1].split(", "), min(len(values), chance.randint(1, 4))):
                some = sorted(numbers[: chance.randint(1, 3)])
                numbers = numbers[len(some) :]
                references = ", ".join(f"{letter}{number}" for number in some)
                rows.append(
                    {"value": value, "package": chance.choice(words["list"]["packages"]), "references": references,
                     "quantity": str(len(some)), "letter": letter}
                )  # fmt: skip
                if len(numbers) < 3:
                    break
        return rows

    rows, others = bill(), bill()
    asked = chance.choice(rows)
    column = chance.choice(("value", "value", "value", "quantity", "references", "package"))
    code = chance.choice(asked["references"].split(", "))
    text = chance.choice(words["questions"][column]).format(
        code=code, title=title, kind=groups[asked["letter"]][0], value=asked["value"], package=asked["package"]
    )
    place = {
        "Qty": "quantity", "Quantity": "quantity", "Value": "value", "Part": "value", "Device": "package",
        "Package": "package", "Footprint": "package", "Parts": "references", "Reference": "references",
        "References": "references", "Position": "references",
    }  # fmt: skip

    def written(rows: list[dict[str, str]]) -> list[_Row]:
        lines = []
        for number, row in enumerate(rows):
            cells = tuple((head, row.get(place.get(head, ""), str(number + 1))) for head in heads)
            lines.append(_Row(cells, asked=row is asked))
        return lines

    name = next((head for head in heads if place.get(head) == column), "")
    if not name or heads == ["Part", "Value", "Package", "Position"]:
        return _parts(chance)
    return text, [(title, written(rows)), (_likeness(title, chance), written(others))], name


def _articles(chance: random.Random) -> _Made:
    words, numbers = _words()["articles"], chance.sample(range(100, 9999), 1)
    stem = f"{''.join(chance.choices('ABCDEFGHKLMNPRSTVWX', k=chance.randint(1, 3)))}-{numbers[0]}"
    ends = chance.sample("ABCDEFGH", 6) if chance.random() < 0.6 else chance.sample([str(n) for n in range(10, 99)], 6)
    name, heads = chance.choice(words["names"]), chance.sample(words["columns"], 3)
    rows = [(f"{stem}-{end}", name if chance.random() < 0.7 else chance.choice(words["names"])) for end in ends]
    code, named = chance.choice(rows)
    column = chance.choice(heads)
    lines = [
        _Row((("Article", each), ("Name", of), *((head, _cell(words["values"][head], chance)) for head in heads)),
             asked=each == code)
        for each, of in sorted(rows)
    ]  # fmt: skip
    text = chance.choice(words["questions"]).format(column=column.lower(), code=code, name=named)
    return text, [(f"{_title(chance)} spare parts", lines)], column


def _cell(kind: str, chance: random.Random) -> str:
    if kind == "money":
        return f"{chance.uniform(1, 900):.2f} EUR"
    if kind == "number":
        return str(chance.randrange(0, 4000))
    return f"{chance.uniform(0.1, 40):.1f} kg" if kind == "kilograms" else chance.choice(kind.split("|"))


def _week(chance: random.Random) -> _Made:
    words = _words()["days"]
    events = chance.sample(words["events"], chance.randint(1, 4))
    days = chance.sample(words["names"], chance.randint(3, 6))
    column, lines = chance.choice(("Time", "Time", "Place", "Led")), []
    asked = chance.choice(events), chance.choice(days)
    for event in events:
        for day in sorted(days, key=words["names"].index):
            hour = chance.randint(7, 18)
            cells = {
                "Day": day, "Course": event, "Time": f"{hour}:{chance.choice(('00', '15', '30'))} - {hour + 2}:00",
                "Place": chance.choice(words["places"]), "Led": chance.choice(words["people"]),
            }  # fmt: skip
            lines.append(_Row(tuple(cells.items()), asked=(event, day) == asked))
    text = chance.choice(words["questions"][column]).format(event=asked[0].lower(), day=asked[1])
    return text, [("Weekly programme", lines)], column


def _rules(chance: random.Random) -> _Made:
    words = _words()["rules"]
    head, subject = chance.choice(words["heads"]), chance.choice(words["subjects"])
    depth, first = chance.random() < 0.5, chance.randint(1, 12)
    numbers = [f"{first + n // 4}.{n % 4 + 1}" if depth else str(first + n) for n in range(chance.randint(5, 12))]
    asked, rows = chance.choice(numbers), []
    for number, does in zip(numbers, chance.sample(words["does"], len(numbers)), strict=True):
        said = does.format(n=chance.randint(2, 40))
        sentence = f"{chance.choice(words['who'])} {chance.choice(words['must'])} {said}."
        rows.append(_Row(((f"{head} {number}", sentence),), asked=number == asked))
    text = chance.choice(words["questions"]).format(head=head.lower(), number=asked, subject=subject)
    return text, [(subject, rows)], f"{head} {asked}"


def _ordinals(chance: random.Random) -> _Made:
    words = _words()["ordinals"]
    thing, subject = chance.choice(words["things"]), chance.choice(("meeting", "course", "manual", "tour", "line 7"))
    entries = chance.sample(words["entries"], chance.randint(4, 8))
    place = chance.randrange(len(entries))
    rows = [_Row(((f"{number + 1}.", entry),), asked=number == place) for number, entry in enumerate(entries)]
    text = chance.choice(words["questions"]).format(word=words["words"][place], thing=thing, subject=subject)
    return text, [(subject, rows)], f"{place + 1}."


def _errors(chance: random.Random) -> _Made:
    words, everything = _words()["codes"], _words()
    series, first = chance.choice(words["series"]), chance.randint(1, 40)
    means = chance.sample(range(len(words["means"])), chance.randint(4, 9))
    codes = [series.format(first + n) for n in range(len(means))]
    asked, column = chance.choice(codes), chance.choice(("meaning", "cure"))
    rows = [
        _Row(
            (
                ("Code", code),
                ("Meaning", words["means"][n]),
                ("Remedy", words["cures"][n].format(n=chance.randint(2, 9))),
            ),
            asked=code == asked,
        )
        for code, n in zip(codes, means, strict=True)
    ]
    text = chance.choice(words["questions"][column]).format(code=asked, thing=chance.choice(everything["things"]))
    return text, [(_title(chance), rows)], {"meaning": "Meaning", "cure": "Remedy"}[column]


_KINDS: tuple[Callable[[random.Random], _Made], ...] = (_parts, _parts, _parts, _articles, _articles, _week, _rules,
                                                        _ordinals, _errors)  # fmt: skip
