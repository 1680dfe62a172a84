"""An answer with its evidence as one file: HTML that needs nothing else, or JSON.

- The HTML shows question, answer, passages, marked page pictures, attention by head, and the record for programs.
- Jinja escapes every text from a document or a person; the file holds no script and forbids any request.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from app.web.templates import TEMPLATES
from retrieval.errors import CairnError
from retrieval.types.answers import (
    EARLIER_VERSION,
    Answer,
    PageBox,
    Passage,
    QuotedSentence,
    outcome_note,
    set_aside_note,
    who_chose,
)

if TYPE_CHECKING:
    from retrieval.library import Library


_OF_WRITERS = ("name", "kind", "stored_share", "repair")
_OF_CLAIMS = ("text", "verdict", "passage", "sentence", "score")


def answer_row(answer: Answer, of_passages: Sequence[str]) -> dict[str, Any]:
    """What every row for programs says of an answer. `of_passages`: the fields of a sentence's passage."""

    def sentence(quoted: QuotedSentence) -> dict[str, Any]:
        return {**quoted.passage.to_dict(*of_passages), "short_answer": quoted.short}

    return {
        "answer_id": answer.id,
        "answer": answer.text,
        "short_answer": answer.short,
        "found": answer.found,
        "outcome": answer.outcome,
        "decided_by": answer.decided_by,
        "other_sentences": [sentence(other) for other in answer.other_sentences],
        "earlier_version": None if answer.earlier_version is None else sentence(answer.earlier_version),
        **written_row(answer),
    }


def written_row(answer: Answer) -> dict[str, Any]:
    """`writer` and `quotation` are null where the model that searches answered; `outcome` of a quotation: how sure the
    search is of what would have been quoted."""
    writer, quotation = answer.writer, answer.quotation
    quoted = None
    if writer is not None and quotation is not None:
        quoted = {
            "text": quotation.passage.text,
            "short_answer": quotation.short,
            "outcome": answer.settings.get("quoted_outcome"),
            **quotation.passage.to_dict("document_id", "source", "place"),
        }
    return {
        "writer": None if writer is None else writer.to_dict(*_OF_WRITERS),
        "citations": [one.to_dict() for one in answer.citations],
        "claims": [one.to_dict(*_OF_CLAIMS) for one in answer.claims],
        "problem": answer.problem,
        "quotation": quoted,
        "set_aside": answer.set_aside,
    }


MAX_PICTURES = 12
PICTURE_WIDTH_PX = 900


def answer_as_json(_library: Library, answer: Answer) -> str:
    """The whole record; `format` names its version."""
    return json.dumps(answer.to_dict(), ensure_ascii=False, indent=1)


def answer_as_html(library: Library, answer: Answer) -> str:
    """One page for people. It names the pages that can no longer be drawn."""
    strongest = max((block.score for passage in answer.passages for block in passage.blocks), default=0.0) or 1.0
    marked = _marked_pages(answer, strongest)
    return TEMPLATES.get_template("answer.html").render(
        answer=answer,
        passages=[(passage, list(_pieces(passage, strongest))) for passage in answer.passages],
        pictures=[_picture(library, *page) for page in marked[:MAX_PICTURES]],
        left_out=max(0, len(marked) - MAX_PICTURES),
        heat=_attention_map(answer),
        record=answer_as_json(library, answer),
        written_at=_moment(answer.created_at),
        model=answer.model.rstrip("/").rsplit("/", 1)[-1],  # without the folder in which it lies
        outcome_note=outcome_note(answer),
        set_aside_note=set_aside_note(answer),
        earlier_version=EARLIER_VERSION,
        who_chose=who_chose(answer),
        attended=attended(answer),
        numbers={citation.passage: citation.number for citation in answer.citations},
    )


def _moment(iso: str) -> str:
    """A time in UTC in the usual form."""
    at = datetime.fromisoformat(iso).astimezone(UTC)
    return f"{at.day} {at:%B %Y, %H:%M} UTC"


def _opacity(score: float, strongest: float) -> float:
    return 0.12 + 0.43 * min(1.0, score / strongest)


def _pieces(passage: Passage, strongest: float) -> Iterator[tuple[str, float]]:
    """The passage's text cut at its blocks, each piece with the opacity of its mark (0: none). Blocks that overlap or
    reach beyond the passage are clipped."""
    at, base = passage.start_index, passage.start_index
    for block in sorted(passage.blocks, key=lambda one: one.start):
        start, end = max(block.start, at), min(block.end, passage.end_index)
        if start < end:
            yield passage.text[at - base : start - base], 0.0
            yield passage.text[start - base : end - base], _opacity(block.score, strongest)
            at = end
    yield passage.text[at - base :], 0.0


def attended(answer: Answer) -> bool:
    """Whether the passages' scores are attention: of the model that answered, or of a writer that reports it."""
    return answer.shows_attention or (answer.writer is not None and answer.memory_share > 0)


Highlights = list[tuple[PageBox, float]]


def _marked_pages(answer: Answer, strongest: float) -> list[tuple[Passage, int, Highlights]]:
    """(a passage on the page, page, boxes with their opacities) of every page with boxes, strongest passage first."""
    pages: dict[tuple[str, int], tuple[Passage, Highlights]] = {}
    for passage in answer.passages:
        for block in passage.blocks:
            for box in sorted(block.boxes, key=lambda one: one.page):
                _, boxes = pages.setdefault((passage.document_id, box.page), (passage, []))
                boxes.append((box, _opacity(block.score, strongest)))
    return [(passage, page, boxes) for (_, page), (passage, boxes) in pages.items()]


def _picture(library: Library, passage: Passage, page: int, boxes: Highlights) -> dict[str, Any]:
    shown = {"title": passage.title or passage.source, "page": page, "boxes": boxes}
    try:
        png = library.documents.page_image(passage.document_id, page, width_px=PICTURE_WIDTH_PX)
    except CairnError as error:
        return {**shown, "problem": str(error), "png": ""}
    return {**shown, "png": base64.b64encode(png).decode()}


def _attention_map(answer: Answer) -> list[tuple[int, list[tuple[float, float]]]]:
    """(layer, for each head its attention over all blocks and the opacity of its cell)."""
    sums = [
        [sum(rows[layer][head] for rows in answer.heat.values()) for head in range(answer.heads)]
        for layer in range(len(answer.layers))
    ]
    top = max((mass for row in sums for mass in row), default=0.0) or 1.0
    return [(layer, [(mass, 0.8 * mass / top) for mass in row]) for layer, row in zip(answer.layers, sums, strict=True)]
