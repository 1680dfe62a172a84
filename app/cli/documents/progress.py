"""One line on stderr that shows how far a document is: pages, tokens a second, time left."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from app.cli.output import duration, one_line
from retrieval.types.records import Job

REDRAW_SECONDS = 0.1
BAR_WIDTH = 20


def progress_line(job: Job, width: int) -> str:
    """`a.pdf [####----] reading, 12/40 pages, 31,200/104,000 tokens, 2,410 tokens/s, 0:30 left`, cut to `width`."""
    parts = [job.stage or job.state]
    if job.pages:
        parts.append(f"{job.pages_done}/{job.pages} pages")
    if job.tokens:
        parts.append(f"{job.tokens_done:,}/{job.tokens:,} tokens")
    if job.tokens_per_second:
        parts.append(f"{job.tokens_per_second:,.0f} tokens/s")
    if job.eta_seconds is not None:
        parts.append(f"{duration(job.eta_seconds)} left")
    filled = round(job.share * BAR_WIDTH)
    line = f"{one_line(job.source, 32)} [{'#' * filled}{'-' * (BAR_WIDTH - filled)}] {', '.join(parts)}"
    return line[: max(width - 1, 1)]


class ProgressBar:
    """Redraws one line of a terminal, at most ten times a second. On anything else than a terminal it draws nothing."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._live = stream.isatty()
        self._drawn_at = float("-inf")
        self._length = 0

    def show(self, job: Job) -> None:
        now = time.monotonic()
        if not self._live or now - self._drawn_at < REDRAW_SECONDS:
            return
        line = progress_line(job, shutil.get_terminal_size().columns)
        self._stream.write("\r" + line.ljust(self._length))
        self._stream.flush()
        self._drawn_at, self._length = now, len(line)

    def clear(self) -> None:
        if self._length:
            self._stream.write("\r" + " " * self._length + "\r")
            self._stream.flush()
        self._drawn_at, self._length = float("-inf"), 0
