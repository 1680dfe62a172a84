"""Verifies everything that is stored, and removes what nothing refers to.

- `verify` recomputes every checksum, compares files with rows in both directions, and checks the database itself.
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
from dataclasses import dataclass
from pathlib import Path

from storage.backups import FOLDER as BACKUPS
from storage.blobs.files import FileBlobs
from storage.blobs.protocol import Blobs
from storage.catalogue import Catalogue
from storage.catalogue.database import BUSY_SECONDS, Database
from storage.catalogue.home import Home
from storage.errors import CatalogueDamaged, Damage
from storage.kv.lock import PATIENCE_SECONDS, nobody_writing
from storage.kv.whole_shards import verify_shard
from storage.trash import GRACE_SECONDS, Trash, size_of

OLD_BACKUP_SECONDS = 30 * 24 * 3600.0


@dataclass(frozen=True)
class ShardDamage:
    """What is wrong with one committed shard."""

    document_id: str
    source: str
    shard: str
    damages: tuple[Damage, ...]


@dataclass(frozen=True)
class StorageReport:
    """`problems`: what is wrong with the database itself; `orphans`: shard files without a row, which are harmless."""

    num_documents: int
    num_shards: int
    num_blocks: int
    size_bytes: int
    seconds: float
    damaged: tuple[ShardDamage, ...]
    problems: tuple[str, ...]
    orphans: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not (self.damaged or self.problems)


def verify(
    catalogue: Catalogue,
    kv_folder: Path,
    *,
    blobs: Blobs | None = None,
) -> StorageReport:
    """Read and verify all shards of all documents. `blobs`: where the shards lie, if not in `kv_folder`; caches are
    passed over.

    Safe beside readers and writers: what another process deletes or replaces in the meantime is not reported.
    """
    started = time.monotonic()
    blobs = FileBlobs(kv_folder) if blobs is None else blobs
    orphan_names = orphans(catalogue, kv_folder, blobs=blobs)
    documents = {document.id: document for document in catalogue.documents()}
    chosen = [shard for shard in catalogue.shards() if shard.document_id in documents]
    damaged = []
    for shard in chosen:
        document = documents[shard.document_id]
        found = verify_shard(
            blobs,
            shard.name,
            shard.name,
            checksum=shard.checksum,
            fingerprint=document.fingerprint,
            num_blocks=shard.num_blocks,
        )
        if found and shard in catalogue.shards(document.id):
            damaged.append(ShardDamage(document.id, document.source, shard.name, tuple(found)))
    return StorageReport(
        num_documents=len(documents),
        num_shards=len(chosen),
        num_blocks=sum(shard.num_blocks for shard in chosen),
        size_bytes=sum(shard.size_bytes for shard in chosen),
        seconds=time.monotonic() - started,
        damaged=tuple(damaged),
        problems=tuple(database_problems(catalogue.database) + catalogue.counting_problems()),
        orphans=tuple(orphan_names),
    )


def orphans(
    catalogue: Catalogue,
    kv_folder: Path,
    *,
    older_than_seconds: float = 0.0,
    patience_seconds: float = PATIENCE_SECONDS,
    blobs: Blobs | None = None,
) -> list[str]:
    """Names of the shard files, unfinished ones included, that have no row, never will, and have not been written to
    for that long. Empty if a writer does not commit its shard within `patience_seconds` (see `storage.kv.lock`)."""
    blobs = FileBlobs(kv_folder) if blobs is None else blobs
    with nobody_writing(kv_folder, patience_seconds) as alone:
        if not alone:
            return []
        old = settled(blobs, older_than_seconds)
        known = {shard.name for shard in catalogue.shards()}
    return [name for name in old if name not in known]


def settled(blobs: Blobs, older_than_seconds: float = 0.0) -> list[str]:
    """Names of all blobs that old, without those whose writer may be about to commit a row."""
    newest = blobs.now() - max(older_than_seconds, blobs.settle_seconds)
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
    *,
    blobs: Blobs | None = None,
    grace_seconds: float = GRACE_SECONDS,
    backups_older_than_seconds: float = OLD_BACKUP_SECONDS,
) -> int:
    """Empty the trash of what was swept `grace_seconds` ago, remove old backups (which hold what was deleted since),
    and compact the catalogue. Returns the bytes freed."""
    freed_bytes = Trash(home).empty(grace_seconds)
    if blobs is not None:
        freed_bytes += blobs.empty_trash(grace_seconds)
    if database.path is not None:
        for path in _old(database.path.parent / BACKUPS, backups_older_than_seconds):
            freed_bytes += size_of(path)
            path.unlink(missing_ok=True)
    return freed_bytes + compact(database)


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


def _old(folder: Path, seconds: float) -> list[Path]:
    old = []
    for path in folder.rglob("*") if folder.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and time.time() - path.stat().st_mtime >= seconds:
                old.append(path)
    return sorted(old)
