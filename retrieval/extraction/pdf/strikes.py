"""Lines that a page draws through its words, as word processors print what is struck out.

Legend: N characters of the page, R rules.
"""

from __future__ import annotations

import numpy as np

from retrieval.extraction.pdf.characters import PageCharacters
from retrieval.extraction.pdf.tables.rules import Corners, Rules, joined

_LOWEST, _HIGHEST = 0.15, 0.5  # of the size above the baseline: there a line strikes letters out
_OVERHANG = 0.5  # of the size: how much longer or shorter than the words it may be
_FEWEST = 2  # letters
_SAME_LINE = 1.0  # points


def struck_out(page: PageCharacters, rules: Rules) -> tuple[list[Corners], Rules]:
    """Boxes of what is struck out, in points as displayed, and the other rules. A line strikes out the words that it
    runs through if it begins and ends with them, as no border of a table does."""
    level_R3, boxes = rules.level_R3, list[Corners]()
    strikes_R = np.zeros(len(level_R3), bool)
    upright = np.flatnonzero((page.turn_N == 0) & (page.size_N > 0))
    order = upright[np.argsort(page.origin_N2[upright, 1], kind="stable")]
    base_N = page.origin_N2[order, 1]
    reach = _HIGHEST * float(page.size_N[order].max(initial=0.0))
    for y, start, end in joined(level_R3, _SAME_LINE).tolist():
        near = order[np.searchsorted(base_N, y) : np.searchsorted(base_N, y + reach)]
        above_N = (page.origin_N2[near, 1] - y) / page.size_N[near]
        middle_N = page.middle_N2[near, 0]
        own = near[(middle_N > start) & (middle_N < end) & (above_N > _LOWEST) & (above_N < _HIGHEST)]
        if len(own) < _FEWEST:
            continue
        ink_N4, size = page.ink_N4[own], float(page.size_N[own].max())
        left, right = float(ink_N4[:, 0].min()), float(ink_N4[:, 2].max())
        if abs(left - start) < _OVERHANG * size and abs(right - end) < _OVERHANG * size:
            boxes.append((left, float(ink_N4[:, 1].min()), right, float(ink_N4[:, 3].max())))
            within_R = (level_R3[:, 1] > start - _SAME_LINE) & (level_R3[:, 2] < end + _SAME_LINE)
            strikes_R |= within_R & (np.abs(level_R3[:, 0] - y) < _SAME_LINE)
    return boxes, Rules(level_R3[~strikes_R], rules.upright_R3) if boxes else rules
