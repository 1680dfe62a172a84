"""Files that are complete or absent, whatever interrupts their writing.

Temporary file, fsync, rename, fsync of the folder. A crash leaves a temporary file or a complete one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path

from storage.errors import CannotWrite, StoreFull

TEMPORARY = ".writing-"  # prefix of unfinished files


def write_durably(path: Path, contents: memoryview) -> None:
    """Write `contents` to `path`; after a crash the file is complete or does not exist."""
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with open(_create(temporary), "wb", buffering=0) as file:
            written = 0
            while written < len(contents):
                written += file.write(contents[written:])
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else CannotWrite
        raise kind(
            f"{path.name} ({len(contents) / 1e6:.1f} MB) could not be written to {path.parent}: {error.strerror}. "
            "Nothing of it was kept. Free some disk space or choose another folder, then try again."
        ) from error
    for folder in {path.parent, *(folder.parent for folder in made)}:
        sync_folder(folder)


def _create(path: Path) -> int:
    """Create a file, and its folder if necessary. Another process that deletes the last file in the folder may remove
    the folder before the new file is in it, so both are tried again."""
    for _ in range(100):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    raise FileNotFoundError(errno.ENOENT, "its folder keeps being removed", str(path))


def sync_folder(folder: Path) -> None:
    """Make renames and removals inside `folder` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
