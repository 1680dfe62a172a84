"""Threads shared by many people: whose task comes next, and how many may wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from app.limits.fair_queue import FairQueue, QueueFull


class Held:
    """Tasks that run until they are let go, and note the order in which they began."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.gate = threading.Semaphore(0)
        self.started = threading.Semaphore(0)

    def task(self, name: str) -> str:
        self.begun.append(name)
        self.started.release()
        assert self.gate.acquire(timeout=30)
        return name


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.gate.release(1000)


def test_one_persons_seventy_tasks_keep_another_waiting_for_one(held: Held) -> None:
    queue = FairQueue("test", at_once=1, each_waiting=100)
    many = [queue.submit("ann", held.task, f"ann {n}") for n in range(70)]
    one = queue.submit("bob", held.task, "bob")
    held.gate.release(2)
    assert one.result(30) == "bob" and held.begun[:2] == ["ann 0", "bob"] and not many[1].done()
    held.gate.release(100)
    assert [future.result(30) for future in many] == [f"ann {n}" for n in range(70)]
    assert [name for name in held.begun if name != "bob"] == [f"ann {n}" for n in range(70)]


def test_turns_go_round_among_all_who_wait(held: Held) -> None:
    queue = FairQueue("test", at_once=1, each_waiting=100)
    futures = [queue.submit(name, held.task, name) for name in "aaabbbccc"]
    held.gate.release(100)
    for future in futures:
        future.result(30)
    assert "".join(held.begun) == "abcabcabc"


def test_whoever_waits_sees_a_place_that_comes_nearer(held: Held) -> None:
    queue = FairQueue("test", at_once=1, each_waiting=100)
    futures = {name: queue.submit(name[0], held.task, name) for name in ("a1", "a2", "a3", "b1", "c1", "b2")}
    order = ["a1", "b1", "c1", "a2", "b2", "a3"]
    for begun in range(len(order)):
        assert held.started.acquire(timeout=30)
        told = [queue.ahead(name[0], futures[name]) for name in order]
        assert told == [0] * begun + list(range(len(order) - begun))
        held.gate.release()
        futures[order[begun]].result(30)


def test_one_person_runs_one_task_at_a_time_and_leaves_the_other_threads_to_others(held: Held) -> None:
    queue = FairQueue("test", at_once=2, each_waiting=100)
    first, second = (queue.submit("ann", held.task, name) for name in ("one", "two"))
    assert held.started.acquire(timeout=30) and queue.ahead("ann", first) == 0 and queue.ahead("ann", second) == 1
    queue.submit("bob", held.task, "bob")
    assert held.started.acquire(timeout=30) and held.begun == ["one", "bob"] and not second.running()
    held.gate.release(3)
    assert first.result(30) == "one" and second.result(30) == "two"


def test_more_than_may_wait_is_refused_for_that_person_only(held: Held) -> None:
    queue = FairQueue("test", at_once=1, each_waiting=2, waiting=4)
    for _ in range(3):
        queue.submit("ann", held.task, "ann")
    with pytest.raises(QueueFull) as refused:
        queue.submit("ann", held.task, "ann")
    assert refused.value.own
    for _ in range(2):
        queue.submit("bob", held.task, "bob")
    with pytest.raises(QueueFull) as refused:
        queue.submit("cleo", held.task, "cleo")
    assert not refused.value.own


def test_a_task_that_is_withdrawn_never_runs_and_makes_room(held: Held) -> None:
    queue = FairQueue("test", at_once=1, each_waiting=1)
    queue.submit("ann", held.task, "first")
    waiting = queue.submit("ann", held.task, "withdrawn")
    assert waiting.cancel()
    last = queue.submit("ann", held.task, "last")
    held.gate.release(5)
    assert last.result(30) == "last" and held.begun == ["first", "last"]


def test_a_task_that_fails_tells_its_caller_and_the_next_one_runs() -> None:
    queue = FairQueue("test", at_once=1, each_waiting=5)
    failing = queue.submit("ann", lambda: 1 // 0)
    after = queue.submit("ann", lambda: "after")
    with pytest.raises(ZeroDivisionError):
        failing.result(30)
    assert after.result(30) == "after"


def test_closing_withdraws_what_waits(held: Held) -> None:
    queue = FairQueue("test", at_once=1, each_waiting=5)
    queue.submit("ann", held.task, "first")
    waiting = queue.submit("ann", held.task, "second")
    queue.close()
    held.gate.release(5)
    assert waiting.cancelled()
