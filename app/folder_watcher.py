"""FolderWatcher: a thread that looks at followed folders again and again while a server runs.

It hands files to the queue, which `JobRunner` works off; a later look completes what was read meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from retrieval.errors import CairnError
from retrieval.library import Library
from retrieval.types.records import FolderReport, FollowedFolder
from storage.errors import StorageError

log = logging.getLogger("cairn.folders")

FIRST_LOOK_SECONDS = 2.0


class FolderWatcher:
    """Looks at the folders that are marked as watched, and at those `given`, until `stop`."""

    def __init__(self, library: Library, given: Sequence[Path], *, interval_seconds: float):
        self._library, self._interval_seconds = library, interval_seconds
        self.given = frozenset(library.folders.follow(path).id for path in given)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="cairn-folders", daemon=True)

    def __enter__(self) -> FolderWatcher:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join(10.0)

    def look(self, folder: FollowedFolder) -> None:
        """One run. What keeps it from ending is logged, and the next look tries again."""
        try:
            for one in self._library.folders.run(folder.id):
                if self._stopping.is_set():
                    return
                if isinstance(one, FolderReport) and set(one.counts) - {"same", "skipped"}:
                    log.info("Folder %s: %s", folder.path, dict(one.counts))
        except (CairnError, StorageError) as error:
            log.warning("Folder %s: %s", folder.path, error)
        except Exception:  # a thread that dies would watch nothing any more
            log.exception("looking at folder %s failed", folder.path)

    def _work(self) -> None:
        pause = FIRST_LOOK_SECONDS
        while not self._stopping.wait(pause):
            pause = self._interval_seconds
            try:
                followed = self._library.folders.all()
            except StorageError as error:
                log.warning("The followed folders could not be listed: %s", error)
                continue
            for folder in followed:
                if (folder.watched or folder.id in self.given) and not self._stopping.is_set():
                    self.look(folder)
