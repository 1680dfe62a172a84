"""RequestShares: each person has a few requests at work at a time; their others wait, and nobody else's do.

Routes run in a pool of threads that all share: without this, forty slow requests of one person would be all of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http_security import person_of, refusal

AT_ONCE, WAITING = 8, 100
_SHARED = ("/api/v1/", "/mcp")
_PAGE_STREAMS = ("/gradio_api/heartbeat/", "/gradio_api/queue/data")  # of the settings page: one or two a tab
MOST_PAGE_STREAMS = 40
_STREAMS = frozenset({"/api/v1/ask", "/api/v1/events"})  # open for long; they count those of a person themselves


class RequestShares:
    """ASGI middleware inside `AccessMiddleware`, for the requests that take threads. Beyond `WAITING`: status 429."""

    def __init__(self, app: ASGIApp):
        self._app = app
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()
        self._pages: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and path.startswith(_PAGE_STREAMS):
            await self._stream(scope, receive, send)
            return
        if scope["type"] != "http" or not path.startswith(_SHARED) or path in _STREAMS:
            await self._app(scope, receive, send)
            return
        person = person_of(HTTPConnection(scope))
        if self._present[person] >= AT_ONCE + WAITING:
            await _too_many("Too many of your requests are at work. Wait for their answers.")(scope, receive, send)
            return
        self._present[person] += 1
        try:
            async with self._turns.setdefault(person, asyncio.Semaphore(AT_ONCE)):
                await self._app(scope, receive, send)
        finally:
            self._present[person] -= 1
            if not self._present[person]:
                del self._present[person], self._turns[person]

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        person = person_of(HTTPConnection(scope))
        if self._pages[person] >= MOST_PAGE_STREAMS:
            await _too_many("Too many pages of yours are open. Close some.")(scope, receive, send)
            return
        self._pages[person] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._pages[person] -= 1
            self._pages = +self._pages


def _too_many(message: str) -> JSONResponse:
    return refusal(429, "too_many_requests", message, {"Retry-After": "2"})
