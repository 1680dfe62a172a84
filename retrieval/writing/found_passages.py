"""What a writer is given for a question: the segments of documents that hold the blocks which search found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retrieval.engine.workspace import Workspace
from retrieval.index.snapshot import MemoryIndex, naming_damage
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.search import find_blocks, hits_of
from retrieval.query.sentences import Hit
from retrieval.types.passages import Passage
from retrieval.types.records import Scope
from retrieval.writers.protocol import WriterPassage
from retrieval.writers.segments import segment_at, segments_of
from storage.errors import NotFound as NoRow

# Several of the best blocks stand in one segment.
_BLOCKS_PER_SEGMENT = 4


@dataclass(frozen=True)
class FoundPassages:
    """`passages`: segments, the best first; `confidence` as in `query.search.Found`."""

    passages: tuple[Passage, ...]
    confidence: float


def find_passages(
    workspace: Workspace,
    index: MemoryIndex,
    builder: PassageBuilder,
    text: str,
    count: int,
    scope: Scope | None,
    *,
    with_sentence: Passage | None = None,
) -> FoundPassages:
    """The `count` best segments for a question; fewer where the scope holds fewer. That of `with_sentence` is among
    them. Raises as `query.search.search`."""
    with workspace.scheduler.question_open(), index.open_snapshot(workspace.catalogue) as snapshot:
        with naming_damage(index):
            found = find_blocks(workspace, snapshot, text, _BLOCKS_PER_SEGMENT * count, scope)
        hits = hits_of(snapshot, found.positions_C, found.scores_C)
    best: dict[tuple[str, int, int], list[float]] = {}
    rows = workspace.catalogue.blocks_by_id([hit.block_id for hit in hits])
    for hit in hits:
        if (row := rows.get(hit.block_id)) is None:
            continue
        place = _segment_around(builder, hit.document_id, row.start, row.end)
        best.setdefault(place, []).append(hit.score)
    ranked = sorted(best, key=lambda place: -found.joined(best[place]))[:count]
    if with_sentence is not None and (place := _segment_of(builder, with_sentence)) not in ranked:
        ranked = [place, *ranked[: count - 1]]
    scores = {hit.block_id: hit.score for hit in hits}
    made = (segment_passage(workspace, builder, *place, scores) for place in ranked)
    return FoundPassages(tuple(passage for passage in made if passage is not None), found.confidence)


def _segment_of(builder: PassageBuilder, passage: Passage) -> tuple[str, int, int]:
    return _segment_around(builder, passage.document_id, passage.start_index, passage.end_index)


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


def writer_passages(passages: Sequence[Passage], first: int = 1) -> tuple[WriterPassage, ...]:
    """The passages as a writer is shown them, numbered from `first`."""
    return tuple(
        WriterPassage(number, one.document_id, one.title or one.source, one.pages, one.text)
        for number, one in enumerate(passages, first)
    )
