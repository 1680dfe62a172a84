"""Stored memory as questions need it: blocks with their text positions, title keys, totals, models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Select, delete, exists, func, insert, select, update

from storage.catalogue.database import batches, block_of
from storage.catalogue.documents import one_document
from storage.catalogue.permissions import Repository, for_any_principal, in_readable_document, owned, readable_documents
from storage.catalogue.schema import answers, blocks, documents, memory_fingerprints, shards, title_keys
from storage.fingerprint import UNKNOWN_MODEL, MemoryFingerprint
from storage.records import Block, Totals


class MemoryRepository(Repository):
    @for_any_principal
    def blocks_by_id(self, block_ids: Iterable[int]) -> dict[int, Block]:
        """Blocks by id, without those whose document the principal may not read."""
        found: dict[int, Block] = {}
        with self._database.read() as connection:
            for batch in batches([int(block_id) for block_id in block_ids]):
                rows = connection.execute(self._readable_blocks().where(blocks.c.id.in_(batch)))
                found |= {row.id: block_of(row) for row in rows}
        return found

    @for_any_principal
    def blocks_of_document(self, document_id: str, *, start: int = 0, end: int | None = None) -> list[Block]:
        """The document's blocks, in order, that touch the characters `start` .. `end` of its text."""
        chosen = self._readable_blocks().where(blocks.c.document_id == document_id, blocks.c.end >= start)
        if end is not None:
            chosen = chosen.where(blocks.c.start <= end)
        return [block_of(row) for row in self._rows(chosen.order_by(blocks.c.ordinal))]

    def blocks_of_shard(self, shard_id: int) -> list[Block]:
        """In order; nothing if the shard was deleted meanwhile."""
        chosen = self._readable_blocks().where(blocks.c.shard_id == shard_id)
        return [block_of(row) for row in self._rows(chosen.order_by(blocks.c.id))]

    def _readable_blocks(self) -> Select[Any]:
        chosen = select(blocks, shards.c.name.label("shard")).join(shards, shards.c.id == blocks.c.shard_id)
        return chosen.where(in_readable_document(blocks.c.document_id, self.principal))

    @for_any_principal
    def put_title_keys(self, document_id: str, title: str, keys: bytes) -> None:
        """Store the keys of a document's title, replacing earlier ones. Raises `NotFound`, `PermissionDenied`."""
        with self._database.write(notify=False) as connection:
            one_document(connection, self.principal, document_id, to_change=True)
            connection.execute(delete(title_keys).where(title_keys.c.document_id == document_id))
            connection.execute(insert(title_keys).values(document_id=document_id, title=title, packed=keys))

    @for_any_principal
    def title_keys(self, document_ids: Sequence[str]) -> dict[str, bytes]:
        """What `put_title_keys` stored for those of the documents whose title has not changed since."""
        found: dict[str, bytes] = {}
        same = (documents.c.id == title_keys.c.document_id) & (documents.c.title == title_keys.c.title)
        chosen = select(title_keys.c.document_id, title_keys.c.packed).join(documents, same)
        chosen = chosen.where(readable_documents(self.principal))
        with self._database.read() as connection:
            for batch in batches(document_ids):
                rows = connection.execute(chosen.where(title_keys.c.document_id.in_(batch)))
                found |= {row.document_id: row.packed for row in rows}
        return found

    @for_any_principal
    def totals(self) -> Totals:
        """Counts and sizes of what the principal may read."""
        sums = [func.coalesce(func.sum(documents.c[name]), 0) for name in ("num_blocks", "num_tokens", "size_bytes")]
        ready = (documents.c.state == "ready") & readable_documents(self.principal)
        num_shards = select(func.count(shards.c.id)).where(in_readable_document(shards.c.document_id, self.principal))
        num_answers = select(func.count(answers.c.id)).where(owned(answers.c.owner_id, self.principal))
        with self._database.read() as connection:
            of_documents = connection.execute(select(func.count(documents.c.id), *sums).where(ready)).one()
            return Totals(*of_documents, *(connection.execute(each).scalar_one() for each in (num_shards, num_answers)))

    @for_any_principal
    def put_fingerprint(self, fingerprint: MemoryFingerprint) -> str:
        """Register a model. Returns its digest."""
        known = select(memory_fingerprints.c.digest).where(memory_fingerprints.c.digest == fingerprint.digest)
        if self._rows(known):  # as nearly always: no need to wait for writers
            return fingerprint.digest
        with self._database.write(notify=False) as connection:
            if connection.execute(known).first() is None:
                row = {"digest": fingerprint.digest, "fields": json.dumps(dict(fingerprint.fields))}
                connection.execute(insert(memory_fingerprints).values(row))
        return fingerprint.digest

    @for_any_principal
    def give_unread(self, fingerprint: MemoryFingerprint) -> None:
        """Assign the documents of `UNKNOWN_MODEL` to this model, which will read them."""
        digest = self.put_fingerprint(fingerprint)
        with self._database.write() as connection:
            unread = update(documents).where(documents.c.fingerprint == UNKNOWN_MODEL.digest)
            connection.execute(unread.values(fingerprint=digest))

    @for_any_principal
    def fingerprints(self, *, in_use: bool = False) -> list[MemoryFingerprint]:
        """The registered models, oldest first; `in_use` keeps those that a document still needs."""
        chosen = select(memory_fingerprints.c.fields).order_by(memory_fingerprints.c.created_at)
        if in_use:
            # Asked several times a question: ends at the first document, however many there are.
            used = select(documents.c.id).where(documents.c.fingerprint == memory_fingerprints.c.digest)
            chosen = chosen.where(exists(used))
        return [MemoryFingerprint(json.loads(row.fields)) for row in self._rows(chosen)]
