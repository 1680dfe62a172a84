"""Plain questions over one table are computed: how many rows, and the sum, mean, highest or lowest of a column.

"Which airline has the most fatalities?", "How many rows of recent-grads have the category Engineering?" Plain means
that every word is understood: what to compute, the name of a column, the cells that choose rows, the document's name.
A question with any other word is left to reading, and so is one that several tables answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from retrieval.engine.workspace import Workspace
from retrieval.extraction import character_places
from retrieval.extraction.table_rows import Piece, heading_of, named_cell, row_sentences
from retrieval.index.terms import SMALL_WORDS, folded
from retrieval.query.draft import DraftAnswer
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.passage_spans import Hit
from retrieval.query.retrieve import Retrieved
from retrieval.types.answers import AnswerToken

Words = tuple[str, ...]
Operation = Literal["count", "highest", "lowest", "sum", "mean"]
_OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(("highest", "largest", "greatest", "biggest", "maximum", "most"), "highest"),
    **dict.fromkeys(("lowest", "smallest", "minimum", "fewest", "least"), "lowest"),
    **dict.fromkeys(("sum", "total"), "sum"),
    **dict.fromkeys(("average", "mean"), "mean"),
}
_COMPARED = {
    ("more", "than"): (1,),
    ("over",): (1,),
    ("above",): (1,),
    ("fewer", "than"): (-1,),
    ("less", "than"): (-1,),
    ("under",): (-1,),
    ("below",): (-1,),
    ("at", "least"): (0, 1),
    ("at", "most"): (-1, 0),
    ("exactly",): (0,),
}
"""Which signs of a cell's difference to the number are meant."""
_ROWS = {"row", "record", "entry", "entries"}
_MEANT = """
    above after before below between each either few many more most no nor not only other out over same than under
    until up without
"""  # small words that change what is asked
_FILLING = (SMALL_WORDS - frozenset(_MEANT.split())) | _ROWS | {"table", "column", "value", "sheet", "file", "csv"}
_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")
_NUMBER = re.compile(r"(?P<before>[^\w\s.,-]?)\s?(?P<number>-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)\s?(?P<after>%?)")
_MISSING = ("", "-", "–", "—", "n/a", "N/A")
_SUMMED = re.compile(r"(?:grand |sub-?)?totals?\b|sum\b", re.I)  # a row that sums those above it
_FEWEST_ROWS = 3
_MOST_NAMED = 8  # rows that are highest alike
_MOST_DOCUMENTS = 5  # whose tables are looked at
_MOST_CELLS = 50_000  # of such a table
_MOST_SHOWN = 40  # rows


@dataclass(frozen=True)
class NamedTable:
    """A table whose columns have names, each in words. `named`: words of its document's name and of its caption."""

    document_id: str
    named: frozenset[str]
    names: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Computed:
    """An answer, and the numbers of the rows that it is from."""

    text: str
    table: NamedTable
    rows: Sequence[int]


def draft_from_rows(workspace: Workspace, passages: PassageBuilder, retrieved: Retrieved) -> DraftAnswer | None:
    """The answer to a plain question, with the blocks of its rows; None for any other question."""
    if not (retrieved.quote and asks_to_compute(retrieved.standalone_question)):
        return None
    document_ids = list(dict.fromkeys(retrieved.candidates.snapshot.documents_of(retrieved.search_result.indices_C)))
    tables, texts = [], {}
    for document_id in document_ids[:_MOST_DOCUMENTS]:
        texts[document_id] = passages.text(document_id)
        kept = character_places.kept_exhibits(workspace.pages_folder / document_id, texts[document_id])
        for one in kept.tables if kept is not None else ():
            if sum(map(len, one.rows)) <= _MOST_CELLS:
                tables.append(named_table(document_id, f"{passages.name(document_id)} {one.caption}", one.rows))
    answer = computed(retrieved.standalone_question, [table for table in tables if table is not None])
    if answer is None:
        return None
    spans = _spans(answer, texts[answer.table.document_id])
    if not spans:  # what cannot be shown is not said
        return None
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    blocks = workspace.catalogue.blocks_of_document(answer.table.document_id, start=first, end=last)
    rows = [
        Hit(block.id, block.document_id, block.ordinal, 1.0)
        for block in blocks
        if any(block.start < end and start < block.end for start, end in spans)
    ]
    return DraftAnswer([AnswerToken(answer.text, None, 0.0, ())], time.perf_counter(), rows=rows, outcome="found")


