"""Connections: how many the server keeps, from which addresses, and how long a request may take to arrive.

uvicorn has no such limits (its maintainers leave them to a proxy in front). Without them a thousand requests that are
never finished keep all others out.

- A request's head must arrive within seconds, its body at a low rate at least, and answers must be read.
- Connections are limited for each address and in all. At a limit a new connection replaces the one that has waited
  longest for its request, else one whose body drips in; if all are at work, the new one is refused.
- Some room is reserved for probes: there only `/healthz` and `/readyz` are answered, so that a busy server is not taken
  for a dead one.
- A reverse proxy brings the connections of all users and is limited in all only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.limits.sign_in_limit import network_of

log = logging.getLogger("cairn.api")

FULL = b"Too many connections. Try again."
PROBES = frozenset({"/healthz", "/readyz"})
PROBE_ROOM = 16
SPARE_FILES = 256
"""File descriptors for everything that is no connection."""


@dataclass(frozen=True)
class ConnectionLimits:
    """`body_bytes` must arrive in every `body_seconds`; a reader may rest for `unread_seconds`."""

    in_all: int = 1000
    each: int = 100
    head_seconds: float = 10.0
    body_seconds: float = 20.0
    body_bytes: int = 20_000
    unread_seconds: float = 60.0


class Connections:
    """The open connections of one server. `proxies`: addresses that only the limit in all applies to."""

    def __init__(self, limits: ConnectionLimits, proxies: Container[str] = ()):
        self.limits, self._proxies = limits, proxies
        self._of: Counter[str] = Counter()
        self._idle: dict[LimitedProtocol, None] = {}  # without a request; who has waited longest comes first
        self._arriving: dict[LimitedProtocol, None] = {}  # with a part of a request, likewise
        self._probing: dict[LimitedProtocol, None] = {}

    def enter(self, connection: LimitedProtocol) -> bool:
        """Whether the connection is accepted. At a limit an idle or slow one is closed to make room for it."""
        many = self._of[connection.address] >= self.limits.each and connection.host not in self._proxies
        if many or self._of.total() >= self.limits.in_all:
            waiting = (*self._idle, *(other for other in self._arriving if other.drips()))
            leaves = next((other for other in waiting if not many or other.address == connection.address), None)
            if leaves is None:
                return False
            leaves.drop()
        self._of[connection.address] += 1
        return True

    def probes(self, connection: LimitedProtocol) -> None:
        """Keep a connection for health probes only; if there are too many of these, the oldest is closed."""
        if len(self._probing) >= PROBE_ROOM:
            next(iter(self._probing)).drop()
        self._probing[connection] = None

    def leave(self, connection: LimitedProtocol) -> None:
        for kept in (self._idle, self._arriving):
            kept.pop(connection, None)
        if self._probing.pop(connection, self) is self:  # else it took no place
            self._of[connection.address] -= 1
            self._of = +self._of

    def waits(self, connection: LimitedProtocol) -> None:
        """The connection waits for its first or next request."""
        if connection not in self._probing:
            self._idle[connection] = None

    def arrives(self, connection: LimitedProtocol) -> None:
        """A part of its request has arrived."""
        self._idle.pop(connection, None)
        if connection not in self._probing:
            self._arriving[connection] = None

    def works(self, connection: LimitedProtocol) -> None:
        self._idle.pop(connection, None)
        self._arriving.pop(connection, None)


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol within limits. Use `limited_protocol`."""

    kept: Connections  # of the subclass that `limited_protocol` makes
    host = address = "unknown"  # as it is, and what counts as one
    _entered = False
    _timer: asyncio.TimerHandle | None = None
    _awaits = ""  # what the timer is about: "head" or "body"
    _unread: asyncio.TimerHandle | None = None
    _received, _slow = 0, False
    _since = 0.0  # when what the timer is about was first awaited

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client:
            self.host, self.address = self.client[0], network_of(self.client[0])
        if not self.kept.enter(self):
            self.kept.probes(self)
            self.app = ProbesOnly(self.app)
        self._entered = True
        self.kept.waits(self)
        self._expect("head", self.kept.limits.head_seconds, self.drop)

    def data_received(self, data: bytes) -> None:
        if not self._entered or self.transport.is_closing():
            return
        self._received += len(data)
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self.kept.waits(self)
            self._watch(idle=True)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(self.kept.limits.unread_seconds, self.drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._expect("", 0.0, self.drop)
        if self._entered:
            self._entered = False
            self.kept.leave(self)
        super().connection_lost(exc)

    def drips(self) -> bool:
        """Whether its body comes more slowly than it must: in the last interval, or in this one after a second."""
        limits, seconds = self.kept.limits, self.loop.time() - self._since
        due = limits.body_bytes * min(1.0, seconds / limits.body_seconds)
        return self._slow or (seconds > 1.0 and self._received < due and not self.flow.read_paused)

    def drop(self) -> None:
        """Close it at once, without a response."""
        log.debug("connection of %s dropped while waiting for its %s", self.address, self._awaits or "reader")
        if self._entered:
            self._entered = False
            self.kept.leave(self)
        self.transport.abort()

    def _watch(self, *, idle: bool = False) -> None:
        """Set the timer for what must come next. `idle`: nothing need come; uvicorn's own timer closes it."""
        state, limits = self.conn.their_state, self.kept.limits
        if not self._entered:
            return
        if state is h11.IDLE:
            self._expect("" if idle else "head", limits.head_seconds, self.drop)
        elif state is h11.SEND_BODY:
            self.kept.arrives(self)
            self._expect("body", limits.body_seconds, self._check_body)
        else:
            self.kept.works(self)
            self._expect("", 0.0, self.drop)

    def _expect(self, what: str, seconds: float, late: Callable[[], None]) -> None:
        if what == self._awaits:  # its time is running
            return
        if self._timer is not None:
            self._timer.cancel()
        self._awaits, self._received, self._slow, self._since = what, 0, False, self.loop.time()
        self._timer = self.loop.call_later(seconds, late) if what else None

    def _check_body(self) -> None:
        """A sender is given up after two slow intervals, one of which may be the server's own fault."""
        slow = self._received < self.kept.limits.body_bytes and not self.flow.read_paused
        if slow and self._slow:
            self.drop()
            return
        self._slow, self._received, self._since = slow, 0, self.loop.time()
        self._timer = self.loop.call_later(self.kept.limits.body_seconds, self._check_body)


class ProbesOnly:
    """ASGI app for connections over the limit: health probes are answered, everything else with 503 and Retry-After."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in PROBES and scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        headers = [(b"Content-Type", b"text/plain"), (b"Retry-After", b"5"), (b"Connection", b"close")]
        headers.append((b"Content-Length", str(len(FULL)).encode()))
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": FULL})


def limited_protocol(limits: ConnectionLimits, proxies: Container[str] = ()) -> type[asyncio.Protocol]:
    """A `LimitedProtocol` with these limits, for `uvicorn.Config(http=...)`."""
    attributes: dict[str, Any] = {"kept": Connections(limits, proxies)}
    return type("LimitedProtocol", (LimitedProtocol,), attributes)


def allow_open_files(connections: int) -> int:
    """Raise this process's limit of open files for so many connections; how many it then has room for."""
    try:
        import resource
    except ImportError:  # Windows
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return connections if soft == resource.RLIM_INFINITY else max(16, min(connections, soft - SPARE_FILES))
