"""Names for the processes that work off jobs, such that a later process can tell whether one still lives."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def this_worker() -> str:
    """Host, process id and the time the process started: also tells a reused process id, or a restarted container."""
    return f"{socket.gethostname()}/{os.getpid()}/{_started(os.getpid())}"


def is_alive(worker: str) -> bool:
    """Whether the process of that name runs on this machine. One of another machine counts as dead."""
    parts = worker.split("/")
    if len(parts) != 3 or parts[0] != socket.gethostname() or not parts[1].isdigit():
        return False
    process = int(parts[1])
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, as another user
    return _started(process) == parts[2]


def _started(process: int) -> str:
    """Start time in clock ticks since boot; empty where the system does not tell."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    return status.rpartition(")")[2].split()[19]
