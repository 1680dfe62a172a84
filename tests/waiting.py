"""Waiting for a state."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 60.0) -> T:
    """The first value of `condition` that counts as true; fails where none comes in time."""
    ends, pause = time.monotonic() + seconds, 0.001
    while not (found := condition()):
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(pause)
        pause = min(0.02, 1.5 * pause)
    return found
