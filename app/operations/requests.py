"""Gives every request an id, which its response and all its log lines carry, and counts it.

- An id that comes with the request (`X-Request-Id`, as a front proxy sends it) is kept if it is valid.
- Only the innermost app knows which route takes a request, because middleware on the way may pass on a copy of the
  scope. So `WatchedRequests`, around everything, puts a dict into the scope, which `NotedRoutes`, next to the router,
  fills.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.operations.logs import REQUEST_ID
from app.operations.metrics import Metrics

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_OTHER = "other"
NOTED = "cairn.noted"
"""Of the scope: a dict that the copies share, with the `route`, and who asked from where (`account`, `address`)."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

log = logging.getLogger("cairn.requests")


class WatchedRequests:
    """ASGI middleware around all others: what they refuse counts too. `tell`: log a line for each request."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, tell: bool = False):
        self._app, self._metrics, self._tell = app, metrics, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        noted: dict[str, str] = {}
        scope[NOTED] = noted
        began, status, head_seconds = time.perf_counter(), 500, 0.0

        async def answered(message: Message) -> None:
            nonlocal status, head_seconds
            if message["type"] == "http.response.start":
                status, head_seconds = message["status"], time.perf_counter() - began
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        token = REQUEST_ID.set(request_id)
        try:
            await self._app(scope, receive, answered)
        finally:
            route, seconds = noted.get("route", _OTHER), time.perf_counter() - began
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.request_seconds.labels(route).observe(head_seconds or seconds)
            if self._tell:
                told = {"method": method, "path": scope["path"], "status": status, "seconds": round(seconds, 4)}
                told |= {name: noted.get(name, "") for name in ("address", "account")}
                log.info("%s %s %d", method, scope["path"], status, extra={"fields": told})
            REQUEST_ID.reset(token)


class NotedRoutes:
    """Innermost ASGI middleware. `mounts`: where other apps are mounted ("" for "/"); they count as one route each."""

    def __init__(self, app: ASGIApp, *, mounts: Collection[str] = ()):
        self._app, self._mounts = app, sorted(mounts, key=len, reverse=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            if NOTED in scope:
                scope[NOTED]["route"] = self._mount_of(scope) or _route_of(scope)

    def _mount_of(self, scope: Scope) -> str | None:
        if "app_root_path" not in scope:  # which Starlette sets when it hands a request on to a mounted app
            return None
        inside = (mount for mount in self._mounts if scope["path"].startswith(f"{mount}/"))
        return next(inside, "") or "/"


def _route_of(scope: Scope) -> str:
    """The route's template, not the address: ids would make a series each. "other" for what no route took."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) and path else _OTHER
