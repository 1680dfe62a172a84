"""Who may use the model now: questions before ingestion, first come first served among equals.

Ingestion has the model to itself. Of questions as many are at work at once as there are processor threads to compute
with, each with its share of these: two questions on a core each end sooner than one after the other on both, because
half of a question is work that no second core can help with (benchmarks/load/questions_at_once.py).
"""

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
        self,
        patience_seconds: float = PATIENCE_SECONDS,
        before_work: Callable[[int], object] = lambda sharing: None,
        places: Callable[[], int] = lambda: 1,
    ) -> None:
        """before_work: called by each thread when its turn begins, and again amid ingestion, with how many share the
        processor now; places: how many questions may be at work at once."""
        self._condition = threading.Condition()
        self._questions: deque[object] = deque()
        self._ingestion: deque[object] = deque()
        self._ingesting = False
        self._at_work = 0  # questions
        self._open_questions = 0
        self._last_step = 0.0
        self._patience_seconds = patience_seconds
        self._before_work, self._places = before_work, places

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
                self._ingesting = False
                self._condition.notify_all()
                while self._ingesting or self._at_work or self._questioned():
                    self._condition.wait(self._patience_seconds)
                self._ingesting = True
        self._before_work(1)

    def wait_for_queries(self) -> None:
        """For work of ingestion that needs no model, but a processor: waits while there is a question, as its turn
        would. Call it between small pieces of such work."""
        with self._condition:
            while self._questioned():
                self._condition.wait(self._patience_seconds)

    def _may_go(self, queue: deque[object], ticket: object) -> bool:
        if self._ingesting or queue[0] is not ticket:
            return False
        if queue is self._questions:
            return self._at_work < max(1, self._places())
        return not (self._at_work or self._questioned())

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
            sharing = self._enter(queue)
        try:
            self._before_work(sharing)
            yield
        finally:
            with self._condition:
                if queue is self._questions:
                    self._at_work -= 1
                    self._last_step = time.monotonic()
                else:
                    self._ingesting = False
                self._condition.notify_all()

    def _enter(self, queue: deque[object]) -> int:
        """Take the turn; how many share the processor from now on."""
        if queue is not self._questions:
            self._ingesting = True
            return 1
        self._at_work += 1
        self._condition.notify_all()  # there may be a place for the next one too
        return min(max(1, self._places()), self._at_work + len(self._questions))
