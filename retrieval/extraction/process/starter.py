"""A worker that has imported everything and forks a process for each request, which takes a hundredth of a start.

- It never looks at a request: the forked process reads it, and ends with its file. So nothing of one file (its text,
  its password, what a hostile one did to its reader) is there when the next one is read.
- One request at a time; whoever wants more has more starters. It has no threads, which a fork would lose.
- A line on standard output is the exit status of the process that served the request; what that wrote to standard error
  is in `COMPLAINT` in the folder of the request.

Linux only: elsewhere libraries may not survive a fork.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMPLAINT = "complaint.txt"
FORKS = sys.platform == "linux"
_LOOK_SECONDS = 0.5


def serve_many(serve: Callable[[dict[str, Any]], object], patience_seconds: float) -> None:
    """Serve one request after the other until none came for so long, or the caller has ended."""
    caller, starter = os.getppid(), os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # waited for below
    gc.freeze()  # so that forked processes do not copy what is never freed
    while select.select([0], [], [], patience_seconds)[0] and (child := _fork(serve, starter)):
        status = _ended(child, caller)
        if status is None or os.WIFEXITED(status) and os.WEXITSTATUS(status) == _NO_REQUEST:
            return
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


_NO_REQUEST = 76  # the caller has closed its end


def _fork(serve: Callable[[dict[str, Any]], object], starter: int) -> int:
    """The process id of the child, which reads its request from standard input and never returns."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        line = _request()
        if not line:
            os._exit(_NO_REQUEST)
        request = json.loads(line)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):  # what the starter and its caller say to each other
            os.dup2(nothing, standard)
        os.dup2(os.open(Path(request["folder"]) / COMPLAINT, os.O_WRONLY | os.O_CREAT, 0o600), 2)
        serve(request | {"caller": starter})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _request() -> bytes:
    """One line, or nothing at the end of standard input."""
    parts = [os.read(0, 1 << 16)]
    while parts[-1] and not parts[-1].endswith(b"\n"):
        parts.append(os.read(0, 1 << 16))
    return b"".join(parts)


def _ended(child: int, caller: int) -> int | None:
    """Wait status of the child; None if the caller has ended, and the child with it."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if os.getppid() != caller:
            os.kill(child, signal.SIGKILL)
            return None
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK_SECONDS)
