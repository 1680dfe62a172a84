"""Questions whose answers are spans of a passage, with the passages cut into pieces that are encoded one by one.

Rows come from `qa/*.jsonl.xz`. A row takes part if its answers are marked in the context and short enough to point at,
if the context defines in a sentence the term that is asked for, or if it says that the context has no answer. Every
annotator's answer counts.
"""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from research.train.data.corpus import normalised, read_jsonl
from research.train.data.questions.definitions import asked_term, defining_span

LONGEST_PIECE = 1100
"""Characters; about the window that the encoder was trained on."""
LONGEST_ANSWER = 150
"""Characters; longer answers are passages rather than spans."""
MOST_PIECES = 4
"""Of a passage: longer ones are left out."""
SOURCES = ("squad11", "squad20", "disflqa", "policyqa", "qed_nq", "nq_openbook", "quac", "factbook_templated")

_SENTENCE = re.compile(r"(?<=[.!?;:])\s+|\n+")


@dataclass(frozen=True)
class SpanQuestion:
    """A question about a passage. `spans`: (piece, first character, character behind the last), none if the passage
    has no answer."""

    id: str
    source: str
    text: str
    pieces: tuple[str, ...]
    spans: tuple[tuple[int, int, int], ...]
    answers: tuple[str, ...]
    title: str = ""
    """Of the document that the passage stands in."""
    wrong: tuple[str, ...] = ()
    """Passages that search finds for the question and that do not answer it; without any, others of the document."""


def read_span_questions(
    data: Path,
    split: Literal["train", "dev"],
    sources: Iterable[str] = SOURCES,
    *,
    most: int = 0,
    held_out: Container[str] = (),
) -> list[SpanQuestion]:
    """Questions of a split, source by source in file order; at most `most` of each source (0: all), the first of
    development and an even spread of training. "qed_nq:2000" as a source: at most so many of its training questions.
    Training questions whose passage also stands in the development sets are left out, and questions about documents
    with a title in `held_out`."""
    developed = _passages(data, "dev") if split == "train" else set()
    questions: list[SpanQuestion] = []
    for name in sources:
        source, _, limit = name.partition(":")
        rows = list(read_jsonl(data / "qa" / f"{source}.{split}.jsonl.xz"))
        usable = [
            made
            for row in rows
            if row["context_title"] not in held_out
            and normalised(row["context"]) not in developed
            and (made := _question(source, row))
        ]
        if split == "dev":
            questions += usable[: most or None]
            continue
        kept = int(limit or most)
        step = max(1.0, len(usable) / kept) if kept else 1.0
        questions += [usable[int(n * step)] for n in range(int(len(usable) / step))]
    return questions


def _passages(data: Path, split: str) -> set[str]:
    return {
        normalised(row["context"]) for file in (data / "qa").glob(f"*.{split}.jsonl.xz") for row in read_jsonl(file)
    }


def _question(source: str, row: dict[str, Any]) -> SpanQuestion | None:
    """The row as a question, None if nothing in it can be pointed at."""
    cuts = cut(row["context"])
    pieces = tuple(row["context"][start:stop] for start, stop in cuts)
    if not row["context"].strip() or len(cuts) > MOST_PIECES:
        return None
    answers, starts = tuple(row["answers"]), row["answer_starts"]
    if answers and not starts:
        answers, starts = _defined(row)
        if not answers:
            return None
    spans = []
    for answer, at in zip(answers, starts or (), strict=True):
        inside = [n for n, (start, stop) in enumerate(cuts) if start <= at and at + len(answer) <= stop]
        if at >= 0 and inside and 0 < len(answer) <= LONGEST_ANSWER:
            start = cuts[inside[0]][0]
            spans.append((inside[0], at - start, at - start + len(answer)))
    if answers and not spans:
        return None
    return SpanQuestion(row["id"], source, row["question"], pieces, tuple(spans), answers, row["context_title"])


def _defined(row: dict[str, Any]) -> tuple[tuple[str, ...], list[int]]:
    """The words of the passage that define what is asked for, and where they begin; none where nothing does."""
    term = asked_term(row["question"])
    found = defining_span(row["context"], term, row["answers"][0]) if term else None
    return ((row["context"][slice(*found)],), [found[0]]) if found else ((), [])


def cut(text: str) -> list[tuple[int, int]]:
    """Character spans of the pieces of a text: whole sentences, as many as fit."""
    borders = [match.end() for match in _SENTENCE.finditer(text)] + [len(text)]
    pieces: list[tuple[int, int]] = []
    start = last = 0
    for border in borders:
        while border - start > LONGEST_PIECE:  # a sentence too long to fit is cut anywhere
            stop = last if last > start else start + LONGEST_PIECE
            pieces.append((start, stop))
            start = last = stop
        last = border
    if last > start:
        pieces.append((start, last))
    return pieces
