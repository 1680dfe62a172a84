"""The part of the library that answers: search, questions, the answers that were given, figures and tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, TypeAlias, cast

from retrieval.engine.workspace import Workspace
from retrieval.errors import AccessChanged, InvalidRequest, catalogue_errors
from retrieval.index.snapshot import MemoryIndex
from retrieval.ingest.pages import exhibits_of, figure_picture
from retrieval.query.passage_builder import PassageBuilder
from retrieval.types.answers import (
    DEFAULT_K,
    DEFAULT_MAX_TOKENS,
    DEFAULT_POSITIONS,
    DEFAULT_QUOTE,
    DEFAULT_VOTERS,
    NEEDS_WRITER,
    Answer,
    AnswerHead,
    AnswerToken,
    BlockEffect,
    Passage,
    PassageEffect,
    Progress,
    longest_answer,
)
from retrieval.types.records import DocumentExhibits, Scope, head_view
from retrieval.writers.opening import WriterSlot
from storage.catalogue import Catalogue
from storage.errors import NotFound as NoRow
from storage.names import encodable

if TYPE_CHECKING:
    from retrieval.types.writer import Turn, Writer

_Item: TypeAlias = Progress | AnswerToken | Answer
ACCESS_SECONDS = 1.0
"""Between one look at what the asker may read and the next, while an answer is given."""


class Asking:
    """Of one user's library. `Library` sets the attributes."""

    _workspace: Workspace
    _index: MemoryIndex
    _catalogue: Catalogue
    _passages: PassageBuilder
    _writers: WriterSlot

    @property
    def writer(self) -> Writer | None:
        """Who words answers, opened at the first need; None: the model that searches. Raises WriterError."""
        return self._writers.writer

    @property
    def writes_own_words(self) -> bool:
        """Whether answers can be worded: by a writer, or by the model that searches once it is loaded and trained for
        it."""
        model = self._workspace.model_if_loaded
        return self._writers.filled or (model is not None and not model.config.quotes)

    @property
    def can_write(self) -> bool:
        """Whether answers can be worded; loads the model that searches, where there is no writer."""
        return self._writers.filled or not self._workspace.loaded().model.config.quotes

    @catalogue_errors()
    def search(self, query: str, k: int = DEFAULT_K, *, within: Scope | None = None) -> list[Passage]:
        """Passages by the attention that the query gives them, best first; exactly k unless the scope holds fewer
        blocks."""
        from retrieval.query.search import search

        return search(self._workspace, self._index, self._passages, encodable(query), k, within)

    @catalogue_errors()
    def exhibits(self, document_id: str) -> DocumentExhibits:
        """Figures and tables of a document, with their captions and cells. Raises NotFound, ExtractError."""
        document = self._catalogue.document(document_id)
        return exhibits_of(self._workspace, document.id, document.kind, self._passages.text(document_id))

    @catalogue_errors()
    def picture(self, document_id: str, name: str) -> bytes:
        """The picture of a figure, as `exhibits` names it. Raises NotFound, ExtractError."""
        return figure_picture(self._workspace, self._catalogue.document(document_id).id, name)

    def ask(
        self,
        question: str,
        *,
        k: int = DEFAULT_K,
        within: Scope | None = None,
        quote: bool | None = DEFAULT_QUOTE,
        max_tokens: int | None = DEFAULT_MAX_TOKENS,
        voters: str = DEFAULT_VOTERS,
        positions: str = DEFAULT_POSITIONS,
        conversation_id: str | None = None,
        anyway: bool = False,
        earlier: Sequence[Turn] = (),
        whole: bool | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Progress | AnswerToken | Answer]:
        """Tokens as they come, then the stored Answer. `conversation_id`: any id of the caller's; follow-ups share it,
        or bring along what was said before (`earlier`, oldest first).

        `quote`: word for word from the documents; None: by the writer if there is one, else as suits the model.
        `whole`: the writer reads all of the documents `within`, giving Progress first; None: where a question like
        "summarise" names documents. `max_tokens` None: as suits who writes. `anyway`: quote from the nearest passages
        even where the documents do not seem to say.
        """
        from retrieval.query.question import Question
        from retrieval.writers.written import answerer

        writer = None if quote or anyway else self.writer
        if whole and writer is None:
            raise InvalidRequest(NEEDS_WRITER)
        asked = Question(
            text=encodable(question),
            k=k,
            scope=within,
            quote=quote,
            max_tokens=longest_answer(max_tokens, written=writer is not None),
            voters=voters,
            positions=positions,
            conversation_id=conversation_id,
            anyway=anyway,
            earlier=tuple(earlier),
            whole=whole,
        )
        with catalogue_errors():
            answering = answerer(self._workspace, self._index, self._passages, asked, writer).run(cancelled)
            yield from self._while_allowed(answering)

    def _while_allowed(self, items: Iterator[_Item]) -> Iterator[_Item]:
        """Raises AccessChanged once the account is gone, or a collection that it could read is not shared with it."""
        if self._catalogue.principal.is_administrator:
            yield from items
            return
        could_read, looked = self._catalogue.access(), time.monotonic()
        with closing(cast(Generator[_Item, None, None], items)):  # the model's work ends with it
            for item in items:
                if time.monotonic() - looked >= ACCESS_SECONDS:
                    self._check_access(could_read)
                    looked = time.monotonic()
                yield item

    def _check_access(self, could_read: frozenset[str]) -> None:
        """Raises AccessChanged."""
        try:
            lost = could_read - self._catalogue.access()
        except NoRow as gone:
            raise AccessChanged from gone
        if lost:
            raise AccessChanged

    @catalogue_errors()
    def answers(
        self, *, limit: int = 100, offset: int = 0, search: str = "", conversation_id: str | None = None
    ) -> list[AnswerHead]:
        """Newest first."""
        rows = self._catalogue.answers(limit=limit, offset=offset, search=search, conversation_id=conversation_id)
        return [head_view(row) for row in rows]

    @catalogue_errors()
    def answer(self, answer_id: str) -> Answer:
        """As it was given. Raises NotFound."""
        return Answer.from_dict(json.loads(self._catalogue.answer(answer_id).body))

    @catalogue_errors()
    def delete_answer(self, answer_id: str) -> None:
        self._catalogue.delete_answer(answer_id)

    def effect_of_block(self, answer_id: str, block_id: int) -> BlockEffect:
        """How much less likely the stored answer becomes when this block is left out of what the model may read."""
        from retrieval.query.effect import effect_of_block

        return effect_of_block(self._workspace, self._index, self.answer(answer_id), block_id)

    @catalogue_errors()
    def effect_of_passage(self, answer_id: str, passage: int) -> PassageEffect:
        """What would be quoted if a passage of the stored answer (counted from 0) were not in the library."""
        from retrieval.query.effect import effect_of_passage

        return effect_of_passage(self._workspace, self._index, self._passages, self.answer(answer_id), passage)
