"""Worker processes that read one file each; the next one is started before it is needed.

Starting a process takes a quarter of a second, reading a short text or drawing a page a hundredth. So one process is
kept waiting for up to a minute; it knows nothing of other files. On Linux it does not serve the request itself but
forks the process that does, and waits for the next one (`worker.py`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from retrieval.extraction.process.admission import CHECK_SECONDS, Admission
from retrieval.extraction.process.ipc import AHEAD, COMPLAINT, EXIT_IDLE, FORKS

_COMPLAINT_BYTES = 64 << 10
_ROOT = Path(__file__).resolve().parents[3]
# Nothing else of the caller's environment, which may hold secrets, is passed on.
_KEPT = ("PATH", "SYSTEMROOT", "LANG", "LC_ALL", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


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

    def serve(
        self, request: dict[str, Any], seconds: float, person: str = "", check: Callable[[], object] = lambda: None
    ) -> tuple[int, str]:
        """Exit status and standard error of the process that served the request, once this person's turn came.

        Raises subprocess.TimeoutExpired after so many seconds of its own, and what `check` raises, which is called now
        and then while the request waits or is served. The process has ended in any case.
        """
        memory_bytes, draws = request["limits"]["memory_bytes"], request["task"] == "render"
        with self.admission.turn(person, memory_bytes, draws=draws, check=check):
            return self._serve(request, seconds, check)

    def _serve(self, request: dict[str, Any], seconds: float, check: Callable[[], object]) -> tuple[int, str]:
        with self._lock:
            waiting, self._waiting = self._waiting, None
        if waiting is None:
            return _communicate(start_reader(), request, seconds, check)
        communicate = _have_forked if FORKS else _communicate
        status, complaint = communicate(waiting, request, seconds, check)
        if status == EXIT_IDLE:  # it gave up waiting just as the request came
            return _communicate(start_reader(), request, seconds, check)
        if waiting.poll() is None:
            self._keep(waiting)
        return status, complaint

    def _keep(self, starter: subprocess.Popen[bytes]) -> None:
        """For the next request, unless another one waits for it already."""
        with self._lock:
            if self._waiting is None:
                self._waiting = starter
                return
        _end(starter)

    def start_next(self) -> None:
        """Start a process that waits for the next request, unless one does."""
        with self._lock:
            if self._waiting is None or self._waiting.poll() is not None:
                self._waiting = start_reader(AHEAD)

    def close(self) -> None:
        """End the waiting process."""
        with self._lock:
            process, self._waiting = self._waiting, None
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def start_reader(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    # One thread: more only reserve address space.
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT), "PYTHONUTF8": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "retrieval.extraction.process.worker", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if AHEAD in arguments and FORKS else subprocess.DEVNULL,
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


def _have_forked(
    starter: subprocess.Popen[bytes], request: dict[str, Any], seconds: float, check: Callable[[], object]
) -> tuple[int, str]:
    """As `_communicate`, by a process that the starter forks; the starter is ended where that one does not end."""
    ends, status = time.monotonic() + seconds, b""
    try:
        _tell(starter, request)
        assert starter.stdout is not None
        while not status.endswith(b"\n"):
            if not _readable(starter.stdout.fileno(), min(max(0.0, ends - time.monotonic()), CHECK_SECONDS)):
                if time.monotonic() >= ends:
                    raise subprocess.TimeoutExpired("reader", seconds)
                check()
                continue
            read = os.read(starter.stdout.fileno(), 64)
            if not read:  # it ended itself: nobody had asked it for long, or the system killed it
                starter.communicate()
                return starter.returncode, ""
            status += read
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(starter.pid, signal.SIGKILL)  # its own group, with the process that it forked
        _end(starter)
        raise
    return int(status), _complaint(Path(request["folder"]))


def _tell(starter: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    if starter.stdin is not None:
        with suppress(BrokenPipeError):  # it has just ended, which shows when it is waited for
            starter.stdin.write(json.dumps(request).encode() + b"\n")
            starter.stdin.flush()


def _readable(file: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(seconds * 1000))


def _complaint(folder: Path) -> str:
    """The end of what the process wrote to standard error."""
    try:
        with (folder / COMPLAINT).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _COMPLAINT_BYTES))
            return file.read(_COMPLAINT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