def _spans(answer: Computed, text: str) -> list[tuple[int, int]]:
    """Where the rows stand in their document's text, as many as are shown; none if one of them is not found."""
    names, found, at = dict(enumerate(answer.table.names)), [], 0
    for row in answer.rows[:_MOST_SHOWN]:
        cells = [
            named_cell(names, column, Piece.unprinted(cell))
            for column, cell in enumerate(answer.table.rows[row])
            if cell
        ]
        for pieces in row_sentences(cells):
            said = "".join(piece.text for piece in pieces)
            at = text.find(said, at)
            if at < 0:
                return []
            found.append((at, at + len(said)))
    return found


def named_table(document_id: str, about: str, rows: Sequence[Sequence[str]]) -> NamedTable | None:
    """None where the columns have no names, or too few rows follow. `about`: the document's name and the caption."""
    filled = [{column: cell for column, cell in enumerate(row) if cell} for row in rows]
    heads, names = heading_of([row for row in filled[:4] if row] + [row for row in filled[4:] if row])
    own = [row for row in rows[heads:] if any(row) and not _SUMMED.match(next(cell for cell in row if cell))]
    if len(names) < len(rows[0]) or len(own) < _FEWEST_ROWS:
        return None
    return NamedTable(document_id, frozenset(_words(about)), [names[column] for column in sorted(names)], own)


def asks_to_compute(question: str) -> bool:
    """Whether a question may be plain: a quick check before any table is read."""
    words = _words(question)
    return any(word in _OPERATIONS for word in words) or _counts(words)


def computed(question: str, tables: Sequence[NamedTable]) -> Computed | None:
    """None unless the question is plain, and one table alone answers it."""
    words = _words(question)
    found = [(len(table.named & set(words)), answer) for table in tables for answer in _Reading(words, table).answers()]
    most = max((named for named, _ in found), default=0)
    answers = {answer.text: answer for named, answer in found if named == most}
    return next(iter(answers.values())) if len(answers) == 1 else None


