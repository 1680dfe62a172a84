import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.catalogue import Catalogue
from storage.kv.store import KVBlockStore
from tests.postgresql import Databases
from tests.storage.stored import LAYOUT, give_database, open_home


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that have a catalogue run on both databases, unless they are about SQLite's file."""
    if "catalogue_kind" not in metafunc.fixturenames:
        return
    both = (
        {"home", "catalogue"} & set(metafunc.fixturenames)
        or (Path(metafunc.definition.path).parent.name == "catalogue" and "tmp_path" in metafunc.fixturenames)
    ) and not metafunc.definition.get_closest_marker("sqlite_only")
    metafunc.parametrize("catalogue_kind", ["sqlite", "postgresql"] if both else ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def catalogue_kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """ "sqlite" or "postgresql": where this test's catalogues are."""
    if request.param == "sqlite":
        yield request.param
        return
    databases: Databases = request.getfixturevalue("postgresql")
    tmp_path: Path = request.getfixturevalue("tmp_path")
    give_database(tmp_path, databases.take())
    yield request.param
    databases.give_back()


@pytest.fixture(scope="session")
def empty_catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue's file as the first opening leaves it."""
    folder = tmp_path_factory.mktemp("empty")
    open_home(folder)[0].close()
    return folder / "cairn.sqlite3"


@pytest.fixture
def home(
    catalogue_kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Catalogue, KVBlockStore]]:
    """An empty catalogue and store."""
    if catalogue_kind == "sqlite":
        shutil.copy(request.getfixturevalue("empty_catalogue"), tmp_path)
    catalogue, store = open_home(tmp_path)
    yield catalogue, store
    catalogue.close()


@pytest.fixture
def catalogue(home: tuple[Catalogue, KVBlockStore]) -> Catalogue:
    return home[0]


@pytest.fixture
def store(tmp_path: Path) -> KVBlockStore:
    return KVBlockStore(tmp_path / "kv", LAYOUT, "fingerprint")
