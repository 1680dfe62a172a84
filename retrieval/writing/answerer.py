"""Who answers a question: the model that searches, or a writer."""

from __future__ import annotations

from retrieval.engine.workspace import Workspace
from retrieval.index.snapshot import MemoryIndex
from retrieval.query.answer import Answerer
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.question import Question
from retrieval.writers.protocol import Writer
from retrieval.writing.written_answer import WrittenAnswerer


def answerer(
    workspace: Workspace, index: MemoryIndex, passages: PassageBuilder, question: Question, writer: Writer | None
) -> Answerer | WrittenAnswerer:
    if writer is None:
        return Answerer(workspace, index, passages, question)
    return WrittenAnswerer(workspace, index, passages, question, writer)
