"""Workers that Ray places and starts again: `cairn work --until-empty`, as an actor a GPU or a machine.

Who reads which document is decided by the leases of the queue, as for all workers: an actor that is killed loses
nothing, and those that Ray starts in its place go on. Ray itself is told of no document.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any, TextIO, cast

from app.errors import SettingsError
from app.settings import Settings

POLL_SECONDS = 0.5
MAX_ACTORS = 1000
_TAKEN_ALONG = ("CAIRN_", "AWS_")


def reading(settings: Settings, address: str, actors: int | None, still_waiting: Callable[[], bool]) -> Iterator[int]:
    """Let actors read until none of their documents waits; yields now and then how many of them are at work.

    `address`: "local" starts Ray on this machine, "auto" finds the cluster of which it is part, otherwise that of the
    cluster. `actors`: None is one a GPU, or one a machine where no GPU is to be used. Raises SettingsError.
    """
    ray = check(settings, address)
    environment = {name: value for name, value in os.environ.items() if name.startswith(_TAKEN_ALONG)}
    environment |= {"CAIRN_HOME": str(settings.home), "CAIRN_MODEL": settings.model, "CAIRN_OCR": settings.ocr}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    given: dict[str, Any] = {"include_dashboard": False} if address == "local" else {"address": address}
    with redirect_stdout(cast(TextIO, _OfThisThread(sys.stdout))):
        try:
            ray.init(**given, runtime_env={"env_vars": environment}, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise SettingsError(f"The Ray cluster {address} cannot be used: {str(error).splitlines()[0]}") from error
        try:
            yield from _watched(ray, _started(ray, settings, actors), still_waiting)
        finally:
            ray.shutdown()


class _OfThisThread(io.TextIOBase):
    """Standard output for the thread that made it; what others print, as Ray's do of workers that died, is no result
    and goes to standard error."""

    def __init__(self, stdout: TextIO):
        self._stdout, self._mine = stdout, threading.get_ident()

    def write(self, text: str) -> int:
        return (self._stdout if threading.get_ident() == self._mine else sys.stderr).write(text)

    def flush(self) -> None:
        self._stdout.flush()


class Reader:
    """What one actor does; ordinary Python, which `_started` gives to Ray."""

    def read(self) -> int:
        """Until nothing waits and nothing is at work anywhere. Returns how many documents were read."""
        from app import assembly
        from app.jobs import JobRunner
        from app.settings import load_settings

        assembly.keep_quiet()
        with assembly.open_library(load_settings()) as library, JobRunner(library) as runner:
            while library.num_active_jobs():
                time.sleep(POLL_SECONDS)
            return runner.num_done


def check(settings: Settings, address: str) -> Any:
    """The package. Raises SettingsError if it is missing, or actors of other machines would not find the catalogue."""
    if settings.database_url is None and address != "local":
        raise SettingsError(
            "Actors of a Ray cluster share the catalogue: name one in PostgreSQL with CAIRN_DATABASE_URL, and a bucket "
            "with CAIRN_STORE_URL (docs/several-machines.md). Without them, --ray local reads on this machine."
        )
    try:
        import ray
    except ImportError as error:
        raise SettingsError("--ray needs a package that is not installed: pip install cairn[ray]") from error
    return ray


def _started(ray: Any, settings: Settings, actors: int | None) -> list[Any]:
    """One answer to come for each actor."""
    resources = ray.cluster_resources()
    gpus = 0 if settings.device == "cpu" else int(resources.get("GPU", 0))
    machines = sum(1 for node in ray.nodes() if node["Alive"])
    number = max(1, min(actors or gpus or machines, MAX_ACTORS))
    needs = {"num_gpus": 1, "num_cpus": 0} if gpus else {"num_cpus": 1}
    actor = ray.remote(**needs, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD")(Reader)
    return [actor.remote() for _ in range(number)]


def _watched(ray: Any, actors: list[Any], still_waiting: Callable[[], bool]) -> Iterator[int]:
    """Raises SettingsError if no actor is left and something waits: what the first of them failed of is told."""
    reading, problem = [actor.read.remote() for actor in actors], ""
    while reading:
        ended, reading = ray.wait(reading, num_returns=len(reading), timeout=POLL_SECONDS)
        for one in ended:
            try:
                ray.get(one)
            except ray.exceptions.RayError as error:
                problem = problem or str(error).strip().splitlines()[-1]
        yield len(reading)
    if problem and still_waiting():
        raise SettingsError(f"Ray's actors could not read: {problem}")
