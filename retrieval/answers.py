"""The stored answers."""

from __future__ import annotations

import json

from retrieval.errors import catalogue_errors
from retrieval.types.answers import Answer, AnswerHead, BlockEffect, PassageEffect
from retrieval.view import View


class Answers:
    """Those given to one user. Methods that take an answer's id raise `NotFound` for any other."""

    def __init__(self, view: View):
        self.view, self._catalogue = view, view.catalogue

    @catalogue_errors()
    def get(self, answer_id: str) -> Answer:
        """As it was given."""
        return Answer.from_dict(json.loads(self._catalogue.answer(answer_id).body))

    @catalogue_errors()
    def delete(self, answer_id: str) -> None:
        self._catalogue.delete_answer(answer_id)

    @catalogue_errors()
    def effect_of_block(self, answer_id: str, block_id: int) -> BlockEffect:
        """How much less likely the answer becomes when this block is left out of what the model may read."""
        from retrieval.query.effect import effect_of_block

        return effect_of_block(self.view.workspace, self.view.index, self.get(answer_id), block_id)

    @catalogue_errors()
    def effect_of_passage(self, answer_id: str, passage: int) -> PassageEffect:
        """What would be quoted if a passage of the answer (counted from 0) were not in the library."""
        from retrieval.query.effect import effect_of_passage

        view = self.view
        return effect_of_passage(view.workspace, view.index, view.passages, self.get(answer_id), passage)

    @catalogue_errors()
    def list(
        self, *, limit: int = 100, offset: int = 0, search: str = "", conversation_id: str | None = None
    ) -> list[AnswerHead]:
        """Newest first."""
        rows = self._catalogue.answers(limit=limit, offset=offset, search=search, conversation_id=conversation_id)
        return [AnswerHead(row.id, row.question, row.text, row.created_at, row.conversation_id) for row in rows]
