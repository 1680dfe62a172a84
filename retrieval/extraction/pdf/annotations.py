"""What lies on the pages of a PDF and in its fields: comments, what was filled in, what was ticked. Inside the worker
process only.

Axes: N characters of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.extraction.document import Aside, AsideKind
from retrieval.extraction.parts import remark_text
from retrieval.extraction.pdf.characters import Corners, Display, Field, PageCharacters
from retrieval.extraction.pdf.things import string_of
from retrieval.extraction.pdf.unseen import texts_of
from retrieval.extraction.tick_boxes import EMPTY, TICKED

_MOST = 5000  # annotations of a page
_COMMENTS = {
    pdfium_c.FPDF_ANNOT_TEXT, pdfium_c.FPDF_ANNOT_FREETEXT, pdfium_c.FPDF_ANNOT_HIGHLIGHT,
    pdfium_c.FPDF_ANNOT_UNDERLINE, pdfium_c.FPDF_ANNOT_SQUIGGLY, pdfium_c.FPDF_ANNOT_STRIKEOUT,
    pdfium_c.FPDF_ANNOT_STAMP, pdfium_c.FPDF_ANNOT_CARET, pdfium_c.FPDF_ANNOT_INK, pdfium_c.FPDF_ANNOT_LINE,
    pdfium_c.FPDF_ANNOT_SQUARE, pdfium_c.FPDF_ANNOT_CIRCLE, pdfium_c.FPDF_ANNOT_POLYGON,
}  # fmt: skip
_ON_WORDS = {
    pdfium_c.FPDF_ANNOT_HIGHLIGHT, pdfium_c.FPDF_ANNOT_UNDERLINE, pdfium_c.FPDF_ANNOT_SQUIGGLY,
    pdfium_c.FPDF_ANNOT_STRIKEOUT,
}  # fmt: skip
_BOXES = {pdfium_c.FPDF_FORMFIELD_CHECKBOX, pdfium_c.FPDF_FORMFIELD_RADIOBUTTON}
_VALUES = {pdfium_c.FPDF_FORMFIELD_TEXTFIELD, pdfium_c.FPDF_FORMFIELD_COMBOBOX, pdfium_c.FPDF_FORMFIELD_LISTBOX}
_UNSEEN = pdfium_c.FPDF_ANNOT_FLAG_HIDDEN | pdfium_c.FPDF_ANNOT_FLAG_NOVIEW
_COMB = 1 << 24
_SPACE = 0.15  # of the size; a wider gap parts words


@dataclass(frozen=True)
class Comment:
    """`boxes`: the words that it is about; `is_text`: it is printed on the page as it stands; `is_struck`: these words
    are struck out."""

    author: str
    text: str
    boxes: Sequence[Corners]
    is_text: bool
    is_struck: bool


@dataclass(frozen=True)
class Annotations:
    fields: Sequence[Field]
    comments: Sequence[Comment]


def read_annotations(page: pdfium.PdfPage) -> Annotations:
    fields: list[Field] = []
    comments: list[Comment] = []
    for number in range(min(pdfium_c.FPDFPage_GetAnnotCount(page.raw), _MOST)):
        annotation = pdfium_c.FPDFPage_GetAnnot(page.raw, number)
        if not annotation:
            continue
        kind = pdfium_c.FPDFAnnot_GetSubtype(annotation)
        if pdfium_c.FPDFAnnot_GetFlags(annotation) & _UNSEEN:
            pass
        elif kind == pdfium_c.FPDF_ANNOT_WIDGET and page.formenv:
            fields += _field(page, annotation)
        elif kind in _COMMENTS:
            comments += _comment(page, annotation, kind)
        pdfium_c.FPDFPage_CloseAnnot(annotation)
    return Annotations(fields, comments)


def _field(page: pdfium.PdfPage, annotation: pdfium_c.FPDF_ANNOTATION) -> Iterator[Field]:
    form = page.formenv.raw
    kind = pdfium_c.FPDFAnnot_GetFormFieldType(form, annotation)
    rectangle = pdfium_c.FS_RECTF()
    pdfium_c.FPDFAnnot_GetRect(annotation, rectangle)
    (box,) = _boxes(page, [(rectangle.left, rectangle.bottom, rectangle.right, rectangle.top)])
    if kind in _BOXES:
        yield Field(box, TICKED if pdfium_c.FPDFAnnot_IsChecked(form, annotation) else EMPTY)
    elif kind in _VALUES:
        value = string_of(pdfium_c.FPDFAnnot_GetFormFieldValue, form, annotation)
        is_comb = bool(pdfium_c.FPDFAnnot_GetFormFieldFlags(form, annotation) & _COMB)
        if value.strip():
            yield Field(box, value, is_comb and kind == pdfium_c.FPDF_FORMFIELD_TEXTFIELD)


def _comment(page: pdfium.PdfPage, annotation: pdfium_c.FPDF_ANNOTATION, kind: int) -> Iterator[Comment]:
    text = string_of(pdfium_c.FPDFAnnot_GetStringValue, annotation, b"Contents")
    quads = []
    for number in range(pdfium_c.FPDFAnnot_CountAttachmentPoints(annotation) if kind in _ON_WORDS else 0):
        quad = pdfium_c.FS_QUADPOINTSF()
        if pdfium_c.FPDFAnnot_GetAttachmentPoints(annotation, number, quad):
            xs, ys = (quad.x1, quad.x2, quad.x3, quad.x4), (quad.y1, quad.y2, quad.y3, quad.y4)
            quads.append((min(xs), min(ys), max(xs), max(ys)))
    is_struck = kind == pdfium_c.FPDF_ANNOT_STRIKEOUT
    if text.strip() or is_struck:
        author = string_of(pdfium_c.FPDFAnnot_GetStringValue, annotation, b"T")
        boxes = _boxes(page, quads)
        yield Comment(author.strip(), text, boxes, kind == pdfium_c.FPDF_ANNOT_FREETEXT, is_struck)


def _boxes(page: pdfium.PdfPage, boxes: list[Corners]) -> list[Corners]:
    return [
        (x0, y0, x1, y1) for x0, y0, x1, y1 in Display(page).boxes(np.array(boxes, np.float64).reshape(-1, 4)).tolist()
    ]


def remarks(page: PageCharacters, comments: Sequence[Comment]) -> list[str]:
    """What was written on the page after it was made, each as a paragraph that says so."""
    found = []
    for comment in comments:
        text = " ".join(comment.text.split())
        if not text:
            continue
        about = " ".join(
            text for box in comment.boxes for text in texts_of(page.code_N, page.spaced_N, page.within(box))
        )
        said = f"Comment by {comment.author}" if comment.author else "Comment"
        found.append(text if comment.is_text else remark_text(said, about, text))
    return found


def unseen(number: int, page: PageCharacters, struck_N: np.ndarray) -> list[Aside]:
    """The text of a page that is no part of what it says."""
    kinds: list[tuple[AsideKind, Iterable[str]]] = [
        ("hidden", page.hidden),
        ("watermark", page.watermarks),
        ("deleted", texts_of(page.code_N, page.spaced_N, struck_N)),
    ]
    return [Aside(kind, text, number) for kind, texts in kinds for text in texts]


def with_annotations(page: PageCharacters, fields: Sequence[Field], struck_N: np.ndarray) -> PageCharacters:
    """The page without what is struck out, and with what is filled in as its text: ticks as characters, values that are
    not drawn, and those whose letters stand in cells as words."""
    page = _without(page, struck_N) if struck_N.any() else page
    for field in fields:
        inside_N = page.within(field.box)
        if field.value in (TICKED, EMPTY) or not inside_N.any():
            page = _with_text(page.only(~inside_N), field)
        elif field.is_comb:
            page = _closed_up(page, np.flatnonzero(inside_N))
    return replace(page, fields=tuple(fields), is_form=page.is_form or bool(fields)) if fields else page


def _without(page: PageCharacters, gone_N: np.ndarray) -> PageCharacters:
    """The page without some characters; those before them on their line reach as far as they did, so that what is left
    of a sentence stays together."""
    box_N4, spaced_N = page.box_N4.copy(), page.spaced_N.copy()
    gone = np.flatnonzero(gone_N)
    for part in np.split(gone, np.flatnonzero(np.diff(gone) > 1) + 1):
        before, behind = part[0] - 1, part[-1] + 1
        if before < 0 or behind >= len(gone_N):
            continue
        level = abs(page.origin_N2[[before, behind], 1] - page.origin_N2[part[0], 1]) < 0.5 * page.size_N[part[0]]
        if level.all() and box_N4[before, 2] <= box_N4[behind, 0]:
            gaps = box_N4[[part[0], behind], 0] - box_N4[[before, part[-1]], 2]
            if spaced_N[[part[0], behind]].any() or gaps.max() > _SPACE * page.size_N[before]:
                spaced_N[behind] = 2
            box_N4[before, 2] = box_N4[behind, 0]
    return replace(page, box_N4=box_N4, spaced_N=spaced_N).only(~gone_N)


def _with_text(page: PageCharacters, field: Field) -> PageCharacters:
    """The page with the value of a field as if it were printed in it."""
    text = " ".join(field.value.split())
    letters = [(n, letter) for n, letter in enumerate(text) if letter != " "]
    if not letters:
        return page
    count, (x0, y0, x1, y1) = len(letters), field.box
    size = min(y1 - y0, 12.0) if "\n" not in field.value else 10.0
    step = min((x1 - x0) / len(text), 0.6 * size if len(text) > 1 else size)
    x_N = x0 + step * np.array([n for n, _ in letters])
    box_N4 = np.column_stack([x_N, np.full(count, y0), x_N + step, np.full(count, y0 + size)])
    added: dict[str, Any] = {
        "code_N": np.array([ord(letter) for _, letter in letters], np.uint32),
        "box_N4": box_N4, "ink_N4": box_N4, "origin_N2": np.column_stack([x_N, np.full(count, y0 + 0.8 * size)]),
        "size_N": np.full(count, size), "weight_N": np.full(count, 400, np.int32), "turn_N": np.zeros(count, int),
        "spaced_N": np.array([2 * (n > 0 and text[n - 1] == " ") for n, _ in letters], np.int8),
        "accent_N": np.zeros(count, np.int32),
    }  # fmt: skip
    joined: dict[str, Any] = {name: np.concatenate([getattr(page, name), array]) for name, array in added.items()}
    return replace(page, **joined)


def _closed_up(page: PageCharacters, members: np.ndarray) -> PageCharacters:
    """The page with letters that stand in cells next to each other, without the gaps between them."""
    box_N4, spaced_N = page.box_N4.copy(), page.spaced_N.copy()
    order = members[np.argsort(page.origin_N2[members, 0], kind="stable")]
    steps = np.diff(page.origin_N2[order, 0])
    usual = float(np.min(steps[steps > 1.0], initial=np.inf))
    is_next = steps < 1.6 * usual
    box_N4[order[:-1][is_next], 2] = box_N4[order[1:][is_next], 0]
    spaced_N[order[1:][is_next]] = 0
    return replace(page, box_N4=box_N4, spaced_N=spaced_N)
