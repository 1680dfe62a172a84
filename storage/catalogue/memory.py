"""Stored memory: which file holds which blocks of which document, and blocks with their text positions, title keys,
totals and models. Workers and the index see all of it; a person sees what they may read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, Select, delete, exists, func, insert, select, update

from storage.bundle import BundledRows
from storage.catalogue.database import (
    batches,
    block_of,
    mark_memory_changed,
    one_row,
    pack_boxes,
    pack_tokens,
    record_of,
    reserve_block_ids,
    update_row,
)
from storage.catalogue.documents import insert_document, one_document, pack_text, write_text
from storage.catalogue.jobs import end, hold, insert_job, take_back, write_progress
from storage.catalogue.permissions import Repository, for_any_principal, in_readable_document, owned, readable_documents
from storage.catalogue.properties import insert_properties
from storage.catalogue.schema import answers, blocks, counters, documents, jobs, memory_fingerprints, shards, title_keys
from storage.fingerprint import UNKNOWN_MODEL, MemoryFingerprint
from storage.records import (
    ADMINISTRATOR,
    Block,
    BlockRefs,
    Document,
    Job,
    JobProgress,
    NewBlock,
    NewDocument,
    Shard,
    ShardFile,
    Submitted,
    Totals,
)


class MemoryRepository(Repository):
    # Writing

    def commit_shard(
        self,
        document_id: str,
        shard: ShardFile,
        new_blocks: Sequence[NewBlock],
        *,
        job: Job | None = None,
        progress: JobProgress | None = None,
    ) -> Shard:
        """Append a written shard and its blocks to the document and record the progress of the job, as it was claimed.

        Raises `NotFound` if the document was deleted in the meantime, `LeaseLost` if the job is another worker's by
        now; then delete the file.
        """
        with self._database.write(notify=False) as connection:
            hold(connection, job)
            one_document(connection, ADMINISTRATOR, document_id)
            committed = _append_shard(connection, document_id, shard, new_blocks)
            if job is not None and progress is not None:
                write_progress(connection, job, progress)
                update_row(connection, jobs, job.id, attempt=1)  # after progress, earlier crashes no longer count
            return committed

    @for_any_principal
    def add_imported(
        self, new: NewDocument, rows: BundledRows, text: str, files: Sequence[ShardFile], *, collection: str | None
    ) -> Submitted:
        """Create a ready document of the principal's from the rows of a bundle, unless they have the same content
        stored by the same model: everything in one transaction.

        Its memory `files` are written before, and hold the blocks in order. `collection` as in `add_document`.
        """
        packed = pack_text(text)
        with self._database.write() as connection:
            new, existing = insert_document(connection, self.principal, new, collection, state="ready")
            if existing is not None:
                return existing
            values = {"num_characters": len(text), "num_tokens": rows.num_tokens, "notes": json.dumps(rows.notes)}
            write_text(connection, new.id, packed, rows.page_rows(), rows.extras, **values)
            insert_properties(connection, new.id, rows.property_rows())
            if rows.title_keys:
                keys = {"document_id": new.id, "title": new.title, "packed": rows.title_bytes()}
                connection.execute(insert(title_keys).values(keys))
            new_blocks, first = rows.new_blocks(), 0
            for file in files:
                _append_shard(connection, new.id, file, new_blocks[first : first + file.num_blocks])
                first += file.num_blocks
            mark_memory_changed(connection)
            return Submitted(one_document(connection, self.principal, new.id), None, already_stored=False)

    def replace_shard(self, old: str, new: ShardFile) -> Shard:
        """Point a damaged shard's row to a rewritten file; its blocks keep their ids. Then delete the old file.

        Raises `NotFound` if the old shard is gone, `ValueError` if the new one has a different number of blocks.
        """
        with self._database.write() as connection:
            row = one_row(connection, select(shards).where(shards.c.name == old), "shard", old)
            if row.num_blocks != new.num_blocks:
                raise ValueError(f"{old} holds {row.num_blocks} blocks, its replacement {new.num_blocks}")
            update_row(connection, shards, row.id, **vars(new))
            mark_memory_changed(connection)
            grown = documents.c.size_bytes + new.size_bytes - row.size_bytes
            update_row(connection, documents, row.document_id, size_bytes=grown)
            return record_of(Shard, row, **vars(new))

    def drop_shards(self, document_id: str, *, job: Job | None = None) -> tuple[str, ...]:
        """Remove the document's shards, to be rewritten; until then it is not searched.

        Returns the names of files that are no longer needed. `job` as in `commit_shard`.
        """
        with self._database.write() as connection:
            hold(connection, job)
            return _drop_shards(connection, document_id)

    def reassign_model(self, document_id: str, fingerprint: str, *, note: str = "") -> tuple[str, ...]:
        """Assign a document to another model: its memory is dropped and a job to read it again is queued. A worker that
        reads it for the model before loses its lease, as what it would store is not the new one's.

        Returns the names of files that are no longer needed. Raises `NotFound`.
        """
        with self._database.write() as connection:
            one_document(connection, ADMINISTRATOR, document_id)
            names = _drop_shards(connection, document_id)
            update_row(connection, documents, document_id, fingerprint=fingerprint)
            if not take_back(connection, document_id):
                insert_job(connection, document_id, note=note)
            return names

    def finish_document(self, document_id: str, *, job: Job | None = None, num_tokens: int | None = None) -> Document:
        """Mark a document ready, once all its shards are committed, and its job done.

        Raises `NotFound`, `LeaseLost`.
        """
        with self._database.write() as connection:
            hold(connection, job)
            document = one_document(connection, ADMINISTRATOR, document_id)
            committed = select(func.count()).select_from(blocks).where(blocks.c.document_id == document_id)
            assert connection.execute(committed).scalar_one() == document.num_blocks, "blocks and shards disagree"
            num_tokens = document.num_tokens if num_tokens is None else num_tokens
            update_row(connection, documents, document_id, state="ready", num_tokens=num_tokens)
            mark_memory_changed(connection)
            if job is not None:
                end(connection, job, "done")
            return one_document(connection, ADMINISTRATOR, document_id)

    @for_any_principal
    def put_title_keys(self, document_id: str, title: str, keys: bytes) -> None:
        """Store the keys of a document's title, replacing earlier ones. Raises `NotFound`, `PermissionDenied`."""
        with self._database.write(notify=False) as connection:
            one_document(connection, self.principal, document_id, to_change=True)
            connection.execute(delete(title_keys).where(title_keys.c.document_id == document_id))
            connection.execute(insert(title_keys).values(document_id=document_id, title=title, packed=keys))

    @for_any_principal
    def put_fingerprint(self, fingerprint: MemoryFingerprint) -> str:
        """Register a model. Returns its digest."""
        if not self._count(memory_fingerprints, memory_fingerprints.c.digest == fingerprint.digest):
            with self._database.write(notify=False) as connection:  # rarely: else nobody waits for writers
                insert_fingerprint(connection, fingerprint)
        return fingerprint.digest

    @for_any_principal
    def give_unread(self, fingerprint: MemoryFingerprint) -> None:
        """Assign the documents of `UNKNOWN_MODEL` to this model, which will read them."""
        digest = self.put_fingerprint(fingerprint)
        with self._database.write() as connection:
            unread = update(documents).where(documents.c.fingerprint == UNKNOWN_MODEL.digest)
            connection.execute(unread.values(fingerprint=digest))

    # Reading

    def shards(self, document_id: str | None = None) -> list[Shard]:
        """Committed shards of one document, or of all documents, in block order."""
        chosen = select(shards).order_by(shards.c.first_block_id)
        if document_id is not None:
            chosen = chosen.where(shards.c.document_id == document_id)
        return [record_of(Shard, row) for row in self._rows(chosen)]

    def all_block_refs(self, *, fingerprint: str | None = None) -> BlockRefs:
        """Where the blocks of all ready documents lie, or of those that one model made.

        Reads one row per shard, whatever the number of blocks.
        """
        chosen = select(shards).join(documents, documents.c.id == shards.c.document_id)
        chosen = chosen.where(documents.c.state == "ready").order_by(shards.c.first_block_id)
        if fingerprint is not None:
            chosen = chosen.where(documents.c.fingerprint == fingerprint)
        return _refs([record_of(Shard, row) for row in self._rows(chosen)])

    def memory_version(self) -> int:
        """A number that grows whenever any process changes what questions may read."""
        found = self._rows(select(counters.c.next_value).where(counters.c.name == "memory version"))
        return found[0].next_value if found else 0

    def memory_mark(self) -> str:
        """A mark of what questions may read: the same as before means that nothing changed, also if a copy of the
        catalogue was put back in between, where a version can come a second time."""
        sums = select(func.count(shards.c.id), func.coalesce(func.sum(shards.c.id), 0), func.max(shards.c.id))
        with self._database.read() as connection:
            count, total, newest = connection.execute(sums).one()
            name = connection.execute(select(shards.c.name).where(shards.c.id == newest)).scalar()
            counted = select(counters.c.next_value).where(counters.c.name == "memory version")
            version = connection.execute(counted).scalar() or 0
        return f"{version} {count} {total} {name}"

    def counting_problems(self) -> list[str]:
        """One sentence per document whose row, shards and blocks disagree: somebody edited the tables."""
        in_shards = select(func.coalesce(func.sum(shards.c.num_blocks), 0))
        in_shards = in_shards.where(shards.c.document_id == documents.c.id)
        in_blocks = select(func.count(blocks.c.id)).where(blocks.c.document_id == documents.c.id)
        columns = documents.c["id", "source", "num_blocks"]
        counted = select(*columns, in_shards.label("held"), in_blocks.label("listed"))
        return [
            f"document {row.id} ({row.source}) should have {row.num_blocks} blocks; its shards hold {row.held}, "
            f"{row.listed} are listed"
            for row in self._rows(counted)
            if not row.num_blocks == row.held == row.listed
        ]

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
    def fingerprints(self, *, in_use: bool = False) -> list[MemoryFingerprint]:
        """The registered models, oldest first; `in_use` keeps those that a document still needs."""
        chosen = select(memory_fingerprints.c.fields).order_by(memory_fingerprints.c.created_at)
        if in_use:
            # Asked several times a question: ends at the first document, however many there are.
            used = select(documents.c.id).where(documents.c.fingerprint == memory_fingerprints.c.digest)
            chosen = chosen.where(exists(used))
        return [MemoryFingerprint(json.loads(row.fields)) for row in self._rows(chosen)]


