"""The app: web UI, HTTP API, command line, settings, job runner. All of it goes through `retrieval.library.Library`."""

from importlib.metadata import version as _installed

import model  # noqa: F401  before anything loads torch: how its threads wait is set there


def version() -> str:
    """The version of the installed package."""
    return _installed("cairn")
