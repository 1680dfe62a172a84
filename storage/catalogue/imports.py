"""Documents imported whole, read elsewhere by the same model: all of their rows in one transaction."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import insert

from storage.catalogue.database import (
    mark_memory_changed,
    record_of,
    reserve_block_ids,
    update_row,
)
from storage.catalogue.documents import insert_document, one_document
from storage.catalogue.permissions import Repository, for_any_principal
from storage.catalogue.properties import insert_properties
from storage.catalogue.schema import blocks, document_texts, documents, pages, shards, title_keys
from storage.catalogue.shards import block_row
from storage.records import NewBlock, NewDocument, Page, Property, Shard, ShardFile, Submitted


@dataclass(frozen=True)
class ImportedRows:
    """A document with everything that was made from it; `shards` with the blocks of each."""

    document: NewDocument
    text: str
    num_tokens: int
    pages: Sequence[Page]
    shards: Sequence[tuple[ShardFile, Sequence[NewBlock]]]
    title_keys: bytes = b""
    notes: Sequence[str] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)
    properties: Sequence[Property] = ()


class ImportRepository(Repository):
    @for_any_principal
    def add_imported(self, imported: ImportedRows, *, collection: str | None = None) -> Submitted:
        """Create a ready document of the principal's, unless they have the same content stored by the same model.

        Its memory files are written before. `collection` as in `add_document`.
        """
        with self._database.write() as connection:
            new, existing = insert_document(
                connection,
                self.principal,
                imported.document,
                collection,
                state="ready",
                num_pages=len(imported.pages),
                num_characters=len(imported.text),
                num_tokens=imported.num_tokens,
                notes=json.dumps(list(imported.notes)),
            )
            if existing is not None:
                return existing
            _insert_contents(connection, new, imported)
            mark_memory_changed(connection)
            return Submitted(one_document(connection, self.principal, new.id), None, already_stored=False)


def _insert_contents(connection: Any, new: NewDocument, imported: ImportedRows) -> None:
    compressed = zlib.compress(imported.text.encode("utf-8", "surrogatepass"), 6)
    text = {"document_id": new.id, "text": compressed, "extras": json.dumps(dict(imported.extras))}
    connection.execute(insert(document_texts).values(text))
    if imported.pages:
        connection.execute(insert(pages), [{"document_id": new.id} | vars(page) for page in imported.pages])
    insert_properties(connection, new.id, imported.properties)
    if imported.title_keys:
        keys = {"document_id": new.id, "title": new.title, "packed": imported.title_keys}
        connection.execute(insert(title_keys).values(keys))
    first_ordinal = size_bytes = 0
    for file, new_blocks in imported.shards:
        row = vars(file) | {"document_id": new.id, "first_ordinal": first_ordinal}
        row["first_block_id"] = reserve_block_ids(connection, file.num_blocks)
        committed = record_of(Shard, connection.execute(insert(shards).values(row).returning(shards)).one())
        connection.execute(insert(blocks), [block_row(committed, n, one) for n, one in enumerate(new_blocks)])
        first_ordinal, size_bytes = first_ordinal + file.num_blocks, size_bytes + file.size_bytes
    update_row(connection, documents, new.id, num_blocks=first_ordinal, size_bytes=size_bytes)
