"""Libraries of tests with their catalogue in PostgreSQL, their memory in a bucket, or both, instead of a home folder.

While `elsewhere` lasts, `Library.open` of a home folder without places of its own gets them, and finds there what the
folder holds: the tests are the same. A home that was filled before, for all tests of a file, has its own again
afterwards. `pytest --catalogue postgresql` and `--store s3` run all tests of the library so; without, tests marked
`both_catalogues` run on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from retrieval.library import Library
from storage.backups import copy_catalogue, copy_rows
from storage.blobs.s3 import Address, Bucket
from storage.catalogue.database import Database
from storage.migrations.upgrade import bring_up_to_date
from tests.object_server import new_store
from tests.postgresql import Databases

ROOMS = ("kv", "files", "sidecars", "home.json")
CATALOGUES = ("sqlite", "postgresql")


@contextmanager
def elsewhere(databases: Databases | None, in_bucket: bool) -> Iterator[None]:
    """`databases`: where catalogues go, None leaves them in SQLite; `in_bucket`: where memory and originals go."""
    places: dict[Path, dict[str, str]] = {}
    filled_before: list[Path] = []
    open_ = Library.open.__func__  # type: ignore[attr-defined]

    def moved(home: Path) -> dict[str, str]:
        """The places of a home folder; what it holds lies there when this returns."""
        found = {}
        if (home / "cairn.sqlite3").exists():
            filled_before.append(home)
        if databases is not None:
            found["database_url"] = databases.take()
            move_catalogue(home, found["database_url"])
        if in_bucket:
            found["store_url"] = new_store(patch)
            move_blobs(home, found["store_url"])
        return found

    def open_elsewhere(kind: type[Library], home: Path, *given: Any, **settings: Any) -> Library:
        own = {name for name in ("database_url", "store_url") if settings.get(name) is not None}
        if own:
            return open_(kind, home, *given, **settings)  # type: ignore[no-any-return]
        place = Path(home).expanduser().resolve()
        put_there_anew = (databases is not None and (place / "cairn.sqlite3").exists()) or (
            in_bucket and (place / "home.json").exists()
        )
        if place not in places or put_there_anew:
            places[place] = moved(place)
        return open_(kind, home, *given, **settings | places[place])  # type: ignore[no-any-return]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Library, "open", classmethod(open_elsewhere))
        yield
        for home in filled_before:
            bring_back(home, **places[home])
    if databases is not None:
        databases.give_back()


def move_catalogue(home: Path, url: str) -> None:
    """The rows of a home's SQLite file, which is gone then: what still reads it fails."""
    path = home / "cairn.sqlite3"
    if not path.exists():
        return
    source, target = Database(f"sqlite:///{path}"), Database(url)
    try:
        bring_up_to_date(source)
        copy_rows(source, target)
    finally:
        source.close()
        target.close()
    for left in home.glob("cairn.sqlite3*"):
        left.unlink()


def move_blobs(home: Path, url: str) -> None:
    bucket = Bucket(Address.parse(url))
    for room in ROOMS:
        top = home / room
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file():
                bucket.create(path.relative_to(home).as_posix(), path.read_bytes())
        shutil.rmtree(top) if top.is_dir() else top.unlink(missing_ok=True)


def bring_back(home: Path, database_url: str | None = None, store_url: str | None = None) -> None:
    """Catalogue and memory of a home folder, into it."""
    if database_url is not None:
        database = Database(database_url)
        copy_catalogue(database, home / "cairn.sqlite3")
        database.close()
    if store_url is not None:
        bucket = Bucket(Address.parse(store_url))
        for blob in bucket.listing(""):
            path = home / blob.name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(bucket.read(blob.name))


def shared(scope: Literal["module", "session"]) -> Callable[..., str]:
    """The scope of a library that tests share; where libraries are kept elsewhere, each test has its own."""

    def scope_of(fixture_name: str, config: pytest.Config) -> str:
        here = (config.getoption("--catalogue"), config.getoption("--store")) == ("sqlite", "file")
        return scope if here else "function"

    return scope_of


def choose(metafunc: pytest.Metafunc) -> None:
    """Parametrise `library_places`, which every test of the library uses."""
    if "library_places" not in metafunc.fixturenames:
        return
    catalogue, store = metafunc.config.getoption("--catalogue"), metafunc.config.getoption("--store")
    closest: Callable[[str], object] = metafunc.definition.get_closest_marker
    kinds = [catalogue]
    if closest("sqlite_only"):
        kinds = ["sqlite"]
    elif closest("both_catalogues"):
        kinds = list(CATALOGUES)
    where = [(kind, "file" if closest("files_only") else store) for kind in kinds]
    ids = [kind if kept == "file" else f"{kind}-{kept}" for kind, kept in where]
    plain = where == [("sqlite", "file")]
    metafunc.parametrize("library_places", where, indirect=True, ids=[pytest.HIDDEN_PARAM] if plain else ids)


def places(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The fixture `library_places`: ("sqlite" or "postgresql", "file" or "s3")."""
    catalogue, store = request.param
    if (catalogue, store) == ("sqlite", "file"):
        yield request.param
        return
    databases = request.getfixturevalue("postgresql") if catalogue == "postgresql" else None
    with elsewhere(databases, store == "s3"):
        yield request.param
