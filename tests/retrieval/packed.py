"""Archives with some of their parts changed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path


def repacked(
    path: Path,
    changed: Mapping[str, Callable[[bytes], bytes]],
    added: Mapping[str, bytes] | None = None,
    name: str | None = None,
) -> Path:
    """A copy in which some parts are changed and others added. Raises KeyError for a part that is not there."""
    copy = path.with_name(name or f"changed {path.name}")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as new:
        for part in changed:
            old.getinfo(part)
        for part in old.namelist():
            new.writestr(part, changed.get(part, bytes)(old.read(part)))
        for part, data in (added or {}).items():
            new.writestr(part, data)
    return copy
