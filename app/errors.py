"""Errors of the app itself. Light, so that the command line starts fast."""

from __future__ import annotations

from retrieval.errors import CairnError


class SettingsError(CairnError):
    """A setting has a value that cannot work, or a name that does not exist. The message says what to change."""
