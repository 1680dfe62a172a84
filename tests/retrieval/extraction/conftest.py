"""Files are read by processes of their own, as in the product."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from retrieval.extraction import extract
from retrieval.extraction.process.ipc import FORKS
from retrieval.extraction.process.sandbox import Sandbox


class OneByOne(Sandbox):
    """Where no process waits and forks the others, each imports only what it needs."""

    def start_next(self) -> None:
        """The next file is of another test and needs something else."""


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox() if FORKS else OneByOne()
    yield sandbox
    sandbox.close()


@pytest.fixture(autouse=True)
def reading_in_processes(reading_here: None, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "SANDBOX", sandbox)
