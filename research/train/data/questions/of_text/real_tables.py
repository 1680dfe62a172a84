"""Questions about the tables that stand in training text, whose rows are written as those of stored documents are.

A table is a run of lines with " | " between the cells. Its rows become sentences in which every cell stands behind the
name of its column ("Region: North; Price: 41.50."), or two cells one behind the other ("Tax: 7 %."), below a line of
the names with tabs.
"""

import random
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from research.train.data.questions.pseudo_queries import MadeQuestion

_CELLS = " | "
_ENDS = (".", "!", "?", "…", ":", ";")
_LONGEST_CELL, _LONGEST_KEY = 300, 60
_LONGEST_ANSWER = 140
_DESCRIBES = re.compile(r"description|meaning|purpose|definition|explanation|use|comment|notes?|details|result", re.I)
_NAME = re.compile(r"^(?=.*[^\W\d_]{2})[^;]*$")
"""What names a column rather than being a cell of it."""
_MOST = 3
"""Questions about a table."""
_ASK_CELL = (
    "What is the {column} of {key}?",
    "What is the {column} for {key}?",
    "Which {column} does {key} have?",
    "What {column} is given for {key}?",
    "{key} {column}",
    "{column} {key}",
    "{column} of {key}",
    "{key}: {column}?",
)
_ASK_KEY = (
    "Which {names} has the {column} {cell}?",
    "What {names} has {cell} as {column}?",
    "{names} with {column} {cell}",
    "For which {names} is the {column} {cell}?",
)
_ASK_MEANING = ("What is {key}?", "What does {key} mean?", "What does {key} do?", "What is meant by {key}?", "{key}")


def with_tables(text: str, random_: random.Random) -> tuple[str, list[MadeQuestion]]:
    """The text with its tables as sentences, and questions about them."""
    out, made = "", []
    for cells, group in groupby(text.split("\n"), key=lambda line: line.count(_CELLS)):
        lines = list(group)
        if cells == 0 or len(lines) < 3:
            out += "\n".join(lines) + "\n"
            continue
        rows = [[cell.strip() for cell in line.split(_CELLS)] for line in lines]
        table, places = _written(rows, is_form=cells == 1 and random_.random() < 0.4)
        asked = list(_asked(rows, random_))
        for question, row, column in random_.sample(asked, min(_MOST, len(asked))):
            start = len(out) + places[row, column]
            made.append(MadeQuestion(question, start, start + min(len(rows[row][column]), _LONGEST_ANSWER)))
        out += table
    return out, made


def _written(rows: Sequence[Sequence[str]], *, is_form: bool) -> tuple[str, dict[tuple[int, int], int]]:
    """The table as sentences, and where each cell below the names begins."""
    names, places = rows[0], {}
    text = "\t".join(filter(None, names)) + "\n"
    for number, row in enumerate(rows[1:], 1):
        before = ""
        for column, (name, cell) in enumerate(zip(names, row, strict=True)):
            if not cell:
                continue
            text += before
            if name and not is_form:
                text += f"{name} " if name.endswith(_ENDS) else f"{name}: "
            places[number, column] = len(text)
            text += cell
            separator = ": " if is_form else "; "
            before = " " if cell.endswith(_ENDS) else separator
        text += "\n" if text.endswith((*_ENDS, "\n")) else ".\n"
    return text, places


def _asked(rows: Sequence[Sequence[str]], random_: random.Random) -> Iterator[tuple[str, int, int]]:
    """(question, row, column of the answer)."""
    if any(len(name) > _LONGEST_KEY or not _NAME.search(name) for name in rows[0][1:]):
        return
    names = [name.lower() if not name.isupper() else name for name in rows[0]]
    keys = [row[0] for row in rows]
    for number, row in enumerate(rows[1:], 1):
        key = row[0]
        if not key or keys.count(key) > 1 or len(key) > _LONGEST_KEY:
            continue
        for column, cell in enumerate(row[1:], 1):
            if not cell or len(cell) > _LONGEST_CELL:
                continue
            if _DESCRIBES.search(names[column]) and random_.random() < 0.7:
                yield random_.choice(_ASK_MEANING).format(key=key), number, column
            elif random_.random() < 0.25 and len(cell) < 30 and [r[column] for r in rows].count(cell) == 1:
                words = {"names": names[0] or "row", "column": names[column], "cell": cell}
                yield random_.choice(_ASK_KEY).format(**words), number, 0
            else:
                yield random_.choice(_ASK_CELL).format(column=names[column], key=key), number, column
