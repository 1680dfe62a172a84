"""Reading order: the characters of a page to lines, column by column.

Files may draw text in any order. The drawing order is kept where it makes sense; columns of prose are read one after
another whatever the drawing order; a page without a sensible drawing order is read from top to bottom.

Axes: N characters of the page, F fragments (pieces of a line without a wide gap), A areas.
All lengths in points; x runs along the text, y from line to line (rotated text is turned upright first).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from retrieval.extraction.pdf.characters import PageCharacters, extent
from retrieval.extraction.pdf.fragments import (
    FRAGMENT_GAP,
    Fragments,
    make_fragments,
    rows_by_height,
    share_row,
    upright,
    with_tables,
)
from retrieval.extraction.pdf.tables.grid import Grid

_CELL_GAP = 2.0  # em: a wider gap inside a line separates table cells
_NEXT_CELL_GAP = 1.0  # em: the same, in a line that already has cells; in prose it may be a wide space
_FEWEST_SPACED = 6  # letters of a heading with gaps between them
_SPACED_SHARE = 0.8
_WORD_TO_LETTER_GAP = 1.5  # in such a heading
_DROP_CAP = 1.7  # times the size of the letters behind it
_EDGES_TRIED = 80  # with more left edges than this, only those shared by several fragments are tried as gutters
_GUTTER_ROWS = 4  # two columns have at least this many lines side by side
_FEWEST_NUMBERS = 4
_ALIGNED_NUMBERS = 3.0  # points
_FEWEST_OF_PAPER = 20
_RUNS_ON = 0.3  # of the lines begin with a small letter; fewer do in numbered lists and tables
_LONGEST_NUMBER = 4  # digits
_PROSE_CHARACTERS = 14  # least median length of a line in a column of prose


@dataclass(frozen=True)
class Line:
    """One printed line inside one column.

    `indices_N` are its characters in reading order; `gaps_N` is what precedes each: 0 nothing, 1 a space, 2 a cell
    border; `raised_N` marks superscripts. `base` is the height of the baseline; `column` numbers the columns of the
    page in reading order. A whole table is one line, in no order of characters.
    """

    indices_N: np.ndarray
    gaps_N: np.ndarray
    x0: float
    y0: float
    x1: float
    y1: float
    base: float
    size: float
    bold: bool
    column: int
    turn: int
    raised_N: np.ndarray
    table: Grid | None = None


def read_lines(page: PageCharacters, tables: Sequence[Grid] = ()) -> list[Line]:
    """The lines of a page in reading order, each table as one line; the most frequent direction of text comes first."""
    lines: list[Line] = []
    in_table_N = np.zeros(len(page.code_N), bool)
    for table in tables:
        in_table_N[table.members_N] = True
    turns, counts = np.unique(page.turn_N, return_counts=True)
    for turn in turns[np.argsort(-counts, kind="stable")].tolist():
        members = np.flatnonzero((page.turn_N == turn) & ~in_table_N)
        box, origin = upright(page, turn)
        here = [table for table in tables if page.turn_N[table.cells[0].members_N[0]] == turn]
        fragments = with_tables(make_fragments(page, members, box, origin), box, here)
        column = lines[-1].column + 1 if lines else 0
        for part in _columns(fragments, np.arange(len(fragments.members)), depth=0):
            for row in _rows(fragments, part):
                line = _line(page, row, fragments, box, origin, column, turn)
                number = int(fragments.table[row[0]])
                lines.append(line if number < 0 else replace(line, table=here[number]))
            column += 1
    return lines


def lines_of_cell(page: PageCharacters, members_N: np.ndarray, column: int) -> list[Line]:
    """The lines of some characters that stand in one table cell."""
    turn = int(page.turn_N[members_N[0]])
    box, origin = upright(page, turn)
    fragments = make_fragments(page, members_N, box, origin)
    flow = _flow(fragments, np.arange(len(fragments.members)))
    return [_line(page, row, fragments, box, origin, column, turn) for row in _rows(fragments, flow)]


# --- columns ---------------------------------------------------------------------------------------------------------


def _columns(f: Fragments, part: np.ndarray, depth: int) -> list[np.ndarray]:
    """Splits fragments into columns in reading order; `part` holds fragment indices in drawing order."""
    if len(part) < 2 * _GUTTER_ROWS or depth > 6:
        return [_flow(f, part)] if len(part) else []
    found = _find_gutter(f, part)
    if found is None:
        return [_flow(f, part)]
    gutter, runs = found
    result: list[np.ndarray] = []
    ordered = part[np.argsort(f.middle[part], kind="stable")]
    position = 0
    for first, last in [*runs, (len(ordered), len(ordered))]:
        between = np.sort(ordered[position:first])  # back to drawing order
        result += _columns(f, between, depth + 1)
        run = np.sort(ordered[first:last])
        left = f.x1[run] <= gutter + 1
        result += _columns(f, run[left], depth + 1) + _columns(f, run[~left], depth + 1)
        position = last
    assert sum(map(len, result)) == len(part)
    return result


def _find_gutter(f: Fragments, part: np.ndarray) -> tuple[float, list[tuple[int, int]]] | None:
    """The vertical line that separates most prose, and the runs (by height on the page) that it divides."""
    ordered = part[np.argsort(f.middle[part], kind="stable")]
    x0, x1 = f.x0[ordered], f.x1[ordered]
    edges, counts = np.unique(np.round(x0), return_counts=True)
    best: tuple[float, list[tuple[int, int]]] | None = None
    best_score = 0
    recurring = 1 if len(edges) <= _EDGES_TRIED else 3
    for edge in edges[counts >= recurring].tolist():
        gutter = edge - 2.0
        crossing = (x0 < gutter - 1) & (x1 > gutter + 1)
        if (x1 <= gutter + 1).sum() < _GUTTER_ROWS or (x0 >= gutter - 1).sum() < _GUTTER_ROWS:
            continue
        borders = np.flatnonzero(np.diff(np.r_[True, crossing, True].astype(int)))
        runs = [
            (first, last)
            for first, last in zip(borders[::2].tolist(), borders[1::2].tolist(), strict=True)
            if _is_two_columns(f, ordered[first:last], gutter)
        ]
        score = sum(int(f.count[ordered[first:last]].sum()) for first, last in runs)
        if score > best_score:
            best, best_score = (gutter, runs), score
    return best


def _is_two_columns(f: Fragments, run: np.ndarray, gutter: float) -> bool:
    """Whether the fragments of a run are prose in two columns, rather than a table, a list or a formula."""
    if len(run) < 2 * _GUTTER_ROWS:
        return False
    is_left = f.x1[run] <= gutter + 1
    left, right = run[is_left], run[~is_left]
    if len(left) < _GUTTER_ROWS or len(right) < _GUTTER_ROWS:
        return False
    size = float(np.median(f.size[run]))
    # quantiles: a page number or a hanging bracket may be in the gutter
    if np.quantile(f.x0[right], 0.05) - np.quantile(f.x1[left], 0.95) < 0.6 * size:
        return False
    sides = np.isin(np.sort(run), right)  # in drawing order
    changes = int((sides[1:] != sides[:-1]).sum())
    if not f.is_form and changes <= 4 and f.x0[right].min() - f.x1[left].max() > 2 * size:
        rows_beside = min(len(_row_lengths(f, side, size)[0]) for side in (left, right))
        if rows_beside > 1 and changes <= rows_beside:
            return True  # two boxes drawn one after the other; justified lines with wide spaces are drawn across
    side_by_side = min(f.y1[left].max(), f.y1[right].max()) - max(f.y0[left].min(), f.y0[right].min())
    if side_by_side < 0.5 * _GUTTER_ROWS * size:
        return False
    fills = []
    rows = []
    for side in (left, right):
        lengths, widths = _row_lengths(f, side, size)
        if len(lengths) < _GUTTER_ROWS or np.median(lengths) < _PROSE_CHARACTERS:
            return False
        fills.append(float(np.median(widths)) / max(1.0, float(f.x1[side].max() - f.x0[side].min())))
        rows.append(len(lengths))
    if min(fills) < 0.5:
        return False
    # Drawing order distinguishes prose from tables: columns are drawn one after another (few changes of side) or line
    # by line straight across (about one change per line); tables with cells of several lines are in between.
    if changes <= max(4, 0.2 * min(rows)):
        return True
    return changes >= 0.8 * min(rows) and min(fills) > 0.75


def _row_lengths(f: Fragments, side: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Characters and width of each row of fragments."""
    ordered = side[np.argsort(f.middle[side], kind="stable")]
    row = np.cumsum(np.diff(f.middle[ordered], prepend=f.middle[ordered[0]]) > 0.5 * size)
    lengths = np.bincount(row, weights=f.count[ordered])
    widths = np.bincount(row, weights=f.x1[ordered] - f.x0[ordered])
    return lengths, widths


