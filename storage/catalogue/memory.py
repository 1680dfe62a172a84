"""The stored memory: shards and blocks of documents, and the models that made them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, Select, delete, func, insert, or_, select, update

from storage.catalogue.documents import one_document
from storage.catalogue.jobs import ACTIVE, finish_job, insert_job, write_progress
from storage.catalogue.rows import (
    Tables,
    batches,
    block_of,
    mark_memory_changed,
    now,
    pack_boxes,
    pack_tokens,
    shard_of,
)
from storage.catalogue.schema import answers, blocks, counters, documents, jobs, memory_fingerprints, shards, title_keys
from storage.catalogue.sharing import owned, readable_documents
from storage.errors import NotFound
from storage.fingerprint import MemoryFingerprint
from storage.kv.store import ShardFile
from storage.records import Block, BlockRefs, Document, JobProgress, NewBlock, Shard, Totals

_BLOCK_COLUMNS = [column for column in blocks.c] + [shards.c.name.label("shard")]


class MemoryTables(Tables):
    # Writing

    def commit_shard(
        self,
        document_id: str,
        shard: ShardFile,
        new_blocks: Sequence[NewBlock],
        *,
        job_id: str | None = None,
        progress: JobProgress | None = None,
    ) -> Shard:
        """Make a written shard and its blocks exist, behind those the document has, and note the job's progress.

        Raises `NotFound` if the document was deleted meanwhile; then delete the file.
        """
        assert len(new_blocks) == shard.num_blocks, (len(new_blocks), shard)
        with self.database.write() as connection:
            if connection.execute(select(documents.c.id).where(documents.c.id == document_id)).first() is None:
                raise NotFound("document", document_id)
            following = select(func.coalesce(func.max(shards.c.first_ordinal + shards.c.num_blocks), 0))
            first_ordinal = connection.execute(following.where(shards.c.document_id == document_id)).scalar_one()
            row = vars(shard) | {"document_id": document_id, "first_ordinal": first_ordinal}
            row["first_block_id"] = _reserve_ids(connection, "block", shard.num_blocks)
            shard_id = connection.execute(insert(shards).values(row).returning(shards.c.id)).scalar_one()
            committed = Shard(id=shard_id, **row)
            connection.execute(insert(blocks), [_block_row(committed, i, new) for i, new in enumerate(new_blocks)])
            grown = {"num_blocks": documents.c.num_blocks + shard.num_blocks}
            grown["size_bytes"] = documents.c.size_bytes + shard.size_bytes
            connection.execute(update(documents).where(documents.c.id == document_id).values(grown))
            if job_id is not None and progress is not None:
                write_progress(connection, job_id, progress)
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(attempt=1))  # it gets ahead
            return committed

    def put_title_keys(self, document_id: str, title: str, keys: bytes) -> None:
        """Keep the keys that a model made of a document's title, in the place of older ones. Raises `NotFound`."""
        with self.database.write() as connection:
            one_document(connection, document_id)
            connection.execute(delete(title_keys).where(title_keys.c.document_id == document_id))
            connection.execute(insert(title_keys).values(document_id=document_id, title=title, packed=keys))

    def title_keys(self, document_ids: Sequence[str]) -> dict[str, bytes]:
        """What `put_title_keys` kept for these documents, where the title is still the same."""
        found: dict[str, bytes] = {}
        same = (documents.c.id == title_keys.c.document_id) & (documents.c.title == title_keys.c.title)
        with self.database.read() as connection:
            for batch in batches(document_ids):
                chosen = select(title_keys.c.document_id, title_keys.c.packed).join(documents, same)
                rows = connection.execute(chosen.where(title_keys.c.document_id.in_(batch)))
                found.update({row.document_id: row.packed for row in rows})
        return found

    def replace_shard(self, old: str, new: ShardFile) -> Shard:
        """Put a rewritten file in the place of a damaged one; its blocks keep their ids. Then delete the old file.

        Raises `NotFound` if the old shard is gone, `ValueError` if the new one has another number of blocks.
        """
        with self.database.write() as connection:
            row = connection.execute(select(shards).where(shards.c.name == old)).first()
            if row is None:
                raise NotFound("shard", old)
            if row.num_blocks != new.num_blocks:
                raise ValueError(f"{old} holds {row.num_blocks} blocks, its replacement {new.num_blocks}")
            connection.execute(update(shards).where(shards.c.id == row.id).values(**vars(new)))
            mark_memory_changed(connection)
            grown = documents.c.size_bytes + new.size_bytes - row.size_bytes
            connection.execute(update(documents).where(documents.c.id == row.document_id).values(size_bytes=grown))
            return shard_of(connection.execute(select(shards).where(shards.c.id == row.id)).one())

    def drop_shards(self, document_id: str, *, from_ordinal: int = 0) -> tuple[str, ...]:
        """Take the document's shards from a block on out of it, to write them anew; it is not searched meanwhile.

        Returns the files that nothing needs any more.
        """
        with self.database.write() as connection:
            return _drop_shards(connection, document_id, from_ordinal)

    def hand_over(self, document_id: str, fingerprint: str, *, note: str = "") -> tuple[str, ...]:
        """Give a document to the model of that digest: its memory is dropped and a job to read it again is queued.

        Returns the files that nothing needs any more. Raises `NotFound`.
        """
        with self.database.write() as connection:
            one_document(connection, document_id)
            names = _drop_shards(connection, document_id, 0)
            changed = update(documents).where(documents.c.id == document_id)
            connection.execute(changed.values(fingerprint=fingerprint))
            active = select(jobs.c.id).where(jobs.c.document_id == document_id, jobs.c.state.in_(ACTIVE))
            if connection.execute(active).first() is None:
                insert_job(connection, document_id, "ingest", note=note)
            return names

    def finish_document(
        self, document_id: str, *, job_id: str | None = None, num_tokens: int | None = None, note: str = ""
    ) -> Document:
        """All its shards are committed: from now on it is searched, and its job is done. Raises `NotFound`."""
        values: dict[str, Any] = {"state": "ready"} | ({} if num_tokens is None else {"num_tokens": num_tokens})
        with self.database.write() as connection:
            document = one_document(connection, document_id)
            committed = select(func.count()).select_from(blocks).where(blocks.c.document_id == document_id)
            assert connection.execute(committed).scalar_one() == document.num_blocks, "blocks and shards went apart"
            connection.execute(update(documents).where(documents.c.id == document_id).values(values))
            mark_memory_changed(connection)
            if job_id is not None:
                finish_job(connection, job_id, note)
            return one_document(connection, document_id)

    # Reading

    def shards(self, document_id: str | None = None) -> list[Shard]:
        """Committed shards of one document, or of all, in the order of their blocks."""
        chosen = select(shards).order_by(shards.c.first_block_id)
        if document_id is not None:
            chosen = chosen.where(shards.c.document_id == document_id)
        with self.database.read() as connection:
            return [shard_of(row) for row in connection.execute(chosen)]

    def block_rows(self, block_ids: Iterable[int]) -> dict[int, Block]:
        """Blocks by id; an id whose document is gone is absent."""
        found: dict[int, Block] = {}
        with self.database.read() as connection:
            for batch in batches([int(block_id) for block_id in block_ids]):
                found |= {row.id: block_of(row) for row in connection.execute(_blocks().where(blocks.c.id.in_(batch)))}
        return found

    def blocks_of_document(self, document_id: str, *, start: int = 0, end: int | None = None) -> list[Block]:
        """The document's blocks in order; only those that touch the characters `start` .. `end` of its text."""
        chosen = _blocks().where(blocks.c.document_id == document_id, blocks.c.end >= start).order_by(blocks.c.ordinal)
        if end is not None:
            chosen = chosen.where(blocks.c.start <= end)
        with self.database.read() as connection:
            return [block_of(row) for row in connection.execute(chosen)]

    def all_block_refs(
        self,
        *,
        document_ids: Sequence[str] = (),
        collection_ids: Sequence[str] = (),
        fingerprint: str | None = None,
    ) -> BlockRefs:
        """Where the blocks of ready documents lie: these documents and all of these collections; both empty = all.

        Costs one row a shard, whatever the number of blocks.
        """
        chosen = select(shards).join(documents, documents.c.id == shards.c.document_id)
        chosen = chosen.where(documents.c.state == "ready").order_by(shards.c.first_block_id)
        if document_ids or collection_ids:
            in_scope = documents.c.id.in_(document_ids), documents.c.collection_id.in_(collection_ids)
            chosen = chosen.where(or_(*in_scope))
        if fingerprint is not None:
            chosen = chosen.where(documents.c.fingerprint == fingerprint)
        with self.database.read() as connection:
            found = [shard_of(row) for row in connection.execute(chosen)]
        return _refs(found)

    def memory_version(self) -> int:
        """A number that grows whenever what questions may read changes, whichever process changes it."""
        with self.database.read() as connection:
            version = select(counters.c.next_value).where(counters.c.name == "memory version")
            return connection.execute(version).scalar() or 0

    def counting_problems(self) -> list[str]:
        """Documents whose rows, shards and blocks disagree, in words; empty unless somebody edited the tables."""
        in_shards = select(func.coalesce(func.sum(shards.c.num_blocks), 0)).where(
            shards.c.document_id == documents.c.id
        )
        in_blocks = select(func.count()).select_from(blocks).where(blocks.c.document_id == documents.c.id)
        counted = select(
            documents.c.id,
            documents.c.source,
            documents.c.num_blocks,
            in_shards.scalar_subquery(),
            in_blocks.scalar_subquery(),
        )
        with self.database.read() as connection:
            return [
                f"document {id_} ({source}) should have {said} blocks; its shards hold {held}, {listed} are listed"
                for id_, source, said, held, listed in connection.execute(counted)
                if not said == held == listed
            ]

    def totals(self, *, reader: str | None = None) -> Totals:
        """How much there is; `reader`: of what this user may read."""
        ready = (documents.c.state == "ready") & readable_documents(reader)
        sums = (func.coalesce(func.sum(column), 0) for column in (documents.c.num_tokens, documents.c.size_bytes))
        with self.database.read() as connection:
            number, num_blocks, num_tokens, size_bytes = connection.execute(
                select(func.count(), func.coalesce(func.sum(documents.c.num_blocks), 0), *sums).where(ready)
            ).one()
            within = select(documents.c.id).where(readable_documents(reader))
            counted = select(func.count()).select_from(shards).where(shards.c.document_id.in_(within))
            num_shards = connection.execute(counted).scalar_one()
            kept = select(func.count()).select_from(answers).where(owned(answers.c.owner_id, reader))
            num_answers = connection.execute(kept).scalar_one()
        return Totals(number, num_blocks, num_tokens, size_bytes, num_shards, num_answers)

    # Models

    def put_fingerprint(self, fingerprint: MemoryFingerprint) -> str:
        """Make the model known; returns its digest."""
        with self.database.write() as connection:
            known = select(memory_fingerprints.c.digest).where(memory_fingerprints.c.digest == fingerprint.digest)
            if connection.execute(known).first() is None:
                row = {"digest": fingerprint.digest, "fields": json.dumps(dict(fingerprint.fields))}
                connection.execute(insert(memory_fingerprints).values(row | {"created_at": now()}))
        return fingerprint.digest

    def fingerprints(self, *, in_use: bool = False) -> list[MemoryFingerprint]:
        """The models that made memory here, oldest first; `in_use`: only those some document still needs."""
        chosen = select(memory_fingerprints.c.fields).order_by(memory_fingerprints.c.created_at)
        if in_use:
            chosen = chosen.where(memory_fingerprints.c.digest.in_(select(documents.c.fingerprint)))
        with self.database.read() as connection:
            return [MemoryFingerprint(json.loads(fields)) for fields in connection.execute(chosen).scalars()]


