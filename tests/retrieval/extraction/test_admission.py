"""Reader processes: how many, with how much memory, whose next; and what a file may take for its size."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from retrieval.errors import ExtractError
from retrieval.extraction import extract as extraction
from retrieval.extraction.extract import extract
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.process.admission import Admission
from tests.retrieval.extraction.test_limits import flate_bomb
from tests.waiting import until


class Readers:
    """Threads that stand for reader processes: each stays inside until it is let out."""

    def __init__(self, admission: Admission):
        self.admission, self.inside, self.most_memory = admission, [], 0
        self._lock, self._threads = threading.Lock(), ThreadPoolExecutor(100)
        self._memory = self._here = 0
        self.outs: list[tuple[str, threading.Event]] = []

    def come(self, person: str, memory_bytes: int = 1, *, draws: bool = False) -> Future[None]:
        self._here += 1
        return self._threads.submit(self._read, person, memory_bytes, draws)

    def _read(self, person: str, memory_bytes: int, draws: bool) -> None:
        out = threading.Event()
        with self.admission.turn(person, memory_bytes, draws=draws):
            with self._lock:
                self.inside.append(person)
                self.outs.append((person, out))
                self._memory += memory_bytes
                self.most_memory = max(self.most_memory, self._memory)
            assert out.wait(30)
            with self._lock:
                self._memory -= memory_bytes

    def let_out(self, person: str) -> None:
        with self._lock:
            each = next(each for each in self.outs if each[0] == person)
            self.outs.remove(each)
            self._here -= 1
        each[1].set()

    def now(self) -> list[str]:
        """Who is inside, when nobody comes or goes any more."""
        until(self._is_still)
        return sorted(person for person, _ in self.outs)

    def _is_still(self) -> bool:
        inside, waiting = len(self.admission._inside), len(self.admission._waiting)
        return inside + waiting == self._here and inside == len(self.outs) and self.admission._next() is None


def test_one_persons_sixty_files_leave_processes_for_others() -> None:
    readers = Readers(Admission(4, 100))
    for _ in range(60):
        readers.come("ann")
    assert readers.now() == ["ann"] * 2
    readers.come("ann", draws=True), readers.come("ann", draws=True)
    until(lambda: len(readers.outs) == 3)
    readers.come("bob")
    until(lambda: len(readers.outs) == 4)
    assert readers.now() == ["ann"] * 3 + ["bob"]
    while readers.outs:
        readers.let_out(readers.outs[0][0])
        time.sleep(0.01)


def test_people_take_turns() -> None:
    readers = Readers(Admission(1, 100))
    readers.come("ann")
    assert readers.now() == ["ann"]
    waiting = [readers.come(name) for name in ("ann", "ann", "bob", "cleo")]
    assert readers.now() == ["ann"]
    for _ in range(5):
        until(lambda: bool(readers.outs))
        readers.let_out(readers.outs[0][0])
    for each in waiting:
        each.result(20)
    assert set(readers.inside[1:3]) == {"bob", "cleo"} and readers.inside[3:] == ["ann", "ann"]


def test_the_summed_memory_stays_below_the_limit_and_large_files_are_not_overtaken_for_ever() -> None:
    readers = Readers(Admission(8, 10))
    coming: list[Any] = [readers.come(f"{n}", 4) for n in range(4)]
    until(lambda: len(readers.outs) == 2)
    coming.append(readers.come("large", 10))
    until(lambda: "large" in [ticket.person for ticket in readers.admission._waiting])
    coming += [readers.come(f"late {n}", 1) for n in range(10)]
    while not all(each.done() for each in coming):
        if readers.outs:
            readers.let_out(readers.outs[0][0])
        time.sleep(0.01)
    assert readers.most_memory <= 10
    assert readers.inside.index("large") < 14


def test_a_file_may_cost_what_its_size_suggests() -> None:
    whole, small, large = ExtractLimits(), ExtractLimits().for_size(586), ExtractLimits().for_size(100_000_000)
    assert small.seconds < 11 and small.memory_bytes < 500e6
    assert (large.seconds, large.memory_bytes) == (whole.seconds, whole.memory_bytes)
    assert ExtractLimits(seconds=1).for_size(586).seconds == 1


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux")
def test_a_small_file_that_unpacks_to_gigabytes_never_gets_them(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "bomb.pdf"
    path.write_bytes(flate_bomb(600))
    asked: list[int] = []
    turn = Admission.turn
    monkeypatch.setattr(Admission, "turn", lambda self, *a, **k: (asked.append(a[1]), turn(self, *a, **k))[1])
    with pytest.raises(ExtractError, match=r"memory|crashed|longer"):
        extract(path)
    assert asked and asked[0] < 500e6


def test_sixty_files_at_once_start_no_more_processes_than_allowed(tmp_path: Path, monkeypatch: Any) -> None:
    sandbox = extraction.SANDBOX
    sandbox.admission = Admission(3, 4 << 30)
    at_work, most, lock = 0, 0, threading.Lock()
    serve = sandbox._serve

    def counted(*arguments: Any) -> tuple[int, str]:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        try:
            return serve(*arguments)
        finally:
            with lock:
                at_work -= 1

    monkeypatch.setattr(sandbox, "_serve", counted)
    path = tmp_path / "a.txt"
    path.write_text("The dam was raised in 1951.")
    with ThreadPoolExecutor(12) as threads:
        texts = list(threads.map(lambda n: extract(path, person=str(n % 4)).text, range(12)))
    assert set(texts) == {"The dam was raised in 1951."} and most <= 3
