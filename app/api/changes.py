"""Changes of the library as server-sent events, for every tab that shows it.

- A change by a browser of this server is sent at once. Changes by other servers and workers arrive as notifications of
  the catalogue, and are sent at most once a second.
- A stream ends after a while, and the browser opens the next one. Permissions are checked again then.
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

from fastapi import Depends, Header, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.dependencies import Person, RequestLibrary, api_routes, shared
from app.api.errors import Refused
from app.api.uploads import ServerUploads, Uploads
from retrieval.library import Library
from retrieval.replicas import Replicas
from retrieval.types.records import Job

STREAM_SECONDS = 30.0
RETRY_MS = 1000  # until a browser looks for a stream that has ended
BUSY_SECONDS, IDLE_SECONDS = 1.0, 3.0
STOP_SECONDS = 0.25
END_SECONDS = 5.0
NOTIFY_SECONDS = 0.5  # between two notifications of changes by others
MOST_STREAMS = 20
JOBS_SHOWN = 60
Seen = Annotated[str, Query(max_length=64)]
_NOT_CHANGING = ("/api/v1/ask", "/api/v1/search", "/api/v1/estimate")
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Changes:
    """Notifies open streams that something may have changed. For the event loop only."""

    def __init__(self) -> None:
        self._run, self._number = secrets.token_hex(4), 0
        self._changed = asyncio.Event()
        self._open: Counter[str] = Counter()
        self.stopping: Callable[[], bool] = lambda: False
        """Whether the server wants to stop, which has to wait for open streams."""

    def listen(self, replicas: Replicas, on_message: Callable[[str], object]) -> Callable[[], None]:
        """Report changes by other processes as well; `on_message` gets the messages of other servers, in a thread.
        Returns a function that stops it."""
        notifications, loop = replicas.notifications(), asyncio.get_running_loop()

        def listen() -> None:
            while not notifications.closed:
                received = notifications.wait()
                for message in filter(None, received):
                    on_message(message)
                if "" in received and not loop.is_closed():
                    loop.call_soon_threadsafe(self.notify)
                    notifications.rest(NOTIFY_SECONDS)
            notifications.wait()  # lets go

        def end() -> None:
            notifications.close()
            listening.join(END_SECONDS)

        listening = threading.Thread(target=listen, name="cairn-notifications", daemon=True)
        listening.start()
        return end

    def notify(self) -> None:
        self._number += 1
        self._changed.set()
        self._changed = asyncio.Event()

    @contextmanager
    def admitted(self, person: str) -> Iterator[None]:
        """Counts a stream of this user while it is open. Raises Refused if there are too many."""
        if self._open[person] >= MOST_STREAMS:
            raise Refused(429, "too_many_requests", "Too many pages of yours are open. Close some.")
        self._open[person] += 1
        try:
            yield
        finally:
            self._open[person] -= 1
            self._open = +self._open

    async def stream(self, library: Library, uploads: Uploads, seen: str) -> AsyncGenerator[ServerSentEvent, None]:
        """`files`: waiting files and jobs, whenever they change; `library`: the documents or collections may have
        changed.

        `seen`: the id of the last event that the browser had before it reconnected.
        """
        ends, files_sent = time.monotonic() + STREAM_SECONDS, ""
        while time.monotonic() < ends and not self.stopping():
            changed, number = self._changed, self._number
            files, jobs, busy = await run_in_threadpool(_files, library, uploads)
            state = self._state(library, number, jobs)
            if files != files_sent:
                files_sent = files
                yield ServerSentEvent(event="files", raw_data=files, id=seen or state, retry=RETRY_MS)
            if state != seen:
                seen = state
                yield ServerSentEvent(event="library", raw_data="{}", id=state)
            await self._wait(changed, BUSY_SECONDS if busy else IDLE_SECONDS)

    def state(self, library: Library) -> str:
        """The id of an event for the present state of the library. In any thread."""
        return self._state(library, self._number, library.jobs.list(limit=JOBS_SHOWN))

    def _state(self, library: Library, number: int, jobs: Sequence[Job]) -> str:
        ended = [f"{job.id} {job.state}" for job in jobs if not job.active]
        now = f"{self._run} {number} {ended} {library.descriptions.num_made}"
        return hashlib.sha256(now.encode()).hexdigest()[:16]

    async def _wait(self, changed: asyncio.Event, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not (changed.is_set() or self.stopping()) and time.monotonic() < ends:
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), min(seconds, STOP_SECONDS))


def _files(library: Library, uploads: Uploads) -> tuple[str, Sequence[Job], bool]:
    """Waiting files and jobs as JSON, the jobs, and whether anything is at work."""
    waiting, jobs = uploads.files(library), library.jobs.list(limit=JOBS_SHOWN)
    shown = {"uploads": [file.shown() for file in waiting], "jobs": [job.to_dict() for job in jobs]}
    busy = any(job.active for job in jobs) or any(file.state == "estimating" for file in waiting)
    return json.dumps(shown, separators=(",", ":")), jobs, busy


ServerChanges = Annotated[Changes, shared("changes")]
routes = api_routes()


async def room(person: Person, changes: ServerChanges) -> AsyncIterator[None]:
    with changes.admitted(person):
        yield


@routes.get("/events", tags=["machine"], response_class=EventSourceResponse, dependencies=[Depends(room)])
async def events(
    library: RequestLibrary,
    changes: ServerChanges,
    uploads: ServerUploads,
    last_event_id: Annotated[str, Header(max_length=64)] = "",
    seen: Seen = "",
) -> AsyncIterator[ServerSentEvent]:
    """Events: `files` (waiting files and jobs, whenever they change) and `library` (documents or collections may
    have changed, since what `seen` names: an event, or the answer of `/first`). The stream ends after half a
    minute: open the next one, as browsers do by themselves."""
    async with aclosing(changes.stream(library, uploads, last_event_id or seen)) as stream:
        async for event in stream:
            yield event


class NotifyChanges:
    """ASGI middleware: notifies `changes` of every request that changed something."""

    def __init__(self, app: ASGIApp, *, changes: Changes):
        self._app, self._changes = app, changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        changing = scope["type"] == "http" and scope["method"] in _CHANGING and path.startswith("/api/v1/")
        if not changing or path.startswith(_NOT_CHANGING):
            await self._app(scope, receive, send)
            return
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body") and status < 400:
                self._changes.notify()

        await self._app(scope, receive, watched)
