"""Pieces of printed lines: the characters of a page in the order of drawing, split where the next does not go on.

Axes: N characters of the page, F fragments, X any. All lengths in points; x runs along the text, y from line to line
(rotated text is turned upright first).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from retrieval.extraction.pdf.characters import PageCharacters, extent
from retrieval.extraction.pdf.tables.grid import Grid
from retrieval.extraction.pdf.unseen import SLANTED

FRAGMENT_GAP = 0.7  # em: a wider gap may be a column's gutter or a table cell


@dataclass(frozen=True)
class Fragments:
    """Pieces of lines in drawing order; `count` characters each, whose page indices are in `members`. A table is one
    piece, whose number is in `table` (-1 for all others). Of a form, what was filled in was drawn last (`is_form`)."""

    x0: np.ndarray
    y0: np.ndarray
    x1: np.ndarray
    y1: np.ndarray
    size: np.ndarray
    count: np.ndarray
    members: list[np.ndarray]
    right_to_left: np.ndarray
    table: np.ndarray
    is_form: bool = False

    @property
    def middle(self) -> np.ndarray:
        middle: np.ndarray = (self.y0 + self.y1) / 2
        return middle


def upright(page: PageCharacters, turn: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes and baseline points in a frame in which text of this turn runs to the right."""
    if turn == 0:
        return page.box_N4, page.origin_N2
    if turn >= SLANTED:
        return _turned_level(page, np.deg2rad(turn - SLANTED))
    return turned_boxes(page, page.box_N4, turn), _turned_points(page, page.origin_N2, turn)


def turned_boxes(page: PageCharacters, box_X4: np.ndarray, turn: int) -> np.ndarray:
    """Boxes on a page in the frame of a turn."""
    a, b = _turned_points(page, box_X4[:, :2], turn), _turned_points(page, box_X4[:, 2:], turn)
    return np.hstack([np.minimum(a, b), np.maximum(a, b)])


def _turned_points(page: PageCharacters, point_X2: np.ndarray, turn: int) -> np.ndarray:
    x, y = point_X2[:, 0], point_X2[:, 1]
    ways = {0: (x, y), 1: (y, page.width - x), 2: (page.width - x, page.height - y), 3: (page.height - y, x)}
    return np.stack(ways[turn], axis=1)


def set_upright(page: PageCharacters, turn: int) -> PageCharacters:
    """The page with text of this turn running to the right. Fields that are filled in stay where they are."""
    box_N4, origin_N2 = upright(page, turn)
    wide, high = (page.height, page.width) if turn % 2 else (page.width, page.height)
    turn_N = np.where(page.turn_N < SLANTED, (page.turn_N - turn) % 4, page.turn_N)
    return replace(
        page, width=wide, height=high, box_N4=box_N4, origin_N2=origin_N2, turn_N=turn_N,
        ink_N4=turned_boxes(page, page.ink_N4, turn),
    )  # fmt: skip


