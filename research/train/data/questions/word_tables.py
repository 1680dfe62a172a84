"""The word lists in the .toml files beside this module."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def word_table(name: str) -> dict[str, Any]:
    """The contents of `name`.toml, read once; shared, so never change them."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))
