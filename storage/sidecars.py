"""A copy of each document's rows in a file of its own, from which `cairn rescue` makes them again.

    sidecars/<document id>.json.gz

Memory and originals lie beside the catalogue; names, texts, and which block is where are in it alone. So the rows of a
document are written once more when it was handed in, read or repaired; in the last two cases before the catalogue is
told, so that a process killed in between leaves no copy that names files of before. They are only a copy: they are not
flushed to the disk, a torn one is skipped, and nothing but a rescue reads them.
"""

from __future__ import annotations

import base64
import gzip
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection, LargeBinary, RowMapping, Table, select

from storage.blobs.files import FileBlobs
from storage.blobs.protocol import Blobs
from storage.catalogue.database.connection import Database
from storage.catalogue.database.schema import (
    blocks,
    collections,
    document_properties,
    document_texts,
    documents,
    memory_fingerprints,
    pages,
    shards,
    title_keys,
)
from storage.errors import StoreUnavailable
from storage.records import ShardFile

FOLDER, SUFFIX = "sidecars", ".json.gz"
FORMAT = "cairn-sidecar/1"
CONTENTS = (
    document_texts,
    document_properties,
    title_keys,
    pages,
    shards,
    blocks,
)  # tables whose rows belong to one document
Rows: TypeAlias = dict[str, list[dict[str, Any]]]
"""Table name -> rows, each a dictionary by column."""

logger = logging.getLogger(__name__)


def write_sidecar(
    database: Database,
    home: Path,
    document_id: str,
    blobs: Blobs | None = None,
    *,
    is_read: bool = False,
    replaced: Mapping[str, ShardFile] | None = None,
) -> None:
    """Write, or write again, the rows of a document. Nothing is left of a document that was deleted.

    Of a change that is about to be made to them: `is_read`: the document will be ready; `replaced`: the files that
    shards (by name) will have. A copy that cannot be written is a line in the log: the document itself is stored.
    """
    blobs = FileBlobs(home) if blobs is None else blobs
    name = sidecar_name(document_id)
    try:
        with database.read() as connection:
            rows = _rows_of(connection, document_id)
        if rows is None:
            return
        _foresee(rows, is_read, replaced or {})
        blobs.replace(name, gzip.compress(json.dumps({"format": FORMAT, "rows": rows}).encode(), compresslevel=1))
    except (OSError, StoreUnavailable) as error:
        logger.warning("The rows of document %s were not copied: %s", document_id, error)
        return
    with database.read() as connection:
        if connection.execute(select(documents.c.id).where(documents.c.id == document_id)).first() is None:
            blobs.inside(FOLDER).delete([sidecar_file(document_id)])  # deleted while it was copied


def sidecar_name(document_id: str) -> str:
    return f"{FOLDER}/{sidecar_file(document_id)}"


def sidecar_file(document_id: str) -> str:
    """Its name inside the folder."""
    return f"{document_id}{SUFFIX}"


def sidecars(blobs: Blobs) -> dict[str, str]:
    """Names by document id; unfinished ones under their own name."""
    names = [fact.name for fact in blobs.listing(FOLDER)]
    return {name.rpartition("/")[2].removesuffix(SUFFIX): name for name in names}


def read_sidecar(blobs: Blobs, name: str) -> Rows | None:
    """None if it is torn, damaged, or none."""
    try:
        content = json.loads(gzip.decompress(blobs.read(name)))
        if content["format"] != FORMAT:
            return None
        tables = {table.name: table for table in (documents, collections, memory_fingerprints, *CONTENTS)}
        rows = {name: [_decoded(tables[name], row) for row in found] for name, found in content["rows"].items()}
        return dict.fromkeys(tables, []) | rows
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None


def _rows_of(connection: Connection, document_id: str) -> Rows | None:
    document = connection.execute(select(documents).where(documents.c.id == document_id)).mappings().first()
    if document is None:
        return None
    collection = select(collections).where(collections.c.id == document["collection_id"])
    made_by = select(memory_fingerprints).where(memory_fingerprints.c.digest == document["fingerprint"])
    contents = CONTENTS if document["num_characters"] else ()  # else nothing has been read yet
    chosen = {table: select(table).where(table.c.document_id == document_id) for table in contents}
    chosen |= {collections: collection, memory_fingerprints: made_by}
    rows = {
        table.name: [_encoded(row) for row in connection.execute(each).mappings()] for table, each in chosen.items()
    }
    return rows | {documents.name: [_encoded(document)]}


def _foresee(rows: Rows, is_read: bool, replaced: Mapping[str, ShardFile]) -> None:
    (document,) = rows[documents.name]
    if is_read:
        document["state"] = "ready"
    for row in rows.get(shards.name, []):
        if (new := replaced.get(row["name"])) is not None:
            document["size_bytes"] += new.size_bytes - row["size_bytes"]
            row |= vars(new)


def _encoded(row: RowMapping) -> dict[str, Any]:
    """As JSON holds it: bytes in base64."""
    plain = {str(name): value for name, value in row.items()}
    packed = {name: base64.b64encode(value).decode() for name, value in plain.items() if isinstance(value, bytes)}
    return plain | packed


def _decoded(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    packed = {column.name for column in table.columns if isinstance(column.type, LargeBinary)}
    return {name: base64.b64decode(value) if name in packed else value for name, value in row.items()}
