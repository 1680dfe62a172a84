"""Processes of Python for tests, forked from one that has imported what they need.

Starting Python and importing torch and the library takes two to five seconds of the processor, a fork a hundredth of
one. `started` and `run` take what would stand behind `python` on a command line, and it means the same: a process with
an environment, outputs and an exit status of its own. The one that forks them has imported modules and done nothing
else: it has no threads, no open files and no model. It ends with the process of the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = ["torch", "storage.maintenance", "tests.storage.stored", "retrieval.library", "tests.retrieval.conftest"]


def started(*arguments: object) -> Forked | subprocess.Popen[str]:
    """A running process: `arguments` are a script, "-m" and a module, or "-c" and a text, and what they are given."""
    if sys.platform == "linux":
        return Forked([str(each) for each in arguments])
    command, pipe = [sys.executable, *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def run(*arguments: object, timeout: float) -> subprocess.CompletedProcess[str]:
    """The same, once it has ended. Raises `subprocess.TimeoutExpired`."""
    process = started(*arguments)
    try:
        out, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


class Forked:
    """What tests use of `subprocess.Popen`."""

    def __init__(self, arguments: list[str]):
        self.args = arguments
        pipes = [multiprocessing.Pipe(duplex=False) for _ in range(2)]
        ours, theirs = zip(*pipes, strict=True)
        self._process = _forks().Process(target=_run, args=(arguments, dict(os.environ), *theirs))
        self._process.start()
        self.stdout, self.stderr = map(_file, ours)
        for each in theirs:
            each.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Standard output and standard error, once it has ended. Raises `subprocess.TimeoutExpired`."""
        said: dict[IO[str], str] = {}
        readers = [
            threading.Thread(target=lambda file=file: said.update({file: file.read()}), daemon=True)
            for file in (self.stdout, self.stderr)
        ]
        for reader in readers:
            reader.start()
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        for file, reader in zip((self.stdout, self.stderr), readers, strict=True):
            reader.join(timeout)
            file.close()
        return said[self.stdout], said[self.stderr]


@cache
def _forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def _file(end: Connection) -> IO[str]:
    file = os.fdopen(os.dup(end.fileno()), encoding="utf-8", errors="replace")
    end.close()
    return file


def _run(arguments: list[str], environment: dict[str, str], out: Connection, errors: Connection) -> None:
    for number, end in ((1, out), (2, errors)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    what, *given = arguments
    sys.argv = given if what in ("-m", "-c") else arguments
    if what == "-c":
        exec(compile(given[0], "<given>", "exec"), {"__name__": "__main__"})
    elif what == "-m":
        runpy.run_module(given[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(what, run_name="__main__")
