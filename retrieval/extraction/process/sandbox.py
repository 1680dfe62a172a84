"""Worker processes that read one file each; the next one is started before it is needed.

Starting a process takes a quarter of a second, reading a short text or drawing a page a hundredth. So one process is
kept waiting for up to a minute; it knows nothing of other files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retrieval.extraction.process.admission import CHECK_SECONDS, Admission
from retrieval.extraction.process.ipc import AHEAD, EXIT_IDLE

_ROOT = Path(__file__).resolve().parents[3]
# Nothing else of the caller's environment, which may hold secrets, is passed on.
_KEPT = ("PATH", "SYSTEMROOT", "LANG", "LC_ALL", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Caller:
    """For whom a file is read. `check` is called now and then while it waits or is read: what it raises ends it."""

    person: str = ""
    check: Callable[[], object] = lambda: None


class Sandbox:
    """Starts the worker, a process for each request, when `admission` lets it. Thread-safe."""

    def __init__(self) -> None:
        self.admission = Admission()
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Also after a fork: the waiting process, and those at work, belong to the parent."""
        self.admission = Admission(self.admission.processes, self.admission.memory_bytes)
        self._lock = threading.Lock()
        self._waiting: subprocess.Popen[bytes] | None = None

    def serve(self, request: dict[str, Any], seconds: float, caller: Caller) -> tuple[int, str]:
        """Exit status and standard error of the process that served the request, once this person's turn came.

        Raises subprocess.TimeoutExpired after so many seconds of its own, and what `caller.check` raises. The process
        has ended in any case.
        """
        memory_bytes, draws = request["limits"]["memory_bytes"], request["task"] == "render"
        with self.admission.turn(caller.person, memory_bytes, draws=draws, check=caller.check):
            return self._serve(request, seconds, caller.check)

    def _serve(self, request: dict[str, Any], seconds: float, check: Callable[[], object]) -> tuple[int, str]:
        with self._lock:
            process, self._waiting = self._waiting or _start(), None
        status, complaint = _communicate(process, request, seconds, check)
        if status == EXIT_IDLE:  # it gave up waiting just as the request came
            status, complaint = _communicate(_start(), request, seconds, check)
        return status, complaint

    def start_next(self) -> None:
        """Start a process that waits for the next request, unless one does."""
        with self._lock:
            if self._waiting is None or self._waiting.poll() is not None:
                self._waiting = _start(AHEAD)

    def close(self) -> None:
        """End the waiting process."""
        with self._lock:
            process, self._waiting = self._waiting, None
        if process is not None:
            process.kill()
            process.communicate()


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    # One thread: more only reserve address space.
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT), "PYTHONUTF8": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "retrieval.extraction.process.worker", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=_ROOT,  # -m looks for modules there first
        env=environment,
        start_new_session=True,
    )


def _communicate(
    process: subprocess.Popen[bytes], request: dict[str, Any], seconds: float, check: Callable[[], object]
) -> tuple[int, str]:
    ends = time.monotonic() + seconds
    given: bytes | None = json.dumps(request).encode()
    try:
        while True:
            left = ends - time.monotonic()
            try:
                _, complaint = process.communicate(given, timeout=max(0.0, min(left, CHECK_SECONDS)))
                break
            except subprocess.TimeoutExpired:
                if left <= CHECK_SECONDS:
                    raise
                given = None  # the first call has it
                check()
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return process.returncode, complaint.decode("utf-8", "replace")
