"""Names for the processes that run jobs, from which another process of the same machine can tell whether they live."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from pathlib import Path

import psutil


def this_worker() -> str:
    """Machine, process id and start time, which exposes a reused process id and a restarted container."""
    return f"{this_machine()}/{os.getpid()}/{_started(os.getpid())}"


def is_alive(worker: str) -> bool | None:
    """Whether the process of this name is running; None for one of another machine, of which nothing is known."""
    parts = worker.split("/")
    if len(parts) != 3 or parts[0] != this_machine() or not parts[1].isdigit():
        return None
    try:
        return psutil.pid_exists(int(parts[1])) and _started(int(parts[1])) == parts[2]
    except psutil.NoSuchProcess:
        return False


@functools.cache
def this_machine() -> str:
    """The host's name and, on Linux, where process ids mean the same: one start of the machine, one container.

    Two machines may have the same name, and two containers of one machine too.
    """
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text()[:8])
        parts.append(os.readlink("/proc/self/ns/pid").strip("pid:[]"))
    return "+".join(parts)


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
