"""Shards: which file holds which blocks of which document. For workers and the index, which see
all; `memory.py` has what a person may read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, delete, func, insert, select

from storage.catalogue.database import (
    mark_memory_changed,
    one_row,
    pack_boxes,
    pack_tokens,
    record_of,
    reserve_block_ids,
    update_row,
)
from storage.catalogue.documents import one_document
from storage.catalogue.jobs import end, hold, insert_job, take_back, write_progress
from storage.catalogue.permissions import Repository
from storage.catalogue.schema import blocks, counters, documents, jobs, shards
from storage.records import ADMINISTRATOR, BlockRefs, Document, Job, JobProgress, NewBlock, Shard, ShardFile


class ShardRepository(Repository):
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
        assert len(new_blocks) == shard.num_blocks, (len(new_blocks), shard)
        with self._database.write(notify=False) as connection:
            hold(connection, job)
            one_document(connection, ADMINISTRATOR, document_id)
            following = select(func.coalesce(func.max(shards.c.first_ordinal + shards.c.num_blocks), 0))
            first_ordinal = connection.execute(following.where(shards.c.document_id == document_id)).scalar_one()
            row = vars(shard) | {"document_id": document_id, "first_ordinal": first_ordinal}
            row["first_block_id"] = reserve_block_ids(connection, shard.num_blocks)
            committed = record_of(Shard, connection.execute(insert(shards).values(row).returning(shards)).one())
            connection.execute(insert(blocks), [block_row(committed, i, new) for i, new in enumerate(new_blocks)])
            grown = {name: documents.c[name] + getattr(shard, name) for name in ("num_blocks", "size_bytes")}
            update_row(connection, documents, document_id, **grown)
            if job is not None and progress is not None:
                write_progress(connection, job, progress)
                update_row(connection, jobs, job.id, attempt=1)  # after progress, earlier crashes no longer count
            return committed

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


def _drop_shards(connection: Connection, document_id: str) -> tuple[str, ...]:
    """Inside the caller's transaction."""
    of_document = delete(shards).where(shards.c.document_id == document_id)
    names = tuple(connection.execute(of_document.returning(shards.c.name)).scalars())
    mark_memory_changed(connection)
    update_row(connection, documents, document_id, num_blocks=0, size_bytes=0, state="ingesting")
    return names


def block_row(shard: Shard, index: int, new: NewBlock) -> dict[str, Any]:
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
