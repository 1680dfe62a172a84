"""The interface of a store of named, immutable contents ("blobs"), the same for files and buckets.

    blobs = open_blobs(None, home)                     # or "s3://bucket/prefix"
    blobs.inside("kv").create("<document>/<name>.kv", contents)    # whole and durable, or not there

- A name is given once: creating is the commit. Only copies of rows (`replace`) are ever written again.
- Names are relative, with "/" between their parts. A missing blob is `FileNotFoundError`, everywhere.
- A store that does not answer is `StoreUnavailable`: never taken for a missing or a damaged blob.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

_T = TypeVar("_T")
Range: TypeAlias = tuple[int, int]
"""Offset and length."""


@dataclass(frozen=True)
class BlobFacts:
    """`changed_at`: seconds by the clock of `Blobs.now`."""

    name: str
    size_bytes: int
    changed_at: float


class OpenBlob(Protocol):
    """A blob open for reading, through a file on this machine, perhaps one with holes.

    The reader checks bytes: it fetches wrong ones again, and keeps them once they are right.
    """

    @property
    def descriptor(self) -> int:
        """Open as long as this object is."""

    def state(self) -> tuple[int, ...]:
        """Size and times, to be compared: other ones mean that all must be checked anew. Empty: open it anew."""

    def again(self, ranges: Sequence[Range]) -> list[bytes]:
        """These bytes from behind the cache, in one batch; empty if there is nothing behind it."""

    def keep(self, offset: int, contents: bytes) -> None:
        """Bytes from `again` that were found right."""

    def refill(self) -> bool:
        """Fetch size and first bytes from behind the cache; False if there is nothing behind it."""


class Blobs(Protocol):
    """See the module docstring. Thread-safe; many processes may share a store."""

    place: str
    """As shown to people."""
    settle_seconds: float
    """How long a blob may be without a row because its writer is about to commit one; 0 where a lock tells."""
    on_this_disk: bool
    """Whether it takes space of the home folder's disk."""
    at_once: int
    """How many are worth reading at the same time."""

    def inside(self, folder: str) -> Blobs:
        """The same store, seen from a folder in it: names are relative to that."""

    def create(self, name: str, contents: memoryview) -> None:
        """Store contents under a new name, durable when this returns. Nothing happens if the name has the same
        contents; `NameInUse` if it has others."""

    def bring(self, staged: Path, name: str) -> None:
        """Upload a staged file if the store is a bucket; called before its row is committed."""

    def settle(self, staged: Path, name: str) -> None:
        """Called after the row is committed: gives the staged file its name, unless another process has, which wanted
        to read it. `FileNotFoundError` if it was deleted since."""

    def replace(self, name: str, contents: bytes) -> None:
        """Write a copy that can be made again. It is seen whole or not at all, but may be lost in a power failure."""

    def open(self, name: str) -> OpenBlob: ...

    def prefetch(self, names: Sequence[str]) -> None:
        """Fetch the first bytes of these blobs together, where they are not on this machine: they will be read next
        (of shards, the lengths and landmarks)."""

    def copy(self, name: str) -> BufferedIOBase:
        """An open file with the contents in the store, past the cache; a deletion meanwhile does not affect it."""

    def read(self, name: str) -> bytes:
        """The contents of a small blob."""

    def local(self, name: str, sha256: str) -> Path:
        """A whole file on this machine. A cached one was compared with `sha256` when it was fetched
        (`DamagedOriginal`)."""

    def listing(self, folder: str = "") -> Iterator[BlobFacts]:
        """All blobs below a folder, unfinished ones included."""

    def size(self, names: Iterable[str]) -> int:
        """Bytes in all; those that are missing count 0."""

    def delete(self, names: Iterable[str]) -> int:
        """Remove, ignoring those already gone. Returns the bytes freed, as far as that is known without asking."""

    def sweep(self, names: Sequence[str]) -> None:
        """Move to the trash of the store."""

    def empty_trash(self, older_than_seconds: float) -> int:
        """Delete what was swept that long ago. Returns the bytes freed."""

    def now(self) -> float:
        """The clock that `BlobFacts.changed_at` goes by."""


def all_at_once(action: Callable[[str], _T], names: Sequence[str], most: int) -> list[_T]:
    """In at most so many threads. Raises the first error, when all have ended."""
    if most == 1 or len(names) < 2:
        return [action(name) for name in names]
    with ThreadPoolExecutor(min(most, len(names)), "cairn-store") as pool:
        return list(pool.map(action, names))
