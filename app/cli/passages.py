"""Passages as the command line writes them, for programs and for people, and what a written answer rests on."""

from __future__ import annotations

from typing import Any

from app.cli.output import one_line, say
from retrieval.types.answers import Answer, Passage

_MARKS = {"supported": "+", "partly": "~", "not_found": "-"}
_WORDS = {"supported": "supported", "partly": "partly", "not_found": "not found"}


def passage_row(passage: Passage) -> dict[str, Any]:
    """`pages` count from 1; `start_index` and `end_index` count characters of the document's text."""
    return {
        "document_id": passage.document_id,
        "source": passage.source,
        "pages": list(passage.pages),
        "page_labels": list(passage.page_labels),
        "place": passage.place,
        "start_index": passage.start_index,
        "end_index": passage.end_index,
        "text": passage.text,
        "score": passage.score,
        "block_ids": list(passage.block_ids),
    }


def passage_text(number: int, passage: dict[str, Any], width: int = 160) -> str:
    where = ", ".join(part for part in (passage["source"], passage["place"]) if part)
    head = f"{number:2}. {passage['score']:.3f}  {where}"
    return f"{head}\n    {one_line(passage['text'], width)}"


def print_written(answer: Answer) -> None:
    """Behind the answer's words: passages by number, and what the documents say to each sentence."""
    if answer.problem:
        say(f"\n{answer.problem}")
    if answer.beside is not None:
        row = passage_row(answer.beside.passage)
        where = ", ".join(part for part in (row["source"], row["place"]) if part)
        say(f"\nThe sentence that comes nearest: “{one_line(row['text'], 400)}” ({where})")
    if answer.claims:
        say("\nWhat the documents say to each sentence:")
    for claim in answer.claims:
        missing = ", ".join(answer.text[start:end] for start, end in claim.unfounded)
        note = f" (in no passage cited: {missing})" if missing else ""
        cited = sorted({one.number for one in answer.citations if claim.start <= one.start < claim.end})
        behind = "".join(f" [{number}]" for number in cited)
        say(f" {_MARKS[claim.verdict]} {_WORDS[claim.verdict]}: {one_line(claim.text, 160)}{behind}{note}")
    if answer.passages:
        numbers = {citation.passage: citation.number for citation in answer.citations}
        assert answer.writer is not None
        say(f"\nPassages that {answer.writer.name} was given, or that a sentence was found in:")
        rows = [(numbers.get(at, at + 1), passage_row(passage)) for at, passage in enumerate(answer.passages)]
        say("\n".join(passage_text(number, row) for number, row in rows))
