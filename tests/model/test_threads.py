"""Threads wait passively unless the user says how, and their number follows the machine's other work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from model import threads
from model.threads import ThreadCount

ROOT = Path(__file__).resolve().parents[2]
# Everything that a program may import first; torch would be loaded by it or later.
ENTRY_POINTS = [
    "app.__main__",
    "app.assembly",
    "app.api",
    "app.api.mcp_tools",
    "research.train.__main__",
    "retrieval.langchain",
    "retrieval.library",
    "retrieval.extraction.process.worker",
]
STOP_AT_TORCH = """
import importlib.abc, os, sys
class StopAtTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, StopAtTorch())
__import__(sys.argv[1])
print(os.environ.get("OMP_WAIT_POLICY"))
"""


@pytest.fixture(autouse=True)
def one_thread_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(threads.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(threads.time, "sleep", clock.pass_)
    monkeypatch.setattr(threads, "_torch_default", lambda: 4)
    monkeypatch.setattr(threads._Times, "idle_since", lambda now, before: clock.idle)
    return clock


class Clock:
    """A machine whose time passes and whose cores are idle as a test says."""

    def __init__(self) -> None:
        self.now, self.idle, self.looks = 100.0, 4.0, 0

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("module", ENTRY_POINTS)
def test_waiting_is_passive_before_torch_is_loaded(module: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in threads._WAITING}
    command = [sys.executable, "-c", STOP_AT_TORCH, module]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["PASSIVE"], ended.stderr


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_what_the_user_says_about_waiting_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in threads._WAITING:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "7")
    threads.wait_passively()
    assert {other: os.environ[other] for other in threads._WAITING if other in os.environ} == {name: "7"}


def test_threads_go_down_at_once_and_up_one_by_one(clock: Clock) -> None:
    count = ThreadCount()
    assert count.apply() == torch.get_num_threads() == 4
    clock.pass_(1)
    clock.idle = 0.3
    assert count.apply() == torch.get_num_threads() == 1
    clock.idle = 3.7
    assert count.apply() == 1, "a look holds for a while"
    seen = []
    for _ in range(5):
        clock.pass_(1)
        seen.append(count.apply())
    assert seen == [2, 3, 4, 4, 4]


def test_an_old_look_is_not_believed(clock: Clock) -> None:
    count = ThreadCount()
    clock.pass_(600)
    clock.idle = 2.0
    before = clock.now
    assert count.apply() == 2
    assert clock.now - before == pytest.approx(0.05)


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_a_number_that_the_user_set_stays(name: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "4")
    count = ThreadCount()
    clock.pass_(1)
    clock.idle = 0.0
    assert count.apply() == 4
    assert ThreadCount(3).apply() == torch.get_num_threads() == 3


def test_less_than_one_thread_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ThreadCount(0)


def test_own_work_is_nobody_elses() -> None:
    """On a real machine: a second of computing here leaves as many idle cores as the others leave."""
    before = threads._Times()
    until = threads.time.monotonic() + 0.3
    while threads.time.monotonic() < until:
        pass
    now = threads._Times()
    assert 0 <= now.idle_since(before) <= (os.cpu_count() or 1)
