"""The library as a model: `/v1/chat/completions` and `/v1/models`, as OpenAI's clients call them (Open WebUI, editors).

- The model `cairn` is everything that the caller may read, `cairn/NAME` a collection.
- The last message is the question; those before it are the conversation. System messages, temperatures, tools and the
  like are ignored: answers come from the documents.
- The sources follow the answer by number. Programs find the whole record under `cairn`.
- Sign-in as everywhere: `Authorization: Bearer TOKEN`, which clients call the API key.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Depends
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.sse import ServerSentEvent
from pydantic import BaseModel, Field

from app.api.dependencies import OwnPreferences, Person, RequestLibrary
from app.api.documents import Plain
from app.api.errors import Refused
from app.api.questions import MAX_QUESTION_LENGTH, AskRequest, EarlierTurn, ErrorEvent, ServerQueue, Within, room
from app.exports.answers import written_row
from app.preferences import MAX_ANSWER_TOKENS
from retrieval.library import Library
from retrieval.types.answers import Answer, Passage, outcome_note, set_aside_note

MODEL = "cairn"
MAX_MESSAGES, MAX_TURNS = 200, 6


class Message(BaseModel):
    """`content`: text, or parts of which those of type "text" count."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if not isinstance(self.content, list):
            return (self.content or "").strip()
        parts = (part.get("text") for part in self.content if part.get("type") == "text")
        return "\n".join(part for part in parts if isinstance(part, str)).strip()


class ChatRequest(BaseModel):
    """Further fields are accepted and ignored."""

    model: str = Field(MODEL, max_length=300)
    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES)
    stream: bool = False
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)


routes = APIRouter(prefix="/v1", tags=["as a model"])


@routes.get("/models")
def models(library: RequestLibrary) -> Plain:
    """`cairn`, and one for each collection."""
    names = [MODEL, *(f"{MODEL}/{one.name}" for one in library.collections.list())]
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "cairn"} for name in names],
    }


@routes.post("/chat/completions", dependencies=[Depends(room)])
async def complete(
    library: RequestLibrary, person: Person, ask_queue: ServerQueue, request: ChatRequest, preferences: OwnPreferences
) -> Response:
    """One answer from the documents; with `stream` as server-sent events that end with `[DONE]`."""
    question = await run_in_threadpool(_question, library, request)
    stream = ask_queue.stream(person, library, question, preferences.current)
    completion = _Completion(request.model)
    if request.stream:
        return StreamingResponse(_streamed(stream, completion), media_type="text/event-stream")
    answer: dict[str, Any] = {}
    async for event in stream:
        payload = json.loads(event.raw_data or "null")
        if isinstance(event, ErrorEvent):
            return JSONResponse(_error(payload), event.status, event.headers)
        if event.event == "answer":
            answer = payload
    return JSONResponse(completion.whole(Answer.from_dict(answer)))


def _question(library: Library, request: ChatRequest) -> AskRequest:
    """Raises Refused for an unknown model, or messages without a question."""
    spoken = [message for message in request.messages if message.role in ("user", "assistant") and message.text]
    if not spoken or spoken[-1].role != "user":
        raise Refused(422, "invalid_request", "The last message must be a question of the user.")
    earlier: list[EarlierTurn] = []
    for before, after in zip(spoken[:-1], spoken[1:], strict=True):
        if before.role == "user" and after.role == "assistant":
            question = before.text[-MAX_QUESTION_LENGTH:]
            answer = after.text.partition(_SOURCES)[0][:MAX_QUESTION_LENGTH]
            earlier.append(EarlierTurn(question=question, answer=answer))
    wanted = request.max_completion_tokens or request.max_tokens
    text = spoken[-1].text
    if len(text) > MAX_QUESTION_LENGTH:
        message = f"The question is too long: at most {MAX_QUESTION_LENGTH:,} characters."
        raise Refused(422, "invalid_request", message)
    return AskRequest(
        question=text,
        within=_within(library, request.model),
        earlier=earlier[-MAX_TURNS:],
        max_tokens=min(wanted, MAX_ANSWER_TOKENS) if wanted else None,
    )


def _within(library: Library, model: str) -> Within:
    if model == MODEL:
        return Within()
    name = model.removeprefix(f"{MODEL}/")
    found = [one.id for one in library.collections.list() if one.name == name and model != name]
    if not found:
        raise Refused(404, "not_found", f"There is no model {model[:100]!r} here. GET /v1/models lists them.")
    return Within(collection_ids=found)


async def _streamed(stream: AsyncGenerator[ServerSentEvent, None], completion: _Completion) -> AsyncIterator[str]:
    yield completion.chunk({"role": "assistant", "content": ""})
    begun = False
    async with contextlib.aclosing(stream):
        async for event in stream:
            name, payload = event.event, json.loads(event.raw_data or "null")
            if name == "token":
                text = payload["text"] if begun else payload["text"].lstrip()
                begun = begun or bool(text)
                if text:
                    yield completion.chunk({"content": text})
            elif name == "progress":
                yield ": reading\n\n"  # keeps the connection; clients do not show it
            elif name == "error":
                yield f"data: {json.dumps(_error(payload))}\n\n"
            elif name == "answer":
                answer = Answer.from_dict(payload)
                rest = _behind(answer, begun) + _footer(answer)
                if rest:
                    yield completion.chunk({"content": rest})
                yield completion.chunk({}, finish="stop", record=_record(answer))
    yield "data: [DONE]\n\n"


class _Completion:
    """One completion in the terms of the protocol."""

    def __init__(self, model: str):
        self._head = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": model}

    def chunk(self, delta: Plain, finish: str | None = None, record: Plain | None = None) -> str:
        body = {
            **self._head,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            **({} if record is None else {"cairn": record}),
        }
        return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"

    def whole(self, answer: Answer) -> Plain:
        message = {"role": "assistant", "content": answer.text + _footer(answer)}
        tokens = len(answer.tokens)
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            # What the caller's messages took is not counted: the question is read by two models.
            "usage": {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens},
            "cairn": _record(answer),
        }


def _behind(answer: Answer, begun: bool) -> str:
    """The text of the answer, as far as it did not come in pieces."""
    if begun and answer.set_aside:
        return f"\n\n({set_aside_note(answer)})\n\n{answer.text}"
    return "" if begun else answer.text


_SOURCES = "\n\nSources:\n"


def _footer(answer: Answer) -> str:
    """Why the answer is incomplete, if it is, and its sources: those that a writer cited, by number, else the passage
    that was quoted."""
    problem = f"\n\n({answer.problem})" if answer.problem else ""
    if note := outcome_note(answer):
        problem += f"\n\n({note})"
    if answer.writer is not None:
        cited = dict(sorted((one.number, answer.passages[one.passage]) for one in answer.citations))
    else:
        cited = dict(enumerate(answer.passages[:1] if answer.found else (), 1))
    lines = [f"[{number}] {_place(passage)}" for number, passage in cited.items()]
    return problem + (_SOURCES + "\n".join(lines) if lines else "")


def _place(passage: Passage) -> str:
    return ", ".join(part for part in (passage.title or passage.source, passage.place) if part)


def _record(answer: Answer) -> Plain:
    passages = [one.to_dict("document_id", "title", "pages", "place", "text") for one in answer.passages]
    return {"answer_id": answer.id, "found": answer.found, "passages": passages, **written_row(answer)}


def _error(payload: Plain) -> Plain:
    return {"error": {"message": payload["error"]["message"], "type": payload["error"]["code"], "code": None}}