def _turned_level(page: PageCharacters, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """The same of slanted text, whose boxes are known roughly."""
    turning = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    origin_N2 = page.origin_N2 @ turning.T
    half_N = (page.size_N / 4)[:, None]
    left_N2 = origin_N2 - np.hstack([0 * half_N, 3 * half_N])
    return np.hstack([left_N2, left_N2 + np.hstack([2 * half_N, 4 * half_N])]), origin_N2


def _is_right_to_left(code_N: np.ndarray) -> np.ndarray:
    return (
        ((code_N >= 0x590) & (code_N < 0x900))
        | ((code_N >= 0xFB1D) & (code_N < 0xFE00))
        | ((code_N >= 0xFE70) & (code_N < 0xFEFD))
    )


def make_fragments(
    page: PageCharacters, members: np.ndarray, box: np.ndarray, origin: np.ndarray, gap: float = FRAGMENT_GAP
) -> Fragments:
    """The drawn characters, split where the next one does not continue the line: more than `gap` em away."""
    box, baseline, size = box[members], origin[members, 1], np.maximum(page.size_N[members], 1.0)
    leftward = _is_right_to_left(page.code_N[members])
    em = np.maximum(size[1:], size[:-1])
    advance = box[1:, 0] - box[:-1, 2]
    back = box[:-1, 0] - box[1:, 2]
    forward = (advance > -0.6 * em) & (advance < gap * em)
    forward |= np.abs(box[1:] - box[:-1]).max(axis=1, initial=0) < 0.01  # the letters of one ligature
    backward = leftward[1:] & leftward[:-1] & (back > -0.6 * em) & (back < gap * em)
    level = np.abs(baseline[1:] - baseline[:-1]) < 0.6 * em
    overlap = np.minimum(box[1:, 3], box[:-1, 3]) - np.maximum(box[1:, 1], box[:-1, 1])
    level &= overlap > 0.25 * np.minimum(box[1:, 3] - box[1:, 1], box[:-1, 3] - box[:-1, 1])
    cuts = np.flatnonzero(~((forward | backward) & level)) + 1
    first = np.r_[0, cuts] if len(members) else cuts
    count = np.diff(np.r_[first, len(members)]) if len(members) else first

    def each(function: np.ufunc, values: np.ndarray) -> np.ndarray:
        """Of every piece; none of no pieces."""
        return function.reduceat(values, first) if len(first) else np.zeros(0)

    usual, largest = each(np.minimum, size), each(np.maximum, size)
    for number in np.flatnonzero(usual < largest).tolist():
        usual[number] = np.median(size[first[number] : first[number] + count[number]])
    return Fragments(
        each(np.minimum, box[:, 0]),
        each(np.minimum, box[:, 1]),
        each(np.maximum, box[:, 2]),
        each(np.maximum, box[:, 3]),
        size=usual,
        count=count,
        members=np.split(members, cuts) if len(members) else [],
        right_to_left=each(np.add, leftward.astype(float)) > 0.5 * count,
        table=np.full(len(first), -1),
        is_form=page.is_form,
    )


def with_tables(f: Fragments, box: np.ndarray, tables: Sequence[Grid]) -> Fragments:
    """The fragments and one more for each table, which stands where its first character was drawn."""
    if not tables:
        return f
    members = [*f.members, *(table.members_N for table in tables)]
    order = np.argsort([int(each[0]) for each in members], kind="stable")
    x0, y0, x1, y1 = np.array([extent(box[table.members_N]) for table in tables]).T
    usual = float(np.median(f.size)) if len(f.size) else 10.0
    added: dict[str, Any] = {
        "x0": x0, "y0": y0, "x1": x1, "y1": y1, "size": np.full(len(tables), usual),
        "count": np.array([len(table.members_N) for table in tables]),
        "right_to_left": np.zeros(len(tables), bool), "table": np.arange(len(tables)),
    }  # fmt: skip
    all_of: dict[str, Any] = {name: np.concatenate([getattr(f, name), array])[order] for name, array in added.items()}
    return replace(f, members=[members[number] for number in order.tolist()], **all_of)


def share_row(f: Fragments, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Whether two fragments stand side by side."""
    overlap = np.minimum(f.y1[before], f.y1[after]) - np.maximum(f.y0[before], f.y0[after])
    shared: np.ndarray = overlap > 0.5 * np.minimum(f.y1[before] - f.y0[before], f.y1[after] - f.y0[after])
    return shared


def rows_by_height(f: Fragments, part: np.ndarray) -> list[list[int]]:
    """Fragments side by side, from top to bottom, each row in the order of reading."""
    ordered = part[np.argsort(f.middle[part], kind="stable")].tolist()
    y0, y1 = f.y0.tolist(), f.y1.tolist()
    rows: list[list[int]] = []
    for number in ordered:
        first = rows[-1][0] if rows else number
        overlap = min(y1[first], y1[number]) - max(y0[first], y0[number])
        if rows and overlap > 0.5 * min(y1[first] - y0[first], y1[number] - y0[number]):
            rows[-1].append(number)
        else:
            rows.append([number])
    for row in rows:
        sign = -1 if f.right_to_left[row].sum() > 0.5 * len(row) else 1
        row.sort(key=lambda number: sign * f.x0[number])
    return rows
