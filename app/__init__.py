"""The app: web UI, HTTP API, command line, settings, job runner. All of it goes through `retrieval.library.Library`."""

from importlib.metadata import version as _installed

import model  # noqa: F401  before anything loads torch: how its threads wait is set there


def version() -> str:
    """Of the installed package, as pyproject.toml has it."""
    return _installed("cairn")