# --- order inside a column -------------------------------------------------------------------------------------------


def _flow(f: Fragments, part: np.ndarray) -> np.ndarray:
    """Fragments of one column in reading order: as drawn if that runs down the page, else and in forms by height."""
    if f.is_form:
        return np.array([number for row in rows_by_height(f, part) for number in row], dtype=int)
    pieces: list[np.ndarray] = np.split(part, np.flatnonzero(_jumps_back(f, part[:-1], part[1:])) + 1)
    # Pieces drawn out of order (a header drawn last, say) are sorted by position if they do not overlap.
    pieces.sort(key=lambda piece: float(f.middle[piece].min()))
    for above, below in zip(pieces[:-1], pieces[1:], strict=True):
        size = min(float(np.median(f.size[above])), float(np.median(f.size[below])))
        deep = float(f.y1[above].max() - f.y0[below].min()) > 0.5 * size
        beside = f.x1[above].max() <= f.x0[below].min() or f.x1[below].max() <= f.x0[above].min()
        if deep and not beside:
            return np.array([number for row in rows_by_height(f, part) for number in row], dtype=int)
    return np.concatenate(pieces)


def _jumps_back(f: Fragments, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Whether drawing goes back to something that should be read earlier."""
    size = np.minimum(f.size[before], f.size[after])
    same_row = share_row(f, before, after)
    left = f.x0[after] < f.x0[before] - 0.3 * size
    up = f.middle[after] < f.middle[before] - 0.4 * size
    to_the_right = f.x0[after] >= f.x1[before] - 0.5 * size  # the next table cell or box
    jumps: np.ndarray = np.where(same_row, left & ~f.right_to_left[before], up & ~to_the_right)
    return jumps


# --- lines -----------------------------------------------------------------------------------------------------------


def _rows(f: Fragments, part: np.ndarray) -> list[np.ndarray]:
    """Joins neighbouring fragments of one row."""
    part = _rightmost_first(f, part)
    before, after = part[:-1], part[1:]
    size = np.minimum(f.size[before], f.size[after])
    rightward, leftward = f.x0[after] >= f.x1[before] - 0.6 * size, f.x1[after] <= f.x0[before] + 0.6 * size
    turns = f.right_to_left[before] & ~f.right_to_left[after]
    onward = np.where(f.right_to_left[before], leftward | (turns & rightward), rightward)
    alone = (f.table[before] >= 0) | (f.table[after] >= 0)
    return np.split(part, np.flatnonzero(alone | ~(share_row(f, before, after) & onward)) + 1)


def _rightmost_first(f: Fragments, part: np.ndarray) -> np.ndarray:
    """The fragments, words of one line that are read leftward but were drawn rightward in the order of reading."""
    if not f.right_to_left[part].any():
        return part
    before, after = part[:-1], part[1:]
    gap = f.x0[after] - f.x1[before]
    drawn_on = f.right_to_left[before] & f.right_to_left[after] & share_row(f, before, after)
    drawn_on &= (gap > -0.1 * f.size[after]) & (gap < FRAGMENT_GAP * f.size[after])
    return np.concatenate([run[::-1] for run in np.split(part, np.flatnonzero(~drawn_on) + 1)])


def _distances(f: Fragments, row: np.ndarray, box_N4: np.ndarray) -> np.ndarray:
    """Between each character of a line and the next; where the direction of reading changes, between all that is read
    in the one and in the other."""
    x0, x1 = box_N4[:, 0], box_N4[:, 2]
    distance: np.ndarray = np.maximum(x0[1:] - x1[:-1], x0[:-1] - x1[1:])
    leftward = f.right_to_left[row]
    if leftward.any() and not leftward.all():
        turns = np.flatnonzero(np.diff(np.repeat(leftward, [len(f.members[number]) for number in row.tolist()])))
        starts = np.r_[0, turns + 1]
        low, high = np.minimum.reduceat(x0, starts), np.maximum.reduceat(x1, starts)
        distance[turns] = np.maximum(low[1:] - high[:-1], low[:-1] - high[1:])
    return distance


def _line(
    page: PageCharacters, row: np.ndarray, f: Fragments, box: np.ndarray, origin: np.ndarray, column: int, turn: int
) -> Line:
    indices = np.concatenate([f.members[number] for number in row.tolist()])
    starts = np.cumsum([0, *(len(f.members[number]) for number in row.tolist())])[:-1]
    size_N = page.size_N[indices]
    size = float(np.sort(size_N)[-min(3, len(size_N))])  # small capitals, note marks and an initial do not count
    spaced = page.spaced_N[indices][1:]
    distance = _distances(f, row, box[indices])
    at_start = np.zeros(len(indices), dtype=bool)
    at_start[starts] = True
    is_space = (spaced == 2) | ((spaced == 1) & (distance > 0.08 * size)) | (at_start[1:] & (distance > 0.15 * size))
    if _is_drop_cap(page, indices, size_N):
        is_space[0] = spaced[0] == 2
    cell_gap = _NEXT_CELL_GAP if (distance > _CELL_GAP * size).any() else _CELL_GAP
    if _is_spaced_out(page.code_N[indices], is_space):
        is_space = distance > _WORD_TO_LETTER_GAP * np.median(distance)
        cell_gap = np.inf
    gaps = np.r_[0, np.where(distance > cell_gap * size, 2, is_space)].astype(np.int8)
    filled = page.filled_N[indices].astype(int)
    gaps[1:][np.diff(filled) != 0] = 2  # between a label and what is filled in
    base = float(np.median(origin[indices[size_N > 0.85 * size], 1]))
    raised = (size_N < 0.85 * size) & (origin[indices, 1] < base - 0.15 * size)
    bold = float(np.mean(page.weight_N[indices] >= 600)) > 0.6
    return Line(indices, gaps, *extent(box[indices]), base, size, bold, column, turn, raised)


def _is_spaced_out(code_N: np.ndarray, is_space: np.ndarray) -> bool:
    """Whether a line is set with gaps between the letters of its words, as some headings are."""
    if len(code_N) < _FEWEST_SPACED or is_space.mean() < _SPACED_SHARE:
        return False
    return bool(np.mean([chr(code).isalpha() for code in code_N.tolist()]) > _SPACED_SHARE)


def _is_drop_cap(page: PageCharacters, indices: np.ndarray, size_N: np.ndarray) -> bool:
    """Whether a line begins with a letter as high as several lines."""
    return len(indices) > 1 and chr(page.code_N[indices[0]]).isupper() and size_N[0] > _DROP_CAP * size_N[1]


# --- numbers of lines ------------------------------------------------------------------------------------------------


def line_numbers(page: PageCharacters) -> np.ndarray:
    """number_N: which characters are numbers of lines: aligned, rising by one step, beside lines of running text, or
    printed evenly down the margin of ruled paper, whatever is written on it."""
    found_N = np.zeros(len(page.code_N), bool)
    digit_N = (page.turn_N == 0) & (page.code_N >= ord("0")) & (page.code_N <= ord("9"))
    if digit_N.sum() < _FEWEST_NUMBERS:
        return found_N
    f = make_fragments(page, np.flatnonzero(page.turn_N == 0), *upright(page, 0))
    is_number_F = np.array([len(m) <= _LONGEST_NUMBER and bool(digit_N[m].all()) for m in f.members], bool)
    if is_number_F.sum() < _FEWEST_NUMBERS:
        return found_N
    rows = [row for row in rows_by_height(f, np.arange(len(f.members))) if len(row) == 2]
    for numbers in (
        [(row[0], row[1]) for row in rows if is_number_F[row[0]]],
        [(row[-1], row[0]) for row in rows if is_number_F[row[-1]]],
    ):
        if _are_of_lines(page, f, numbers):
            for number, _ in numbers:
                found_N[f.members[number]] = True
    for number in _numbers_of_paper(page, f, np.flatnonzero(is_number_F)):
        found_N[f.members[number]] = True
    return found_N


def _numbers_of_paper(page: PageCharacters, f: Fragments, numbers: np.ndarray) -> list[int]:
    """Those of these fragments that number the lines of ruled paper, as pleadings in court are written on: 1, 2, 3, ...
    at one distance, left of all beside them. That is no column of a table: some of it stands on no numbered line, or
    goes on with a sentence."""
    right = float(np.median(f.x1[numbers][f.x1[numbers] <= f.x1[numbers].min() + 2 * _ALIGNED_NUMBERS]))
    own = numbers[np.abs(f.x1[numbers] - right) < _ALIGNED_NUMBERS]
    own = own[np.argsort(f.middle[own])]
    pitch = np.diff(f.middle[own])
    even = len(own) >= _FEWEST_OF_PAPER and np.ptp(pitch) < _ALIGNED_NUMBERS
    if not even or _values(page, f, own) != [*range(1, 1 + len(own))]:
        return []
    is_beside = (f.middle > f.middle[own[0]]) & (f.middle < f.middle[own[-1]])
    is_beside[own] = False
    beside = np.flatnonzero(is_beside)
    if not len(beside) or f.x0[beside].min() <= f.x1[own].max():
        return []
    off = np.abs(f.middle[beside][:, None] - f.middle[own]).min(axis=1) > pitch.mean() / 4
    goes_on = [chr(page.code_N[f.members[text][0]]).islower() for text in beside.tolist()]
    return own.tolist() if off.any() or sum(goes_on) > 1 else []


def _values(page: PageCharacters, f: Fragments, numbers: np.ndarray) -> list[int]:
    return [int("".join(map(chr, page.code_N[f.members[number]].tolist()))) for number in numbers.tolist()]


def _are_of_lines(page: PageCharacters, f: Fragments, numbers: Sequence[tuple[int, int]]) -> bool:
    """`numbers`: fragments from top to bottom, each with that where the text of its line begins."""
    if len(numbers) < _FEWEST_NUMBERS:
        return False
    own, text = np.array(numbers).T
    steps = {below - above for above, below in pairwise(_values(page, f, own))}
    aligned = min(np.ptp(f.x1[own]), np.ptp(f.x0[own])) < _ALIGNED_NUMBERS
    beside = f.x1[own].max() < f.x0[text].min() or f.x0[own].min() > f.x1[text].max()
    runs_on = np.mean([chr(page.code_N[f.members[start][0]]).islower() for start in text.tolist()])
    return bool(aligned and beside and len(steps) == 1 and min(steps) > 0 and runs_on >= _RUNS_ON)


# --- boxes beside the text -------------------------------------------------------------------------------------------

_LEAST_WIDE, _LEAST_HIGH = 60.0, 30.0
_WIDEST = 0.65  # of the page
_FEWEST_INSIDE, _FEWEST_BESIDE = 60, 60  # characters
_SAME = 3.0
_NEAR = 20.0  # cells of a table stand so near to each other
_RUNS_ON_BESIDE = 0.4  # of the lines beside a box; in lists and on slides fewer begin in small letters
_ENDS = ".!?:;”\"'"


def torn_by_boxes(page: PageCharacters, areas_A4: np.ndarray, lines: Sequence[Line]) -> list[np.ndarray]:
    """inside_N of each box that stands beside running text, and tears one of its sentences as `lines` are ordered."""
    size_A2 = areas_A4[:, 2:] - areas_A4[:, :2]
    is_box_A = (size_A2 >= [_LEAST_WIDE, _LEAST_HIGH]).all(axis=1) & (size_A2[:, 0] < _WIDEST * page.width)
    boxes: list[np.ndarray] = []
    for box in areas_A4[is_box_A]:
        if all(np.abs(box - other).max() > _SAME for other in boxes):
            boxes.append(box)
    found = []
    for box in boxes:
        others = [other for other in boxes if other is not box]
        if any((other[:2] < box[2:] + _NEAR).all() and (box[:2] < other[2:] + _NEAR).all() for other in others):
            continue
        inside_N = page.within(box.tolist())
        beside_N = ~inside_N & (page.middle_N2[:, 1] > box[1]) & (page.middle_N2[:, 1] < box[3])
        if inside_N.sum() >= _FEWEST_INSIDE and beside_N.sum() >= _FEWEST_BESIDE and _tears(page, lines, inside_N):
            found.append(inside_N)
    return found


def _tears(page: PageCharacters, lines: Sequence[Line], inside_N: np.ndarray) -> bool:
    """Whether the lines of a box share lines with running text beside it, or stand within one of its sentences."""
    shares = [float(inside_N[line.indices_N].mean()) for line in lines]
    shared = [line for line, share in zip(lines, shares, strict=True) if 0 < share < 1]
    if shared:
        begun: list[bool] = []  # for each line beside the box: whether it goes on with a sentence
        for line in shared:
            here_N, box_N4 = inside_N[line.indices_N], page.box_N4[line.indices_N]
            at = np.flatnonzero(np.diff(here_N))
            if line.table is not None or (box_N4[at + 1, 0] - box_N4[at, 2]).min() < line.size:
                return False  # a word or a table goes over the border
            begun.append(chr(page.code_N[line.indices_N[~here_N][0]]).islower())
        return sum(begun) >= _RUNS_ON_BESIDE * len(begun)
    borders = [number for number, (a, b) in enumerate(pairwise(shares)) if a != b]
    if not borders or shares[0] or shares[-1]:
        return False
    before, behind = lines[borders[0]], lines[borders[-1] + 1]
    alike = abs(before.size - behind.size) < 0.1 * before.size and before.table is None is behind.table
    goes_on = alike and chr(page.code_N[behind.indices_N[0]]).islower()
    return goes_on and chr(page.code_N[before.indices_N[-1]]) not in _ENDS
