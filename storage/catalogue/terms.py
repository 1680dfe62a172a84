"""The rows of the inverted index. Terms are numbers here (`retrieval.index.terms.term_id`).

A row for each term of a shard: the blocks that hold it, by their place in the shard. The row of `INDEXED` says that a
shard was indexed at all, and by which rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Select, delete, exists, func, insert, select

from storage.catalogue.database import batches
from storage.catalogue.permissions import Repository, for_any_principal, in_readable_document
from storage.catalogue.schema import shard_terms, shards

INDEXED = 0
"""The number of no term."""


class TermRepository(Repository):
    def put_terms(self, shard_id: int, indices_of: Mapping[int, Sequence[int]], *, rule: int) -> None:
        """Index a shard anew: term -> places of blocks in the shard. Without effect if it was deleted meanwhile."""
        assert INDEXED not in indices_of
        with self._database.write(notify=False) as connection:
            if connection.execute(select(shards.c.id).where(shards.c.id == shard_id)).first() is None:
                return
            connection.execute(delete(shard_terms).where(shard_terms.c.shard_id == shard_id))
            indexed = {INDEXED: [rule], **indices_of}
            rows = [{"term": term, "shard_id": shard_id, "indices": _pack(indexed[term])} for term in sorted(indexed)]
            connection.execute(insert(shard_terms), rows)

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

    def _readable(self, *columns: Any) -> Select[Any]:
        chosen = select(shard_terms.c.term, *columns).join(shards, shards.c.id == shard_terms.c.shard_id)
        return chosen.where(in_readable_document(shards.c.document_id, self.principal))


def _pack(indices: Sequence[int]) -> bytes:
    return np.asarray(indices, dtype="<u4").tobytes()
