"""Who may see what: the one place that decides.

- Everything above works on a `Library`; `Library.as_seen_by(principal)` gives one whose catalogue is a
  `VisibleCatalogue` and whose memory is a `VisibleMemory`. What these do not hand out does not exist for whoever
  looks: not found.
- `VisibleCatalogue` names each thing that a user may do. What is not named cannot be done, so that a new method of the
  catalogue is shut until it is thought about here.
- `VisibleMemory` takes the blocks of other people's documents out before anything is ranked: they cannot be read, come
  near, be counted, or shift a threshold.
- Reading is for owner and readers, changing for the owner. What belongs to nobody is read by all, changed by none but
  the administrator: whoever opens the library without a viewer (the command line).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from retrieval.errors import CairnError, DamagedMemory, PermissionDenied
from retrieval.index.snapshot import MemoryIndex, MemorySnapshot
from retrieval.index.stored_reader import StoredBlocks
from retrieval.index.visible_landmarks import VisibleLandmarks
from storage.catalogue import Catalogue
from storage.errors import NotFound as NoRow
from storage.fingerprint import MemoryFingerprint
from storage.records import (
    AnswerHead,
    Block,
    Collection,
    DeletedDocuments,
    Document,
    ExtractedText,
    Job,
    NewDocument,
    Page,
    StoredAnswer,
    Submitted,
    Totals,
    User,
)


@dataclass(frozen=True)
class Principal:
    """Who looks. `user_id` None is the administrator, who sees and may change everything."""

    user_id: str | None = None
    name: str = ""

    @property
    def is_administrator(self) -> bool:
        return self.user_id is None

    def may_change(self, owner_id: str | None) -> bool:
        return self.user_id is None or owner_id == self.user_id


ADMINISTRATOR = Principal()


class VisibleCatalogue:
    """The catalogue as one user sees it; methods as in `storage.catalogue.Catalogue`."""

    def __init__(self, catalogue: Catalogue, user_id: str):
        self._catalogue, self._user_id = catalogue, user_id

    # Documents

    def document(self, document_id: str) -> Document:
        return self._catalogue.document(document_id, reader=self._user_id)

    def documents(self, **chosen: Any) -> list[Document]:
        return self._catalogue.documents(**chosen, reader=self._user_id)

    def count_documents(self, **chosen: Any) -> int:
        return self._catalogue.count_documents(**chosen, reader=self._user_id)

    def find_document(self, content_sha256: str, fingerprint: str) -> Document | None:
        """The user's own only: nobody learns that somebody else has a file."""
        return self._catalogue.find_document(content_sha256, fingerprint, owner_id=self._user_id)

    def add_document(self, new: NewDocument, *, collection: str | None = None, note: str = "") -> Submitted:
        if new.collection_id is not None:
            self._own_collection(new.collection_id)
        return self._catalogue.add_document(replace(new, owner_id=self._user_id), collection=collection, note=note)

    def rename_document(self, document_id: str, title: str) -> Document:
        self._own_document(document_id)
        return self._catalogue.rename_document(document_id, title)

    def put_title_keys(self, document_id: str, title: str, keys: bytes) -> None:
        self._own_document(document_id)
        self._catalogue.put_title_keys(document_id, title, keys)

    def title_keys(self, document_ids: Sequence[str]) -> dict[str, bytes]:
        visible = self._catalogue.readable_document_ids(self._user_id, of=document_ids)
        return self._catalogue.title_keys([each for each in document_ids if each in visible])

    def move_document(self, document_id: str, collection_id: str | None) -> Document:
        self._own_document(document_id)
        if collection_id is not None:
            self._own_collection(collection_id)
        return self._catalogue.move_document(document_id, collection_id)

    def delete_documents(self, document_ids: Iterable[str]) -> DeletedDocuments:
        """Ids that the user cannot see are ignored, as unknown ones are."""
        wanted = list(dict.fromkeys(document_ids))
        visible = self._catalogue.readable_document_ids(self._user_id, of=wanted)
        for document_id in wanted:
            if document_id in visible:
                self._own_document(document_id)
        return self._catalogue.delete_documents([each for each in wanted if each in visible], deleter=self._user_id)

    def pages(self, document_id: str) -> list[Page]:
        self.document(document_id)
        return self._catalogue.pages(document_id)

    def extracted_text(self, document_id: str) -> ExtractedText:
        self.document(document_id)
        return self._catalogue.extracted_text(document_id)

    def blocks_of_document(self, document_id: str, *, start: int = 0, end: int | None = None) -> list[Block]:
        self.document(document_id)
        return self._catalogue.blocks_of_document(document_id, start=start, end=end)

    def block_rows(self, block_ids: Iterable[int]) -> dict[int, Block]:
        found = self._catalogue.block_rows(block_ids)
        owners = {block.document_id for block in found.values()}
        visible = self._catalogue.readable_document_ids(self._user_id, of=owners)
        return {block_id: block for block_id, block in found.items() if block.document_id in visible}

    def _own_document(self, document_id: str) -> None:
        if self.document(document_id).owner_id != self._user_id:
            raise PermissionDenied("document")

    # Collections

    def collections(self) -> list[Collection]:
        return self._catalogue.collections(reader=self._user_id)

    def collection(self, collection_id: str) -> Collection:
        return self._catalogue.collection(collection_id, reader=self._user_id)

    def create_collection(self, name: str) -> Collection:
        return self._catalogue.create_collection(name, owner_id=self._user_id)

    def rename_collection(self, collection_id: str, name: str) -> Collection:
        self._own_collection(collection_id)
        return self._catalogue.rename_collection(collection_id, name)

    def share_collection(self, collection_id: str, *, everyone: bool, readers: Iterable[str]) -> Collection:
        self._own_collection(collection_id)
        return self._catalogue.share_collection(collection_id, everyone=everyone, readers=readers)

    def delete_collection(self, collection_id: str, *, with_documents: bool = False) -> DeletedDocuments:
        self._own_collection(collection_id)
        return self._catalogue.delete_collection(collection_id, with_documents=with_documents, deleter=self._user_id)

    def _own_collection(self, collection_id: str) -> None:
        if self.collection(collection_id).owner_id != self._user_id:
            raise PermissionDenied("collection")

    # Jobs: those of the user's own documents

    def job(self, job_id: str) -> Job:
        job = self._catalogue.job(job_id)
        if not self._catalogue.owned_document_ids(self._user_id, of=[job.document_id]):
            raise NoRow("job", job_id)
        return job

    def jobs(self, **chosen: Any) -> list[Job]:
        return self._catalogue.jobs(**chosen, owner_id=self._user_id)

    def cancel_job(self, job_id: str) -> Job:
        self.job(job_id)
        return self._catalogue.cancel_job(job_id)

    def retry_job(self, job_id: str) -> Job:
        self.job(job_id)
        return self._catalogue.retry_job(job_id)

    # Questions and answers: those of the user

    def save_answer(self, **answer: Any) -> AnswerHead:
        return self._catalogue.save_answer(**answer, owner_id=self._user_id)

    def answer(self, answer_id: str) -> StoredAnswer:
        return self._catalogue.answer(answer_id, reader=self._user_id)

    def answers(self, *, conversation_id: str | None = None, **chosen: Any) -> list[AnswerHead]:
        """Raises `NotFound` for another user's conversation."""
        if conversation_id is not None:
            self._own_conversation(conversation_id)
        return self._catalogue.answers(conversation_id=conversation_id, **chosen, reader=self._user_id)

    def delete_answer(self, answer_id: str) -> None:
        self.answer(answer_id)
        self._catalogue.delete_answer(answer_id)

    def ensure_conversation(self, conversation_id: str, title: str) -> None:
        self._catalogue.ensure_conversation(conversation_id, title, owner_id=self._user_id)

    def _own_conversation(self, conversation_id: str) -> None:
        try:
            owner_id = self._catalogue.conversation_owner(conversation_id)
        except NoRow:
            return  # it begins with this question
        if owner_id != self._user_id:
            raise NoRow("conversation", conversation_id)

    # What is the same for all

    def totals(self) -> Totals:
        return self._catalogue.totals(reader=self._user_id)

    def users(self) -> list[User]:
        return self._catalogue.users()

    def user_named(self, name: str) -> User:
        return self._catalogue.user_named(name)

    def put_fingerprint(self, fingerprint: MemoryFingerprint) -> str:
        return self._catalogue.put_fingerprint(fingerprint)

    def fingerprints(self, *, in_use: bool = False) -> list[MemoryFingerprint]:
        return self._catalogue.fingerprints(in_use=in_use)