class _Reading:
    """The words of a question over one table."""

    def __init__(self, words: Words, table: NamedTable):
        self._words, self._table = words, table
        self._columns = [_words(name) for name in table.names]
        self._cells = [[row[column] for row in table.rows] for column in range(len(table.names))]
        self._numbers = [_numbers(cells) for cells in self._cells]
        texts = (column for column, numbers in enumerate(self._numbers) if numbers is None)
        self._label = next((column for column in texts if _tells_apart(self._cells[column])), None)
        words = self._columns[self._label] if self._label is not None else ()
        self._labelled = {form for word in words for form in (word, _plural(word))}

    def answers(self) -> Iterator[Computed]:
        for at, word in enumerate(self._words):
            if operation := _OPERATIONS.get(word):
                yield from self._of_column(operation, at)
        if _counts(self._words):
            yield from self._counted()

    def _of_column(self, operation: Operation, at: int) -> Iterator[Computed]:
        """One column measured, over all rows or those that some cells choose."""
        left = {number for number in range(len(self._words)) if number != at}
        for column in self._named_columns(left)[:1]:
            numbers = self._numbers[column]
            assert numbers is not None
            chosen, where, left_over = self._chosen(left - self._span(self._columns[column], left))
            rows = [row for row in chosen if numbers[row] is not None]
            if len(rows) < 2 or not self._understood(left_over):
                continue
            values = {row: value for row in rows if (value := numbers[row]) is not None}
            over = f"{len(rows)} rows{where}"
            name = self._table.names[column]
            if operation == "sum" and self._cells[column][rows[0]].endswith("%"):
                continue
            if operation in ("sum", "mean"):
                total = sum(values.values(), Decimal(0))
                value = total if operation == "sum" else round(total / len(values), 4).normalize()
                yield Computed(f"{value:,f}: the {operation} of {name} over {over}.", self._table, rows)
                continue
            best = (max if operation == "highest" else min)(values.values())
            these = [row for row in rows if values[row] == best]
            if self._label is None or len(these) > _MOST_NAMED:
                continue
            said = ", ".join(self._cells[self._label][row] for row in these)
            cell = self._cells[column][these[0]]
            yield Computed(f"{said}: {name} {cell}, the {operation} of {over}.", self._table, these)

    def _counted(self) -> Iterator[Computed]:
        """Rows counted: all, those that some cells choose, or those above or below a number."""
        left = set(range(len(self._words)))
        for number in range(len(self._words) - 1):
            if self._words[number : number + 2] == ("how", "many"):
                left -= {number, number + 1}
        compared = self._compared(left)
        signs, bound, column = compared if compared is not None else ((), Decimal(0), None)
        chosen, where, left = self._chosen(left)
        if column is not None:
            numbers = self._numbers[column]
            assert numbers is not None
            rows = [row for row in chosen if (value := numbers[row]) is not None and value.compare(bound) in signs]
            words = " or ".join(("below", "exactly", "above")[sign + 1] for sign in signs)
            where += f"{' and' if where else ' where'} {self._table.names[column]} is {words} {bound:f}"
        else:
            rows = chosen
        counted = set(self._words[self._words.index("many") + 1 :][:1])
        if rows and counted & (_ROWS | self._labelled) and self._understood(left):
            yield Computed(f"{len(rows)} of {len(self._table.rows)} rows{where}.", self._table, rows)

    def _compared(self, left: set[int]) -> tuple[tuple[int, ...], Decimal, int] | None:
        """Signs, number and column of a comparison, taken from `left`."""
        for words, signs in _COMPARED.items():
            for at in range(len(self._words) - len(words)):
                number = self._words[at + len(words)]
                if self._words[at : at + len(words)] != words or not _NUMBER.fullmatch(number):
                    continue
                span = set(range(at, at + len(words) + 1))
                for column in self._named_columns(left - span)[:1]:
                    left -= span | self._span(self._columns[column], left - span)
                    return signs, Decimal(number.replace(",", "")), column
        return None

    def _named_columns(self, left: set[int]) -> list[int]:
        """Columns of numbers whose name stands in the words left, longest first; none where the longest are two."""
        named = [
            column
            for column, words in enumerate(self._columns)
            if self._numbers[column] is not None and self._span(words, left)
        ]
        named.sort(key=lambda column: -len(self._columns[column]))
        tied = len(named) > 1 and len(self._columns[named[0]]) == len(self._columns[named[1]])
        return [] if tied else named

    def _chosen(self, left: set[int]) -> tuple[list[int], str, set[int]]:
        """Rows with the cells that are named, in words, and the words that are left."""
        rows, said, left = list(range(len(self._table.rows))), [], set(left)
        named = sorted(self._cells_named(left), key=lambda found: (-len(found[2]), -len(found[3])))
        for column, cell, span, of_name in named:
            if not span <= left:
                continue
            left -= span | of_name
            wanted = _words(cell)
            rows = [row for row in rows if _words(self._cells[column][row]) == wanted]
            said.append(f"{self._table.names[column]} is {cell}")
        return rows, f" where {' and '.join(said)}" if said else "", left

    def _cells_named(self, left: set[int]) -> Iterator[tuple[int, str, set[int], set[int]]]:
        """Columns without numbers, a cell, where its words stand, and where words of the column's name do."""
        for column, numbers in enumerate(self._numbers):
            of_name = {at for at in left if self._words[at] in self._columns[column]}
            for cell in set(self._cells[column]) if numbers is None else ():
                span = self._span(_words(cell), left)
                if any(self._words[at] not in _FILLING | self._table.named for at in span):
                    yield column, cell, span, of_name - span

    def _span(self, wanted: Words, left: set[int]) -> set[int]:
        """Where these words stand one behind the other among those left."""
        for at in range(len(self._words) - len(wanted) + 1):
            span = set(range(at, at + len(wanted)))
            if wanted and span <= left and self._words[at : at + len(wanted)] == wanted:
                return span
        return set()

    def _understood(self, left: set[int]) -> bool:
        return all(self._words[at] in _FILLING | self._table.named | self._labelled for at in left)


def _words(text: str) -> Words:
    return tuple(_singular(word) for word in _WORD.findall(folded(text)))


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def _plural(word: str) -> str:
    return f"{word[:-1]}ie" if word.endswith("y") else word  # "countries", without its "s"


def _counts(words: Words) -> bool:
    return any(words[at : at + 2] == ("how", "many") for at in range(len(words)))


def _numbers(cells: Sequence[str]) -> list[Decimal | None] | None:
    """The numbers of a column in one unit, None where a cell is empty; None for a column of anything else."""
    found = [None if cell.strip() in _MISSING else _NUMBER.fullmatch(cell.strip()) for cell in cells]
    read = [match for match in found if match is not None]
    if any(cell.strip() not in _MISSING and match is None for cell, match in zip(cells, found, strict=True)):
        return None
    if len(read) < 2 or len({(match["before"], match["after"]) for match in read}) > 1:
        return None
    return [None if match is None else Decimal(match["number"].replace(",", "")) for match in found]


def _tells_apart(cells: Sequence[str]) -> bool:
    return all(cells) and len(set(cells)) == len(cells)
