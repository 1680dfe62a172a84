"""HTTP: search, ask (as server-sent events), answers, effect of a block, export."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from app.api.dependencies import OwnPreferences, Seen
from app.api.documents import PAGE_SIZES, Plain
from app.api.errors import Refused, error_body
from app.api.preferences import MAX_ANSWER_TOKENS, MAX_TOP_K, Preferences
from app.export import answer_as_html, answer_as_json
from app.http_security import sse
from retrieval.library import Library
from retrieval.types.passages import Answer, AnswerToken
from retrieval.types.records import Scope

MAX_QUESTION_LENGTH = 4000
MAX_WAITING = 64
HEARTBEAT_SECONDS = 10.0
EXPORTS = {"html": ("text/html; charset=utf-8", answer_as_html), "json": ("application/json", answer_as_json)}


class Within(BaseModel):
    """Which documents may be read: these, and all of these collections; both empty = everything."""

    document_ids: list[str] = Field(default_factory=list, max_length=5000)
    collection_ids: list[str] = Field(default_factory=list, max_length=1000)

    def scope(self) -> Scope | None:
        if not self.document_ids and not self.collection_ids:
            return None
        return Scope(tuple(self.document_ids), tuple(self.collection_ids))


class SearchRequest(BaseModel):
    query: str = Field(min_length=1, max_length=MAX_QUESTION_LENGTH)
    k: int = Field(8, ge=1, le=200)
    within: Within = Field(default_factory=Within)


class AskRequest(BaseModel):
    """What is absent comes from the preferences."""

    question: str = Field(min_length=1, max_length=MAX_QUESTION_LENGTH)
    within: Within = Field(default_factory=Within)
    conversation_id: str | None = Field(None, max_length=64, description="Follow-ups share it; any id of the caller's")
    k: int | None = Field(None, ge=1, le=MAX_TOP_K)
    voters: str | None = Field(None, pattern="^(token|head|group)$")
    quote: bool | None = None
    max_tokens: int | None = Field(None, ge=1, le=MAX_ANSWER_TOKENS)


class AskDesk:
    """Questions being answered: a bounded number at once, the others wait in the order they came."""

    def __init__(self, at_once: int):
        self._workers = ThreadPoolExecutor(at_once, thread_name_prefix="cairn-ask")
        self._stops: dict[str, tuple[str | None, threading.Event]] = {}  # by ask id: who asked, and how to stop it
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            for _, stop in self._stops.values():
                stop.set()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def stop(self, ask_id: str, user_id: str | None) -> None:
        """Raises Refused unless this user's question is being answered under that id."""
        with self._lock:
            asker, event = self._stops.get(ask_id, (None, None))
        if event is None or asker != user_id:
            raise Refused(404, "not_found", "No question of yours is being answered under this id.")
        event.set()

    async def stream(self, answer: Answering) -> AsyncIterator[bytes]:
        """Events of one question: started, token..., then answer or error. A reader that goes away stops the work."""
        ask_id, stop = secrets.token_hex(16), threading.Event()
        events: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def emit(event: bytes | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, event)

        with self._lock:
            if len(self._stops) >= MAX_WAITING:
                yield sse(
                    "error", error_body(Refused(503, "busy", "Too many questions are waiting. Try again shortly."))
                )
                return
            self._stops[ask_id] = answer.user_id, stop
            ahead = len(self._stops) - 1
        try:
            yield sse("started", {"ask_id": ask_id, "ahead": ahead})
            self._workers.submit(_work, answer, stop, emit)
            while True:
                try:
                    event = await asyncio.wait_for(events.get(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if event is None:
                    return
                yield event
        finally:
            stop.set()
            with self._lock:
                self._stops.pop(ask_id, None)


class Answering:
    """One question, ready to run in a worker thread."""

    def __init__(self, library: Library, request: AskRequest, defaults: Preferences):
        self._library, self._request, self._defaults = library, request, defaults
        self.user_id = library.principal.user_id

    def run(self, stop: threading.Event) -> Iterator[AnswerToken | Answer]:
        request, defaults = self._request, self._defaults
        return self._library.ask(
            request.question.strip(),
            k=defaults.top_k if request.k is None else request.k,
            within=request.within.scope(),
            quote=defaults.quote if request.quote is None else request.quote,
            max_tokens=request.max_tokens or defaults.max_tokens,
            voters=request.voters or defaults.voters,
            conversation_id=request.conversation_id,
            cancelled=stop.is_set,
        )


def _work(answer: Answering, stop: threading.Event, emit: Any) -> None:
    try:
        if not stop.is_set():
            for item in answer.run(stop):
                emit(sse("answer" if isinstance(item, Answer) else "token", item.to_dict()))
    except Exception as error:  # the thread's last line: the reader of the stream must learn of it
        emit(sse("error", error_body(error)))
    finally:
        emit(None)


def router(desk: AskDesk) -> APIRouter:
    routes = APIRouter()
    _add_asking(routes, desk)
    _add_answers(routes)
    return routes


def _add_asking(routes: APIRouter, desk: AskDesk) -> None:
    @routes.post("/search", tags=["questions"])
    def search(library: Seen, request: SearchRequest) -> Plain:
        """Passages by the attention that the query gives them, best first. No answer is written."""
        found = library.search(request.query.strip(), request.k, within=request.within.scope())
        return {"passages": [passage.to_dict() for passage in found]}

    @routes.post(
        "/ask",
        tags=["questions"],
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def ask(library: Seen, preferences: OwnPreferences, request: AskRequest) -> StreamingResponse:
        """Server-sent events: `started` {ask_id, ahead}, `token`..., then `answer` (stored) or `error`. Closing the
        connection stops the work."""
        if not request.question.strip():
            raise Refused(422, "invalid_request", "The question is empty.")
        stream = desk.stream(Answering(library, request, preferences.current))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    @routes.post("/ask/{ask_id}/stop", status_code=204, tags=["questions"])
    def stop(library: Seen, ask_id: str) -> None:
        """Stop writing; the stream ends with the answer as far as it got."""
        desk.stop(ask_id, library.principal.user_id)


def _add_answers(routes: APIRouter) -> None:
    @routes.get("/answers", tags=["answers"])
    def answers(
        library: Seen,
        search: Annotated[str, Query(max_length=500)] = "",
        conversation_id: str | None = None,
        limit: Annotated[int, PAGE_SIZES] = 50,
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    ) -> Plain:
        """Past questions, newest first. `more` tells whether there are older ones."""
        found = library.answers(limit=limit + 1, offset=offset, search=search, conversation_id=conversation_id)
        return {"answers": [head.to_dict() for head in found[:limit]], "more": len(found) > limit}

    @routes.get("/answers/{answer_id}", tags=["answers"])
    def answer(library: Seen, answer_id: str) -> Plain:
        """A stored answer with all of its evidence."""
        return library.answer(answer_id).to_dict()

    @routes.delete("/answers/{answer_id}", status_code=204, tags=["answers"])
    def delete(library: Seen, answer_id: str) -> None:
        library.delete_answer(answer_id)

    @routes.post("/answers/{answer_id}/effect/{block_id}", tags=["answers"])
    def effect(library: Seen, answer_id: str, block_id: int) -> Plain:
        """Leave one block out and weigh the same answer again. Not an attention weight: see BlockEffect."""
        return library.effect_of_block(answer_id, block_id).to_dict()

    @routes.get("/answers/{answer_id}/export", tags=["answers"], response_class=Response)
    def export(
        library: Seen, answer_id: str, format: Annotated[str, Query(pattern="^(html|json)$")] = "html"
    ) -> Response:
        """One self-contained file: `html` with page pictures, or `json`."""
        media_type, write = EXPORTS[format]
        body = write(library, library.answer(answer_id))
        name = f"cairn-answer-{answer_id[:12]}.{format}"
        return Response(body, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})
