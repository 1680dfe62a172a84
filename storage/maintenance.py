"""Verifies everything that is stored, and removes what nothing refers to.

- `verify` recomputes every checksum; `catalogue_problems` checks the database itself.
- `orphans` may be swept into the trash: shard files without a row, left by a crash between writing a file and
  committing its row, or between deleting a row and its file. A shard that is about to be committed is no orphan
  (storage.kv.lock).
- Files are swept only by a catalogue that is trusted: a damaged one is refused, and a foreign one was refused when it
  was opened.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

from storage.backups import all_backups
from storage.blobs.protocol import Blobs
from storage.catalogue import Catalogue
from storage.catalogue.database import BUSY_SECONDS, Database
from storage.catalogue.home import Home
from storage.errors import CatalogueDamaged, Damage
from storage.kv.lock import nobody_writing
from storage.kv.whole_shards import verify_shard
from storage.records import Document
from storage.trash import GRACE_SECONDS, Trash, size_of

OLD_BACKUP_SECONDS = 30 * 24 * 3600.0


def verify(catalogue: Catalogue, blobs: Blobs) -> list[tuple[Document, Damage]]:
    """Read all shards of all documents, which lie in `blobs`; caches are passed over. Returns every damaged part, with
    the shard's document.

    Safe beside readers and writers: what another process deletes or replaces in the meantime is not reported.
    """
    documents = {document.id: document for document in catalogue.documents()}
    damages: list[tuple[Document, Damage]] = []
    for shard in catalogue.shards():
        if (document := documents.get(shard.document_id)) is None:
            continue
        expected = {"fingerprint": document.fingerprint, "num_blocks": shard.num_blocks}
        found = verify_shard(blobs, shard.name, checksum=shard.checksum, **expected)
        if found and shard in catalogue.shards(document.id):
            damages += [(document, damage) for damage in found]
    return damages


def orphans(catalogue: Catalogue, kv_folder: Path, blobs: Blobs) -> list[str]:
    """Names of the shard files in `blobs`, unfinished ones included, that have no row and never will. Empty if a writer
    does not commit its shard for some seconds (see `storage.kv.lock`). `kv_folder` has the lock."""
    with nobody_writing(kv_folder) as alone:
        if not alone:
            return []
        old = settled(blobs)
        known = {shard.name for shard in catalogue.shards()}
    return [name for name in old if name not in known]


def settled(blobs: Blobs) -> list[str]:
    """Names of all blobs, without those whose writer may be about to commit a row."""
    newest = blobs.now() - blobs.settle_seconds
    return sorted(fact.name for fact in blobs.listing() if fact.changed_at <= newest)


def require_trustworthy(database: Database, home: Home) -> None:
    """Before anything is swept because no row knows it. Raises `ForeignCatalogue`, and `CatalogueDamaged` with the
    first problem that SQLite's own checks find."""
    home.check(database)
    if problems := database_problems(database):
        raise CatalogueDamaged(database.place, problems[0])


def reclaim(
    database: Database,
    home: Path,
    blobs: Blobs,
    *,
    grace_seconds: float = GRACE_SECONDS,
    backups_older_than_seconds: float = OLD_BACKUP_SECONDS,
) -> int:
    """Empty the trash of what was swept `grace_seconds` ago, remove old backups (which hold what was deleted since),
    and compact the catalogue. Returns the bytes freed."""
    freed_bytes = Trash(home).empty(grace_seconds) + blobs.empty_trash(grace_seconds)
    if database.path is not None:
        for path in all_backups(database.path):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime >= backups_older_than_seconds:
                    freed_bytes += size_of(path)
                    path.unlink()
    return freed_bytes + compact(database)


def catalogue_problems(catalogue: Catalogue) -> list[str]:
    """What is wrong with the catalogue itself; empty if it is sound."""
    return database_problems(catalogue.database) + catalogue.counting_problems()


def database_problems(database: Database) -> list[str]:
    """What SQLite's own checks report; empty if the catalogue is sound, or kept in another database."""
    if not database.is_sqlite:
        return []
    with database.read() as connection:
        found = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check") if row[0] != "ok"]
        dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    return found + [f"row {row[1]} of table {row[0]} refers to a missing row of {row[2]}" for row in dangling]


_WORTHWHILE = 0.2  # share of the catalogue's pages that are unused


def compact(database: Database) -> int:
    """Release the catalogue's unused pages if it is worth while. Returns the bytes freed."""
    if database.path is None:
        return 0
    with database.read() as connection:
        unused, pages, page_bytes = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("freelist_count", "page_count", "page_size")
        )
    if unused <= _WORTHWHILE * pages:
        return 0
    # VACUUM cannot run in a transaction, and the engine's connections always begin one.
    with contextlib.closing(sqlite3.connect(database.path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return int(unused * page_bytes)
