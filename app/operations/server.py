"""Ends the web server in order: a server that is told to stop first finishes what it took on.

On SIGTERM, as service managers and orchestrators send it: readiness goes off and new questions are refused at once,
while answers in progress go on, for a limited time; then the server ends. On Ctrl-C, or a second SIGTERM, it ends now.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn

log = logging.getLogger("cairn.api")


class DrainingServer(uvicorn.Server):
    """`at_work`: whether answers are being given; `when_draining`: what to tell at once; `drain_seconds`: how long
    answers may take from then on; `cut_short`: what to call if they take longer."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        at_work: Callable[[], bool],
        when_draining: Sequence[Callable[[], object]],
        cut_short: Callable[[], object],
        drain_seconds: float,
    ):
        super().__init__(config)
        self._at_work, self._when_draining, self._cut_short = at_work, when_draining, cut_short
        self._drain_seconds = drain_seconds
        self._asked_to_drain = False
        self._until: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal handler: it only notes what to do."""
        if sig == signal.SIGTERM and not self._asked_to_drain and self.started:
            self._asked_to_drain = True
        elif sig == signal.SIGTERM:
            self.should_exit = True  # and not uvicorn's way, which would end the process before anything is closed
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if self._asked_to_drain and not self.should_exit:
            self._drain()
        return await super().on_tick(counter)

    def _drain(self) -> None:
        if self._until is None:
            self._until = time.monotonic() + self._drain_seconds
            for tell in self._when_draining:
                tell()
            log.info("Told to stop: no new questions; answers have %.0f s", self._drain_seconds)
        if not self._at_work():
            self.should_exit = True
        elif time.monotonic() >= self._until:
            log.warning("Answers are cut short after %.0f s", self._drain_seconds)
            self._cut_short()
            self.should_exit = True
