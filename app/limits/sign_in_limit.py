"""Limits how fast secrets may be guessed: wrong attempts are counted by account and by address.

- An attempt is counted when it begins, and taken back if it was right: a hundred at the same moment are a hundred.
- A user who signed in to an account from an address before is counted for that pair only: nobody can lock them out by
  guessing from elsewhere, or at another account from the same address.
- Servers of one library count together: attempts are in `retrieval.replicas`.
- Not the package `limits`: it has fixed quotas, so five typing errors would lock a user out for minutes.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from retrieval.replicas import CatalogueValues

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
Counted = Mapping[str, tuple[str, float]]
KIND = "attempt"


Attempt = tuple[Key, ...]
"""What one that began was counted under: the pair of account and address, perhaps each of them."""


class SignInLimit:
    """Beyond the free attempts one must wait after each, longer each time. Thread-safe."""

    def __init__(self, values: CatalogueValues):
        self._values = values

    def begin(self, account: str, address: str) -> Attempt:
        """Count an attempt to sign in, before its password is looked at. Raises TooManyAttempts."""
        network = network_of(address)
        pair: Key = ("pair", account, network)
        elsewhere: tuple[Key, ...] = (("account", account), ("address", network))
        found: list[Attempt] = []

        def count(kept: Mapping[str, str], now: float) -> Counted:
            found[:] = [(pair,) if _name(("known", *pair)) in kept else (pair, *elsewhere)]
            return _counted(kept, now, found[0])

        self._change((pair, ("known", *pair), *elsewhere), count)
        return found[0]

    def succeeded(self, attempt: Attempt) -> None:
        """It was right."""
        pair, *others = attempt

        def give_back(kept: Mapping[str, str], now: float) -> Counted:
            changed = {_name(("known", *pair)): ("1", KNOWN_SECONDS), _name(pair): ("[0, 0]", 0.0)}
            for key in others:
                count, last = _failures(kept, key, now)
                changed[_name(key)] = (json.dumps([max(0, count - 1), last]), ATTEMPT_WINDOW_SECONDS)
            return changed

        self._values.change(KIND, [_name(key) for key in attempt], give_back)

    def wrong_token(self, address: str) -> None:
        """Count a wrong token. Raises TooManyAttempts where they come too fast; right ones are never held up."""
        keys: tuple[Key, ...] = (("token", network_of(address)),)
        self._change(keys, lambda kept, now: _counted(kept, now, keys))

    def _change(self, keys: tuple[Key, ...], count: Callable[[Mapping[str, str], float], Counted]) -> None:
        """Who has to wait is told so without a write: guessing fast must not keep those who write busy."""
        names = [_name(key) for key in keys]
        count(*self._values.read(KIND, names))
        self._values.change(KIND, names, count)


def _counted(kept: Mapping[str, str], now: float, keys: Sequence[Key]) -> Counted:
    """Each once more. Raises TooManyAttempts."""
    wait = max(_wait(kept, now, key) for key in keys)
    if wait > 0:
        raise TooManyAttempts(wait)
    return {_name(key): (json.dumps([_failures(kept, key, now)[0] + 1, now]), ATTEMPT_WINDOW_SECONDS) for key in keys}


def _wait(kept: Mapping[str, str], now: float, key: Key) -> float:
    count, last = _failures(kept, key, now)
    beyond = count - (FREE_ATTEMPTS_IN_ALL if key[0] in ("account", "address") else FREE_ATTEMPTS)
    if beyond < 0:
        return 0.0
    return min(2.0 ** min(beyond + 2, 32), ATTEMPT_WINDOW_SECONDS) - (now - last)


def _failures(kept: Mapping[str, str], key: Key, now: float) -> tuple[int, float]:
    """Their number, and the time of the last. Those of a time to come were counted by a clock that was put back since,
    and count no more: else a right password would be refused until that time."""
    count, last = json.loads(kept.get(_name(key), "[0, 0]"))
    return (count, last) if last <= now else (0, now)


def _name(key: Key) -> str:
    """Of one length, whatever a client says it is called."""
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()
