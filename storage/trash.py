"""Keeps what `gc` sweeps for a while in the home's trash, under its old path: perhaps it was needed.

    trash/20260131T120000-1a2b3c4d/kv/<document id>/<shard>.kv

Deleted documents do not go there: they are gone at once. Documents whose file left a followed folder do, if the folder
says so: as bundles.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

GRACE_SECONDS = 7 * 24 * 3600.0
FOLDER = "trash"


class Trash:
    """The trash of the home folder `home`."""

    def __init__(self, home: Path):
        self._home, self.folder = home, home / FOLDER

    def take(self, paths: Iterable[Path]) -> list[Path]:
        """Move files and folders of the home here. Returns those that were still there; empty folders are removed."""
        batch = self.folder / new_batch()
        self.folder.mkdir(exist_ok=True, mode=0o700)
        taken = []
        for path in paths:
            inside = path.is_relative_to(self._home)
            target = batch / (path.relative_to(self._home) if inside else Path("elsewhere", path.name))
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileNotFoundError):  # another process took or deleted it
                shutil.move(path, target)  # the trash may be on another disk
                taken.append(path)
            if inside and path.parent.parent.parent == self._home:  # kv/<document id>
                with contextlib.suppress(OSError):  # not empty
                    path.parent.rmdir()
        if not taken:
            shutil.rmtree(batch, ignore_errors=True)
            with contextlib.suppress(OSError):  # it holds what was swept before
                self.folder.rmdir()
        return taken

    def place_for(self, name: str) -> Path:
        """A path in the trash for a new file, in a folder of its own."""
        batch = self.folder / new_batch()
        batch.mkdir(parents=True, mode=0o700)
        return batch / name

    def empty(self, older_than_seconds: float) -> int:
        """Delete what was swept that long ago. Returns the bytes freed."""
        freed_bytes, now = 0, time.time()
        for batch in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # another process empties it, too
                swept_at = batch.stat().st_mtime
                if swept_at > now:  # the clock was set back: the time of grace begins anew
                    os.utime(batch, (now, now))
                if min(swept_at, now) <= now - older_than_seconds:
                    freed_bytes += size_of(batch)
                    shutil.rmtree(batch, ignore_errors=True)
        return freed_bytes


def new_batch() -> str:
    """The name of what is swept together."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 if it is gone."""
    try:
        if path.is_dir():
            return sum(map(size_of, path.iterdir()))
        return path.stat().st_size
    except FileNotFoundError:
        return 0
