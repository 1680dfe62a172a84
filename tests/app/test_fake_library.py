"""The fake library can be called exactly as the real one."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from retrieval.library import Library
from tests.app.cli_library import CliLibrary

FOR_TESTS = {"add", "deliver"}
SHARED = [name for name in dir(CliLibrary) if not name.startswith("_") and callable(getattr(CliLibrary, name))]


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each; of a default that is a function only that there is one."""
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, callable(one.default) or one.default) for one in found]


@pytest.mark.parametrize("name", sorted(set(SHARED) - FOR_TESTS))
def test_a_method_takes_what_the_real_one_takes(name: str) -> None:
    assert parameters(getattr(CliLibrary, name)) == parameters(getattr(Library, name))
