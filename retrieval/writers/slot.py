"""The writer of a library, opened at the first need; one, however many look at the library."""

from __future__ import annotations

import threading
from collections.abc import Callable

from retrieval.writers.protocol import Writer


class WriterSlot:
    """Thread-safe. Empty until `fill`ed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Callable[[], Writer] | None = None
        self._writer: Writer | None = None

    def fill(self, open_: Callable[[], Writer] | None) -> None:
        """From now on the writer is what `open_` gives; None: there is none."""
        with self._lock:
            self._open, self._writer = open_, None

    @property
    def filled(self) -> bool:
        """Whether there is a writer, open or not."""
        return self._open is not None

    @property
    def writer(self) -> Writer | None:
        """Raises `WriterError`."""
        with self._lock:
            if self._writer is None and self._open is not None:
                self._writer = self._open()
            return self._writer
