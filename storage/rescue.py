"""`cairn rescue`: a new catalogue from the newest sound copy of the old one and from what is stored beside it.
`cairn restore`: the same from a copy that somebody names, into either database.

- It begins with the newest sound copy: the catalogue itself if it is one, or a backup; without any, with an empty one.
- Documents that the copy does not know, or knows with other shards, come from their sidecars, with all their blocks.
- Documents of which only the original is left are queued to be read again.
- Documents of which nothing is left were deleted since, and leave the copy.
- Accounts, collections and answers are those of the copy; collections of newer documents come from their sidecars.

The old catalogue goes to the trash, and nothing else is removed. Nobody else may use the home meanwhile.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from storage.backups import FOLDER as BACKUPS
from storage.blobs.files import FileBlobs
from storage.blobs.protocol import Blobs
from storage.catalogue import Catalogue
from storage.catalogue.database.connection import Database
from storage.catalogue.database.upgrade import backup, bring_up_to_date
from storage.catalogue.home import Home, progress_of
from storage.copying import copy_rows
from storage.errors import CatalogueDamaged, CatalogueUnavailable, StorageError
from storage.maintenance import database_problems, require_trustworthy
from storage.merging import Merged, merge
from storage.trash import Trash

WORKPLACE = "rescue"


class NothingToRescueFrom(StorageError):
    """Neither memory nor originals are where they should be."""


@dataclass(frozen=True)
class RescueReport(Merged):
    """What the new catalogue was made of. `base`: the copy that it began with; None: an empty one."""

    base: Path | None
    num_users: int
    missing_shards: int


def needs_rescue(catalogue: Path, home: Path, blobs: Blobs | None = None) -> bool:
    """Whether the catalogue is missing, damaged, foreign or older than what is stored."""
    if not catalogue.exists():
        return True
    database = Database(f"sqlite:///{catalogue}")
    try:
        require_trustworthy(database, Home(home, blobs))
    except CatalogueUnavailable:
        return True
    finally:
        database.close()
    return False


def rescue(catalogue: Path, home: Path, blobs: Blobs | None = None) -> RescueReport:
    """Make the catalogue anew. `blobs`: where memory and originals lie, if not in `home`.

    Raises `CatalogueUnavailable` while others use the home, `NothingToRescueFrom`, `StoreUnavailable`.
    """
    blobs = FileBlobs(home) if blobs is None else blobs
    own = Home(home, blobs)
    with own.alone(), _workplace(home) as workplace:
        copies = [(progress, path) for path in _copies(catalogue, workplace) if (progress := _usable(path, own)) >= 0]
        progress, base = max(copies, key=lambda each: each[0], default=(0, None))
        origin = None if base is None else _origin(base, catalogue)
        with _remade(base, origin, own, blobs, workplace) as (rescued, report):
            made = backup(rescued.database, workplace / "made.sqlite3")
        _replace(catalogue, made, own)
        return report


def restore(copy: Path, database_url: str, home: Path, blobs: Blobs | None = None) -> RescueReport:
    """Put a copy of the catalogue in place of the catalogue, and bring it up to what is stored by now.

    Raises `CatalogueUnavailable` while others use the home and for a damaged copy, `ForeignCatalogue` for one of
    another home, `NothingToRescueFrom`, `StoreUnavailable`; then nothing was changed.
    """
    blobs = FileBlobs(home) if blobs is None else blobs
    own, target = Home(home, blobs), Database(database_url)
    with contextlib.closing(target), own.alone(), _workplace(home) as workplace:
        base = workplace / "copy.sqlite3"
        shutil.copy(copy, base)
        given = Database(f"sqlite:///{base}")
        with contextlib.closing(given):
            if problems := database_problems(given):
                raise CatalogueDamaged(str(copy), problems[0])
            own.progress_of_own(given)
        with _remade(base, copy, own, blobs, workplace) as (rescued, report):
            if target.path is None:
                bring_up_to_date(target)
                copy_rows(rescued.database, target)
            made = backup(rescued.database, workplace / "made.sqlite3")
        if target.path is not None:
            _replace(target.path, made, own)
        else:
            _bind(target, own)
        return report


@contextlib.contextmanager
def _remade(
    base: Path | None, origin: Path | None, own: Home, blobs: Blobs, workplace: Path
) -> Iterator[tuple[Catalogue, RescueReport]]:
    """The catalogue to be, and what it was made of. Raises `NothingToRescueFrom`."""
    if base is not None and not own.stored_ids() and _knows_shards(base):
        raise NothingToRescueFrom(
            f"Neither memory nor originals are in {blobs.place}, although {base.name} knows of some. Are its "
            "folders kv and files on a disk that is not mounted? Nothing was changed."
        )
    rescued = _rescued(base, own, workplace)
    with contextlib.closing(rescued):
        merged = merge(rescued, own, blobs)
        here = {fact.name.partition("/")[2] for fact in blobs.listing("kv")}
        missing = sum(shard.name not in here for shard in rescued.shards())
        report = RescueReport(**vars(merged), base=origin, num_users=len(rescued.users()), missing_shards=missing)
        yield rescued, report


def _rescued(base: Path | None, home: Home, workplace: Path) -> Catalogue:
    """The catalogue to be, from its base: of the newest schema, with the home's id."""
    path = workplace / "rescued.sqlite3"
    if base is not None:
        shutil.copy(base, path)
    rescued = Catalogue.open(f"sqlite:///{path}")
    home.adopt(rescued.database)
    return rescued


def _replace(catalogue: Path, made: Path, home: Home) -> None:
    old = [path for end in ("", "-wal", "-shm") if (path := catalogue.with_name(catalogue.name + end)).exists()]
    Trash(home.folder).take(old)
    catalogue.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.move(made, catalogue)
    database = Database(f"sqlite:///{catalogue}")
    with contextlib.closing(database):
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


def _copies(catalogue: Path, workplace: Path) -> Iterator[Path]:
    """Copies, to be opened without fear, of the catalogue and of every backup that can be read at all."""
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
            yield copy


def _usable(copy: Path, home: Home) -> int:
    """How far a sound copy of this home's catalogue had come; -1 if it is damaged or not this home's."""
    database = Database(f"sqlite:///{copy}")
    try:
        if database_problems(database):
            return -1
        return home.progress_of_own(database)
    except CatalogueUnavailable:
        return -1
    finally:
        database.close()


def _knows_shards(copy: Path) -> bool:
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        return connection.execute("SELECT 1 FROM shards LIMIT 1").fetchone() is not None


def _origin(copy: Path, catalogue: Path) -> Path:
    return catalogue if copy.name == f"newest-{catalogue.name}" else catalogue.parent / BACKUPS / copy.name
