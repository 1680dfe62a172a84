"""HTTP: search, ask (as server-sent events), answers, effect of a block, export."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Annotated, ParamSpec, TypeVar

from fastapi import Depends, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field, StringConstraints

from app.api.dependencies import OwnPreferences, Person, RequestLibrary, api_routes, shared
from app.api.documents import CITATION_TYPES, PAGE_SIZES, CitationFormat, Conditions, Plain
from app.api.errors import Body, Refused, describe, error_body
from app.exports import citations
from app.exports.answers import answer_as_html, answer_as_json
from app.limits.fair_queue import FairQueue, QueueFull
from app.operations.metrics import Metrics
from app.preferences import AnswerLength, Positions, Preferences, TopK, Voters
from app.settings import Settings
from retrieval.library import Library
from retrieval.types.answers import DEFAULT_K, Answer, AnswerToken, Progress
from retrieval.types.records import Scope
from retrieval.types.writer import Turn

MAX_QUESTION_LENGTH = 4000
MAX_PASSAGES = 200
PLACE_SECONDS = 0.5
"""Between two checks of how many questions are ahead."""
_ASK_ID = re.compile(r"[0-9a-f]{32}")
P = ParamSpec("P")
T = TypeVar("T")
Item = Progress | AnswerToken | Answer
_EVENTS: dict[type, str] = {Answer: "answer", AnswerToken: "token", Progress: "progress"}
EXPORTS = {"html": ("text/html; charset=utf-8", answer_as_html), "json": ("application/json", answer_as_json)}


class Within(Body):
    """The documents that may be read: these, and all of these collections (both empty = everything), restricted to
    those that meet all conditions, such as `author=Lindqvist` or `date>=2024`."""

    document_ids: list[str] = Field(default_factory=list, max_length=5000)
    collection_ids: list[str] = Field(default_factory=list, max_length=1000)
    where: Conditions = Field(default_factory=list)

    def scope(self) -> Scope | None:
        scope = Scope(tuple(self.document_ids), tuple(self.collection_ids), tuple(self.where))
        return None if scope == Scope() else scope


class SearchRequest(Body):
    query: str = Field(min_length=1, max_length=MAX_QUESTION_LENGTH)
    k: int = Field(DEFAULT_K, ge=1, le=MAX_PASSAGES)
    within: Within = Field(default_factory=Within)


class EarlierTurn(Body):
    question: str = Field(min_length=1, max_length=MAX_QUESTION_LENGTH)
    answer: str = Field("", max_length=MAX_QUESTION_LENGTH)


class AskRequest(Body):
    """Absent fields come from the preferences."""

    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUESTION_LENGTH)]
    within: Within = Field(default_factory=Within)
    conversation_id: str | None = Field(
        default=None, max_length=64, description="Follow-ups share it; any id of the caller's"
    )
    earlier: list[EarlierTurn] = Field(
        default_factory=list, max_length=20, description="What was said before, oldest first, without conversation_id"
    )
    k: TopK | None = None
    voters: Voters | None = None
    positions: Positions | None = None
    quote: bool | None = None
    max_tokens: AnswerLength | None = None
    whole: bool | None = Field(
        default=None,
        description="The writer reads all of the documents `within`; absent: where the question asks for it "
        "(summarise, list all) and some are chosen",
    )
    anyway: bool = Field(default=False, description="Answer also where the documents do not seem to say")


class AskQueue:
    """Questions being answered: several at once, those of one user one after the other. Users take turns."""

    def __init__(self, settings: Settings, metrics: Metrics, announce: Callable[[str], bool]):
        """`announce`: sends a message to the other servers; False where there can be none."""
        self._metrics, self._announce = metrics, announce
        self._draining = False
        each_at_once, each_waiting = settings.questions_at_once_each, settings.max_questions
        self._queue = FairQueue(
            "cairn-ask", at_once=settings.questions_at_once, each_at_once=each_at_once, each_waiting=each_waiting
        )
        self._most_present, self._present = each_at_once + each_waiting, Counter[str]()
        self._stops: dict[str, threading.Event] = {}  # by the message that stops a question
        self._lock = threading.Lock()

    def counts(self) -> tuple[int, int]:
        """How many questions are at work, and how many wait."""
        return self._queue.counts()

    def drain(self) -> None:
        """Take no more questions; those in the queue go on."""
        self._draining = True

    def close(self) -> None:
        """Stop what is being answered, withdraw what waits."""
        self._draining = True
        with self._lock:
            for stop in self._stops.values():
                stop.set()
        self._queue.close()

    def stop(self, ask_id: str, user_id: str | None) -> None:
        """Stop a question, here or by telling the other servers. Raises Refused unless this user's question is being
        answered under that id here, or might be elsewhere."""
        message = _stopping(ask_id, user_id)
        if not (self.receive(message) or (_ASK_ID.fullmatch(ask_id) and self._announce(message))):
            raise Refused(404, "not_found", "No question of yours is being answered under this id.")

    def receive(self, message: str) -> bool:
        """Handle a message, also of another server; whether it was about a question here."""
        with self._lock:
            event = self._stops.get(message)
        if event is not None:
            event.set()
        return event is not None

    @contextlib.contextmanager
    def admitted(self, person: str) -> Iterator[None]:
        """Counts a question of this user while it waits or is answered. Raises Refused if there are too many, or the
        server stops."""
        self._check_open()
        if self._present[person] >= self._most_present:
            raise _too_many(QueueFull(own=True))
        self._present[person] += 1
        try:
            yield
        finally:
            self._present[person] -= 1
            self._present = +self._present

    async def run(self, person: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do other work of the model for this user, in the same turns. Raises Refused."""
        self._check_open()
        try:
            return await asyncio.wrap_future(self._queue.submit(person, function, *args, **kwargs))
        except QueueFull as full:
            raise _too_many(full) from None
        except asyncio.CancelledError:
            self._check_open()  # it was withdrawn because the server stops
            raise

    @contextlib.contextmanager
    def stoppable(self, library: Library) -> Iterator[tuple[str, threading.Event]]:
        """The id of a new question, and an event that is set when its answer has to end: whoever asked stops it or is
        gone, or the server stops."""
        ask_id, stop = secrets.token_hex(16), threading.Event()
        message = _stopping(ask_id, library.principal.user_id)
        with self._lock:
            self._stops[message] = stop
        try:
            yield ask_id, stop
        finally:
            stop.set()
            with self._lock:
                del self._stops[message]

    async def stream(
        self, person: str, library: Library, request: AskRequest, defaults: Preferences
    ) -> AsyncGenerator[ServerSentEvent, None]:
        """Events of one question: started, token..., then answer or error. A client that goes away stops the work."""
        arrived = time.perf_counter()
        events: asyncio.Queue[ServerSentEvent | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def emit(event: ServerSentEvent | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, event)

        with self.stoppable(library) as (ask_id, stop):
            try:
                asked = self._queue.submit(person, self._answer, library, request, defaults, stop, emit, arrived)
            except QueueFull as full:
                yield _error_event(_too_many(full))
                return
            asked.add_done_callback(lambda _: emit(None))
            last: str | None = None
            try:
                ahead = self._queue.ahead(person, asked)
                yield _event("started", {"ask_id": ask_id, "ahead": ahead})
                while True:
                    try:
                        event = await asyncio.wait_for(events.get(), PLACE_SECONDS if ahead else None)
                    except TimeoutError:
                        if (now := self._queue.ahead(person, asked)) != ahead:
                            ahead = now
                            yield _event("waiting", {"ahead": ahead})
                        continue
                    if event is None:
                        break
                    ahead, last = 0, event.event
                    yield event
                if last not in ("answer", "error"):
                    yield _error_event(_about_to_stop() if self._draining else _stopped())
            finally:
                asked.cancel()

    def _answer(
        self,
        library: Library,
        request: AskRequest,
        defaults: Preferences,
        stop: threading.Event,
        emit: Callable[[ServerSentEvent | None], None],
        arrived: float,
    ) -> None:
        """Emits the events of the answer. In a worker thread."""
        try:
            if stop.is_set():
                return
            items = library.ask(
                request.question,
                k=request.k or defaults.top_k,
                within=request.within.scope(),
                quote=defaults.quote if request.quote is None else request.quote,
                max_tokens=request.max_tokens or defaults.max_tokens,
                voters=request.voters or defaults.voters,
                positions=request.positions or defaults.positions,
                conversation_id=request.conversation_id,
                earlier=[Turn(turn.question, turn.answer) for turn in request.earlier],
                whole=request.whole,
                anyway=request.anyway,
                cancelled=stop.is_set,
            )
            for item in self.watched(arrived, items):
                emit(_event(_EVENTS[type(item)], item.to_dict()))
        except Exception as error:  # the last handler of this thread: the client has to learn of it
            emit(_error_event(error))

    def watched(self, arrived: float, items: Iterator[Item]) -> Iterator[Item]:
        """The items of one question, counted. `arrived`: by `time.perf_counter`."""
        return self._metrics.watch(items, arrived, refused=lambda error: describe(error)[0] < 500)

    def _check_open(self) -> None:
        if self._draining:
            raise _about_to_stop()


def _about_to_stop() -> Refused:
    return Refused(503, "stopping", "The server is about to stop. Ask again in a moment.", 5)


def _stopped() -> Refused:
    return Refused(409, "stopped", "The question was stopped before it was answered.")


def _stopping(ask_id: str, user_id: str | None) -> str:
    """What stops this user's question, at whichever server it is."""
    return f"stop {ask_id} {user_id or ''}"


def _too_many(full: QueueFull) -> Refused:
    if full.own:
        return Refused(429, "too_many_questions", "Too many of your questions are waiting. Wait for an answer.", 5)
    return Refused(503, "busy", "Too many questions are waiting. Try again shortly.", 5)


def _event(name: str, payload: Plain) -> ServerSentEvent:
    """Serialised here: FastAPI would walk through the whole answer to look for values that are not JSON."""
    return ServerSentEvent(event=name, raw_data=json.dumps(payload, ensure_ascii=False, separators=(",", ":")))


class ErrorEvent(ServerSentEvent):
    """`status` and `headers` are those of an answer that does not stream."""

    status: int
    headers: dict[str, str]


def _error_event(error: Exception) -> ErrorEvent:
    data = json.dumps(error_body(error), ensure_ascii=False, separators=(",", ":"))
    headers = error.headers if isinstance(error, Refused) else {}
    return ErrorEvent(event="error", raw_data=data, status=describe(error)[0], headers=headers)


ServerQueue = Annotated[AskQueue, shared("ask_queue")]
routes = api_routes()


async def room(person: Person, ask_queue: ServerQueue) -> AsyncIterator[None]:
    """A dependency that takes room in the queue before the stream begins, so that a refusal has a status of its own."""
    with ask_queue.admitted(person):
        yield


@routes.post("/search", tags=["questions"])
async def search(library: RequestLibrary, person: Person, ask_queue: ServerQueue, request: SearchRequest) -> Plain:
    """The passages found for a query, best first. No answer is written."""
    query, within = request.query.strip(), request.within.scope()
    found = await ask_queue.run(person, library.search, query, request.k, within=within)
    return {"passages": [passage.to_dict() for passage in found]}


@routes.post("/ask", tags=["questions"], response_class=EventSourceResponse, dependencies=[Depends(room)])
async def ask(
    library: RequestLibrary, person: Person, ask_queue: ServerQueue, request: AskRequest, preferences: OwnPreferences
) -> AsyncIterator[ServerSentEvent]:
    """Events: `started` (with the id to stop it), `waiting` (when fewer questions are ahead), `progress` (of a task
    over whole documents), `token` (many), then `answer` (stored) or `error`. Closing the connection stops it."""
    async with contextlib.aclosing(ask_queue.stream(person, library, request, preferences.current)) as events:
        async for event in events:
            yield event


@routes.post("/ask/{ask_id}/stop", status_code=204, tags=["questions"])
def stop(library: RequestLibrary, ask_queue: ServerQueue, ask_id: str) -> None:
    """Stop writing; the stream ends with the answer as far as it got."""
    ask_queue.stop(ask_id, library.principal.user_id)


@routes.get("/answers", tags=["answers"])
def answers(
    library: RequestLibrary,
    search: Annotated[str, Query(max_length=500)] = "",
    conversation_id: str | None = None,
    limit: Annotated[int, PAGE_SIZES] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Plain:
    """Past questions, newest first. `more` tells whether there are older ones."""
    found = library.answers.list(limit=limit + 1, offset=offset, search=search, conversation_id=conversation_id)
    return {"answers": [head.to_dict() for head in found[:limit]], "more": len(found) > limit}


@routes.get("/answers/{answer_id}", tags=["answers"])
def answer(library: RequestLibrary, answer_id: str) -> Plain:
    """A stored answer with all of its evidence."""
    return library.answers.get(answer_id).to_dict()


@routes.get("/answers/{answer_id}/citations", tags=["answers"], response_class=Response)
def cite(library: RequestLibrary, answer_id: str, format: CitationFormat = "text") -> Response:
    """The documents and pages that the answer is taken from, to take away."""
    text = citations.of_answer(library, library.answers.get(answer_id), format)
    return Response(text, media_type=CITATION_TYPES[format])


@routes.delete("/answers/{answer_id}", status_code=204, tags=["answers"])
def delete(library: RequestLibrary, answer_id: str) -> None:
    library.answers.delete(answer_id)


@routes.post("/answers/{answer_id}/effect/{block_id}", tags=["answers"])
async def effect(
    library: RequestLibrary, person: Person, ask_queue: ServerQueue, answer_id: str, block_id: int
) -> Plain:
    """Leave one block out and weigh the same answer again. Not an attention weight: see BlockEffect."""
    return (await ask_queue.run(person, library.answers.effect_of_block, answer_id, block_id)).to_dict()


@routes.post("/answers/{answer_id}/without/{passage}", tags=["answers"])
async def without(
    library: RequestLibrary, person: Person, ask_queue: ServerQueue, answer_id: str, passage: int
) -> Plain:
    """Of a quotation: what would be quoted if this passage (they count from 0) were not in the library."""
    return (await ask_queue.run(person, library.answers.effect_of_passage, answer_id, passage)).to_dict()


@routes.get("/answers/{answer_id}/export", tags=["answers"], response_class=Response)
def export(
    library: RequestLibrary, answer_id: str, format: Annotated[str, Query(pattern="^(html|json)$")] = "html"
) -> Response:
    """One self-contained file: `html` with page pictures, or `json`."""
    media_type, write = EXPORTS[format]
    body = write(library, library.answers.get(answer_id))
    name = f"cairn-answer-{answer_id[:12]}.{format}"
    return Response(body, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})
