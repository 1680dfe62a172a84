"""A claimed job stays this process's while it works on it, however long one step takes."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from storage.catalogue import Catalogue
from storage.errors import NotFound, StorageError
from storage.records import Job

logger = logging.getLogger(__name__)

RENEWALS = 3  # in the seconds of a lease: two of them may fail


@contextlib.contextmanager
def kept_lease(catalogue: Catalogue, job: Job) -> Iterator[None]:
    """Renew the job's lease from a thread until the end of the block, or until it is lost.

    A renewal that fails is tried again: whether the job is still ours is asked once more when something is committed.
    """
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(catalogue.database.lease_seconds / RENEWALS):
            try:
                if not catalogue.renew_lease(job):
                    return
            except NotFound:
                return
            except StorageError as error:
                logger.warning("The lease of job %s could not be renewed: %s", job.id, error)

    thread = threading.Thread(target=renew, name="cairn-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
