"""What lies in a folder now: the files that can be read, and what is not followed and why.

Hidden files and folders, symbolic links (which may lead in circles, or out of the folder), special files and other
formats are not followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from retrieval.errors import InvalidRequest


@dataclass(frozen=True)
class Scan:
    """`files`: stamp by source (the path below the folder), in order; `skipped`: sources with reasons; `unlisted`:
    sources of folders that could not be listed, of which nothing is known now."""

    files: Mapping[str, str]
    skipped: tuple[tuple[str, str], ...]
    unlisted: tuple[str, ...]

    def knows_nothing_of(self, source: str) -> bool:
        """Whether the file lies in a folder that could not be listed."""
        return any(source.startswith(f"{folder}/") for folder in self.unlisted)


def scan(root: Path, suffixes: tuple[str, ...]) -> Scan:
    """Raises `InvalidRequest` if the folder itself is not there or cannot be listed."""
    files: dict[str, str] = {}
    skipped: list[tuple[str, str]] = []
    unlisted: list[str] = []

    def failed(error: OSError) -> None:
        if Path(error.filename) == root:
            raise InvalidRequest(f"The folder {root} cannot be listed: {error.strerror}. Nothing was changed.")
        unlisted.append(_source(root, Path(error.filename)))
        skipped.append((unlisted[-1], f"the folder cannot be listed: {error.strerror}"))

    if not root.is_dir():
        raise InvalidRequest(f"There is no folder {root}. Nothing was changed.")
    for at, folders, names in os.walk(root, onerror=failed):
        here = Path(at)
        followed = []
        for name in sorted(folders):
            if reason := _not_a_folder_to_follow(here / name):
                skipped.append((_source(root, here / name), reason))
            else:
                followed.append(name)
        folders[:] = followed
        for name in sorted(names):
            source = _source(root, here / name)
            found, reason = _look_at(here / name, suffixes)
            if reason:
                skipped.append((source, reason))
            else:
                files[source] = found
    return Scan(files, tuple(skipped), tuple(unlisted))


def stamp_of(path: Path) -> str:
    """Size and times of a file: as long as they stay, its content is taken to be the same. Raises `OSError`."""
    return _stamp(path.lstat())


def modified_at(stamp: str) -> float:
    """When the file was last written to, seconds since 1970."""
    return int(stamp.split("-")[1]) / 1e9


def _stamp(found: os.stat_result) -> str:
    # The time of the last change of its entry shows what tools that set the time of writing back would hide.
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def _not_a_folder_to_follow(path: Path) -> str:
    if path.name.startswith("."):
        return "hidden"
    return "a symbolic link, which is not followed" if path.is_symlink() else _unwritable(path.name)


def _look_at(path: Path, suffixes: tuple[str, ...]) -> tuple[str, str]:
    """The file's stamp, or why it is not followed."""
    if path.name.startswith("."):
        return "", "hidden"
    if reason := _unwritable(path.name):
        return "", reason
    try:
        found = path.lstat()
    except OSError as error:
        return "", f"it cannot be looked at: {error.strerror}"
    if stat.S_ISLNK(found.st_mode):
        return "", "a symbolic link, which is not followed"
    if not stat.S_ISREG(found.st_mode):
        return "", "not an ordinary file"
    if path.suffix.lower() not in suffixes:
        return "", f"{path.suffix.lower() or 'files without an ending'} cannot be read"
    return _stamp(found), ""


def _unwritable(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not valid Unicode; rename it"
    return ""


def _source(root: Path, path: Path) -> str:
    return PurePosixPath(path.relative_to(root)).as_posix()
