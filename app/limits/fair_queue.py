"""FairQueue: threads that work for many users and take one task of each in turn.

- Nobody waits longer for another's hundred tasks than for one of them; the tasks of one user keep their order.
- The number of waiting tasks is bounded, for each user and in all: beyond that a task is refused at once.
- A person is any string: a user's id, an address.
"""

from __future__ import annotations

import contextvars
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class QueueFull(Exception):
    """No more tasks are accepted now: of this person, or (`own` is False) of anybody."""

    def __init__(self, own: bool):
        super().__init__(own)
        self.own = own


@dataclass(frozen=True, eq=False)
class _Task:
    person: str
    future: Future[Any]
    call: Callable[[], Any]


class FairQueue:
    """At most `at_once` tasks run, `each_at_once` of one person; `each_waiting` of one person may wait, `waiting` in
    all. Thread-safe."""

    def __init__(self, name: str, *, at_once: int, each_at_once: int = 1, each_waiting: int, waiting: int = 1000):
        self._at_once, self._each_at_once = at_once, each_at_once
        self._each_waiting, self._most_waiting = each_waiting, waiting
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Task]] = {}  # in the order in which people came
        self._running: Counter[str] = Counter()
        self._turns = 0
        self._last_turn: dict[str, int] = {}  # of those who have tasks here

    def submit(self, person: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Cancel the future to withdraw a task that has not begun. Raises QueueFull."""
        around = contextvars.copy_context()  # what is logged in the thread carries the request's id
        task = _Task(person, Future(), lambda: around.run(function, *args, **kwargs))
        with self._lock:
            self._check_room(person)
            self._waiting.setdefault(person, deque()).append(task)
            self._start()
        return task.future

    def ahead(self, person: str, future: Future[Any]) -> int:
        """How many tasks come before one that this person has submitted, those that run counted; 0: it has begun."""
        with self._lock:
            self._drop_withdrawn()
            places = [number for number, task in enumerate(self._waiting.get(person, ())) if task.future is future]
            if not places:
                return 0
            people = self._in_turn()
            mine, own = people.index(person), places[0]
            each = (min(len(self._waiting[one]), own + (turn < mine)) for turn, one in enumerate(people))
            return self._running.total() + sum(each)

    def counts(self) -> tuple[int, int]:
        """How many tasks run, and how many wait."""
        with self._lock:
            self._drop_withdrawn()
            return self._running.total(), sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """Withdraw everything that waits; what runs goes on."""
        with self._lock:
            for tasks in self._waiting.values():
                for task in tasks:
                    task.future.cancel()
            self._waiting.clear()
        self._threads.shutdown(wait=False)

    def _check_room(self, person: str) -> None:
        self._drop_withdrawn()
        if len(self._waiting.get(person, ())) >= self._each_waiting:
            raise QueueFull(own=True)
        if sum(map(len, self._waiting.values())) >= self._most_waiting:
            raise QueueFull(own=False)

    def _drop_withdrawn(self) -> None:
        for person, tasks in list(self._waiting.items()):
            kept = deque(task for task in tasks if not task.future.cancelled())
            if kept:
                self._waiting[person] = kept
            else:
                del self._waiting[person]

    def _start(self) -> None:
        """Begin as many tasks as may run."""
        while self._running.total() < self._at_once and (task := self._next()) is not None:
            self._running[task.person] += 1
            self._threads.submit(self._work, task)

    def _next(self) -> _Task | None:
        """The first task of the person whose last turn is longest ago."""
        self._drop_withdrawn()
        for person in self._in_turn():
            if self._running[person] >= self._each_at_once:
                continue
            task = self._waiting[person].popleft()
            if not self._waiting[person]:
                del self._waiting[person]
            if task.future.set_running_or_notify_cancel():
                self._turns += 1
                self._last_turn[person] = self._turns
                return task
        return None

    def _in_turn(self) -> list[str]:
        """Who waits, the one whose last turn is longest ago first."""
        return sorted(self._waiting, key=lambda person: self._last_turn.get(person, 0))

    def _work(self, task: _Task) -> None:
        try:
            task.future.set_result(task.call())
        except BaseException as error:  # whoever waits for the result raises it
            task.future.set_exception(error)
        finally:
            with self._lock:
                self._running[task.person] -= 1
                self._start()
                here = {*self._waiting, *(+self._running)}
                self._running = +self._running
                self._last_turn = {person: turn for person, turn in self._last_turn.items() if person in here}
