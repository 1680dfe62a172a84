"""Processes that read files, each of them one file; the next one is started while nobody waits for it.

A process needs a quarter of a second to start and a hundredth to read a short text or to draw a page. So one is kept
waiting, for a minute; it knows nothing of other files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from retrieval.extraction.worker import AHEAD, WENT_HOME

# Nothing of the caller's settings or secrets is passed on.
_KEPT = ("PATH", "SYSTEMROOT", "LANG", "LC_ALL", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


class Readers:
    """Starts `retrieval.extraction.worker`, one process for each request."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A forked process starts its own: the one that waits is its parent's."""
        self._lock = threading.Lock()
        self._waiting: subprocess.Popen[bytes] | None = None

    def serve(self, request: dict[str, Any], seconds: float) -> tuple[int, str]:
        """Exit status of the process that served the request, and its complaint. Raises subprocess.TimeoutExpired
        after so many seconds; the process has ended in any case."""
        with self._lock:
            process, self._waiting = self._waiting or _start(), None
        status, complaint = _serve(process, request, seconds)
        if status == WENT_HOME:  # in the very moment when it was asked
            status, complaint = _serve(_start(), request, seconds)
        return status, complaint

    def start_next(self) -> None:
        """Have a process wait for the next request."""
        with self._lock:
            if self._waiting is None or self._waiting.poll() is not None:
                self._waiting = _start(AHEAD)

    def end(self) -> None:
        """End the process that waits."""
        with self._lock:
            process, self._waiting = self._waiting, None
        if process is not None:
            process.kill()
            process.communicate()


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).resolve().parent.parent.parent
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    # One thread: more only reserve address space.
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(root), "PYTHONUTF8": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "retrieval.extraction.worker", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=root,  # -m looks for modules there first
        env=environment,
        start_new_session=True,
    )


def _serve(process: subprocess.Popen[bytes], request: dict[str, Any], seconds: float) -> tuple[int, str]:
    try:
        _, complaint = process.communicate(json.dumps(request).encode(), timeout=seconds)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return process.returncode, complaint.decode("utf-8", "replace")
