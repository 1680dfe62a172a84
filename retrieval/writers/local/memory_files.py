"""The files in which writers keep what they made of passages; nothing here needs a model.

writer/<start of the fingerprint>/<document>/<digest of the segment's tokens>.kv
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

FOLDER = "writer"
DEFAULT_BUDGET_BYTES = 10_000_000_000


@dataclass(frozen=True)
class MemoryFile:
    path: Path
    size: int
    used: float
    """When it was last read or written, in seconds since 1970."""


def files_below(folder: Path) -> list[MemoryFile]:
    """All files in a folder, those being written included."""
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            with contextlib.suppress(FileNotFoundError):
                state = path.stat()
                found.append(MemoryFile(path, state.st_size, state.st_atime))
    return found


def stored_bytes(home: Path) -> int:
    """Bytes that all writers keep in a library's home."""
    return sum(file.size for file in files_below(home / FOLDER))


def documents_folders(home: Path, document_id: str = "*") -> list[Path]:
    """Where writers keep what they made of a document, or of any."""
    return sorted(path for path in (home / FOLDER).glob(f"*/{document_id}") if path.is_dir())
