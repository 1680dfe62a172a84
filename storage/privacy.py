"""Access rights of the home folder: only its owner may read texts, password hashes, keys and values."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from storage.errors import StorageError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class NotPrivate(StorageError):
    """Others can read a folder of the library, and this program cannot change that."""

    def __init__(self, path: Path, mode: int):
        super().__init__(
            f"Other users of this machine can read {path} (mode {stat.S_IMODE(mode):o}), and it cannot be changed from "
            f"here. Let its owner run `chmod -R go= {path}`, or choose a folder of your own with --home, for instance "
            "a new one inside it."
        )


def make_private(path: Path) -> None:
    """Take away the rights of group and others on a file or folder. Raises `NotPrivate`.

    Rights on a folder decide about all that lies in it, so the folder itself is enough.
    """
    mode = path.stat().st_mode
    if mode & _OTHERS:
        with contextlib.suppress(PermissionError):
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        if path.stat().st_mode & _OTHERS:  # not ours, or a file system without rights
            raise NotPrivate(path, mode)
