"""Names for the processes that run jobs, from which another process can tell whether they are still alive."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil


def this_worker() -> str:
    """Host, process id and start time, which exposes a reused process id and a restarted container."""
    return f"{socket.gethostname()}/{os.getpid()}/{_started(os.getpid())}"


def is_alive(worker: str) -> bool:
    """Whether the process of this name is running on this machine. Those of other machines count as dead."""
    parts = worker.split("/")
    if len(parts) != 3 or parts[0] != socket.gethostname() or not parts[1].isdigit():
        return False
    try:
        return psutil.pid_exists(int(parts[1])) and _started(int(parts[1])) == parts[2]
    except psutil.NoSuchProcess:
        return False


def _started(process: int) -> str:
    """Start time as the system recorded it, which must not change when the clock is set.

    On Linux psutil adds the boot time, which changes with the clock, so a live worker could be taken for dead.
    """
    if not psutil.LINUX:
        return str(int(1000 * psutil.Process(process).create_time()))
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(process) from None
    return status.rpartition(")")[2].split()[19]  # clock ticks since the machine was started
