"""Numbers of lines in the margin of a page: no part of the sentences beside them.

Legend: N characters of the page, F fragments.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from retrieval.extraction.pdf.characters import PageCharacters
from retrieval.extraction.pdf.fragments import Fragments, make_fragments, rows_by_height, upright

_FEWEST = 4
_ALIGNED = 3.0  # points
_RUNS_ON = 0.3  # of the lines begin with a small letter; fewer do in numbered lists and tables
_LONGEST = 4  # digits


def line_numbers(page: PageCharacters) -> np.ndarray:
    """number_N: which characters are numbers of lines: aligned, rising by one step, beside lines of running text."""
    found_N = np.zeros(len(page.code_N), bool)
    digit_N = (page.turn_N == 0) & (page.code_N >= ord("0")) & (page.code_N <= ord("9"))
    if digit_N.sum() < _FEWEST:
        return found_N
    f = make_fragments(page, np.flatnonzero(page.turn_N == 0), *upright(page, 0))
    is_number_F = np.array([len(m) <= _LONGEST and bool(digit_N[m].all()) for m in f.members], bool)
    if is_number_F.sum() < _FEWEST:
        return found_N
    rows = [row for row in rows_by_height(f, np.arange(len(f.members))) if len(row) == 2]
    for numbers in (
        [(row[0], row[1]) for row in rows if is_number_F[row[0]]],
        [(row[-1], row[0]) for row in rows if is_number_F[row[-1]]],
    ):
        if _are_of_lines(page, f, numbers):
            for number, _ in numbers:
                found_N[f.members[number]] = True
    return found_N


def _are_of_lines(page: PageCharacters, f: Fragments, numbers: Sequence[tuple[int, int]]) -> bool:
    """`numbers`: fragments from top to bottom, each with that where the text of its line begins."""
    if len(numbers) < _FEWEST:
        return False
    own, text = np.array(numbers).T
    values = [int("".join(map(chr, page.code_N[f.members[number]].tolist()))) for number in own.tolist()]
    steps = {below - above for above, below in pairwise(values)}
    aligned = min(np.ptp(f.x1[own]), np.ptp(f.x0[own])) < _ALIGNED
    beside = f.x1[own].max() < f.x0[text].min() or f.x0[own].min() > f.x1[text].max()
    runs_on = np.mean([chr(page.code_N[f.members[start][0]]).islower() for start in text.tolist()])
    return bool(aligned and beside and len(steps) == 1 and min(steps) > 0 and runs_on >= _RUNS_ON)
