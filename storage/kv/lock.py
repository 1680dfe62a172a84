"""The lock between writers of shards and the removal of orphans: a shard that waits for its commit is never garbage.

- A writer holds it, together with other writers, from a shard's first byte to the commit of its row.
- Whoever looks for orphans holds it alone while listing files and rows. A file that no row names at such a moment
  belongs to no writer, and since names are never used twice, no row will ever name it: it can be removed later.
- It holds between threads and between processes (a lock on a file beside the folder), and ends with its process: a
  crash leaves nothing locked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import portalocker
from portalocker import LockFlags

PATIENCE_SECONDS = 5.0  # many times longer than a shard takes from its first byte to its commit
_PAUSE_SECONDS = 0.01


@contextmanager
def writing(kv_folder: Path) -> Iterator[None]:
    """While a shard is written and committed."""
    with _opened(kv_folder) as descriptor:
        portalocker.lock(descriptor, LockFlags.SHARED)
        yield


@contextmanager
def nobody_writing(kv_folder: Path, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[bool]:
    """While no shard waits for its commit; keep it short, writers wait. False (and no lock) if one still does after
    that long: the writer was suspended, say."""
    deadline = time.monotonic() + patience_seconds
    with _opened(kv_folder) as descriptor:
        while not (alone := _lock_exclusively(descriptor)) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        yield alone


def _lock_exclusively(descriptor: int) -> bool:
    try:
        portalocker.lock(descriptor, LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        return False
    return True


@contextmanager
def _opened(kv_folder: Path) -> Iterator[int]:
    """The lock's file, opened anew: the lock belongs to this opening, so threads of one process exclude each other."""
    kv_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(kv_folder.with_name(f"{kv_folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)  # and the lock with it
