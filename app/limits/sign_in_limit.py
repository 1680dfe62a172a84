"""How fast secrets may be guessed: wrong attempts are counted by account and by address.

- An attempt is counted when it begins, and given back if it was right: a hundred at the same moment are a hundred.
- Whoever signed in to an account from an address before is counted for that pair only: nobody can lock them out by
  guessing from elsewhere, or at another account from the same address.
- Not the package `limits`: it knows fixed quotas, so five typing errors would lock a person out for minutes.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from cachetools import TTLCache

FREE_ATTEMPTS = 5
"""Of one address at one account, and wrong tokens of one address."""
FREE_ATTEMPTS_IN_ALL = 20
"""Of one address at all accounts, and at one account from all addresses."""
ATTEMPT_WINDOW_SECONDS = 300.0
KNOWN_SECONDS = 7 * 24 * 3600.0
MAX_TRACKED = 10_000


class TooManyAttempts(Exception):
    """This client must wait."""

    def __init__(self, wait_seconds: float):
        super().__init__(wait_seconds)
        self.wait_seconds = wait_seconds


@lru_cache(MAX_TRACKED)
def network_of(address: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits, which one person has as a whole."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


Key = tuple[str, ...]


@dataclass(frozen=True)
class Attempt:
    """One that began; `keys` are what it was counted under."""

    pair: Key
    keys: tuple[Key, ...]


class SignInLimit:
    """Beyond the free attempts one must wait after each, longer each time. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._lock = clock, threading.Lock()
        # number of failures, time of the last; forgotten a window after the last
        self._failures: TTLCache[Key, tuple[int, float]] = TTLCache(MAX_TRACKED, ATTEMPT_WINDOW_SECONDS, clock)
        self._known: TTLCache[Key, bool] = TTLCache(MAX_TRACKED, KNOWN_SECONDS, clock)

    def begin(self, account: str, address: str) -> Attempt:
        """Count an attempt to sign in, before its password is looked at. Raises TooManyAttempts."""
        network = network_of(address)
        pair: Key = ("pair", account, network)
        with self._lock:
            elsewhere: tuple[Key, ...] = (("account", account), ("address", network))
            keys = (pair,) if pair in self._known else (pair, *elsewhere)
            self._check(keys)
            self._count(keys)
        return Attempt(pair, keys)

    def succeeded(self, attempt: Attempt) -> None:
        """It was right."""
        with self._lock:
            self._known[attempt.pair] = True
            self._failures.pop(attempt.pair, None)
            for key in attempt.keys[1:]:
                count, last = self._failures.get(key, (1, 0.0))
                self._failures[key] = (max(0, count - 1), last)

    def wrong_token(self, address: str) -> None:
        """Raises TooManyAttempts where wrong tokens came too fast. Right ones are never held up."""
        keys: tuple[Key, ...] = (("token", network_of(address)),)
        with self._lock:
            self._check(keys)
            self._count(keys)

    def _check(self, keys: tuple[Key, ...]) -> None:
        wait = max(self._wait(key) for key in keys)
        if wait > 0:
            raise TooManyAttempts(wait)

    def _wait(self, key: Key) -> float:
        count, last = self._failures.get(key, (0, 0.0))
        beyond = count - (FREE_ATTEMPTS_IN_ALL if key[0] in ("account", "address") else FREE_ATTEMPTS)
        if beyond < 0:
            return 0.0
        return min(2.0 ** min(beyond + 2, 32), ATTEMPT_WINDOW_SECONDS) - (self._clock() - last)

    def _count(self, keys: tuple[Key, ...]) -> None:
        for key in keys:
            self._failures[key] = (self._failures.get(key, (0, 0.0))[0] + 1, self._clock())
