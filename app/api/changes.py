"""What changed, while it changes: server-sent events for every tab that shows the library.

- What a browser changed came through this server and is told at once; what other servers and workers change comes as
  news of the catalogue, at most once a second.
- A stream ends after a while, and the browser opens the next one: who may no longer look is refused then.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.dependencies import Person, RequestLibrary
from app.api.errors import Refused
from app.api.uploads import Uploads
from retrieval.library import Library
from retrieval.replicas import Replicas
from retrieval.types.records import Job

STREAM_SECONDS = 30.0
RETRY_MS = 1000  # until a browser looks for a stream that has ended
BUSY_SECONDS, IDLE_SECONDS = 1.0, 3.0
STOP_SECONDS = 0.25
END_SECONDS = 5.0
NEWS_SECONDS = 0.5  # between one telling of what others do and the next
MOST_STREAMS = 20
JOBS_SHOWN = 60
Seen = Annotated[str, Query(max_length=64)]
_UNTOLD = ("/api/v1/ask", "/api/v1/search", "/api/v1/estimate")
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Changes:
    """Tells open streams that something may have changed. Used from the event loop only."""

    def __init__(self) -> None:
        self._run, self._number = secrets.token_hex(4), 0
        self._told = asyncio.Event()
        self._open: Counter[str] = Counter()
        self.stopping: Callable[[], bool] = lambda: False
        """Whether the server wants to stop, which has to wait for open streams."""

    def listen(self, replicas: Replicas, heard: Callable[[str], None]) -> Callable[[], None]:
        """Report changes by other processes as well; `heard` gets the messages of other servers, in a thread. Returns a
        function that stops it."""
        news, loop = replicas.news(), asyncio.get_running_loop()

        def listen() -> None:
            while not news.closed:
                came = news.wait()
                for message in filter(None, came):
                    heard(message)
                if "" in came and not loop.is_closed():
                    loop.call_soon_threadsafe(self.tell)
                    news.rest(NEWS_SECONDS)
            news.wait()  # lets go

        def end() -> None:
            news.close()
            listening.join(END_SECONDS)

        listening = threading.Thread(target=listen, name="cairn-news", daemon=True)
        listening.start()
        return end

    def tell(self) -> None:
        self._number += 1
        self._told.set()
        self._told = asyncio.Event()

    @contextmanager
    def present(self, person: str) -> Iterator[None]:
        """Raises Refused if too many streams of this person are open."""
        if self._open[person] >= MOST_STREAMS:
            raise Refused(429, "too_many_requests", "Too many pages of yours are open. Close some.")
        self._open[person] += 1
        try:
            yield
        finally:
            self._open[person] -= 1

    async def stream(self, library: Library, uploads: Uploads, seen: str) -> AsyncGenerator[ServerSentEvent, None]:
        """`files`: waiting files and jobs, whenever they change; `library`: the documents or collections may have.

        `seen`: the id of the last event that the browser had before it came back.
        """
        ends, files_told = time.monotonic() + STREAM_SECONDS, ""
        while time.monotonic() < ends and not self.stopping():
            told, number = self._told, self._number
            files, jobs, busy = await run_in_threadpool(_files, library, uploads)
            state = self._state(library, number, jobs)
            if files != files_told:
                files_told = files
                yield ServerSentEvent(event="files", raw_data=files, id=seen or state, retry=RETRY_MS)
            if state != seen:
                seen = state
                yield ServerSentEvent(event="library", raw_data="{}", id=state)
            await self._wait(told, BUSY_SECONDS if busy else IDLE_SECONDS)

    def state(self, library: Library) -> str:
        """The id of an event that tells of the library as it is now. In any thread."""
        return self._state(library, self._number, library.jobs.list(limit=JOBS_SHOWN))

    def _state(self, library: Library, number: int, jobs: Sequence[Job]) -> str:
        ended = [f"{job.id} {job.state}" for job in jobs if not job.active]
        now = f"{self._run} {number} {ended} {library.descriptions.num_made}"
        return hashlib.sha256(now.encode()).hexdigest()[:16]

    async def _wait(self, told: asyncio.Event, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not (told.is_set() or self.stopping()) and time.monotonic() < ends:
            with suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), min(seconds, STOP_SECONDS))


def _files(library: Library, uploads: Uploads) -> tuple[str, Sequence[Job], bool]:
    """Waiting files and jobs as JSON, the jobs, and whether anything is at work."""
    waiting, jobs = uploads.files(library), library.jobs.list(limit=JOBS_SHOWN)
    shown = {"uploads": [file.shown() for file in waiting], "jobs": [job.to_dict() for job in jobs]}
    busy = any(job.active for job in jobs) or any(file.state == "estimating" for file in waiting)
    return json.dumps(shown, separators=(",", ":")), jobs, busy


def router(changes: Changes, uploads: Uploads) -> APIRouter:
    routes = APIRouter()

    async def room(person: Person) -> AsyncIterator[None]:
        with changes.present(person):
            yield

    @routes.get("/events", tags=["machine"], response_class=EventSourceResponse, dependencies=[Depends(room)])
    async def events(
        library: RequestLibrary, last_event_id: Annotated[str, Header(max_length=64)] = "", seen: Seen = ""
    ) -> AsyncIterator[ServerSentEvent]:
        """Events: `files` (waiting files and jobs, whenever they change) and `library` (documents or collections may
        have changed, since what `seen` names: an event, or the answer of `/first`). The stream ends after half a
        minute: open the next one, as browsers do by themselves."""
        async with aclosing(changes.stream(library, uploads, last_event_id or seen)) as stream:
            async for event in stream:
                yield event

    return routes


class TellChanges:
    """ASGI middleware: tells `changes` of every request that changed something."""

    def __init__(self, app: ASGIApp, *, changes: Changes):
        self._app, self._changes = app, changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        changing = scope["type"] == "http" and scope["method"] in _CHANGING and path.startswith("/api/v1/")
        if not changing or path.startswith(_UNTOLD):
            await self._app(scope, receive, send)
            return
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body") and status < 400:
                self._changes.tell()

        await self._app(scope, receive, watched)
