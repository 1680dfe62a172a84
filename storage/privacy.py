"""Access rights of the home folder: only its owner may read texts, password hashes, keys and values."""

from __future__ import annotations

import stat
from collections.abc import Iterable
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


def make_private(paths: Iterable[Path]) -> None:
    """Take away the rights of group and others on these files and folders, where they exist. Raises `NotPrivate`.

    Rights on a folder decide about all that lies in it, so the folders themselves are enough.
    """
    for path in paths:
        try:
            mode = path.stat().st_mode
            if mode & _OTHERS:
                path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
                mode = path.stat().st_mode
        except FileNotFoundError:
            continue
        except PermissionError as error:
            raise NotPrivate(path, mode) from error
        if mode & _OTHERS:  # a file system without rights
            raise NotPrivate(path, mode)