class VisibleMemory:
    """The resident memory as one user sees it; methods as in `MemoryIndex`."""

    def __init__(self, resident: MemoryIndex, catalogue: Catalogue, user_id: str):
        self._resident, self._catalogue, self._user_id = resident, catalogue, user_id
        self.kind, self.size_bytes = resident.kind, 0
        self.damaged, self.forget_shards, self.when_unread = (
            resident.damaged,
            resident.forget_shards,
            resident.when_unread,
        )

    @contextmanager
    def open_snapshot(self) -> Iterator[MemorySnapshot]:
        readable = self._catalogue.readable_document_ids(self._user_id)
        with ExitStack() as stack:
            try:
                snapshot = stack.enter_context(self._resident.open_snapshot())
            except DamagedMemory as error:  # which may be somebody else's document: its name is not for this user
                raise CairnError(
                    "A part of the stored memory is damaged, so nothing can be answered. Whoever runs this server "
                    "mends it with `cairn repair`."
                ) from error
            yield restricted(snapshot, readable)


def restricted(snapshot: MemorySnapshot, readable: set[str]) -> MemorySnapshot:
    """The snapshot as if there were no other documents than these. Positions count the remaining blocks."""
    kept = [number for number, document_id in enumerate(snapshot.document_ids) if document_id in readable]
    new_number = np.full(len(snapshot.document_ids), -1, dtype=np.int64)
    new_number[kept] = np.arange(len(kept))
    document_N = new_number[snapshot.document_N]
    positions = np.flatnonzero(document_N >= 0)
    whole = snapshot.blocks
    blocks = StoredBlocks(
        ids_N=whole.ids_N[positions],
        shard_names=whole.shard_names,
        shard_N=whole.shard_N[positions],
        row_N=whole.row_N[positions],
        length_N=whole.length_N[torch.from_numpy(positions)],
    )
    return replace(
        snapshot,
        landmarks=VisibleLandmarks(snapshot.landmarks, torch.from_numpy(positions), snapshot.hot.shape.layers),
        blocks=blocks,
        document_ids=tuple(snapshot.document_ids[number] for number in kept),
        document_N=document_N[positions],
        ordinal_N=snapshot.ordinal_N[positions],
    )
