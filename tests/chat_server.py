"""An OpenAI-compatible chat server that answers as a test tells it, well or badly; over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse

from tests.app.serving import served

Reply = Callable[[str, str], str]
"""System message and user message -> the answer."""


@dataclass
class ChatServer:
    """`behaviour` of the next requests: "well", or one of the ways to fail below."""

    address: str = ""
    reply: Reply = lambda _system, _user: "The dam was raised in 1981 [1]."
    behaviour: str = "well"
    models: list[str] = field(default_factory=lambda: ["tiny"])
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def begin_anew(self, **changed: Any) -> ChatServer:
        """As it was at first, at its address, but for what is `changed`."""
        self.__dict__.update(vars(ChatServer(address=self.address, **changed)))
        return self


def _chunk(text: str | None, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}
    return f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"


async def _well(answer: str, max_tokens: int) -> AsyncIterator[str]:
    words = answer.split(" ")
    for at, word in enumerate(words[:max_tokens]):
        yield _chunk(word if at == 0 else " " + word)
        await asyncio.sleep(0)
    yield _chunk(None, "length" if len(words) > max_tokens else "stop")
    yield "data: [DONE]\n\n"


async def _badly(how: str) -> AsyncIterator[str]:
    if how != "stalls":
        yield _chunk("The dam")
    if how in ("stalls", "stalls in the middle"):
        await asyncio.sleep(60)
    if how == "breaks off":
        raise ConnectionResetError
    if how == "rubbish in the middle":
        yield "data: {not json\n\n"
    if how == "no choices":
        yield 'data: {"hello": 1}\n\n'
    if how == "content is a number":
        yield 'data: {"choices": [{"delta": {"content": 7}, "finish_reason": null}]}\n\n'
    if how == "error in the middle":
        yield 'data: {"error": {"message": "out of memory"}}\n\n'
    while how in ("never ends", "goes on slowly"):
        yield _chunk(" and")
        await asyncio.sleep(0.05 if how == "goes on slowly" else 0)
    # "ends without a reason": nothing more comes


REFUSALS: dict[str, Callable[[], Response]] = {
    "429": lambda: JSONResponse({"error": {"message": "slow down"}}, 429, {"retry-after": "0.01"}),
    "500": lambda: JSONResponse({"error": {"message": "it burns"}}, 500, {"retry-after": "0.01"}),
    "401": lambda: JSONResponse({"error": {"message": "bad key sk-secret"}}, 401),
    "400": lambda: JSONResponse({"error": {"message": "context too long for sk-secret"}}, 400),
    "404": lambda: JSONResponse({"error": {"message": "no such model"}}, 404),
    "html": lambda: HTMLResponse("<h1>Welcome to nginx</h1>"),
    "elsewhere": lambda: RedirectResponse("http://127.0.0.1:9/v1/chat/completions", 307),
}


def build(server: ChatServer) -> FastAPI:
    app = FastAPI()

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        # Without any the list is null, as Ollama sends it.
        return {"object": "list", "data": [{"id": name, "object": "model"} for name in server.models] or None}

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Response:
        body = await request.json()
        server.requests.append(body)
        server.keys.append(request.headers.get("authorization", ""))
        if server.behaviour == "429 once" and len(server.requests) == 1:
            return REFUSALS["429"]()
        if server.behaviour in REFUSALS:
            return REFUSALS[server.behaviour]()
        if server.behaviour in ("well", "429 once"):
            system, user = (message["content"] for message in body["messages"])
            stream = _well(server.reply(system, user), body["max_tokens"])
        elif server.behaviour == "says nothing":
            stream = _well("", 1)
        else:
            stream = _badly(server.behaviour)
        return StreamingResponse(stream, media_type="text/event-stream")

    return app


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """A server that runs; its `address` ends in /v1."""
    server = ChatServer()
    with served(build(server)) as address:
        server.address = f"{address}/v1"
        yield server
