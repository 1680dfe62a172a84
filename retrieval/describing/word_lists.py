"""The word classes of this package."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path


@cache
def _tables() -> dict[str, list[str]]:
    tables: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "words.toml").read_text(encoding="utf-8"))
    return tables


@cache
def word_class(name: str) -> frozenset[str]:
    return frozenset(_tables()[name])


@cache
def asked_verbs() -> dict[str, str]:
    """Verb as it stands in a text -> as it stands behind "does" or "do"."""
    return dict(_tables()["asked"])  # type: ignore[arg-type]
