"""Bringing a copy of a catalogue up to what is stored beside it: see `storage.rescue`."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from pathlib import PurePath
from uuid import uuid4

from sqlalchemy import Connection, delete, func, insert, select, update

from storage.blobs.protocol import Blobs
from storage.catalogue import Catalogue
from storage.catalogue.database.rows import reserve_block_ids, reserve_numbers, search_text
from storage.catalogue.database.schema import (
    blocks,
    collections,
    counters,
    documents,
    memory_fingerprints,
    shards,
    title_keys,
    users,
)
from storage.catalogue.deletion import delete_with_contents
from storage.catalogue.home import Home, progress_of
from storage.catalogue.jobs import has_active_job, insert_job
from storage.fingerprint import UNKNOWN_MODEL
from storage.records import ADMINISTRATOR
from storage.sidecars import CONTENTS, Rows, read_sidecar, sidecars


@dataclass(frozen=True)
class Merged:
    """Sources of documents: `kept` as the copy has them, `restored` from sidecars, `reread` to be read again from their
    originals, `dropped` from the copy because nothing of them is left."""

    kept: tuple[str, ...]
    restored: tuple[str, ...]
    reread: tuple[str, ...]
    dropped: tuple[str, ...]


def merge(catalogue: Catalogue, home: Home, blobs: Blobs) -> Merged:
    """In one transaction."""
    here, copies = home.stored_ids(), sidecars(blobs)
    shards_here = {fact.name.partition("/")[2] for fact in blobs.listing("kv")}
    with catalogue.database.write() as connection:
        known = dict(connection.execute(select(documents.c.id, documents.c.source)).all())
        gone = [document_id for document_id in known if document_id not in here]
        delete_with_contents(connection, ADMINISTRATOR, gone)
        restored = []
        for document_id in sorted(here & copies.keys()):
            rows = read_sidecar(blobs, copies[document_id])
            if rows is not None and _is_newer(connection, rows, shards_here):
                _restore(connection, rows)
                restored.append(document_id)
        known |= dict(connection.execute(select(documents.c.id, documents.c.source)).all())
        names = sorted(fact.name.partition("/")[2] for fact in blobs.listing("files"))
        originals = {name.split(".")[0]: name for name in names if not name.startswith(".")}
        reread = [each for each in originals if each not in known]
        known |= {each: _read_again(connection, each, originals[each], blobs) for each in reread}
        _queue_unfinished(connection)
        _count_on(connection, home.mark)
    kept = known.keys() - set(gone) - set(restored) - set(reread)
    return Merged(*(tuple(sorted(known[each] for each in ids)) for ids in (kept, restored, reread, gone)))


def _is_newer(connection: Connection, rows: Rows, shards_here: Set[str]) -> bool:
    """Whether the sidecar knows more of the document than the copy does: it, or shards of it that are there."""
    (document,) = rows["documents"]
    if connection.execute(select(documents.c.id).where(documents.c.id == document["id"])).first() is None:
        return True
    chosen = select(shards.c.name).where(shards.c.document_id == document["id"])
    names = {row["name"] for row in rows["shards"]}
    return names != set(connection.execute(chosen).scalars()) and names <= shards_here


def _restore(connection: Connection, rows: Rows) -> None:
    """The document and what belongs to it, as the sidecar has them; what only the copy knows of it stays."""
    (document,) = rows["documents"]
    for table, key in ((memory_fingerprints, "digest"), (collections, "id")):
        for row in rows[table.name]:
            same = select(table.c[key]).where(table.c[key] == row[key])
            if connection.execute(same).first() is None and _free_name(connection, table.name, row):
                connection.execute(insert(table).values(row))
    before = connection.execute(select(documents).where(documents.c.id == document["id"])).mappings().first()
    if before is None:
        has_collection = select(collections.c.id).where(collections.c.id == document["collection_id"])
        if connection.execute(has_collection).first() is None:
            document = document | {"collection_id": None}
        connection.execute(insert(documents).values(document))
    else:  # title, collection and owner may have changed since it was read
        counted = (
            "num_pages",
            "num_characters",
            "num_tokens",
            "num_blocks",
            "size_bytes",
            "state",
            "notes",
            "fingerprint",
        )
        values = {name: document[name] for name in counted}
        connection.execute(update(documents).where(documents.c.id == document["id"]).values(values))
        for table in CONTENTS:
            connection.execute(delete(table).where(table.c.document_id == document["id"]))
    _renumber(connection, rows)
    for table in CONTENTS:
        if rows[table.name] and (table is not title_keys or before is None):
            connection.execute(insert(table), rows[table.name])


def _free_name(connection: Connection, table: str, row: dict[str, object]) -> bool:
    """Whether a collection of the owner has the name already; models have no names."""
    if table != collections.name:
        return True
    same = (collections.c.name == row["name"]) & collections.c.owner_id.is_not_distinct_from(row["owner_id"])
    return connection.execute(select(collections.c.id).where(same)).first() is None


def _renumber(connection: Connection, rows: Rows) -> None:
    """Blocks keep their ids, for old answers name them, unless others have these by now. Shards get new ids."""
    next_shard = connection.execute(select(func.coalesce(func.max(shards.c.id), 0))).scalar_one() + 1
    new_ids = {row["id"]: next_shard + number for number, row in enumerate(rows["shards"])}
    first = min((row["id"] for row in rows["blocks"]), default=0)
    last = max((row["id"] for row in rows["blocks"]), default=0)
    taken = connection.execute(select(blocks.c.id).where(blocks.c.id.between(first, last)).limit(1)).first()
    shift = reserve_block_ids(connection, last - first + 1) - first if taken is not None else 0
    for row in rows["shards"]:
        row["id"], row["first_block_id"] = new_ids[row["id"]], row["first_block_id"] + shift
    for row in rows["blocks"]:
        row["id"], row["shard_id"] = row["id"] + shift, new_ids[row["shard_id"]]


def _read_again(connection: Connection, document_id: str, original: str, blobs: Blobs) -> str:
    """A row for an original of which nobody knows what it was called. Returns the name that it has now."""
    made_by = Counter(connection.execute(select(documents.c.fingerprint)).scalars()).most_common(1)
    if not made_by:
        connection.execute(
            insert(memory_fingerprints).values(
                digest=UNKNOWN_MODEL.digest, fields=json.dumps(dict(UNKNOWN_MODEL.fields))
            )
        )
    # Without a name nobody knows whose it was either: with accounts, only the administrator may see it.
    anybody = select(users.c.id).union(select(documents.c.owner_id).where(documents.c.owner_id.is_not(None))).limit(1)
    row = {
        "id": document_id,
        "source": original,
        "title": PurePath(original).stem,
        "search_text": search_text(PurePath(original).stem, original),
        "kind": PurePath(original).suffix.removeprefix("."),
        "content_sha256": _sha256(blobs, original),
        "stored_file": original,
        "fingerprint": made_by[0][0] if made_by else UNKNOWN_MODEL.digest,
        "owner_id": None if connection.execute(anybody).first() is None else uuid4().hex,
    }
    connection.execute(insert(documents).values(row))
    return original


def _sha256(blobs: Blobs, original: str) -> str:
    with blobs.copy(f"files/{original}") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _queue_unfinished(connection: Connection) -> None:
    unfinished = select(documents.c.id).where(documents.c.state == "ingesting")
    for document_id in connection.execute(unfinished).scalars().all():
        if not has_active_job(connection, document_id):
            insert_job(connection, document_id, note="after a rescue of the catalogue")


def _count_on(connection: Connection, mark: int) -> None:
    """No number is given twice, and the catalogue is further than any that the home had."""
    last = connection.execute(select(func.coalesce(func.max(blocks.c.id), 0))).scalar_one()
    block = select(counters.c.next_value).where(counters.c.name == "block")
    reserve_numbers(connection, "block", max(0, last + 1 - (connection.execute(block).scalar() or 1)))
    reserve_numbers(connection, "memory version", max(0, mark - progress_of(connection)) + 1)
