import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.catalogue import Catalogue
from storage.kv.store import KVBlockStore
from tests.storage.stored import LAYOUT, SERVER, open_home


@pytest.fixture(scope="session")
def empty_catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue's file as the first opening leaves it (migrations take most of a catalogue test's time)."""
    folder = tmp_path_factory.mktemp("empty")
    open_home(folder)[0].close()
    return folder / "cairn.sqlite3"


@pytest.fixture
def home(tmp_path: Path, empty_catalogue: Path) -> Iterator[tuple[Catalogue, KVBlockStore]]:
    """An empty catalogue and store."""
    if not SERVER:
        shutil.copy(empty_catalogue, tmp_path)
    catalogue, store = open_home(tmp_path)
    yield catalogue, store
    catalogue.close()


@pytest.fixture
def catalogue(home: tuple[Catalogue, KVBlockStore]) -> Catalogue:
    return home[0]


@pytest.fixture
def store(tmp_path: Path) -> KVBlockStore:
    return KVBlockStore(tmp_path / "kv", LAYOUT, "fingerprint")
