"""Admission: who may start a reader process now, so that their number and their summed memory stay below a limit.

- People take turns, one file each; without accounts everybody is one person.
- One person never has all processes: reading their files takes half of them at most, and one is left for others.
- Drawing a page does not queue behind the same person's files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PROCESSES = 4
MEMORY_BYTES = 4 << 30
CHECK_SECONDS = 0.5


@dataclass(frozen=True, eq=False)
class _Ticket:
    person: str
    draws: bool
    memory_bytes: int


class Admission:
    """At most `processes` at once with `memory_bytes` in all, each counted with what it may take. Thread-safe."""

    def __init__(self, processes: int = PROCESSES, memory_bytes: int = MEMORY_BYTES):
        if processes < 1 or memory_bytes < 1:
            raise ValueError("There must be at least one reader process, with some memory.")
        self.processes, self.memory_bytes = processes, memory_bytes
        self._condition = threading.Condition()
        self._waiting: list[_Ticket] = []
        self._inside: list[_Ticket] = []
        self._turns = 0
        self._last_turn: dict[str, int] = {}  # of those who wait or are inside

    @contextmanager
    def turn(
        self, person: str, memory_bytes: int, *, draws: bool = False, check: Callable[[], object] = lambda: None
    ) -> Iterator[None]:
        """Waits until a process that may take so much memory may start. `check` is called every `CHECK_SECONDS`
        meanwhile: what it raises ends the waiting."""
        ticket = _Ticket(person, draws, memory_bytes)
        with self._condition:
            self._waiting.append(ticket)
        try:
            while not self._let_in(ticket):
                check()
        except BaseException:
            with self._condition:
                self._waiting.remove(ticket)
                self._condition.notify_all()
            raise
        try:
            yield
        finally:
            with self._condition:
                self._inside.remove(ticket)
                here = {ticket.person for ticket in (*self._waiting, *self._inside)}
                self._last_turn = {person: turn for person, turn in self._last_turn.items() if person in here}
                self._condition.notify_all()

    def _let_in(self, ticket: _Ticket) -> bool:
        with self._condition:
            if not self._condition.wait_for(lambda: self._next() is ticket, CHECK_SECONDS):
                return False
            self._waiting.remove(ticket)
            self._inside.append(ticket)
            self._turns += 1
            self._last_turn[ticket.person] = self._turns
            self._condition.notify_all()
            return True

    def _next(self) -> _Ticket | None:
        """Whose turn it is, if there is room for it. Nobody overtakes: what needs much memory would never get it."""
        may_go = [ticket for ticket in self._waiting if self._has_share(ticket)]
        if not may_go or len(self._inside) >= self.processes:
            return None
        first = min(may_go, key=lambda ticket: self._last_turn.get(ticket.person, 0))
        taken = sum(ticket.memory_bytes for ticket in self._inside)
        return first if not self._inside or taken + first.memory_bytes <= self.memory_bytes else None

    def _has_share(self, ticket: _Ticket) -> bool:
        own = [other for other in self._inside if other.person == ticket.person]
        if len(own) >= max(1, self.processes - 1):
            return False
        reading = sum(not other.draws for other in own)
        return ticket.draws or reading < max(1, self.processes // 2)