def _drop_shards(connection: Connection, document_id: str, from_ordinal: int) -> tuple[str, ...]:
    """Inside the caller's transaction."""
    behind = (shards.c.document_id == document_id) & (shards.c.first_ordinal >= from_ordinal)
    names = tuple(connection.execute(select(shards.c.name).where(behind)).scalars())
    mark_memory_changed(connection)
    connection.execute(shards.delete().where(behind))
    sums = [func.coalesce(func.sum(column), 0) for column in (shards.c.num_blocks, shards.c.size_bytes)]
    kept = select(*sums).where(shards.c.document_id == document_id)
    num_blocks, size_bytes = connection.execute(kept).one()
    values = {"num_blocks": num_blocks, "size_bytes": size_bytes, "state": "ingesting"}
    connection.execute(update(documents).where(documents.c.id == document_id).values(values))
    return names


def _blocks() -> Select[Any]:
    return select(*_BLOCK_COLUMNS).join(shards, shards.c.id == blocks.c.shard_id)


def _block_row(shard: Shard, index: int, new: NewBlock) -> dict[str, Any]:
    return {
        "id": shard.first_block_id + index,
        "document_id": shard.document_id,
        "ordinal": shard.first_ordinal + index,
        "start": new.start,
        "end": new.end,
        "num_tokens": len(new.tokens),
        "tokens": pack_tokens(new.tokens),
        "boxes": pack_boxes(new.boxes),
        "shard_id": shard.id,
        "index_in_shard": index,
    }


def _reserve_ids(connection: Connection, name: str, count: int) -> int:
    """`count` consecutive numbers that were never handed out before; the first of them."""
    mine = counters.c.name == name
    raised = update(counters).where(mine).values(next_value=counters.c.next_value + count)
    if connection.execute(raised).rowcount == 0:
        connection.execute(insert(counters).values(name=name, next_value=1 + count))
    following: int = connection.execute(select(counters.c.next_value).where(mine)).scalar_one()
    return following - count


def _refs(found: Sequence[Shard]) -> BlockRefs:
    counts = np.array([shard.num_blocks for shard in found], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(found) else counts
    indices = np.arange(counts.sum(), dtype=np.int64) - np.repeat(starts, counts)
    first_ids = np.array([shard.first_block_id for shard in found], dtype=np.int64)
    return BlockRefs(
        block_ids=np.repeat(first_ids, counts) + indices,
        shard_ids=np.repeat(np.array([shard.id for shard in found], dtype=np.int64), counts),
        indices=indices.astype(np.int32),
        shards={shard.id: shard for shard in found},
    )
