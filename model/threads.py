"""Processor threads that suit the machine's other work.

Two things make a computation collapse next to other work. OpenMP threads that spin while they wait take the processor
from the threads that they wait for. And every parallel loop ends with its slowest thread, which waits behind the other
work. So threads fall asleep soon, and a computation uses as many as there are idle cores.

Nothing here imports torch before it is needed: OpenMP reads the environment once, when it is loaded.
"""

from __future__ import annotations

import os
import threading
import time
from functools import cache
from typing import Any, Literal

Threads = Literal["auto"] | int

# What OpenMP's runtimes read: any of them, then GCC's (Linux; rounds) and LLVM's and Intel's (macOS, Windows; ms).
# The next parallel loop mostly begins within some 0.1 ms: to sleep and be woken in between costs a third of the speed.
_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "30000", "KMP_BLOCKTIME": "1"}
_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# A look at the machine's load holds for this long, and takes this long where none is recent.
_FRESH_SECONDS = 0.25
_STALE_SECONDS = 5.0
_LOOK_SECONDS = 0.05
# Of a core: short-lived work of others that does not cost a thread.
_TOLERANCE = 0.4


def wait_passively() -> None:
    """Have OpenMP's threads sleep when they wait for long, unless the environment says how; torch must not be loaded
    yet."""
    if not _WAITING.keys() & os.environ.keys():
        os.environ.update(_WAITING)


class ThreadCount:
    """How many threads torch computes with: a fixed number, or with "auto" one for each core that others leave idle.

    A number in OMP_NUM_THREADS or MKL_NUM_THREADS counts as fixed; one given to torch.set_num_threads is the most that
    is taken. Thread-safe.
    """

    def __init__(self, threads: Threads = "auto") -> None:
        if threads != "auto" and threads < 1:
            raise ValueError(f"threads is {threads}; at least one is needed, or 'auto'")
        self._most = _torch_default() if threads == "auto" else threads
        self._follows = threads == "auto" and self._most > 1 and not any(name in os.environ for name in _COUNTS)
        self._lock = threading.Lock()
        self._now = self._most
        self._last = _Times()

    @property
    def now(self) -> int:
        """The number of threads, as of the last look at the machine."""
        return self._now

    def apply(self, sharing: int = 1) -> int:
        """Set it for the computations that this thread begins now, a part of it where several are `sharing` it;
        returns what was set. A few microseconds, and 0.05 s where the machine was last looked at a while ago."""
        import torch  # what sets the environment for it must not load it

        with self._lock:
            if self._follows:
                self._follow()
            mine = max(1, self._now // sharing)
            if torch.get_num_threads() != mine:  # OpenMP keeps the number for each thread that asks
                torch.set_num_threads(mine)
            return mine

    def _follow(self) -> None:
        age = time.monotonic() - self._last.moment
        if age < _FRESH_SECONDS:
            return
        if age > _STALE_SECONDS:
            self._last = _Times()
            time.sleep(_LOOK_SECONDS)
        now = _Times()
        idle = now.idle_since(self._last)
        self._last = now
        wanted = min(self._most, max(1, int(idle + _TOLERANCE)))
        # Down at once; up by one a look, so that a pause of the neighbour's does not count for much.
        self._now = min(wanted, self._now + 1)


class _Times:
    """Processor seconds used so far: by this process, and by all on the cores that it may run on."""

    def __init__(self) -> None:
        import psutil

        self.moment = time.monotonic()
        cores = psutil.cpu_times(percpu=True)
        if hasattr(os, "sched_getaffinity"):
            allowed = os.sched_getaffinity(0)
            if max(allowed) < len(cores):  # where containers count anew it is not
                cores = [cores[core] for core in allowed]
        self._cores = len(cores)
        self._all = sum(_busy_seconds(core) for core in cores)
        self._own = time.process_time()

    def idle_since(self, before: _Times) -> float:
        """Cores that others left idle since then, on average."""
        seconds = max(self.moment - before.moment, 1e-3)
        others = (self._all - before._all) - (self._own - before._own)
        return self._cores - max(others, 0.0) / seconds


def _busy_seconds(core: Any) -> float:
    idle = core.idle + getattr(core, "iowait", 0.0)
    counted_twice = getattr(core, "guest", 0.0) + getattr(core, "guest_nice", 0.0)  # in user and nice already
    return float(sum(core) - idle - counted_twice)


@cache
def _torch_default() -> int:
    """What torch was set to before any of this changed it."""
    import torch

    return torch.get_num_threads()
