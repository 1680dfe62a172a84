"""Conversations, questions and answers, stored exactly as they were given."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from storage.catalogue.database import holds_words, one_row, record_of, search_text
from storage.catalogue.permissions import Repository, for_any_principal, readable_answers, readable_documents
from storage.catalogue.schema import answer_documents, answers, conversations, documents, now, users
from storage.errors import NotFound
from storage.names import clean_name
from storage.records import AnswerHead, StoredAnswer


class AnswerRepository(Repository):
    """Users see the answers to their own questions, as long as they may read every document used."""

    @for_any_principal
    def save_answer(
        self,
        *,
        question: str,
        text: str,
        body: str,
        document_ids: Iterable[str],
        answer_id: str | None = None,
        conversation_id: str | None = None,
        created_at: str | None = None,
    ) -> AnswerHead:
        """Store an answer with its `body` (JSON) and the documents it used; deleting any of these deletes the answer.

        Raises `NotFound`, and stores nothing, if a document or the conversation was deleted in the meantime, may not
        be read any more, or the account is gone.
        """
        head = AnswerHead(answer_id or uuid4().hex, conversation_id, question, text, created_at or now())
        row = vars(head) | {"search_text": search_text(question, text), "body": body}
        used = [{"answer_id": head.id, "document_id": document_id} for document_id in dict.fromkeys(document_ids)]
        try:
            with self._database.write(notify=False) as connection:
                self._check_still_allowed(connection, [one["document_id"] for one in used])
                connection.execute(insert(answers).values(row | {"owner_id": self.principal.user_id}))
                if used:
                    connection.execute(insert(answer_documents), used)
        except IntegrityError as error:
            raise NotFound("document or conversation of this answer", head.id) from error
        return head

    def _check_still_allowed(self, connection: Connection, document_ids: list[str]) -> None:
        if self.principal.is_administrator:
            return
        account = select(users.c.id).where(users.c.id == self.principal.user_id).with_for_update(read=True)
        one_row(connection, account, "user", self.principal.user_id or "")
        readable = select(documents.c.id).where(documents.c.id.in_(document_ids), readable_documents(self.principal))
        if lost := set(document_ids) - set(connection.execute(readable).scalars()):
            raise NotFound("document", min(lost))

    @for_any_principal
    def answer(self, answer_id: str) -> StoredAnswer:
        """Raises `NotFound`."""
        chosen = select(answers).where(answers.c.id == answer_id, readable_answers(self.principal))
        used = select(answer_documents.c.document_id).where(answer_documents.c.answer_id == answer_id)
        with self._database.read() as connection:
            row = one_row(connection, chosen, "answer", answer_id)
            return record_of(StoredAnswer, row, document_ids=tuple(sorted(connection.execute(used).scalars())))

    @for_any_principal
    def answers(
        self, *, search: str = "", conversation_id: str | None = None, limit: int | None = 100, offset: int = 0
    ) -> list[AnswerHead]:
        """Answers whose question or text contains every word of `search`, newest first.

        Raises `NotFound` for another user's conversation. A conversation that does not exist yet has no answers.
        """
        heads = answers.c["id", "conversation_id", "question", "text", "created_at"]  # bodies may be long
        chosen = select(*heads).where(readable_answers(self.principal))
        chosen = chosen.order_by(answers.c.created_at.desc(), answers.c.id).limit(limit).offset(offset)
        chosen = chosen.where(holds_words(answers.c.search_text, search))
        with self._database.read() as connection:
            if conversation_id is not None:
                self._conversation_exists(connection, conversation_id)
                chosen = chosen.where(answers.c.conversation_id == conversation_id)
            return [record_of(AnswerHead, row) for row in connection.execute(chosen)]

    @for_any_principal
    def delete_answer(self, answer_id: str) -> None:
        """Raises `NotFound`."""
        with self._database.write_to_delete() as connection:
            mine = (answers.c.id == answer_id) & readable_answers(self.principal)
            if connection.execute(delete(answers).where(mine)).rowcount == 0:
                raise NotFound("answer", answer_id)

    @for_any_principal
    def ensure_conversation(self, conversation_id: str, title: str) -> None:
        """Create the conversation unless it exists. Raises `NotFound` if it is another user's."""
        row = {"id": conversation_id, "title": clean_name(title), "owner_id": self.principal.user_id}
        with self._database.read() as connection:
            if self._conversation_exists(connection, conversation_id):
                return
        with self._database.write(notify=False) as connection:
            if not self._conversation_exists(connection, conversation_id):
                connection.execute(insert(conversations).values(row))

    def _conversation_exists(self, connection: Connection, conversation_id: str) -> bool:
        """Raises `NotFound` if it is another user's."""
        known = select(conversations.c.owner_id).where(conversations.c.id == conversation_id)
        found = connection.execute(known).first()
        if found is not None and not self.principal.may_change(found.owner_id):
            raise NotFound("conversation", conversation_id)
        return found is not None
