"""Background work when the app starts: the model is loaded, and an empty library gets one sample document."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi.concurrency import run_in_threadpool

from app.api.changes import ServerChanges
from app.api.dependencies import (
    OwnPreferences,
    RequestLibrary,
    ServerAccounts,
    ServerSettings,
    ServerSignOn,
    api_routes,
)
from app.api.documents import Plain
from app.api.machine import described_account, described_preferences
from app.api.writer_choice import described_writer
from app.operations.metrics import Readiness
from retrieval.errors import CairnError
from retrieval.library import Library

SUGGESTED = 3


routes = api_routes()


@routes.get("/first", tags=["machine"])
def first(
    library: RequestLibrary,
    preferences: OwnPreferences,
    settings: ServerSettings,
    accounts: ServerAccounts,
    changes: ServerChanges,
    sign_on: ServerSignOn,
) -> Plain:
    """`account`, `preferences` and `writer` as their own addresses give them, the number of `documents`,
    `suggestions` of questions, and what `/events` tells news since, as `seen`."""
    return {
        "seen": changes.state(library),
        "account": described_account(library, accounts, sign_on),
        "preferences": described_preferences(preferences, settings),
        "writer": described_writer(settings, library),
        "documents": len(library.documents.list()),
        "suggestions": [one.to_dict() for one in library.descriptions.suggestions(SUGGESTED)],
    }


log = logging.getLogger("cairn.api")

SAMPLE = Path(__file__).parent.parent / "web" / "sample" / "cairn-handbook.pdf"
SAMPLE_NAME = "The Cairn handbook.pdf"
OFFERED = "sample-offered"


@asynccontextmanager
async def preparing(library: Library, home: Path, readiness: Readiness) -> AsyncIterator[None]:
    """Backs up the catalogue, offers the sample, loads the model and indexes blocks that an older release
    stored, without keeping anybody waiting. At the end it waits for running work."""
    library.maintenance.keep_backup()
    stopping = threading.Event()
    # No daemon: a process that ends while it is in C++ code, loading the model, is aborted.
    thread = threading.Thread(target=_run, args=(library, home, readiness, stopping), name="cairn-start")
    thread.start()
    yield
    stopping.set()
    await run_in_threadpool(thread.join)


def offer_sample(library: Library, home: Path) -> bool:
    """Queue the sample for a library that never held anything. Deleted once, it does not come back."""
    offered = home / OFFERED
    if offered.exists():
        return False
    empty = not library.documents.list() and not library.jobs.list(limit=1)
    if empty:
        library.documents.submit(SAMPLE, source=SAMPLE_NAME)
    offered.touch()
    return empty


def _run(library: Library, home: Path, readiness: Readiness, stopping: threading.Event) -> None:
    try:
        offer_sample(library, home)
        library.warm_up()
        readiness.become("ready")
        library.maintenance.index_blocks(lambda: not stopping.is_set())
    except CairnError as error:
        readiness.become("failed")
        log.warning("%s", error)
    except Exception:  # the app serves what it can; the first question will say what is wrong
        readiness.become("failed")
        log.exception("preparing the library failed")
