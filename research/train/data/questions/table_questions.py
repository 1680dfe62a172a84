"""Made questions about made tables and forms, in the ways in which text of them reaches a reader.

A table has a column of names and some of values. It is written as sentences ("Region: North; Price: 41.50"), as lines
under a line of headings, or, with a single name, as a form ("Price: 41.50"). The answer is one cell. In some tables a
code alone tells the rows apart ("M1", "M2"), in some also the columns (a matrix: "Hours", rows are people, columns
"WP1", "WP2"), so that the reader has to match the code and not the words around it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from research.train.data.questions.word_tables import word_table
from research.train.data.span_questions import SpanQuestion

SOURCE = "tables"
_ROWS = (3, 9)
_MORE_COLUMNS = (2, 4)
_CODED = 0.35
"""Share of tables whose rows are named by codes of one series."""
_MATRICES = 0.15
"""Share of tables whose columns are named by such codes too, all with values of one kind."""


def make_table_questions(count: int, *, seed: int = 0) -> list[SpanQuestion]:
    """`count` questions, each about a table of its own."""
    return [_question(number, random.Random(f"table-{seed}-{number}")) for number in range(count)]


def _question(number: int, random_: random.Random) -> SpanQuestion:
    words = word_table("tables")
    subject, name_column = (each.strip() for each in random_.choice(words["subjects"]).split("|"))
    drawn, rows = random_.random(), random_.randint(*_ROWS)
    names = _codes(rows, random_) if drawn < _CODED else random_.sample(words["names"], rows)
    matrix = random_.random() < _MATRICES
    if matrix:
        subject, kind = (each.strip() for each in random_.choice(words["measures"]).split("|"))
        columns = [f"{code} | {kind}" for code in _codes(random_.randint(3, 8), random_)]
    else:
        columns = random_.sample(words["columns"], random_.randint(*_MORE_COLUMNS))
    heads = [name_column, *(column.split("|")[0].strip() for column in columns)]
    cells = [[name, *(_value(column.split("|")[1].strip(), random_) for column in columns)] for name in names]
    row, column = random_.randrange(len(cells)), random_.randrange(1, len(heads))
    text, (start, stop) = random_.choice(_LAYOUTS)(subject, heads, cells, (row, column), random_)
    answer = cells[row][column]
    assert text[start:stop] == answer
    asked = random_.choice(words["matrix_questions" if matrix else "questions"]).format(
        column=heads[column] if matrix else heads[column].lower(),
        name=cells[row][0],
        subject=subject.lower(),
        kind=name_column.lower(),
    )
    return SpanQuestion(f"{SOURCE}-{number}", SOURCE, asked, (text,), ((0, start, stop),), (answer,), subject)


def _codes(count: int, random_: random.Random) -> list[str]:
    """`count` names of one series in order: "WP1", "WP2", ..., or "2016", "2017", ..."""
    series = random_.choice(word_table("tables")["series"])
    first = random_.choice((1, 1, 1, 2, 5, 10)) if "{" in series else int(series)
    numbers = range(first, first + count)
    return [series.format(number) if "{" in series else str(number) for number in numbers]


def _value(kind: str, random_: random.Random) -> str:
    return _MAKERS[kind](random_)


def _date(random_: random.Random) -> str:
    month, day, year = random_.randint(1, 12), random_.randint(1, 28), random_.randint(1990, 2030)
    name = word_table("tables")["months"][month - 1]
    return random_.choice((f"{name} {day}, {year}", f"{day} {name} {year}", f"{month:02}/{day:02}/{year}"))


def _money(random_: random.Random) -> str:
    return random_.choice(("${:,.2f}", "{:,.0f} EUR", "$ {:,.0f}")).format(random_.uniform(1, 90_000))


def _time(random_: random.Random) -> str:
    minutes, half = random_.choice(("00", "15", "30", "45")), random_.choice(("a.m.", "p.m.", "PM"))
    return f"{random_.randint(1, 12)}:{minutes} {half}"


def _code(random_: random.Random) -> str:
    return f"{''.join(random_.choices('ABCDEFGHKLMNPRSTVW', k=2))}-{random_.randint(1, 9999)}"


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "money": _money,
    "number": lambda random_: f"{random_.randrange(1, 20_000):,}",
    "count": lambda random_: f"{random_.choice((random_.randrange(1, 60), random_.randrange(1, 120) / 2)):g}",
    "percent": lambda random_: f"{random_.uniform(0, 100):.1f}{random_.choice(('%', ' %'))}",
    "date": _date,
    "time": _time,
    "code": _code,
    "person": lambda random_: (
        f"{random_.choice(word_table('tables')['first_names'])} {random_.choice(word_table('tables')['last_names'])}"
    ),
    "word": lambda random_: random_.choice(word_table("tables")["states"]),
}


Layout = Callable[[str, list[str], list[list[str]], tuple[int, int], random.Random], tuple[str, tuple[int, int]]]


class _Text:
    """Text that is put together, and where the asked cell stands in it."""

    def __init__(self, asked: tuple[int, int]) -> None:
        self._asked, self.text, self.span = asked, "", (0, 0)

    def add(self, piece: str) -> None:
        self.text += piece

    def cell(self, row: int, column: int, piece: str) -> None:
        if (row, column) == self._asked:
            self.span = (len(self.text), len(self.text) + len(piece))
        self.text += piece


def _sentences(
    subject: str, heads: list[str], cells: list[list[str]], asked: tuple[int, int], random_: random.Random
) -> tuple[str, tuple[int, int]]:
    text = _Text(asked)
    titled, ends = random_.random() < 0.5, random_.choice((".\n", "\n", ". "))
    for row, line in enumerate(cells):
        text.add(f"{subject}: " if titled and random_.random() < 0.5 else "")
        for column, cell in enumerate(line):
            text.add(f"{'; ' if column else ''}{heads[column]}: ")
            text.cell(row, column, cell)
        text.add(ends)
    return text.text, text.span


def _lines(
    subject: str, heads: list[str], cells: list[list[str]], asked: tuple[int, int], random_: random.Random
) -> tuple[str, tuple[int, int]]:
    text, between = _Text(asked), random_.choice((" ", "  ", "\t", " | "))
    text.add(f"{subject}\n{between.join(heads)}\n")
    for row, line in enumerate(cells):
        for column, cell in enumerate(line):
            text.add(between if column else "")
            text.cell(row, column, cell)
        text.add("\n")
    return text.text, text.span


def _form(
    subject: str, heads: list[str], cells: list[list[str]], asked: tuple[int, int], random_: random.Random
) -> tuple[str, tuple[int, int]]:
    text, between = _Text(asked), random_.choice((": ", " ", "\n", " .... ", ":\n"))
    line, numbered = cells[asked[0]], random_.random() < 0.3
    text.add(f"{subject}\n")
    for column, cell in enumerate(line):
        text.add(f"{f'{column + 1}. ' if numbered else ''}{heads[column]}{between}")
        text.cell(asked[0], column, cell)
        text.add("\n")
    return text.text, text.span


_LAYOUTS: tuple[Layout, ...] = (_sentences, _sentences, _lines, _lines, _form)
