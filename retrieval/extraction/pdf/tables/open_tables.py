"""Tables without borders around their cells: between a rule above and a rule below, or of aligned columns only.

Columns are what white space separates in every row. A printed line goes on in the next one, cell by cell, where the
next word did not fit; so rows are told from lines.

Axes: N characters of the page, R rules, F words. Points, origin top left of the displayed page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from retrieval.extraction.pdf.characters import PageCharacters
from retrieval.extraction.pdf.fragments import Fragments, make_fragments, rows_by_height, upright
from retrieval.extraction.pdf.tables.grid import Cell, Grid, has_numbers, is_heading
from retrieval.extraction.pdf.tables.rules import Rules, joined
from retrieval.extraction.table_rows import is_number

_WORD_GAP = 0.18  # em
_GUTTER = 0.7  # em; a gap between two columns
_NARROW_GUTTER = 0.22  # em; the same, if the text behind it is aligned
_ALIGNED = 1.5  # points
_ALIGNED_SHARE = 0.6
_STEP = 0.5  # points; resolution of white space
_SAME_RULE = 3.0  # points
_SHORTEST_RULE = 80.0  # points
_HEADING_LINES = 4
_FAR = 2.4  # em between two lines; wider, and the table has ended
_ACROSS = 0.5  # of the width; a line without gaps this long may run across the columns
_LONGEST_NAME = 40  # characters
_LEADER = 4  # dots
_LEADER_SHARE = 0.8
_LONGEST_TABLE = 80  # lines on a page, of tables that nothing but alignment shows
_PROSE = 28  # characters; lines of prose are longer, those of cells mostly shorter
_WORDY = 1.4  # words in a line of a cell; only cells of more go on in the next line

Row = list[int]
"""Words of one printed line, from left to right."""


@dataclass(frozen=True)
class Words:
    """The free words of a page, in rows from top to bottom."""

    page: PageCharacters
    f: Fragments
    rows: list[Row]
    size: float
    leader_F: np.ndarray
    """Whether a word is a row of dots that leads to the next cell."""

    @classmethod
    def of(cls, page: PageCharacters, free_N: np.ndarray) -> Words:
        members = np.flatnonzero(free_N)
        f = make_fragments(page, members, *upright(page, 0), gap=_WORD_GAP)
        rows = rows_by_height(f, np.arange(len(f.members)))
        leader_F = np.array([_is_leader(page.code_N[members]) for members in f.members], bool)
        return cls(page, f, rows, float(np.median(f.size)) if len(f.size) else 1.0, leader_F)

    def between(self, top: float, bottom: float, left: float, right: float) -> list[Row]:
        """The lines inside a part of the page; words beside it are left out."""
        cut = []
        for row in self.rows:
            if top < float(self.f.middle[row].mean()) < bottom:
                inside = [word for word in row if self.f.x0[word] > left - 4 and self.f.x1[word] < right + 4]
                if inside:
                    cut.append(inside)
        return cut

    def gutters(self, rows: Sequence[Row]) -> list[float]:
        """Where columns after the first begin."""
        word_F = np.fromiter(chain.from_iterable(rows), int)
        first_R = np.cumsum([0, *map(len, rows[:-1])])
        x0_F, x1_F = self.f.x0[word_F], self.f.x1[word_F]
        low, high = float(x0_F.min()), float(x1_F.max())
        last_R = np.append(first_R[1:], len(word_F)) - 1
        gap_F = np.append(x0_F[1:] - x1_F[:-1] > _GUTTER * self.size, False)
        gap_F[last_R] = False
        across_R = (x1_F[last_R] - x0_F[first_R] > _ACROSS * (high - low)) & ~np.logical_or.reduceat(gap_F, first_R)
        counts_F = ~np.repeat(across_R, last_R - first_R + 1) & ~self.leader_F[word_F]
        begin_F = ((x0_F[counts_F] - low) / _STEP).astype(int)
        end_F = np.maximum(((x1_F[counts_F] - low) / _STEP).astype(int) + 1, begin_F)
        steps = int((high - low) / _STEP) + 2
        covered = np.cumsum(np.bincount(begin_F, minlength=steps + 1) - np.bincount(end_F, minlength=steps + 1))[:steps]
        turns = np.flatnonzero(np.diff(np.r_[False, covered == 0, False].astype(int)))
        found = []
        for start, stop in zip(turns[::2].tolist(), turns[1::2].tolist(), strict=True):
            begin, width = low + stop * _STEP, (stop - start) * _STEP
            if start > 0 and stop < len(covered) - 1 and self._is_gutter(x0_F, first_R, begin, width):
                found.append(begin)
        return found

    def _is_gutter(self, x0_F: np.ndarray, first_R: np.ndarray, begin: float, width: float) -> bool:
        """Whether white space is a gutter. `first_R`: the first word of each line."""
        if width >= _GUTTER * self.size:
            return True
        starts_R = np.minimum.reduceat(np.where(x0_F > begin - _ALIGNED, x0_F, np.inf), first_R)
        aligned = int((np.abs(starts_R - begin) < _ALIGNED).sum())
        behind = int(np.isfinite(starts_R).sum())
        return width >= _NARROW_GUTTER * self.size and aligned >= max(3, _ALIGNED_SHARE * behind)

    def gap_between(self, above: Row, below: Row) -> float:
        return float(self.f.y0[below].min() - self.f.y1[above].max())

    def spaced_text(self, row: Row) -> str:
        return " ".join(self.text([word]) for word in row)

    def is_far(self, above: Sequence[Row], below: Sequence[Row]) -> bool:
        """Whether there is more than a blank line between some lines and those that follow."""
        step = float(self.f.middle[below[0]].mean() - self.f.middle[above[-1]].mean())
        return step > _FAR * self.size

    def has_gap(self, row: Row) -> bool:
        gaps = self.f.x0[row[1:]] - self.f.x1[row[:-1]]
        return bool((gaps > _GUTTER * self.size).any())

    def has_number(self, row: Row) -> bool:
        return any(is_number(self.text([word])) for word in row)

    def by_column(self, row: Row, gutters: Sequence[float]) -> dict[int, Row] | None:
        """The words of each column; None for a line across several."""
        cells: dict[int, Row] = {}
        for word in row:
            column = int(np.searchsorted(gutters, self.f.x0[word] + 1.0))
            if column < len(gutters) and self.f.x1[word] > gutters[column] + 1.0 and not self.leader_F[word]:
                return None
            cells.setdefault(column, []).append(word)
        return cells

    def grid(self, heading: Sequence[Row], body: Sequence[Row], breaks: Sequence[float] = ()) -> Grid | None:
        """The table of these lines; None if it has a single column, or is prose in columns."""
        gutters = self.gutters(body if len(body) > 2 else [*heading, *body])
        lines = [self.by_column(row, gutters) for row in body]
        columns: dict[int, list[Row]] = {}
        for line in lines:
            for column, words in (line or {}).items():
                columns.setdefault(column, []).append(words)
        lengths = [np.median([self.f.count[words].sum() for words in cells]) for cells in columns.values()]
        if not gutters or sum(length > _PROSE for length in lengths) > 1:
            return None
        ends = [*(begin - self.size for begin in gutters), max(float(self.f.x1[row[-1]]) for row in body)]
        wordy = {column for column, cells in columns.items() if np.mean(list(map(len, cells))) > _WORDY}
        rows = self._table_rows(body, lines, breaks, ends, wordy)
        if len(rows) < 2:
            return None
        words = [word for row in (*heading, *body) for word in row]
        edges = (float(self.f.x0[words].min()), *gutters, float(self.f.x1[words].max()))
        names = self._names(heading, columns, gutters)
        if heading and not (any(map(self.has_gap, heading)) and self._are_names(names, len(gutters))):
            return None
        cells = [self.cell(0, column, column + 1, words) for column, words in names.items()]
        for number, whole_row in enumerate(rows, start=bool(heading)):
            for column, words in whole_row.items():
                across = column < 0
                cells.append(self.cell(number, max(column, 0), len(edges) - 1 if across else column + 1, words))
        return Grid(cells, edges, heading_rows=1 if heading else None)

    def cell(self, row: int, column: int, end: int, words: Row, row_end: int | None = None) -> Cell:
        members_N = np.sort(np.concatenate([self.f.members[word] for word in words]))
        return Cell(row, row_end or row + 1, column, end, members_N)

    def _names(self, heading: Sequence[Row], columns: dict[int, list[Row]], gutters: Sequence[float]) -> dict[int, Row]:
        """The words of the heading by column: that below which most of a word stands, else the one it begins in."""
        extents: dict[int, tuple[float, float]] = {}
        for column, cells in columns.items():
            own = [word for cell in cells for word in cell if not self.leader_F[word]]
            if own:
                extents[column] = float(self.f.x0[own].min()), float(self.f.x1[own].max())
        names: dict[int, Row] = {}
        for row in heading:
            for word in row:
                x0, x1 = float(self.f.x0[word]), float(self.f.x1[word])
                above = {column: min(x1, high) - max(x0, low) for column, (low, high) in extents.items()}
                most = max(above, key=lambda column: above[column], default=-1)
                begins = int(np.searchsorted(gutters, x0 + 1.0))
                names.setdefault(most if above.get(most, 0) > 0 else begins, []).append(word)
        return names

    def _are_names(self, names: dict[int, Row], last: int) -> bool:
        """Whether every column but perhaps the first has a name, none as long as a sentence, and few are numbers."""
        texts = [self.text(words) for words in names.values()]
        numbers = sum(is_number(text) for text in texts)
        return set(names) >= set(range(1, last + 1)) and max(map(len, texts)) <= _LONGEST_NAME and 2 * numbers < last

    def _table_rows(
        self,
        body: Sequence[Row],
        lines: Sequence[dict[int, Row] | None],
        breaks: Sequence[float],
        ends: Sequence[float],
        wordy: set[int],
    ) -> list[dict[int, Row]]:
        """Printed lines to rows, as words by column; column -1 for a line across several. `ends`: how far each column
        reaches; `wordy`: the columns of several words."""
        rows: list[dict[int, Row]] = []
        last: dict[int, Row] = {}
        before: Row | None = None
        for printed, line in zip(body, lines, strict=True):
            level = float(self.f.middle[printed].mean())
            broken = before is None or any(float(self.f.middle[before].mean()) < y < level for y in breaks)
            if line is None:
                rows.append({-1: printed})
                last = {}
            elif (
                last
                and not broken
                and all(
                    column in wordy and self._goes_on(last.get(column), rows[-1].get(column, []), words, ends[column])
                    for column, words in line.items()
                )
            ):
                for column, words in line.items():
                    rows[-1][column] = rows[-1][column] + words
                last = line
            else:
                rows.append(dict(line))
                last = line
            before = printed
        return rows

    def _goes_on(self, above: Row | None, cell: Row, below: Row, end: float) -> bool:
        """Whether the line `above`, the last of a cell, is continued by the words below it."""
        if above is None:
            return False
        first, text = self.text(below)[0], self.text(cell)
        if first.islower() or text.count("(") > text.count(")"):
            return True
        fits = end - self.f.x1[above[-1]] > self.f.x1[below[0]] - self.f.x0[below[0]] + 0.4 * self.size
        return not fits and not first.isdigit()

    def text(self, words: Row) -> str:
        return "".join(chr(code) for word in words for code in self.page.code_N[self.f.members[word]].tolist())


def _is_leader(codes: np.ndarray) -> bool:
    return len(codes) >= _LEADER and bool((codes == ord(".")).mean() > _LEADER_SHARE)


def tables_between_rules(words: Words, rules: Rules) -> Iterator[Grid]:
    """Tables that stand between horizontal rules of one length, the second of them below the column names."""
    for left, right, levels in _stacked(rules.level_R3):
        number = 0
        while number + 1 < len(levels):
            top, under = levels[number], levels[number + 1]
            heading = words.between(top, under, left, right)
            grid, number = None, number + 1
            if 0 < len(heading) <= _HEADING_LINES:
                last = number
                for end in range(number + 1, len(levels)):
                    tried = _between(words, heading, levels[number : end + 1], left, right)
                    if tried is None or (grid is not None and len(tried.edges) != len(grid.edges)):
                        break
                    grid, last = tried, end
                grid = grid or _until_it_ends(words, heading, under, left, right, words.page.height)
                number = last
            if grid is not None:
                yield grid


def _between(words: Words, heading: list[Row], levels: Sequence[float], left: float, right: float) -> Grid | None:
    body = words.between(levels[0], levels[-1], left, right)
    last = words.between(levels[-2], levels[-1], left, right)
    if len(body) < 2 or not last or words.is_far(heading, body):
        return None
    return words.grid(heading, body, levels)


def _until_it_ends(
    words: Words, heading: list[Row], under: float, left: float, right: float, bottom: float
) -> Grid | None:
    """A table without a last rule, because it goes on on the next page."""
    body: list[Row] = []
    columns = 0
    for row in words.between(under, bottom, left, right):
        if body and words.is_far(body, [row]):
            break
        found = len(words.gutters([*body, row])) if len(body) > 2 else 0
        if found < columns:
            break
        columns = max(columns, found if len(body) < 6 else columns)
        body.append(row)
    return words.grid(heading, body) if len(body) > 2 and not words.is_far(heading, body) else None


def _stacked(level_R3: np.ndarray) -> Iterator[tuple[float, float, list[float]]]:
    """(left, right, heights) of rules of the same length, one above the other."""
    waiting = [rule for rule in joined(level_R3, _SAME_RULE).tolist() if rule[2] - rule[1] >= _SHORTEST_RULE]
    while waiting:
        _, left, right = waiting[0]
        alike = [r for r in waiting if abs(r[1] - left) < _SAME_RULE and abs(r[2] - right) < _SAME_RULE]
        waiting = [rule for rule in waiting if rule not in alike]
        yield left, right, sorted({y for y, _, _ in alike})


def aligned_tables(words: Words, rules: Rules) -> Iterator[Grid]:
    """Tables of aligned columns, numbers in one of them, whose first row looks like the names of the columns."""
    page, rows, number = words.page, words.rows, 0
    gaps = [words.has_gap(row) for row in rows]
    numbers = [gap and words.has_number(row) for gap, row in zip(gaps, rows, strict=True)]
    while number < len(rows):
        run: list[Row] = []
        if gaps[number] and sum(numbers[number + 1 : number + 5]) > 1:
            run = _aligned_run(words, rows[number : number + _LONGEST_TABLE])
        grid = words.grid([], run) if len(run) > 2 else None
        if grid is not None and is_heading(page, grid, 1) and has_numbers(page, grid, 1):
            yield grid
            number += len(run)
        else:
            number += 1


def _aligned_run(words: Words, rows: Sequence[Row]) -> list[Row]:
    """The lines from the first one on that have columns in common, as many as the first three have."""
    run, columns = list(rows[:1]), 0
    for row in rows[1:]:
        if words.is_far(run, [row]):
            break
        found = len(words.gutters([*run, row]))
        if found < max(columns, 1) or (len(run) < 3 and not words.has_gap(row)):
            break
        run.append(row)
        columns = found if len(run) <= 3 else columns
    return run
