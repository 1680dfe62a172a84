"""`cairn work`: a process that reads documents for a library, beside servers and other workers, on any machine."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Annotated

import typer

from app.cli.options import Call
from app.cli.output import tell
from app.operations.logs import log_to
from storage.errors import CatalogueUnavailable

ALIVE_FILE, ALIVE_SECONDS = "worker-alive", 5.0
"""Touched while the worker gets on: what a liveness probe looks at (docs/kubernetes.md)."""
GRACE_SECONDS = 20.0  # Kubernetes kills 30 seconds after its signal


def work(
    call: Call,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when no document waits and none is at work anywhere.")
    ] = False,
    grace: Annotated[
        float,
        typer.Option(
            "--grace", min=0, metavar="SECONDS", help="When told to stop, how long to go on with the document at hand."
        ),
    ] = GRACE_SECONDS,
) -> None:
    """Read the documents that wait, until told to stop.

    SIGTERM or Ctrl-C: no document is begun any more, and the one at hand is finished if --grace allows it; otherwise,
    or at the second signal, it goes back into the queue, where what was read of it is kept.
    """
    from app import assembly

    settings = call.settings()
    log_to(None, settings.log_format)
    assembly.keep_quiet()
    assembly.check_model(settings.model)
    from app.work import JobRunner

    with _told_to_stop() as (drain, stop), assembly.open_library(settings) as library:
        library.maintenance.keep_backup()
        runner = JobRunner(library)
        runner.start()
        tell(f"Reading documents for {settings.home} (Ctrl-C stops)")
        alive = settings.home / ALIVE_FILE
        while not drain.wait(0.5):
            if time.monotonic() - runner.last_sign < ALIVE_SECONDS:
                alive.touch(mode=0o600)
            with suppress(CatalogueUnavailable):  # the runner tries again, too
                if until_empty and not library.jobs.num_active():
                    break
        runner.drain()
        left = grace
        while left > 0 and runner.busy and not stop.wait(0.1):
            left -= 0.1
        runner.stop()
        stuck = runner.busy  # a description that is being made may be left off
    done = {"documents": runner.num_done, "seconds": round(runner.seconds_done, 1)}
    call.write(done, f"{runner.num_done} documents were read.")
    if stuck:
        raise typer.Exit(1)


@contextmanager
def _told_to_stop() -> Iterator[tuple[threading.Event, threading.Event]]:
    """Events that the first and the second signal set."""
    drain, stop = threading.Event(), threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        if drain.is_set():
            stop.set()
        drain.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield drain, stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
