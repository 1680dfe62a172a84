"""`cairn rescue`: a new catalogue from the newest sound copy of the old one and from what is stored next to it. `cairn
restore`: the same from a named copy, into either database.

- It begins with the newest sound copy: the catalogue itself if it is sound, or a backup; else with an empty one.
- Documents that the copy does not know, or knows with other shards, come from their sidecars, with all their blocks.
- Documents of which only the original is left are queued to be read again.
- Documents of which nothing is left were deleted since, and are removed from the copy.
- Accounts, collections and answers are those of the copy; collections of newer documents come from their sidecars.

The old catalogue goes to the trash, and nothing else is removed. No other process may use the home meanwhile.

A sidecar is a copy of a document's rows in a file of its own, from which `cairn rescue` makes them again:

    sidecars/<document id>.json.gz

Names, texts, and the places of blocks are in the catalogue alone. So the rows of a document are written once more after
it was added, read or repaired; in the last two cases before the catalogue changes, so that a process killed in between
leaves no sidecar that names old files. Sidecars are only copies: they are not flushed to the disk, a torn one is
skipped, and only a rescue reads them.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import logging
import shutil
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeAlias
from uuid import uuid4

from sqlalchemy import (
    Connection,
    LargeBinary,
    RowMapping,
    Table,
    delete,
    exists,
    func,
    insert,
    inspect,
    literal,
    select,
    update,
)

from storage.backups import FOLDER as BACKUPS
from storage.backups import copy_rows
from storage.blobs.protocol import Blobs
from storage.catalogue import Catalogue
from storage.catalogue.database import Database, reserve_block_ids, reserve_numbers, search_text
from storage.catalogue.documents import delete_with_contents
from storage.catalogue.home import Home, progress_of
from storage.catalogue.jobs import ACTIVE, insert_job
from storage.catalogue.memory import insert_fingerprint
from storage.catalogue.schema import (
    answers,
    blocks,
    collections,
    counters,
    document_properties,
    document_texts,
    documents,
    folders,
    jobs,
    memory_fingerprints,
    pages,
    shards,
    title_keys,
    users,
)
from storage.catalogue.schema import home as home_table
from storage.errors import CatalogueDamaged, CatalogueUnavailable, ForeignCatalogue, StorageError, StoreUnavailable
from storage.fingerprint import UNKNOWN_MODEL
from storage.maintenance import database_problems, require_trustworthy
from storage.migrations.upgrade import backup, bring_up_to_date, revision
from storage.records import ADMINISTRATOR, ShardFile
from storage.trash import Trash

FOLDER, SUFFIX = "sidecars", ".json.gz"
FORMAT = "cairn-sidecar/1"
CONTENTS = (document_texts, document_properties, title_keys, pages, shards, blocks)  # rows of one document each
Rows: TypeAlias = dict[str, list[dict[str, Any]]]
"""Table name -> rows, each a dictionary by column."""

logger = logging.getLogger(__name__)


def write_sidecar(
    database: Database,
    blobs: Blobs,
    document_id: str,
    *,
    is_read: bool = False,
    replaced: Mapping[str, ShardFile] | None = None,
) -> None:
    """Write, or write again, the rows of a document. Nothing is left of a document that was deleted.

    Of a change that is about to be made to them: `is_read`: the document will be ready; `replaced`: the files that
    shards (by name) will have. A copy that cannot be written is a line in the log: the document itself is stored.
    """
    place, name = blobs.inside(FOLDER), sidecar_name(document_id)
    try:
        with database.read() as connection:
            rows = _rows_of(connection, document_id)
        if rows is None:
            return
        _foresee(rows, is_read, replaced or {})
        place.replace(name, gzip.compress(json.dumps({"format": FORMAT, "rows": rows}).encode(), compresslevel=1))
    except (OSError, StoreUnavailable) as error:
        logger.warning("The rows of document %s were not copied: %s", document_id, error)
        return
    with database.read() as connection:
        if connection.execute(select(documents.c.id).where(documents.c.id == document_id)).first() is None:
            place.delete([name])  # deleted while it was copied


def sidecar_name(document_id: str) -> str:
    """Inside `FOLDER`."""
    return f"{document_id}{SUFFIX}"


def sidecars(blobs: Blobs) -> dict[str, str]:
    """Names by document id; unfinished ones under their own name."""
    names = [fact.name for fact in blobs.listing(FOLDER)]
    return {name.rpartition("/")[2].removesuffix(SUFFIX): name for name in names}


def read_sidecar(blobs: Blobs, name: str) -> Rows | None:
    """The rows in a sidecar; None if it is torn, damaged, or none."""
    try:
        content = json.loads(gzip.decompress(blobs.read(name)))
        if content["format"] != FORMAT:
            return None
        tables = {table.name: table for table in (documents, collections, memory_fingerprints, *CONTENTS)}
        rows = {name: [_decoded(tables[name], row) for row in found] for name, found in content["rows"].items()}
        return dict.fromkeys(tables, []) | rows
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
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


def _merge(catalogue: Catalogue, home: Home) -> dict[str, Any]:
    """Bring a copy of the catalogue up to what is stored here: remove the documents of which nothing is left, restore
    those that sidecars know better, and queue the originals that nobody knows. One transaction. Returns what
    `RescueReport` tells of it."""
    blobs, here, copies = home.blobs, home.stored_ids(), sidecars(home.blobs)
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
        missing = sum(name not in shards_here for name in connection.execute(select(shards.c.name)).scalars())
    kept = known.keys() - set(gone) - set(restored) - set(reread)
    found = {"kept": kept, "restored": restored, "reread": reread, "dropped": gone}
    sources = {what: tuple(sorted(known[each] for each in ids)) for what, ids in found.items()}
    return {**sources, "missing_shards": missing}


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
            known = select(table.c[key]).where(table.c[key] == row[key])
            if connection.execute(known).first() is None and _free_name(connection, table.name, row):
                connection.execute(insert(table).values(row))
    same = documents.c.id == document["id"]
    contents: Sequence[Table] = CONTENTS
    if connection.execute(select(documents.c.id).where(same)).first() is None:
        has_collection = select(collections.c.id).where(collections.c.id == document["collection_id"])
        if connection.execute(has_collection).first() is None:
            document = document | {"collection_id": None}
        connection.execute(insert(documents).values(document))
    else:  # title, collection and owner may have changed since it was read
        counted = ("num_pages", "num_characters", "num_tokens", "num_blocks", "size_bytes")
        values = {name: document[name] for name in (*counted, "stored_file", "state", "notes", "fingerprint")}
        connection.execute(update(documents).where(same).values(values))
        contents = [table for table in CONTENTS if table is not title_keys]
        for table in contents:
            connection.execute(delete(table).where(table.c.document_id == document["id"]))
    _renumber(connection, rows)
    for table in contents:
        if rows[table.name]:
            connection.execute(insert(table), rows[table.name])


def _free_name(connection: Connection, table: str, row: dict[str, object]) -> bool:
    """Whether no collection of the owner has the name yet; models have no names."""
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
        insert_fingerprint(connection, UNKNOWN_MODEL)
    # Without a name nobody knows whose it was either: with accounts, only the administrator may see it.
    anybody = select(users.c.id).union(select(documents.c.owner_id).where(documents.c.owner_id.is_not(None))).limit(1)
    with blobs.copy(f"files/{original}") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    row = {
        "id": document_id,
        "source": original,
        "title": PurePath(original).stem,
        "search_text": search_text(PurePath(original).stem, original),
        "kind": PurePath(original).suffix.removeprefix("."),
        "content_sha256": digest,
        "stored_file": original,
        "fingerprint": made_by[0][0] if made_by else UNKNOWN_MODEL.digest,
        "owner_id": None if connection.execute(anybody).first() is None else uuid4().hex,
    }
    connection.execute(insert(documents).values(row))
    return original


def _queue_unfinished(connection: Connection) -> None:
    queued = exists(select(jobs.c.id).where(jobs.c.document_id == documents.c.id, jobs.c.state.in_(ACTIVE)))
    unfinished = select(documents.c.id).where(documents.c.state == "ingesting", ~queued)
    for document_id in connection.execute(unfinished).scalars().all():
        insert_job(connection, document_id, note="after a rescue of the catalogue")


def _count_on(connection: Connection, mark: int) -> None:
    """No number is given twice, and the catalogue is further than any that the home had."""
    last = connection.execute(select(func.coalesce(func.max(blocks.c.id), 0))).scalar_one()
    block = select(counters.c.next_value).where(counters.c.name == "block")
    reserve_numbers(connection, "block", max(0, last + 1 - (connection.execute(block).scalar() or 1)))
    reserve_numbers(connection, "memory version", max(0, mark - progress_of(connection)) + 1)


WORKPLACE = "rescue"


class NothingToRescueFrom(StorageError):
    """Neither memory nor originals are where they should be."""


@dataclass(frozen=True)
class RescueReport:
    """What the new catalogue was made of. Sources of documents: `kept` as the copy has them, `restored` from sidecars,
    `reread` to be read again from their originals, `dropped` from the copy because nothing of them is left. `base`: the
    copy that it began with; None: an empty one."""

    kept: tuple[str, ...]
    restored: tuple[str, ...]
    reread: tuple[str, ...]
    dropped: tuple[str, ...]
    base: Path | None
    num_users: int
    missing_shards: int


def needs_rescue(catalogue: Path, home: Path, blobs: Blobs | None = None) -> bool:
    """Whether the catalogue is missing, damaged, foreign or older than what is stored."""
    if not catalogue.exists():
        return True
    with contextlib.closing(Database(catalogue)) as database:
        try:
            require_trustworthy(database, Home(home, blobs))
        except CatalogueUnavailable:
            return True
    return False


def rescue(catalogue: Path, home: Path, blobs: Blobs | None = None) -> RescueReport:
    """Make the catalogue anew. `blobs`: where memory and originals lie, if not in `home`.

    Raises `CatalogueUnavailable` while others use the home, `NothingToRescueFrom`, `StoreUnavailable`.
    """
    own = Home(home, blobs)
    with own.alone(), _workplace(home) as workplace:
        progress: dict[tuple[Path, Path], int] = {}
        for path, copy in _copies(catalogue, workplace):
            with contextlib.suppress(CatalogueUnavailable):
                progress[path, copy] = _progress_of(copy, path, own)
        origin, base = max(progress, key=progress.__getitem__, default=(None, None))
        with _remade(base, origin, own, workplace) as (rescued, report):
            made = backup(rescued.database, workplace / "made.sqlite3")
        _replace(catalogue, made, own)
        return report


def restore(
    copy: Path, place: str | Path, home: Path, blobs: Blobs | None = None, *, anyway: bool = False
) -> RescueReport:
    """Put a copy of the catalogue in place of the one at `place`, and bring it up to what is stored by now. `anyway`:
    also in place of another home's.

    Raises `CatalogueUnavailable` while others use the home, for a damaged copy and for a catalogue at `place` that
    another home needs, `ForeignCatalogue` for a copy of another home, `NothingToRescueFrom`, `StoreUnavailable`; then
    nothing was changed.
    """
    own, target = Home(home, blobs), Database(place)
    with contextlib.closing(target), own.alone(), _workplace(home) as workplace:
        base = workplace / "copy.sqlite3"
        shutil.copy(copy, base)
        if (log := copy.with_name(f"{copy.name}-wal")).exists():  # of a catalogue that was copied with its log
            shutil.copy(log, f"{base}-wal")
        _progress_of(base, copy, own)
        if not anyway:
            _check_replaceable(target, own)
        with _remade(base, copy, own, workplace) as (rescued, report):
            if target.path is None:
                bring_up_to_date(target)
                copy_rows(rescued.database, target)
            made = backup(rescued.database, workplace / "made.sqlite3")
        if target.path is not None:
            _replace(target.path, made, own)
        else:
            _bind(target, own)
        return report


def _check_replaceable(target: Database, own: Home) -> None:
    """Raises `CatalogueUnavailable` if the catalogue there, of any schema, holds what may belong to another home."""
    if target.path is not None and not target.path.exists():
        return
    with contextlib.suppress(CatalogueDamaged), target.read() as connection:
        tables = set(inspect(connection).get_table_names())

        def holds(table: Table) -> bool:
            return (
                table.name in tables and connection.execute(select(literal(1)).select_from(table)).first() is not None
            )

        if not any(map(holds, (documents, users, answers, collections, folders))):
            return
        theirs = connection.execute(select(home_table.c.id)).scalar() if home_table.name in tables else None
        if theirs is not None and theirs == own.id:
            return
        if holds(shards):  # without any nothing tells whose it is
            with contextlib.suppress(ForeignCatalogue):
                own.progress_of_own(target)
                return
        raise CatalogueUnavailable(
            f"The catalogue {target.place} holds documents or accounts of another home folder than "
            f"{own.blobs.place}, and they would be lost. Nothing was changed. Check CAIRN_DATABASE_URL and --home, "
            "or name an empty database; `cairn restore --anyway` replaces it nevertheless."
        )


@contextlib.contextmanager
def _remade(
    base: Path | None, origin: Path | None, own: Home, workplace: Path
) -> Iterator[tuple[Catalogue, RescueReport]]:
    """The catalogue to be, and what it was made of. Raises `NothingToRescueFrom`."""
    if base is not None and not own.stored_ids() and _knows_shards(base):
        raise NothingToRescueFrom(
            f"Neither memory nor originals are in {own.blobs.place}, although {base.name} knows of some. Are its "
            "folders kv and files on a disk that is not mounted? Nothing was changed."
        )
    path = workplace / "rescued.sqlite3"
    if base is not None:
        shutil.copy(base, path)
    with contextlib.closing(Catalogue.open(path)) as rescued:
        own.adopt(rescued.database)
        merged = _merge(rescued, own)
        yield rescued, RescueReport(**merged, base=origin, num_users=len(rescued.users()))


def _replace(catalogue: Path, made: Path, home: Home) -> None:
    old = [path for end in ("", "-wal", "-shm") if (path := catalogue.with_name(catalogue.name + end)).exists()]
    Trash(home.folder).take(old)
    catalogue.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.move(made, catalogue)
    with contextlib.closing(Database(catalogue)) as database:
        _bind(database, home)


def _bind(database: Database, home: Home) -> None:
    home.bind(database)
    with database.read() as connection:
        home.set_mark(progress_of(connection))


@contextlib.contextmanager
def _workplace(home: Path) -> Iterator[Path]:
    folder = home / WORKPLACE
    shutil.rmtree(folder, ignore_errors=True)  # of a rescue that was interrupted
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copies(catalogue: Path, workplace: Path) -> Iterator[tuple[Path, Path]]:
    """The catalogue and every backup that can be read at all, each with a copy of it, to be opened without fear."""
    found = [catalogue, *sorted((catalogue.parent / BACKUPS).glob(f"*{catalogue.suffix}"))]
    for path in found:
        if not path.exists():
            continue
        copy = workplace / ("newest-" + path.name if path == catalogue else path.name)
        with contextlib.suppress(sqlite3.Error, OSError):
            source, target = sqlite3.connect(path), sqlite3.connect(copy)
            with contextlib.closing(source), contextlib.closing(target):
                source.backup(target)  # with what is still in its log
                target.execute("PRAGMA journal_mode=DELETE")
            yield path, copy


def _progress_of(copy: Path, origin: Path, home: Home) -> int:
    """How far a copy of the catalogue `origin` had come. Raises `CatalogueUnavailable` if it is damaged, no catalogue,
    or not this home's."""
    with contextlib.closing(Database(copy)) as database:
        database.place = str(origin)
        if problems := database_problems(database):
            raise CatalogueDamaged(database.place, problems[0])
        if revision(database) is None:
            raise CatalogueDamaged(database.place, "it has no tables of Cairn")
        return home.progress_of_own(database)


def _knows_shards(copy: Path) -> bool:
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        return connection.execute("SELECT 1 FROM shards LIMIT 1").fetchone() is not None
