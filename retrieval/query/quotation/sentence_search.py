"""The sentences of the candidates that fit a question best, by the keys that attention reads.

Axes: Q question tokens, C candidates, L tokens in a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from model.reading.second_look import Reading, ReadPassage
from model.scoring.late_interaction import token_matches
from retrieval.engine.workspace import Workspace
from retrieval.index.snapshot import MemoryIndex, naming_damage
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.quotation.placed_sentences import Quotation
from retrieval.query.quotation.quoting import Quoting
from retrieval.query.retrieve import Candidates
from retrieval.query.search import Found


def quoting_from(workspace: Workspace, passages: PassageBuilder, candidates: Candidates) -> Quoting:
    """Quotation from those candidates that may be quoted."""
    ids, quotable = candidates.block_ids, candidates.quotable_C.tolist()
    rows = workspace.catalogue.blocks_by_id([id_ for id_, may in zip(ids, quotable, strict=True) if may])
    model = workspace.opened.model
    return Quoting(model, [rows.get(block_id) for block_id in ids], lambda id_: passages.quotable_text(id_).text)


def best_sentences(
    workspace: Workspace,
    index: MemoryIndex,
    passages: PassageBuilder,
    found: Found,
    candidates: Candidates,
    quoting: Quoting,
    count: int,
    *,
    read: Callable[[Sequence[ReadPassage]], Reading] | None = None,
) -> list[Quotation]:
    """The best sentences of different wording, best first; `read`: see `Quoting.best_sentences`. For models that rank
    by tokens. Takes its own turn at the model."""
    text_of = {document_id: passages.quotable_text(document_id) for document_id in set(candidates.document_ids)}
    with naming_damage(index), workspace.scheduler.for_question():
        keys = candidates.snapshot.token_keys(candidates.positions_C)
        titles_QC = found.titles.of(candidates.document_ids)
        matches_QCL = token_matches(found.question.queries_QWGD, *keys).cpu().maximum(titles_QC[..., None])
        title_of = {document_id: passages.title(document_id) for document_id in text_of}
        return quoting.best_sentences(
            matches_QCL,
            text_of,
            question=found.question.text,
            read=read,
            title_of=title_of,
            count=count,
        )
