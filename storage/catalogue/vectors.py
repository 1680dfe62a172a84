"""Vectors of blocks, a row for each shard (`retrieval.index.vectors` says what the bytes hold).

`encoder` names what made them, and nobody compares those of two. They are made again for a new title of their document,
and count until then."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, exists, insert, select

from storage.catalogue.database import batches, mark_memory_changed
from storage.catalogue.permissions import Repository
from storage.catalogue.schema import documents, shard_vectors, shards


class VectorRepository(Repository):
    def put_vectors(self, shard_id: int, vectors: bytes, *, encoder: str, title: str) -> None:
        """Replaces those of the shard. Without effect if it was deleted meanwhile."""
        with self._database.write(notify=False) as connection:
            if connection.execute(select(shards.c.id).where(shards.c.id == shard_id)).first() is None:
                return
            connection.execute(delete(shard_vectors).where(shard_vectors.c.shard_id == shard_id))
            row = {"shard_id": shard_id, "encoder": encoder, "title": title, "vectors": vectors}
            connection.execute(insert(shard_vectors).values(row))

    def show_vectors(self) -> None:
        """Let questions see vectors that were made for documents which were ready before."""
        with self._database.write(notify=False) as connection:
            mark_memory_changed(connection)

    def shards_without_vectors(
        self, *, encoder: str, document_id: str | None = None, most: int
    ) -> list[tuple[int, str, str]]:
        """Shards that have none by this encoder with their document's title, oldest first: id, document, title."""
        made = shard_vectors.c
        mine = (made.shard_id == shards.c.id) & (made.encoder == encoder) & (made.title == documents.c.title)
        chosen = select(shards.c.id, shards.c.document_id, documents.c.title)
        chosen = chosen.join(documents, documents.c.id == shards.c.document_id)
        chosen = chosen.where(~exists(select(made.shard_id).where(mine)))
        if document_id is not None:
            chosen = chosen.where(shards.c.document_id == document_id)
        return [(row.id, row.document_id, row.title) for row in self._rows(chosen.order_by(shards.c.id).limit(most))]

    def vectors_held(self, *, encoder: str) -> dict[int, tuple[int, str]]:
        """By shard: its first block, and the title with which its vectors were made, where this encoder made them."""
        chosen = select(shards.c.id, shards.c.first_block_id, shard_vectors.c.title)
        chosen = chosen.join(shard_vectors, shard_vectors.c.shard_id == shards.c.id)
        chosen = chosen.where(shard_vectors.c.encoder == encoder)
        return {row.id: (row.first_block_id, row.title) for row in self._rows(chosen)}

    def vectors(self, shard_ids: Sequence[int], *, encoder: str) -> dict[int, bytes]:
        """By shard; those without vectors by this encoder are left out."""
        found: dict[int, bytes] = {}
        for batch in batches(list(shard_ids)):
            mine = (shard_vectors.c.encoder == encoder) & shard_vectors.c.shard_id.in_(batch)
            found.update({row.shard_id: row.vectors for row in self._rows(select(shard_vectors).where(mine))})
        return found
