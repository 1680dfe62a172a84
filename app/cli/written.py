"""What a written answer rests on, for people: its passages by number, and what the documents say to each sentence."""

from __future__ import annotations

from app.cli.output import one_line, printable, say
from app.cli.passages import passage_row, passage_text
from retrieval.types.passages import Answer

_MARKS = {"supported": "+", "partly": "~", "not_found": "-"}
_WORDS = {"supported": "supported", "partly": "partly", "not_found": "not found"}


def print_written(answer: Answer) -> None:
    """Behind the answer's words."""
    if answer.problem:
        say(f"\n{printable(answer.problem)}")
    if answer.claims:
        say("\nWhat the documents say to each sentence:")
    for claim in answer.claims:
        missing = ", ".join(printable(answer.text[start:end]) for start, end in claim.unfounded)
        note = f" (in no passage cited: {missing})" if missing else ""
        say(f" {_MARKS[claim.verdict]} {_WORDS[claim.verdict]}: {one_line(claim.text, 160)}{note}")
    if answer.passages:
        numbers = {citation.passage: citation.number for citation in answer.citations}
        assert answer.writer is not None
        say(f"\nPassages that {printable(answer.writer.name)} was given, or that a sentence was found in:")
        rows = [(numbers.get(at, at + 1), passage_row(passage)) for at, passage in enumerate(answer.passages)]
        say("\n".join(passage_text(number, row) for number, row in rows))
