"""Metrics that a running server counts, in the format of Prometheus, and its readiness.

- One registry for each app; nothing is at module level.
- Events (questions, requests, problems in the log) are counted as they happen; states (queues, jobs, stored memory) are
  looked up when the metrics are read.
- No label holds what a user wrote or who they are: figures may be kept for years.
- A server is "starting" until its model is loaded, then "ready", "failed" if the model could not be loaded (the log
  says why; requests that need none are answered), and "stopping" once it was told to end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app import version
from retrieval.library import Library
from retrieval.types.answers import Answer, AnswerToken, Progress
from storage.errors import CatalogueUnavailable

State = Literal["starting", "ready", "failed", "stopping"]


class Readiness:
    """Whether one server takes requests. Thread-safe; once stopping, it stays so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: State = "starting"

    @property
    def state(self) -> State:
        return self._state

    def become(self, state: State) -> None:
        with self._lock:
            if self._state != "stopping":
                self._state = state


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
OUTCOMES = ("found", "perhaps", "not_found", "stopped", "refused", "failed")
JOB_STATES = ("queued", "running", "done", "failed", "cancelled")

log = logging.getLogger("cairn.api")


class Metrics:
    """The figures of one server. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.questions = self._counter("cairn_questions", "Questions that were answered, by outcome.", "outcome")
        self.waited = self._seconds("cairn_question_wait_seconds", "From a question's arrival until work on it began.")
        self.first_word = self._seconds("cairn_first_word_seconds", "From a question's arrival until its first word.")
        self.answered = self._seconds("cairn_answer_seconds", "From a question's arrival until its stored answer.")
        self.requests = self._counter("cairn_http_requests", "Requests, by route.", "method", "route", "status")
        self.request_seconds = self._seconds(
            "cairn_http_request_seconds", "From a request's head until its answer's head.", "route"
        )
        self.log_records = self._counter("cairn_log_records", "Warnings and errors in the log.", "level")
        for outcome in OUTCOMES:  # so that a rate can be taken from the first one on
            self.questions.labels(outcome)
        for level in ("warning", "error"):
            self.log_records.labels(level)
        ProcessCollector(registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _seconds(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=SECONDS, registry=self.registry)

    def watch(
        self,
        items: Iterable[Progress | AnswerToken | Answer],
        arrived: float,
        *,
        refused: Callable[[Exception], bool] = lambda error: False,
    ) -> Iterator[Progress | AnswerToken | Answer]:
        """The same items, counted. `arrived`: by `time.perf_counter`; `refused`: whether an error is the asker's."""
        self.waited.observe(time.perf_counter() - arrived)
        outcome, worded = "stopped", False
        try:
            for item in items:
                if isinstance(item, AnswerToken) and not worded:
                    worded = True
                    self.first_word.observe(time.perf_counter() - arrived)
                if isinstance(item, Answer):
                    outcome = "stopped" if item.settings.get("interrupted") else item.outcome
                    self.answered.observe(time.perf_counter() - arrived)
                yield item
        except Exception as error:
            outcome = "refused" if refused(error) else "failed"
            raise
        finally:
            self.questions.labels(outcome).inc()

    def show(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)


class Gauges(Collector):
    """States that are looked up when the metrics are read: readiness, queues, jobs, what is stored."""

    def __init__(self, library: Library, readiness: Readiness, num_questions: Callable[[], tuple[int, int]]):
        """`num_questions`: those at work, and those that wait."""
        self._library, self._readiness, self._num_questions = library, readiness, num_questions

    def describe(self) -> Iterable[Metric]:
        return []  # registering asks nothing of the catalogue

    def collect(self) -> Iterator[Metric]:
        yield _gauge("cairn_build_info", "The version that runs.", {version(): 1}, "version")
        yield _gauge("cairn_ready", "1 while requests are taken.", {"": self._readiness.state == "ready"})
        running, waiting = self._num_questions()
        yield _gauge("cairn_questions_running", "Questions at work.", {"": running})
        yield _gauge("cairn_questions_waiting", "Questions that wait for their turn.", {"": waiting})
        try:
            figures = self._library.maintenance.figures()
        except CatalogueUnavailable as error:  # the rest is wanted all the more
            log.warning("figures of the catalogue: %s", error)
            yield _gauge("cairn_catalogue_up", "1 if the catalogue answered.", {"": 0})
            return
        yield _gauge("cairn_catalogue_up", "1 if the catalogue answered.", {"": 1})
        jobs = dict.fromkeys(JOB_STATES, 0) | figures.jobs
        yield _gauge("cairn_jobs", "Jobs in the catalogue, by state.", jobs, "state")
        yield _gauge("cairn_documents", "Documents that can be asked.", {"": figures.num_documents})
        yield _gauge("cairn_stored_tokens", "Tokens of these documents.", {"": figures.num_tokens})
        yield _gauge("cairn_stored_bytes", "Stored keys and values on disk.", {"": figures.stored_bytes})
        yield _gauge("cairn_resident_index_bytes", "Landmarks and blocks held in RAM.", {"": figures.resident_bytes})
        yield _gauge("cairn_free_disk_bytes", "Free on the disk of the home folder.", {"": figures.free_bytes})


def _gauge(name: str, text: str, values: dict[str, int] | dict[str, bool], label: str | None = None) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label] if label else [])
    for value, number in values.items():
        family.add_metric([value] if label else [], float(number))
    return family


class CountProblems(logging.Handler):
    """Counts what is logged as a warning or worse."""

    def __init__(self, metrics: Metrics):
        super().__init__(logging.WARNING)
        self._counter = metrics.log_records

    def emit(self, record: logging.LogRecord) -> None:
        self._counter.labels("error" if record.levelno >= logging.ERROR else "warning").inc()
