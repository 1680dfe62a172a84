from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import Catalogue, KVBlockStore
from tests.storage.stored import LAYOUT, open_home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[tuple[Catalogue, KVBlockStore]]:
    """An empty catalogue and store."""
    catalogue, store = open_home(tmp_path)
    yield catalogue, store
    catalogue.close()


@pytest.fixture
def catalogue(home: tuple[Catalogue, KVBlockStore]) -> Catalogue:
    return home[0]


@pytest.fixture
def store(tmp_path: Path) -> KVBlockStore:
    return KVBlockStore(tmp_path / "kv", LAYOUT, "fingerprint")
