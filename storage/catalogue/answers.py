"""Conversations, questions and answers, kept as they were given."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from storage.catalogue.rows import Tables, now, search_text
from storage.catalogue.schema import answer_documents, answers, conversations
from storage.catalogue.sharing import owned, readable_answers
from storage.errors import NotFound
from storage.records import AnswerHead, Conversation, StoredAnswer

_HEAD = (answers.c.id, answers.c.conversation_id, answers.c.question, answers.c.text, answers.c.created_at)


class AnswerTables(Tables):
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
        owner_id: str | None = None,
    ) -> AnswerHead:
        """Keep an answer with its whole `body` (JSON) and the documents it used: when one of those goes, it goes too.

        Raises `NotFound` if a document was deleted meanwhile (then nothing of it is kept), or the conversation.
        """
        head = AnswerHead(answer_id or uuid4().hex, conversation_id, question, text, created_at or now())
        row = vars(head) | {"search_text": search_text(question, text), "body": body, "owner_id": owner_id}
        used = [{"answer_id": head.id, "document_id": document_id} for document_id in dict.fromkeys(document_ids)]
        try:
            with self.database.write() as connection:
                connection.execute(insert(answers).values(row))
                if used:
                    connection.execute(insert(answer_documents), used)
        except IntegrityError as error:
            raise NotFound("document or conversation of this answer", head.id) from error
        return head

    def answer(self, answer_id: str, *, reader: str | None = None) -> StoredAnswer:
        """Raises `NotFound`."""
        chosen = select(*_HEAD, answers.c.body).where(answers.c.id == answer_id, readable_answers(reader))
        with self.database.read() as connection:
            row = connection.execute(chosen).first()
            if row is None:
                raise NotFound("answer", answer_id)
            mine = answer_documents.c.answer_id == answer_id
            used = connection.execute(select(answer_documents.c.document_id).where(mine)).scalars()
            return StoredAnswer(**row._mapping, document_ids=tuple(sorted(used)))

    def answers(
        self,
        *,
        search: str = "",
        conversation_id: str | None = None,
        limit: int | None = 100,
        offset: int = 0,
        reader: str | None = None,
    ) -> list[AnswerHead]:
        """Newest first; those whose question or text contains every word of `search`.

        `reader`: only this user's own, and of these only those from documents that the user may still read.
        """
        chosen = (
            select(*_HEAD)
            .where(readable_answers(reader))
            .order_by(answers.c.created_at.desc(), answers.c.id)
            .limit(limit)
            .offset(offset)
        )
        for word in search.casefold().split():
            chosen = chosen.where(answers.c.search_text.contains(word, autoescape=True))
        if conversation_id is not None:
            chosen = chosen.where(answers.c.conversation_id == conversation_id)
        with self.database.read() as connection:
            return [AnswerHead(*row) for row in connection.execute(chosen)]

    def delete_answer(self, answer_id: str) -> None:
        """Raises `NotFound`."""
        with self.database.write() as connection:
            if connection.execute(delete(answers).where(answers.c.id == answer_id)).rowcount == 0:
                raise NotFound("answer", answer_id)
        self.database.erase_deleted()

    def create_conversation(
        self, title: str, *, conversation_id: str | None = None, owner_id: str | None = None
    ) -> Conversation:
        made = Conversation(conversation_id or uuid4().hex, title, now())
        with self.database.write() as connection:
            connection.execute(insert(conversations).values(vars(made) | {"owner_id": owner_id}))
        return made

    def ensure_conversation(self, conversation_id: str, title: str, *, owner_id: str | None = None) -> None:
        """Make the conversation unless there is one of that id. Raises `NotFound` if that is another user's."""
        row = {"id": conversation_id, "title": title, "owner_id": owner_id, "created_at": now()}
        with self.database.write() as connection:
            known = select(conversations.c.owner_id).where(conversations.c.id == conversation_id)
            found = connection.execute(known).first()
            if found is None:
                connection.execute(insert(conversations).values(row))
            elif owner_id is not None and found.owner_id != owner_id:
                raise NotFound("conversation", conversation_id)

    def conversation_owner(self, conversation_id: str) -> str | None:
        """Id of the user whose conversation it is, None for nobody's. Raises `NotFound`."""
        with self.database.read() as connection:
            known = select(conversations.c.owner_id).where(conversations.c.id == conversation_id)
            row = connection.execute(known).first()
        if row is None:
            raise NotFound("conversation", conversation_id)
        return None if row.owner_id is None else str(row.owner_id)

    def conversations(self, *, limit: int | None = 100, owner_id: str | None = None) -> list[Conversation]:
        """Newest first; `owner_id`: only this user's."""
        chosen = select(conversations.c.id, conversations.c.title, conversations.c.created_at)
        chosen = chosen.where(owned(conversations.c.owner_id, owner_id))
        chosen = chosen.order_by(conversations.c.created_at.desc(), conversations.c.id).limit(limit)
        with self.database.read() as connection:
            return [Conversation(*row) for row in connection.execute(chosen)]

    def rename_conversation(self, conversation_id: str, title: str) -> None:
        """Raises `NotFound`."""
        with self.database.write() as connection:
            renamed = update(conversations).where(conversations.c.id == conversation_id).values(title=title)
            if connection.execute(renamed).rowcount == 0:
                raise NotFound("conversation", conversation_id)

    def delete_conversation(self, conversation_id: str) -> None:
        """With all its answers. Raises `NotFound`."""
        with self.database.write() as connection:
            if connection.execute(delete(conversations).where(conversations.c.id == conversation_id)).rowcount == 0:
                raise NotFound("conversation", conversation_id)
        self.database.erase_deleted()
