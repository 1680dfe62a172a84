"""Schedules the model: questions before ingestion, first come, first served within each.

Ingestion uses the model alone. Questions share it: there is a slot for each processor thread, and each question gets
its share of the threads. Two questions on a core each end sooner than one after the other on both cores, because half
of a question is work that a second core cannot speed up (benchmarks/load/questions_at_once.py).

Endless questions would starve ingestion. So once it was kept waiting for long enough, it goes first for a while, a
ninth of the time, and questions wait for its steps.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Generic, TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")

# Ingestion waits between the steps of an open question, unless its client stopped reading.
PATIENCE_SECONDS = 2.0
LONGEST_AWAY_SECONDS = 4.0
DUE_SECONDS = 0.5
"""How long ingestion goes first after it waited for LONGEST_AWAY_SECONDS."""


class ModelScheduler:
    """A lock with two queues. Not reentrant. A question waits for at most one step of the present holder, and ingestion
    may yield during a step."""

    def __init__(
        self,
        patience_seconds: float = PATIENCE_SECONDS,
        before_work: Callable[[int], object] = lambda sharing: None,
        slots: Callable[[], int] = lambda: 1,
        longest_away_seconds: float = LONGEST_AWAY_SECONDS,
    ) -> None:
        """before_work: called by each thread when it gets its slot, and again amid ingestion, with how many share the
        processor now; slots: how many questions may use the model at once."""
        self._condition = threading.Condition()
        self._questions: deque[object] = deque()
        self._ingestion: deque[object] = deque()
        self._ingesting = False
        self._at_work = 0  # questions
        self._open_questions = 0
        self._last_step = 0.0
        self._patience_seconds = patience_seconds
        self._before_work, self._slots = before_work, slots
        self._longest_away_seconds = longest_away_seconds
        self._away_since: float | None = None  # when questions began to keep ingestion waiting
        self._due_until = 0.0

    @contextmanager
    def question_open(self) -> Iterator[None]:
        """While a question is being answered, ingestion waits, also between its steps; but not once the last step is
        `patience_seconds` ago, and not once ingestion has waited for `longest_away_seconds`."""
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
        yield from self._in_slot(self._questions)

    @contextmanager
    def for_ingestion(self) -> Iterator[None]:
        """One window of ingestion."""
        yield from self._in_slot(self._ingestion)

    def yield_to_queries(self) -> None:
        """For ingestion that holds the model: lets questions go first."""
        with self._condition:
            if self._must_wait():
                self._ingesting = False
                self._condition.notify_all()
                self._wait_for_slot(self._ingestion, first=True)
        self._before_work(1)

    def wait_for_queries(self) -> None:
        """For work of ingestion that needs a processor but no model: waits while there are questions. Call it between
        small pieces of such work."""
        with self._condition:
            while self._must_wait():
                self._stay_away()
            self._resume_ingestion()

    def _may_go(self, queue: deque[object], ticket: object) -> bool:
        if self._ingesting or queue[0] is not ticket:
            return False
        if queue is self._questions:
            return self._at_work < max(1, self._slots()) and not (self._ingestion and self._is_due())
        return not (self._at_work or self._must_wait())

    def _must_wait(self) -> bool:
        """Whether ingestion has to wait for questions."""
        return self._questioned() and not self._is_due()

    def _is_due(self) -> bool:
        """Whether ingestion waited for so long that it goes first now."""
        now = time.monotonic()
        overdue = self._away_since is not None and now - self._away_since >= self._longest_away_seconds
        return overdue or now < self._due_until

    def _stay_away(self) -> None:
        if not (self._at_work or self._questioned()):
            self._away_since = None  # other ingestion has the model
        elif self._away_since is None:
            self._away_since = time.monotonic()
        self._condition.wait(self._patience_seconds)

    def _resume_ingestion(self) -> None:
        """Ingestion goes on, for a while ahead of questions if it was due."""
        now = time.monotonic()
        if self._is_due() and now >= self._due_until:
            self._due_until = now + DUE_SECONDS
        self._away_since = None

    def _questioned(self) -> bool:
        """Whether a question waits, or is open and its client still reads."""
        reading = self._open_questions > 0 and time.monotonic() - self._last_step < self._patience_seconds
        return bool(self._questions) or reading

    def _in_slot(self, queue: deque[object]) -> Iterator[None]:
        with self._condition:
            sharing = self._wait_for_slot(queue)
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

    def _wait_for_slot(self, queue: deque[object], *, first: bool = False) -> int:
        """Wait for a slot, before others of the queue if `first`. Returns how many share the processor then."""
        ticket = object()
        (queue.appendleft if first else queue.append)(ticket)
        try:
            while not self._may_go(queue, ticket):
                if queue is self._questions:
                    self._condition.wait()
                else:
                    self._stay_away()
        except BaseException:
            queue.remove(ticket)
            self._condition.notify_all()
            raise
        queue.popleft()
        if queue is self._ingestion:
            self._ingesting = True
            self._resume_ingestion()
            return 1
        self._at_work += 1
        self._condition.notify_all()  # there may be a slot for the next one too
        return min(max(1, self._slots()), self._at_work + len(self._questions))


LARGEST_BATCH = 4
"""Questions of a batch: more make the first wait longer and hardly save anything."""


class Batcher(Generic[Given, Result]):
    """Does a step for all questions that wait for it in one batch, in the slot of the first."""

    def __init__(self, scheduler: ModelScheduler, work: Callable[[Sequence[Given]], Sequence[Result]]) -> None:
        """work: the results of some questions, in their order; what it raises, all of them raise."""
        self._scheduler, self._work = scheduler, work
        self._lock = threading.Lock()
        self._waiting: dict[Future[Result], Given] = {}  # in the order of arrival

    def __call__(self, given: Given) -> Result:
        """Takes its own slot at the model."""
        mine: Future[Result] = Future()
        with self._lock:
            self._waiting[mine] = given
        with self._scheduler.for_question():
            with self._lock:
                waiting = sorted(self._waiting, key=lambda one: one is not mine)
                taken = waiting[:LARGEST_BATCH] if mine in self._waiting else []  # else another has taken it
                some = [self._waiting.pop(one) for one in taken]
            if taken:
                self._do(some, taken)
        return mine.result()

    def _do(self, some: Sequence[Given], taken: Sequence[Future[Result]]) -> None:
        try:
            results = self._work(some)
        except BaseException as error:  # raised by all that wait for the results
            for future in taken:
                future.set_exception(error)
        else:
            for future, result in zip(taken, results, strict=True):
                future.set_result(result)
