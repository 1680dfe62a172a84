"""The HTTP API over a library without a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.app.api_client import opened
from tests.app.fake_library import FakeLibrary
from tests.app.serving import FakeSettings


@pytest.fixture
def library() -> FakeLibrary:
    library = FakeLibrary()
    library.add("reservoir.pdf", pages=4)
    library.add("walks.pdf", pages=2)
    return library


@pytest.fixture
def client(library: FakeLibrary, tmp_path: Path) -> Iterator[TestClient]:
    yield from opened(library, FakeSettings(tmp_path))
