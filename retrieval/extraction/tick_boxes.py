"""Tick boxes in words: what is ticked stands with its question, what is left empty in a sentence of its own."""

from __future__ import annotations

import re

TICKED, EMPTY = "☒", "☐"
LEFT_EMPTY = "Left empty: "
"""Before the boxes of a question that are not ticked; without a word of the question, so that it finds the ticked."""
_BOXES = re.compile(r"[☐☑☒]")
_DRAWN = re.compile(r"[\[(].[\])]")
_SQUARE = re.compile(r"(?<![^\s|:])\[([ xX*✓✔])\](?=[ \t]|$)", re.M)
_ROUND = re.compile(r"(?<![^\s|:])\(([ xX*•o])\)(?=[ \t]|$)", re.M)
_ASKED = re.compile(r"(.*[:?]|)(.*)", re.S)
_FIRST = re.compile(r"^[ \t]*(?:[-*+•] )?\[[ xX]\](?=[ \t]+\w|$)", re.M)


def stated_ticked(question: str) -> str:
    """What stands between a question and the first of its boxes that are ticked ("Meals: ticked ☒ Fish")."""
    if not question:
        return f"{TICKED} "
    return f"{'' if question.endswith(('?', ':')) else ':'} ticked {TICKED} "


def ticked_first(text: str) -> str:
    """The lines of a paragraph. Where one has several boxes, of which some are ticked, what is ticked stays with its
    question, and the rest is a sentence of its own. Boxes may be drawn with brackets: "Meals: [x] Fish [ ] Meat"."""
    for kind in (_SQUARE, _ROUND) if _DRAWN.search(text) else ():
        is_both = len({box[1] == " " for box in kind.finditer(text)}) == 2
        if is_both or (kind is _SQUARE and _FIRST.search(text)):
            text = kind.sub(lambda box: EMPTY if box[1] == " " else TICKED, text)
    return "\n".join(map(_ticked_first, text.split("\n"))) if _BOXES.search(text) else text


def _ticked_first(line: str) -> str:
    boxes = list(_BOXES.finditer(line))
    if len(boxes) < 2 or len({box[0] == EMPTY for box in boxes}) < 2:
        return line
    ends = [box.start() for box in boxes[1:]] + [len(line)]
    options = [line[box.end() : end] for box, end in zip(boxes, ends, strict=True)]
    question = line[: boxes[0].start()].strip()
    if question and not question.endswith((":", "?")) and not options[-1].strip(" ."):  # each behind its option
        question, option = _ASKED.fullmatch(question).groups()  # type: ignore[union-attr]  # always matches
        options = [option, *options[:-1]]
    chosen: dict[bool, list[str]] = {True: [], False: []}
    for box, option in zip(boxes, options, strict=True):
        chosen[box[0] != EMPTY].append(option.strip(" ,;|\t."))
    ticked = f"{question}{stated_ticked(question)}{f', {TICKED} '.join(chosen[True])}.".strip()
    return f"{ticked}\n{LEFT_EMPTY}{', '.join(chosen[False])}."
