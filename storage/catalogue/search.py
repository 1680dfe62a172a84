"""By what search finds blocks: the words that they hold, and the vectors that tell what they are about.

Words are numbers here (`retrieval.index.terms.term_id`). There is a row for each word of a shard: the blocks that hold
it, by their place in the shard. The row of `INDEXED` says that a shard was indexed at all, and by which rule.

Vectors have a row for each shard (`retrieval.index.vectors` says what the bytes hold). `encoder` names what made them,
and nobody compares those of two. They are made again for a new title of their document, and count until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Select, Table, delete, exists, func, insert, select

from storage.catalogue.database import batches, mark_memory_changed
from storage.catalogue.permissions import Repository, for_any_principal, in_readable_document
from storage.catalogue.schema import documents, shard_terms, shard_vectors, shards

INDEXED = 0
"""The number of no term."""


class SearchRepository(Repository):
    def put_terms(self, shard_id: int, indices_of: Mapping[int, Sequence[int]], *, rule: int) -> None:
        """Index a shard anew: term -> places of blocks in the shard. Without effect if it was deleted meanwhile."""
        assert INDEXED not in indices_of
        indexed = {INDEXED: [rule], **indices_of}
        rows = [{"term": term, "shard_id": shard_id, "indices": _pack(indexed[term])} for term in sorted(indexed)]
        self._replace(shard_terms, shard_id, rows)

    def shards_without_terms(self, *, rule: int, document_id: str | None = None, most: int) -> list[int]:
        """Ids of shards that are not indexed by this rule, oldest first."""
        mine = (shard_terms.c.shard_id == shards.c.id) & (shard_terms.c.term == INDEXED)
        indexed = exists(select(shard_terms.c.term).where(mine, shard_terms.c.indices == _pack([rule])))
        chosen = select(shards.c.id).where(~indexed).order_by(shards.c.id).limit(most)
        if document_id is not None:
            chosen = chosen.where(shards.c.document_id == document_id)
        return [row.id for row in self._rows(chosen)]

    @for_any_principal
    def blocks_with_terms(self, terms: Collection[int]) -> dict[int, np.ndarray]:
        """Ids of the blocks that hold each of these terms, ascending, in documents that the principal may read; terms
        that no block holds are left out."""
        held = self._readable(shard_terms.c.indices, shards.c.first_block_id).where(shard_terms.c.term.in_(terms))
        found: dict[int, list[np.ndarray]] = {}
        for row in self._rows(held.order_by(shards.c.first_block_id)):
            ids = np.frombuffer(row.indices, "<u4").astype(np.int64) + row.first_block_id
            found.setdefault(row.term, []).append(ids)
        return {term: np.concatenate(ids) for term, ids in found.items()}

    @for_any_principal
    def count_terms(self, terms: Collection[int]) -> dict[int, int]:
        """How many shards hold each of these terms, in documents that the principal may read; terms that no shard holds
        are left out."""
        found: dict[int, int] = {}
        for batch in batches(list(terms)):
            counted = self._readable(func.count().label("num_shards")).where(shard_terms.c.term.in_(batch))
            found.update({row.term: row.num_shards for row in self._rows(counted.group_by(shard_terms.c.term))})
        return found

    @for_any_principal
    def documents_with_terms(self, terms: Collection[int]) -> set[str]:
        """Ids of the documents that the principal may read and that hold all of these terms, anywhere."""
        chosen = self._readable(shards.c.document_id).where(shard_terms.c.term.in_(terms)).distinct()
        held = Counter(row.document_id for row in self._rows(chosen))
        return {document_id for document_id, count in held.items() if count == len(set(terms))}

    def put_vectors(self, shard_id: int, vectors: bytes, *, encoder: str, title: str) -> None:
        """Replaces those of the shard. Without effect if it was deleted meanwhile."""
        row = {"shard_id": shard_id, "encoder": encoder, "title": title, "vectors": vectors}
        self._replace(shard_vectors, shard_id, [row])

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

    def _replace(self, table: Table, shard_id: int, rows: Sequence[Mapping[str, Any]]) -> None:
        with self._database.write(notify=False) as connection:
            if connection.execute(select(shards.c.id).where(shards.c.id == shard_id)).first() is None:
                return
            connection.execute(delete(table).where(table.c.shard_id == shard_id))
            connection.execute(insert(table), rows)

    def _readable(self, *columns: Any) -> Select[Any]:
        chosen = select(shard_terms.c.term, *columns).join(shards, shards.c.id == shard_terms.c.shard_id)
        return chosen.where(in_readable_document(shards.c.document_id, self.principal))


def _pack(indices: Sequence[int]) -> bytes:
    return np.asarray(indices, dtype="<u4").tobytes()