def insert_fingerprint(connection: Connection, fingerprint: MemoryFingerprint) -> None:
    """Inside the caller's transaction, unless it is there."""
    known = select(memory_fingerprints.c.digest).where(memory_fingerprints.c.digest == fingerprint.digest)
    if connection.execute(known).first() is None:
        row = {"digest": fingerprint.digest, "fields": json.dumps(dict(fingerprint.fields))}
        connection.execute(insert(memory_fingerprints).values(row))


def _append_shard(connection: Connection, document_id: str, file: ShardFile, new_blocks: Sequence[NewBlock]) -> Shard:
    """Inside the caller's transaction."""
    assert len(new_blocks) == file.num_blocks, (len(new_blocks), file)
    following = select(func.coalesce(func.max(shards.c.first_ordinal + shards.c.num_blocks), 0))
    first_ordinal = connection.execute(following.where(shards.c.document_id == document_id)).scalar_one()
    row = vars(file) | {"document_id": document_id, "first_ordinal": first_ordinal}
    row["first_block_id"] = reserve_block_ids(connection, file.num_blocks)
    committed = record_of(Shard, connection.execute(insert(shards).values(row).returning(shards)).one())
    connection.execute(insert(blocks), [_block_row(committed, i, new) for i, new in enumerate(new_blocks)])
    grown = {name: documents.c[name] + getattr(file, name) for name in ("num_blocks", "size_bytes")}
    update_row(connection, documents, document_id, **grown)
    return committed


