"""Checking everything that is stored, and removing what nothing refers to.

- `verify` re-derives every checksum, compares files with rows in both directions, and checks the database itself.
- `collect_garbage` removes orphans: files that no row names, left by a crash between writing a file and committing it
  (or between deleting a row and its file). A young orphan may be a file that is about to be committed, so it stays.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from storage.catalogue import Catalogue
from storage.database import BUSY_SECONDS, Database
from storage.errors import Damage
from storage.kv_store import file_checksum
from storage.records import Document, Shard
from storage.shard_file import verify_file

YOUNG_SECONDS = 3600.0  # far longer than writing a shard or copying a file in takes
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
    """`missing_files`: (document id, file name) of kept copies that are gone. `problems`: of the database, in words.

    `orphans` are harmless: file names, relative to the folder of shards or of files, that no row knows.
    """

    num_documents: int
    num_shards: int
    num_blocks: int
    size_bytes: int
    seconds: float
    damaged: tuple[ShardDamage, ...]
    missing_files: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]
    orphan_shards: tuple[str, ...]
    orphan_files: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not (self.damaged or self.missing_files or self.problems)


@dataclass(frozen=True)
class Garbage:
    """What `collect_garbage` removed."""

    files: tuple[Path, ...]
    freed_bytes: int


def verify(
    catalogue: Catalogue,
    kv_folder: Path,
    files_folder: Path | None = None,
    *,
    document_ids: Iterable[str] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> StorageReport:
    """Read and check all shards of all documents (or of some). `on_progress` gets shards done and shards in all."""
    started = time.monotonic()
    on_disk, files_on_disk = (
        _names(kv_folder),
        _names(files_folder),
    )  # before the rows: what is committed later is known
    documents = {document.id: document for document in catalogue.documents()}
    all_shards = catalogue.shards()
    wanted = documents.keys() if document_ids is None else set(document_ids) & documents.keys()
    chosen = [shard for shard in all_shards if shard.document_id in wanted]
    damaged = []
    for done, shard in enumerate(chosen):
        on_progress(done, len(chosen))
        found = _check_shard(kv_folder, shard, documents[shard.document_id])
        if found:
            source = documents[shard.document_id].source
            damaged.append(ShardDamage(shard.document_id, source, shard.name, tuple(found)))
    on_progress(len(chosen), len(chosen))
    kept = {document.stored_file: document.id for document in documents.values() if document.stored_file}
    missing = [(id_, name) for name, id_ in kept.items() if id_ in wanted and name not in files_on_disk]
    return StorageReport(
        num_documents=len(wanted),
        num_shards=len(chosen),
        num_blocks=sum(shard.num_blocks for shard in chosen),
        size_bytes=sum(shard.size_bytes for shard in chosen),
        seconds=time.monotonic() - started,
        damaged=tuple(damaged),
        missing_files=tuple(missing) if files_folder is not None else (),
        problems=tuple(_counting_problems(documents, all_shards) + database_problems(catalogue.database)),
        orphan_shards=tuple(sorted(on_disk - {shard.name for shard in all_shards})),
        orphan_files=tuple(sorted(files_on_disk - kept.keys())),
    )


def collect_garbage(
    catalogue: Catalogue,
    kv_folder: Path,
    files_folder: Path | None = None,
    *,
    older_than_seconds: float = YOUNG_SECONDS,
    backups_older_than_seconds: float = OLD_BACKUP_SECONDS,
) -> Garbage:
    """Remove orphans that are older than that, and old backups (they hold deleted documents); give space back.

    Safe while other processes write: a file is only removed if it was on disk before the rows were read, no row names
    it, and it is too old to be on its way into the catalogue.
    """
    candidates = [path for folder in (kv_folder, files_folder) if folder for path in _old(folder, older_than_seconds)]
    known = {kv_folder / shard.name for shard in catalogue.shards()}
    if files_folder is not None:
        known |= {files_folder / document.stored_file for document in catalogue.documents() if document.stored_file}
    garbage = [path for path in candidates if path not in known]
    if catalogue.database.path is not None:
        garbage += _old(catalogue.database.path.parent / "backups", backups_older_than_seconds)
    removed, freed_bytes = [], 0
    for path in garbage:
        with contextlib.suppress(FileNotFoundError):  # somebody else removed it
            freed_bytes += path.stat().st_size
            path.unlink()
            removed.append(path)
        if path.parent not in (kv_folder, files_folder):
            with contextlib.suppress(OSError):  # not empty
                path.parent.rmdir()
    return Garbage(tuple(removed), freed_bytes + compact(catalogue.database))


def database_problems(database: Database) -> list[str]:
    """What SQLite's own checks find wrong with the catalogue; empty when it is sound (or another database)."""
    if not database.is_sqlite:
        return []
    with database.read() as connection:
        found = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check") if row[0] != "ok"]
        dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    return found + [f"row {row[1]} of table {row[0]} refers to a missing row of {row[2]}" for row in dangling]


def compact(database: Database, *, worthwhile: float = 0.2) -> int:
    """Give back the catalogue's unused pages if they are more than that share of it. Returns the bytes freed."""
    if database.path is None:
        return 0
    with database.read() as connection:
        unused, pages, page_bytes = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("freelist_count", "page_count", "page_size")
        )
    if unused <= worthwhile * pages:
        return 0
    # VACUUM must not stand in a transaction, and the engine's connections always begin one
    with contextlib.closing(sqlite3.connect(database.path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return unused * page_bytes


def _check_shard(kv_folder: Path, shard: Shard, document: Document) -> list[Damage]:
    found = verify_file(
        kv_folder / shard.name,
        shard.name,
        fingerprint=document.fingerprint,
        num_blocks=shard.num_blocks,
        expected=shard.checksum,
        checksum_of=file_checksum,
    )
    return found


def _counting_problems(documents: dict[str, Document], all_shards: list[Shard]) -> list[str]:
    counts = dict.fromkeys(documents, 0)
    for shard in all_shards:
        counts[shard.document_id] += shard.num_blocks
    return [
        f"document {id_} ({document.source}) should have {document.num_blocks} blocks and has {counts[id_]}"
        for id_, document in documents.items()
        if counts[id_] != document.num_blocks
    ]


def _names(folder: Path | None) -> set[str]:
    if folder is None or not folder.exists():
        return set()
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _old(folder: Path, seconds: float) -> list[Path]:
    old = []
    for path in folder.rglob("*") if folder.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and time.time() - path.stat().st_mtime >= seconds:
                old.append(path)
    return sorted(old)
