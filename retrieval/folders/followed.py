"""The folders that a library follows: adding, listing, forgetting, and running over them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import portalocker
from portalocker import LockFlags

from retrieval.errors import CairnError, InvalidRequest, catalogue_errors
from retrieval.folders.sync import FolderRun
from retrieval.types.records import FileChange, FolderReport, FollowedFolder, FollowOptions, Job
from retrieval.view import View
from storage.records import Folder, Removed

REMOVED: tuple[Removed, ...] = ("keep", "trash", "delete")
_MOST_PROBLEMS = 20


class Folders:
    """Of the whole library, for its administrator: paths of the machine concern nobody else."""

    def __init__(self, view: View):
        self.view, self._catalogue, self._home = view, view.catalogue, view.workspace.home

    @catalogue_errors()
    def follow(
        self,
        path: Path,
        *,
        owner_id: str | None = None,
        collection: str | None = None,
        removed: str | None = None,
        watched: bool | None = None,
    ) -> FollowedFolder:
        """Follow a folder, or change how it is followed; None leaves a setting as it is.

        `owner_id`: owner of its documents. Raises InvalidRequest.
        """
        if removed is not None and removed not in REMOVED:
            raise InvalidRequest(f"Documents of removed files: {', '.join(REMOVED)}, not {removed!r}.")
        given, path = path, Path(os.path.expanduser(path))
        if not os.path.isdir(path):  # also for what can be no path: too long, with NUL, of an unknown ~user
            raise InvalidRequest(f"There is no folder {given}.")
        path = path.resolve()
        if path.is_relative_to(self._home) or self._home.is_relative_to(path):
            raise InvalidRequest(f"{given} cannot be followed: the library itself is kept there ({self._home}).")
        folder = self._catalogue.put_folder(
            str(path),
            owner_id=owner_id,
            collection=collection,
            removed=next((each for each in REMOVED if each == removed), None),
            watched=watched,
        )
        return _view(folder, "")

    @catalogue_errors()
    def forget(self, folder_id: str) -> None:
        """Follow it no longer; its documents stay. Raises NotFound."""
        self._catalogue.forget_folder(folder_id)

    def run(
        self, folder_id: str, *, read: Callable[[Job], Job] | None = None, options: FollowOptions | None = None
    ) -> Iterator[FileChange | FolderReport]:
        """Check a folder once: yields what was done about each file, then the report, which is stored.

        `read` does a job in this thread; without it files go to the queue, and a later run completes them. Raises
        NotFound, InvalidRequest (also during another run over the same folder), and what concerns every file.
        """
        with catalogue_errors():
            folder = self._catalogue.folder(folder_id)
        began, counts, problems = time.monotonic(), Counter[str](), list[tuple[str, str]]()
        with self._alone(folder):
            at_work = FolderRun(self.view, folder, read=read, options=options or FollowOptions())
            try:
                with catalogue_errors():
                    for change in at_work.changes():
                        counts[change.change] += 1
                        if change.change == "failed" and len(problems) < _MOST_PROBLEMS:
                            problems.append((change.source, change.reason))
                        yield change
            except CairnError as error:
                self._catalogue.note_run(folder.id, {"problem": str(error)})
                raise
            report = FolderReport(folder.path, dict(counts), time.monotonic() - began, tuple(problems))
            self._catalogue.note_run(folder.id, {"report": report.to_dict()})
        yield report

    @contextmanager
    def _alone(self, folder: Folder) -> Iterator[None]:
        locks = self._home / "folders"
        locks.mkdir(exist_ok=True, mode=0o700)
        with open(locks / f"{folder.id}.lock", "w") as file:
            try:
                portalocker.lock(file, LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING)
            except portalocker.AlreadyLocked:
                raise InvalidRequest(f"Another run is checking the folder {folder.path}. Try again later.") from None
            yield

    def list(self) -> list[FollowedFolder]:
        """In the order in which they were first followed."""
        names = {user.id: user.name for user in self._catalogue.users()}
        return [_view(folder, names.get(folder.owner_id or "", "")) for folder in self._catalogue.folders()]


def _view(folder: Folder, owner: str) -> FollowedFolder:
    report = folder.report.get("report")
    return FollowedFolder(
        id=folder.id,
        path=folder.path,
        owner=owner,
        collection=folder.collection or "",
        removed=folder.removed,
        watched=folder.watched,
        last_run_at=folder.last_run_at or "",
        report=None if report is None else FolderReport.from_dict(report),
        problem=folder.report.get("problem", ""),
    )
