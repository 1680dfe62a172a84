"""What a writer adds to an answer, as the command line and MCP give it to programs."""

from __future__ import annotations

from typing import Any

from retrieval.types.answers import Answer


def written_row(answer: Answer) -> dict[str, Any]:
    """`writer` is null where the model that searches answered."""
    writer = answer.writer
    return {
        "writer": None
        if writer is None
        else {
            "name": writer.name,
            "kind": writer.kind,
            "stored_share": writer.stored_share,
            "repair": writer.repair,
        },
        "citations": [
            {"number": one.number, "passage": one.passage, "start": one.start, "end": one.end}
            for one in answer.citations
        ],
        "claims": [
            {
                "text": one.text,
                "verdict": one.verdict,
                "passage": one.passage,
                "sentence": one.sentence,
                "score": one.score,
            }
            for one in answer.claims
        ],
        "problem": answer.problem,
        "quotation": None if writer is None else _quotation_row(answer),
        "set_aside": answer.set_aside,
    }


def _quotation_row(answer: Answer) -> dict[str, Any] | None:
    """What would have been quoted. `outcome`: how sure the search is of it."""
    quotation = answer.quotation
    if quotation is None:
        return None
    passage = quotation.passage
    return {
        "text": passage.text,
        "short_answer": quotation.short,
        "outcome": answer.settings.get("quoted_outcome"),
        "document_id": passage.document_id,
        "source": passage.source,
        "place": passage.place,
    }
