"""The HTTP API and the command line over a small real library."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from fastapi.testclient import TestClient

import app.auth
from app import assembly
from app.settings import Settings
from retrieval.library import Library
from tests import elsewhere
from tests.app.api_client import opened
from tests.app.cli_client import Commands
from tests.app.serving import settings_for
from tests.app.small_library import fill
from tests.retrieval.conftest import one_reader, reading_here  # noqa: F401
from tests.tiny_model import shipped_model


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    elsewhere.choose(metafunc)


@pytest.fixture(autouse=True)
def library_places(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Where this test's libraries have catalogue and memory."""
    yield from elsewhere.places(request)


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """argon2 with the least work: what its hashes cost is not tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.auth, "PasswordHasher", partial(PasswordHasher, time_cost=1, memory_cost=8, parallelism=1))
        yield


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """What a command logs to, its closed stderr for one, is nothing to the next test."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in root.handlers[:]:
        if handler not in before and not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)
            handler.close()
    root.setLevel(level)


@pytest.fixture(scope="session")
def filled_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a library with two documents, to be copied."""
    return fill(tmp_path_factory.mktemp("filled"))


@pytest.fixture
def home(filled_home: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled_home, tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def library(home: Path) -> Iterator[Library]:
    """Two documents."""
    with Library.open(home, shipped_model) as library:
        yield library


@pytest.fixture(scope=elsewhere.shared("session"))
def shared_library(filled_home: Path, one_reader: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:  # noqa: F811
    """`library`, for tests that only read or ask, or put back what they change."""
    home = tmp_path_factory.mktemp("shared") / "home"
    shutil.copytree(filled_home, home)
    with Library.open(home, shipped_model) as library:
        yield library


@pytest.fixture(scope=elsewhere.shared("session"))
def shared_client(shared_library: Library, known_token: None) -> Iterator[TestClient]:
    """`client`, likewise: an app takes longer to make than to ask."""
    yield from opened(shared_library, settings_for(shared_library.view.workspace.home))


@pytest.fixture
def empty_library(tmp_path: Path) -> Iterator[Library]:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "sample-offered").touch()
    with Library.open(tmp_path / "empty", shipped_model) as library:
        yield library


@pytest.fixture
def client(library: Library, home: Path) -> Iterator[TestClient]:
    yield from opened(library, settings_for(home))


@pytest.fixture
def commands(home: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Every command opens the small library, whatever home and model it is given."""
    commands = Commands(home)

    def open_library(settings: Settings) -> Library:
        commands.opened.append(settings)
        library = Library.open(home, shipped_model)
        close = library.close

        def counted() -> None:
            commands.closed += 1
            close()

        library.close = counted  # type: ignore[method-assign]
        return library

    monkeypatch.setattr(assembly, "open_library", open_library)
    for name in [name for name in os.environ if name.startswith("CAIRN_")]:
        monkeypatch.delenv(name)
    return commands
