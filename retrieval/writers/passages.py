"""The passages that a writer reads for a question, and how much it reads at a time.

- Documents are cut into segments at paragraph borders, the same for every question. A writer reads the segments that
  hold the blocks which search found. Positions are characters of the document's text.
- Small models lose the question behind many passages, and repeat long instructions instead of following them. So they
  get the best few passages, and the sentence that search would have quoted.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from retrieval.engine.workspace import Workspace
from retrieval.errors import CairnError
from retrieval.index.snapshot import MemoryIndex, naming_damage, scope_documents
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.passage_spans import Hit
from retrieval.query.search import find_blocks, hits_of
from retrieval.types.answers import Passage
from retrieval.types.records import Scope
from retrieval.types.writer import Writer, WriterPassage
from retrieval.writers.local import LocalWriter
from retrieval.writers.prompt import ANSWER, ANSWER_BRIEFLY
from storage.errors import NotFound as NoRow

# About 250 tokens of English: a few paragraphs, short enough for a citation to lead to the place, and eight of them fit
# into small windows.
SEGMENT_CHARACTERS = 1000
# A border is looked for in the last part of a segment.
_EARLIEST = 0.5

_BORDERS = (re.compile(r"\n\s*\n"), re.compile(r"[.!?…][\"'”’)\]]*\s+"), re.compile(r"\s+"))


def segments_of(text: str, length: int = SEGMENT_CHARACTERS) -> list[tuple[int, int]]:
    """(start, end) of segments of at most `length` characters that cover `text` without gaps.

    Each ends at the last paragraph border in its second half, else at a sentence, else at a word.
    """
    segments, start = [], 0
    while len(text) - start > length:
        end = _border(text, start + int(length * _EARLIEST), start + length)
        segments.append((start, end))
        start = end
    return [*segments, (start, len(text))] if text else []


def segment_at(segments: list[tuple[int, int]], position: int) -> int:
    """Number of the segment that holds the character at `position`."""
    return bisect_right(segments, (position, len(segments) and segments[-1][1] + 1)) - 1


def _border(text: str, earliest: int, latest: int) -> int:
    for pattern in _BORDERS:
        ends = [match.end() for match in pattern.finditer(text, earliest, latest)]
        if ends:
            return ends[-1]
    return latest


SMALL_WEIGHTS = 1_000_000_000
_SMALL_PASSAGES = 3
SEGMENTS_A_PART = 6


@dataclass(frozen=True)
class ContextBudget:
    """What a writer reads at a time. `passages`: for a question; `part`: segments of a whole document; `instruction`:
    for a question; `hinted`: with the sentence that would be quoted."""

    passages: int
    part: int
    instruction: str
    hinted: bool = False


def full_budget(wanted: int) -> ContextBudget:
    """What a writer that is not small reads at a time."""
    return ContextBudget(wanted, SEGMENTS_A_PART, ANSWER)


def context_budget(writer: Writer, wanted: int) -> ContextBudget:
    """What this writer reads at a time, by its size. `wanted`: passages that the question asks for. Raises as
    `Writer.weights`."""
    weights = writer.weights
    if weights is None or weights >= SMALL_WEIGHTS:
        return full_budget(wanted)
    return ContextBudget(min(wanted, _SMALL_PASSAGES), _SMALL_PASSAGES, ANSWER_BRIEFLY, hinted=True)


# Several of the best blocks stand in one segment.
_BLOCKS_PER_SEGMENT = 4


def find_passages(
    workspace: Workspace,
    index: MemoryIndex,
    builder: PassageBuilder,
    text: str,
    count: int,
    scope: Scope | None,
    *,
    with_sentence: Passage | None = None,
) -> tuple[tuple[Passage, ...], float]:
    """The `count` best segments for a question, the best first, and the confidence as in `query.search.SearchResult`;
    fewer where the scope holds fewer. The one of `with_sentence` is among them. Raises as `query.search.search`."""
    with index.open_for_question(workspace.catalogue) as snapshot:
        with naming_damage(index):
            found = find_blocks(workspace, snapshot, text, _BLOCKS_PER_SEGMENT * count, scope)
        hits = hits_of(snapshot, found.indices_C, found.scores_C)
    best: dict[tuple[str, int, int], list[float]] = {}
    rows = workspace.catalogue.blocks_by_id([hit.block_id for hit in hits])
    for hit in hits:
        if (row := rows.get(hit.block_id)) is None:
            continue
        place = _segment_around(builder, hit.document_id, row.start, row.end)
        best.setdefault(place, []).append(hit.score)
    ranked = sorted(best, key=lambda place: -found.joined(best[place]))[:count]
    if with_sentence is not None:
        place = _segment_around(builder, with_sentence.document_id, with_sentence.start_index, with_sentence.end_index)
        if place not in ranked:
            ranked = [place, *ranked[: count - 1]]
    scores = {hit.block_id: hit.score for hit in hits}
    made = (segment_passage(workspace, builder, *place, scores) for place in ranked)
    return tuple(passage for passage in made if passage is not None), found.confidence


def _segment_around(builder: PassageBuilder, document_id: str, start: int, end: int) -> tuple[str, int, int]:
    """(document, start, end) of the segment that holds the middle of these characters."""
    segments = segments_of(builder.text(document_id))
    middle = min((start + end) // 2, segments[-1][1] - 1)
    return document_id, *segments[segment_at(segments, middle)]


def segment_passage(
    workspace: Workspace, builder: PassageBuilder, document_id: str, start: int, end: int, scores: dict[int, float]
) -> Passage | None:
    """Characters `start` to `end` of a document with all their blocks; those without a score have 0. None if it was
    deleted meanwhile, or has no text there."""
    try:
        if not builder.text(document_id)[start:end].strip():
            return None
        rows = workspace.catalogue.blocks_of_document(document_id, start=start, end=end)
    except NoRow:
        return None
    hits = [Hit(row.id, document_id, row.ordinal, scores.get(row.id, 0.0)) for row in rows]
    return builder.sentence(hits, start, end) if hits else None


def writer_passages(passages: Sequence[Passage]) -> tuple[WriterPassage, ...]:
    """The passages in the form for a writer, numbered from 1."""
    return tuple(
        WriterPassage(number, one.document_id, one.title or one.source, one.pages, one.text)
        for number, one in enumerate(passages, 1)
    )


def all_segments(
    workspace: Workspace, builder: PassageBuilder, scope: Scope | None, cancelled: Callable[[], bool] = lambda: False
) -> tuple[Passage, ...]:
    """The segments of every ready document in scope, in the order of titles; all documents without a scope. Cancelled:
    none. Raises `storage.errors.NotFound` for unknown documents and collections."""
    wanted = scope_documents(workspace.catalogue, scope or Scope())
    found: list[Passage | None] = []
    for document in workspace.catalogue.documents(sort="title"):
        if document.state == "ready" and document.id in wanted:
            for start, end in segments_of(builder.text(document.id)):
                if cancelled():
                    return ()
                found.append(segment_passage(workspace, builder, document.id, start, end, {}))
    return tuple(passage for passage in found if passage is not None)


logger = logging.getLogger(__name__)


def prefetch(
    workspace: Workspace,
    builder: PassageBuilder,
    open_writer: Callable[[], Writer | None],
    document_id: str,
    between: Callable[[], None],
) -> None:
    """Let a local writer read and store all segments of a document, if it prefetches; other writers do nothing.

    Questions go first. `between` is called before each segment. Errors are logged: the document is complete without
    this, and the writer reads what it needs when it is asked.
    """
    try:
        writer = open_writer()
        if not (isinstance(writer, LocalWriter) and writer.prefetches):
            return
        for passage in writer_passages(all_segments(workspace, builder, Scope((document_id,)))):
            between()
            with workspace.scheduler.for_ingestion():
                writer.prefetch([passage])
    except NoRow:
        logger.info("document %s was deleted while the writer read it", document_id)
    except (CairnError, RuntimeError, MemoryError) as error:  # a GPU may be full, too
        logger.warning("the writer did not prefetch document %s: %s", document_id, error)
