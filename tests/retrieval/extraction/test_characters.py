"""Combining marks that a PDF prints on their own."""

from __future__ import annotations

import numpy as np

from retrieval.extraction.pdf.characters import _with_lone_marks_in_place

WIDTH = 5.0


def arranged(drawn: list[tuple[str, float, float]]) -> str:
    """The text of characters drawn at (left, baseline), each as wide as WIDTH, in the order of reading."""
    code = np.array([ord(letter) for letter, _, _ in drawn], np.uint32)
    origin = np.array([[x, y] for _, x, y in drawn])
    box = np.hstack([origin - (0, 8), origin + (WIDTH, 2)])
    ink, size, spaced = box + (0.2, 3, -0.2, -2), np.full(len(drawn), 10.0), np.zeros(len(drawn), np.int8)
    order = _with_lone_marks_in_place(code, box, ink, origin, size, spaced)
    assert sorted(order.tolist()) == list(range(len(drawn)))
    return "".join((" " if spaced[i] else "") + chr(code[i]) for i in order.tolist())


def line(text: str, y: float) -> list[tuple[str, float, float]]:
    return [(letter, WIDTH * place, y) for place, letter in enumerate(text) if letter != " "]


def test_a_lone_grave_accent_listed_at_the_end_of_its_line_opens_the_quotation() -> None:
    drawn = line("in  stable’ it", 100)
    assert arranged([*drawn, ("\u0300", 3 * WIDTH, 98), *line("next", 112)]) == "in `stable’itnext"
    assert arranged([*line("the  unstable", 100), ("\u0300", 4.3 * WIDTH, 98)]) == "the `unstable"


def test_a_mark_over_its_letter_stays_where_it_is() -> None:
    drawn = line("cafe au lait", 100)
    drawn.insert(4, ("\u0301", 3 * WIDTH, 99))
    assert arranged(drawn) == "cafe\u0301aulait"


def test_a_mark_with_nothing_to_its_right_stays_what_it_is() -> None:
    assert arranged([*line("end", 100), ("\u0300", 5 * WIDTH, 100)]) == "end\u0300"
