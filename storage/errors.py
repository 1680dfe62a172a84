"""Errors of the storage package: each message says what is wrong, with which thing, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass


class StorageError(Exception):
    """A failure whose cause is outside the program: a damaged file, a full disk, a missing row."""


@dataclass(frozen=True)
class Damage:
    """One damaged part of one shard.

    `section` is "file", "header", "lengths", "landmarks", "checksums" or "piece". A piece (the keys and values of one
    block of one head) is identified by its absolute `layer`, its key/value `head` and its `block` number in the shard.
    """

    shard: str
    section: str
    reason: str
    layer: int | None = None
    head: int | None = None
    block: int | None = None

    def __str__(self) -> str:
        place = f"{self.shard}, {self.section}"
        if self.section == "piece":
            place = f"{self.shard}, block {self.block} of layer {self.layer}, head {self.head}"
        return f"{place}: {self.reason}"


class DamagedMemory(StorageError):
    """Stored bytes differ from what was written. Raised before any of them is returned."""

    def __init__(self, damage: Damage):
        super().__init__(f"Stored memory is damaged ({damage}). `cairn repair` reads the damaged documents again.")
        self.damage = damage

    @property
    def shard(self) -> str:
        return self.damage.shard


class DamagedBlock(DamagedMemory):
    """One block of one head is damaged: see `damage.layer`, `damage.head` and `damage.block`."""


class DamagedShard(DamagedMemory):
    """The part before the pieces (header, lengths, landmarks, checksums) is damaged, or the file is cut short."""


class MissingShard(DamagedShard):
    """A shard file that should exist does not."""


class ForeignShard(StorageError):
    """A shard was written by a different model, or with different settings, from those of this store."""

    def __init__(self, shard: str, field: str, stored: object, expected: object):
        super().__init__(
            f"{shard} holds memory with {field} {stored!r}, but {expected!r} is in use. "
            "Use the model and settings that made it, or ingest the document again."
        )
        self.shard, self.field = shard, field


class CannotWrite(StorageError):
    """A shard could not be written; nothing of it was kept."""


class StoreFull(CannotWrite):
    """The disk, or the user's quota, has no room for a shard."""


class NameInUse(CannotWrite):
    """A name is given once, and this one has other contents."""

    def __init__(self, name: str, place: str):
        super().__init__(f"{name} in {place} is there already, with other contents. Nothing was changed; try again.")


class StoreUnavailable(StorageError):
    """The bucket cannot be used: unreachable, silent, refused, missing. Nothing was lost, and no memory is damaged."""


class DamagedOriginal(StorageError):
    """The bucket returned an original with other contents than were stored."""

    def __init__(self, name: str, place: str):
        super().__init__(
            f"The original {name} in {place} has changed since it was added, so it was not used. Its memory still "
            "answers; delete the document and add it again."
        )


class NotFound(StorageError, LookupError):
    """The catalogue has no such row, or no longer."""

    def __init__(self, kind: str, key: object):
        super().__init__(f"There is no {kind} {key!r} in this library.")
        self.kind, self.key = kind, key


class PermissionDenied(StorageError):
    """A principal tried to change something that they may see but do not own."""

    def __init__(self, kind: str):
        super().__init__(f"This {kind} is not yours, so you cannot change it. Its owner can.")
        self.kind = kind


class LeaseLost(StorageError):
    """A worker was silent for so long that another got its job. Nothing was changed."""

    def __init__(self, job_id: str, worker: str):
        by = f" by {worker}" if worker else ""
        super().__init__(f"Job {job_id} was taken over{by}; this process goes on without it.")
        self.job_id = job_id


class NameTaken(StorageError, ValueError):
    """A collection or a user of that name already exists."""


class CatalogueUnavailable(StorageError):
    """The database cannot be used: locked, read-only, unreachable. Nothing was changed."""


class CatalogueFull(CatalogueUnavailable):
    """The disk has no room for the catalogue to grow. Nothing was changed."""


class CatalogueDamaged(CatalogueUnavailable):
    """The database's file is damaged, cut short, or no catalogue."""

    def __init__(self, place: str, detail: str):
        super().__init__(
            f"The catalogue {place} is damaged ({detail}). Nothing was changed. Stop all Cairn processes, then "
            "`cairn rescue` makes a new one from its last backup and from what is stored beside it."
        )


class ForeignCatalogue(CatalogueUnavailable):
    """The catalogue is not the one that knows what is stored in this home folder."""

    def __init__(self, kind: str, place: str, home: object):
        super().__init__(
            f"The catalogue {place} is {kind}, so it does not know what is stored in {home}. Nothing was changed. "
            "Check CAIRN_DATABASE_URL and --home, or put the newest catalogue back. If it is lost, stop all Cairn "
            "processes; then `cairn rescue` makes one from its last backup and from what is stored."
        )


class CatalogueTooNew(CatalogueUnavailable):
    """The catalogue was made by a newer release."""
