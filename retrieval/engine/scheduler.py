"""Who may use the model now: one at a time, questions before ingestion, first come first served among equals."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Ingestion stays away between the steps of an open question, but not for a reader that stopped reading.
PATIENCE_SECONDS = 2.0


class ModelScheduler:
    """A lock with two queues. Not reentrant. A question waits for at most one step of whoever holds the model, and
    ingestion may yield during one."""

    def __init__(
        self, patience_seconds: float = PATIENCE_SECONDS, before_work: Callable[[], object] = lambda: None
    ) -> None:
        """before_work: called by each thread when its turn begins, and again amid ingestion."""
        self._condition = threading.Condition()
        self._questions: deque[object] = deque()
        self._ingestion: deque[object] = deque()
        self._taken = False
        self._open_questions = 0
        self._last_step = 0.0
        self._patience_seconds = patience_seconds
        self._before_work = before_work

    @contextmanager
    def question_open(self) -> Iterator[None]:
        """While a question is being answered, ingestion waits, also between the answer's steps."""
        with self._condition:
            self._open_questions += 1
            self._last_step = time.monotonic()
        try:
            yield
        finally:
            with self._condition:
                self._open_questions -= 1
                self._condition.notify_all()

    @contextmanager
    def for_question(self) -> Iterator[None]:
        """One step of a question: its search, or one token."""
        yield from self._turn(self._questions)

    @contextmanager
    def for_ingestion(self) -> Iterator[None]:
        """One window of ingestion."""
        yield from self._turn(self._ingestion)

    def yield_to_queries(self) -> None:
        """For ingestion during its turn, where others may use the model: lets questions go first."""
        with self._condition:
            if self._questioned():
                self._taken = False
                self._condition.notify_all()
                while self._taken or self._questioned():
                    self._condition.wait(self._patience_seconds)
                self._taken = True
        self._before_work()

    def wait_for_queries(self) -> None:
        """For work of ingestion that needs no model, but a processor: waits while there is a question, as its turn
        would. Call it between small pieces of such work."""
        with self._condition:
            while self._questioned():
                self._condition.wait(self._patience_seconds)

    def _may_go(self, queue: deque[object], ticket: object) -> bool:
        if self._taken or queue[0] is not ticket:
            return False
        return queue is self._questions or not self._questioned()

    def _questioned(self) -> bool:
        """Whether a question waits, or is is open and its reader still reads."""
        reading = self._open_questions > 0 and time.monotonic() - self._last_step < self._patience_seconds
        return bool(self._questions) or reading

    def _turn(self, queue: deque[object]) -> Iterator[None]:
        ticket = object()
        with self._condition:
            queue.append(ticket)
            try:
                while not self._may_go(queue, ticket):
                    self._condition.wait(None if queue is self._questions else self._patience_seconds)
            except BaseException:
                queue.remove(ticket)
                self._condition.notify_all()
                raise
            queue.popleft()
            self._taken = True
        try:
            self._before_work()
            yield
        finally:
            with self._condition:
                self._taken = False
                if queue is self._questions:
                    self._last_step = time.monotonic()
                self._condition.notify_all()
