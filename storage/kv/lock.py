"""The lock that keeps `gc` from removing shards that are about to be committed.

- Writers share it, each from a shard's first byte to the commit of its row.
- The search for orphans holds it exclusively while listing files and rows. A file without a row at that moment belongs
  to no writer, and since names are never reused it will never get a row: it can be removed later.
- It works between threads and between processes (a locked file beside the folder), and ends with its process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import portalocker
from portalocker import LockFlags

from storage.errors import CannotWrite

PATIENCE_SECONDS = 5.0  # many times longer than writing and committing a shard takes
_PAUSE_SECONDS = 0.01


def uptime() -> float:
    """Seconds, also those for which the machine slept where the system counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def require_fresh(began: float, settle_seconds: float) -> None:
    """Before a shard is committed whose writing `began` at that `uptime`: where no lock reaches other machines, `gc`
    takes it for abandoned after `settle_seconds`. Raises `CannotWrite` after half of that; 0 is for ever."""
    if settle_seconds and uptime() - began > settle_seconds / 2:
        raise CannotWrite(
            "Writing a part of the memory took so long that it may be swept as garbage, so it was not used. Try again."
        )


@contextmanager
def writing(kv_folder: Path) -> Iterator[None]:
    """Hold the shared lock, while writing and committing a shard."""
    with _opened(kv_folder) as descriptor:
        portalocker.lock(descriptor, LockFlags.SHARED)
        yield


@contextmanager
def nobody_writing(kv_folder: Path) -> Iterator[bool]:
    """Hold the exclusive lock; be quick, since writers wait. Yields False, without the lock, if a writer still holds it
    after `PATIENCE_SECONDS`, perhaps because it was suspended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
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
    """Open the lock file anew: a lock belongs to a descriptor, so that threads of one process exclude each other."""
    kv_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(kv_folder.with_name(f"{kv_folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)  # releases the lock
