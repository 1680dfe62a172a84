"""The HTTP API over a library without a model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from fastapi.testclient import TestClient

import app.auth
from tests.app.api_client import opened
from tests.app.fake_library import FakeLibrary
from tests.app.serving import FakeSettings


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """argon2 with the least work: what its hashes cost is not tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.auth, "PasswordHasher", partial(PasswordHasher, time_cost=1, memory_cost=8, parallelism=1))
        yield


@pytest.fixture
def library() -> FakeLibrary:
    library = FakeLibrary()
    library.add("reservoir.pdf", pages=4)
    library.add("walks.pdf", pages=2)
    return library


@pytest.fixture
def client(library: FakeLibrary, tmp_path: Path) -> Iterator[TestClient]:
    yield from opened(library, FakeSettings(tmp_path))
