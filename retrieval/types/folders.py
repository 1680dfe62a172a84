"""What is reported of folders whose files are followed. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from retrieval.types.serialisation import Record


@dataclass(frozen=True)
class FileChange(Record):
    """What a run did about one file.

    `change`: added, changed, moved, removed or same; or what was left undone: reading (it is in the queue), later (it
    is still being written), failed (it could not be read) or skipped (it is not followed).
    `source`: its path below the folder; `previous`: where a moved file was; `reason`: why it was not read, or what
    became of its document.
    """

    source: str
    document_id: str | None
    change: str
    previous: str = ""
    reason: str = ""


@dataclass(frozen=True)
class FolderReport(Record):
    """`counts`: number of files by change; `problems`: sources and reasons of the first that failed."""

    path: str
    counts: Mapping[str, int]
    seconds: float
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FollowedFolder(Record):
    """`removed`: what happens to documents of files that are gone ("keep", "trash", "delete"); `watched`: a server
    looks at it again and again; `report` of its last run; `problem`: why the last run did not end."""

    id: str
    path: str
    owner: str
    collection: str
    removed: str
    watched: bool
    last_run_at: str = ""
    report: FolderReport | None = None
    problem: str = ""


@dataclass(frozen=True)
class FollowOptions:
    """`again`: read also what was deleted by hand in the library; `every_byte`: compare contents even where size and
    times are as they were; `emptied`: the folder may really be empty now; `settle_seconds`: a file that was written
    to within this time is looked at a second time."""

    again: bool = False
    every_byte: bool = False
    emptied: bool = False
    settle_seconds: float = 1.0
