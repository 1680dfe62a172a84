"""What servers of a library share, without a library: values in memory, by a clock of the test's, and no accounts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.auth import Authenticator
from retrieval.accounts import Accounts
from retrieval.errors import NotFound
from retrieval.replicas import CatalogueValues, Change


@dataclass(frozen=True)
class _Kept:
    value: str
    until: float
    owner: str = ""


class OwnValues(CatalogueValues):
    """Without a catalogue. `test_shared_values.py` compares it with the real ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._lock = clock, threading.Lock()
        self._kept: dict[tuple[str, str], _Kept] = {}

    def put(self, kind: str, key: str, value: str, *, seconds: float, owner: str = "", most: int | None = None) -> None:
        with self._lock:
            self._put(kind, key, _Kept(value, self._clock() + seconds, owner))
            theirs = [each for each, kept in self._kept.items() if each[0] == kind and kept.owner == owner]
            for each in theirs[: 0 if most is None else max(0, len(theirs) - most)]:
                del self._kept[each]

    def read(self, kind: str, keys: Sequence[str]) -> tuple[dict[str, str], float]:
        with self._lock:
            return self._read(kind, keys), self._clock()

    def count(self, kind: str) -> int:
        with self._lock:
            self._forget()
            return sum(each[0] == kind for each in self._kept)

    def take(self, kind: str, key: str) -> str | None:
        with self._lock:
            self._forget()
            kept = self._kept.pop((kind, key), None)
            return None if kept is None else kept.value

    def change(self, kind: str, keys: Sequence[str], change: Change) -> None:
        with self._lock:
            now = self._clock()
            for key, (value, seconds) in change(self._read(kind, keys), now).items():
                self._put(kind, key, _Kept(value, now + seconds))

    def _read(self, kind: str, keys: Sequence[str]) -> dict[str, str]:
        self._forget()
        return {key: self._kept[kind, key].value for key in keys if (kind, key) in self._kept}

    def _put(self, kind: str, key: str, kept: _Kept) -> None:
        self._kept.pop((kind, key), None)  # the newest stand last
        self._kept[kind, key] = kept

    def _forget(self) -> None:
        now = self._clock()
        for each in [each for each, kept in self._kept.items() if kept.until <= now]:
            del self._kept[each]


class NoAccounts(Accounts):
    any = False  # type: ignore[assignment]

    def __init__(self) -> None:
        pass

    def get(self, name: str) -> Any:
        raise NotFound("user", name)

    def of_token(self, token_digest: str) -> None:
        return None


def authenticator(*, clock: Callable[[], float] = time.monotonic, **given: Any) -> Authenticator:
    return Authenticator(**{"accounts": NoAccounts(), "values": OwnValues(clock), **given})
