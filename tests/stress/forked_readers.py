"""Reader processes forked from this one, which has imported what they need: a start takes a hundredth of the time."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

from retrieval.extraction.formats import FORMATS, function_named
from retrieval.extraction.process import worker
from retrieval.extraction.process.sandbox import Sandbox


class ForkedReaders(Sandbox):
    """Each file has a process of its own with the limits of the product. Not for programs with threads. Linux."""

    def __init__(self) -> None:
        super().__init__()
        worker.NICENESS = 0  # whoever runs this chooses
        for each in FORMATS:
            function_named(each.extractor)

    def _serve(self, request: dict[str, Any], seconds: float, check: Callable[[], object]) -> tuple[int, str]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._work(request, writing)
        os.close(writing)
        process = os.pidfd_open(child)
        try:
            if not select.select([process], [], [], seconds)[0]:
                raise subprocess.TimeoutExpired("reader", seconds)
        finally:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            os.close(process)
            with os.fdopen(reading, errors="replace") as lines:
                complaint = lines.read()
        return os.waitstatus_to_exitcode(status), complaint

    def _work(self, request: dict[str, Any], complaints: int) -> None:
        """Never returns."""
        status = 1
        try:
            os.dup2(complaints, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            worker.serve(request)
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def start_next(self) -> None:
        """None is started ahead."""
