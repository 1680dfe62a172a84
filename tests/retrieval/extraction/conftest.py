"""Files are read by processes of their own, as in the product."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from retrieval.extraction import extract
from retrieval.extraction.process.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox()
    yield sandbox
    sandbox.close()


@pytest.fixture(autouse=True)
def reading_in_processes(reading_here: None, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "_SANDBOX", sandbox)
