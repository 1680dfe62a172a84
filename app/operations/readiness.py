"""Readiness: whether a server wants requests now, for whoever hands them out.

A server is "starting" until its model is loaded, "ready" then, "failed" where the model could not be loaded (the log
says why; requests that need none are answered), and "stopping" from the moment it is told to end.
"""

from __future__ import annotations

import threading
from typing import Literal

State = Literal["starting", "ready", "failed", "stopping"]


class Readiness:
    """Of one server. Thread-safe; what is stopping stays so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: State = "starting"

    @property
    def state(self) -> State:
        return self._state

    @property
    def stopping(self) -> bool:
        return self._state == "stopping"

    def become(self, state: State) -> None:
        with self._lock:
            if self._state != "stopping":
                self._state = state