def _drop_shards(connection: Connection, document_id: str) -> tuple[str, ...]:
    """Inside the caller's transaction."""
    of_document = delete(shards).where(shards.c.document_id == document_id)
    names = tuple(connection.execute(of_document.returning(shards.c.name)).scalars())
    mark_memory_changed(connection)
    update_row(connection, documents, document_id, num_blocks=0, size_bytes=0, state="ingesting")
    return names


def _block_row(shard: Shard, index: int, new: NewBlock) -> dict[str, Any]:
    return {
        "id": shard.first_block_id + index,
        "document_id": shard.document_id,
        "ordinal": shard.first_ordinal + index,
        **vars(new),
        "num_tokens": len(new.tokens),
        "tokens": pack_tokens(new.tokens),
        "boxes": pack_boxes(new.boxes),
        "shard_id": shard.id,
        "index_in_shard": index,
    }


def _refs(found: Sequence[Shard]) -> BlockRefs:
    counts = np.array([shard.num_blocks for shard in found], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    indices = np.arange(counts.sum(), dtype=np.int64) - np.repeat(starts, counts)
    first_ids = np.array([shard.first_block_id for shard in found], dtype=np.int64)
    return BlockRefs(
        block_ids=np.repeat(first_ids, counts) + indices,
        shard_ids=np.repeat(np.array([shard.id for shard in found], dtype=np.int64), counts),
        indices=indices.astype(np.int32),
        shards={shard.id: shard for shard in found},
    )
