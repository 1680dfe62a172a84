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


def is_alive(worker: str) -> bool:
    """Whether the process of this name is known to be running: on this machine. Nothing is known of other machines."""
    process = _process_here(worker)
    if process is None:
        return False
    try:
        return psutil.pid_exists(process) and _started(process) == worker.rpartition("/")[2]
    except psutil.NoSuchProcess:
        return False


def is_here(worker: str) -> bool:
    """Whether the process of this name is one of this machine, alive or not."""
    return _process_here(worker) is not None


def is_dead(worker: str) -> bool:
    """Whether the process of this name is known to have ended: it was on this machine."""
    return is_here(worker) and not is_alive(worker)


def _process_here(worker: str) -> int | None:
    """Its process id; None for a process of another machine."""
    parts = worker.split("/")
    if len(parts) != 3 or parts[0] != this_machine() or not parts[1].isdigit():
        return None
    return int(parts[1])


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
