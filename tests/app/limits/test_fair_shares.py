"""One person's many requests keep nobody else waiting, and are refused beyond a number.

Over a real socket. Whatever the first of two people wants takes until the test lets it go on.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.api import build_app, questions
from app.auth import fresh_token
from app.http_security import AT_ONCE, MOST_PAGE_STREAMS, PRINCIPAL, WAITING, RequestShares
from retrieval.documents import Documents
from retrieval.jobs import Jobs
from retrieval.library import Library
from retrieval.types.answers import AnswerToken
from retrieval.types.records import Estimate
from storage.records import Principal
from tests.app.api_client import PDF, events
from tests.app.serving import served, settings_for
from tests.waiting import until

FILE = {"files": {"file": ("a.pdf", PDF)}}
PICTURE = "documents/x/pages/1.png"


class World:
    """Ann, whose requests are held, and Bob at one server."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.begun: list[str] = []  # whose work, in the order in which it began
        self.clients: dict[str, httpx2.Client] = {}

    def work(self, who: Principal) -> None:
        self.begun.append(who.name)
        if who.name == "ann":
            assert self.go_on.wait(60)

    def call(self, name: str, method: str, path: str, **more: Any) -> httpx2.Response:
        return self.clients[name].request(method, path, **more)

    def ask(self, name: str) -> httpx2.Response:
        return self.call(name, "POST", "ask", json={"question": "What of the dam?"})

    def flood(self, threads: ThreadPoolExecutor, number: int, *request: Any, **more: Any) -> list[Future[Any]]:
        """So many requests of Ann's; returns when all have arrived that begin at once."""
        flood = [threads.submit(self.call, "ann", *request, **more) for _ in range(number)]
        until(lambda: "ann" in self.begun)
        return flood


def done(requests: list[Future[Any]]) -> list[httpx2.Response]:
    return [request.result() for request in requests if request.done()]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[World]:
    """Parameters: settings."""
    world = World()

    def ask(library: Library, question: str, **_more: Any) -> Iterator[AnswerToken]:
        world.work(library.principal)
        yield AnswerToken("word", 0.0, 0.0, ())

    def estimate(documents: Documents, path: Path, **_more: Any) -> Estimate:
        world.work(documents.view.principal)
        return Estimate(path.name, 1, 500, 8, 1_000_000, 1.0, 10**12)

    def page_image(documents: Documents, *_arguments: Any, **_more: Any) -> bytes:
        world.work(documents.view.principal)
        return b"\x89PNG"

    monkeypatch.setattr(Library, "ask", ask)
    monkeypatch.setattr(Documents, "estimate", estimate)
    monkeypatch.setattr(Documents, "page_image", page_image)
    monkeypatch.setattr(Library, "warm_up", lambda library: None)
    (tmp_path / "sample-offered").touch()
    settings = settings_for(tmp_path, questions_at_once=2, questions_at_once_each=1, **getattr(request, "param", {}))
    with Library.open(tmp_path, no_model) as library:
        tokens = {}
        for name in ("ann", "bob"):
            tokens[name], digest = fresh_token()
            library.accounts.set_token_digest(library.accounts.create(name, "no password"), digest)
        limits = httpx2.Limits(max_connections=None)
        with served(build_app(settings, library, page=False)) as url:  # type: ignore[arg-type]
            for name, token in tokens.items():
                headers = {"Authorization": f"Bearer {token}"}
                world.clients[name] = httpx2.Client(
                    base_url=f"{url}/api/v1/", headers=headers, timeout=60, limits=limits
                )
            yield world
            world.go_on.set()
            for client in world.clients.values():
                client.close()


def no_model() -> Any:
    raise AssertionError("no model needed")


def test_whoever_waits_is_told_how_many_are_ahead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PLACE_SECONDS", 0.02)
    turns = threading.Semaphore(0)
    monkeypatch.setattr(world.go_on, "wait", lambda seconds: turns.acquire(timeout=seconds))
    monkeypatch.setattr(world.go_on, "set", lambda: turns.release(3))

    def next_event(lines: Iterator[str]) -> tuple[str, Any]:
        event = next(line for line in lines if line.startswith("event: "))
        data = next(line for line in lines if line.startswith("data: "))
        return event.removeprefix("event: "), json.loads(data.removeprefix("data: ")).get("ahead")

    with ExitStack() as open_streams:
        asked = []
        for _ in range(3):
            stream = world.clients["ann"].stream("POST", "ask", json={"question": "What of the dam?"})
            asked.append(open_streams.enter_context(stream).iter_lines())
            assert next_event(asked[-1]) == ("started", len(asked) - 1)
        turns.release()
        assert next_event(asked[2]) == ("waiting", 1)
        turns.release(2)


@pytest.mark.parametrize("world", [{"max_questions": 16}], indirect=True)
def test_seventy_questions_of_one_person_do_not_delay_anothers_and_are_refused_beyond_a_number(world: World) -> None:
    with ThreadPoolExecutor(70) as threads:
        flood = world.flood(threads, 70, "POST", "ask", json={"question": "What of the dam?"})
        assert "token" in dict(events(world.ask("bob").text))
        until(lambda: len(done(flood)) == 70 - 17)  # one is answered, sixteen wait
        refused = done(flood)
        world.go_on.set()
        assert sum(asked.result().status_code == 200 for asked in flood) == 17
    assert {answer.status_code for answer in refused} == {429}
    assert refused[0].json()["error"]["code"] == "too_many_questions" and int(refused[0].headers["retry-after"]) >= 1


@pytest.mark.parametrize("world", [{"max_uploads": 100}], indirect=True)
def test_one_persons_slow_files_do_not_delay_anothers_estimate(world: World) -> None:
    for _ in range(30):
        assert world.call("ann", "POST", "uploads", **FILE).status_code == 201
    until(lambda: "ann" in world.begun)
    assert world.call("bob", "POST", "estimate", **FILE).status_code == 200
    states = [file["state"] for file in world.call("ann", "GET", "uploads").json()["uploads"]]
    assert states == ["estimating"] * 30
    world.go_on.set()


def test_one_persons_many_slow_requests_leave_threads_for_others_and_are_refused_beyond_a_number(world: World) -> None:
    most, more = AT_ONCE + WAITING, 7
    with ThreadPoolExecutor(most + more) as threads:
        flood = world.flood(threads, most + more, "GET", PICTURE)
        until(lambda: len(done(flood)) == more)
        assert {(one.status_code, one.json()["error"]["code"]) for one in done(flood)} == {(429, "too_many_requests")}
        assert world.call("bob", "GET", PICTURE).status_code == 200
        assert world.begun.count("ann") == AT_ONCE
        world.go_on.set()
        assert sum(asked.result().status_code == 200 for asked in flood) == most


@pytest.mark.parametrize(
    ("path", "most"), [("/gradio_api/heartbeat/x", MOST_PAGE_STREAMS), ("/v1/models", AT_ONCE + WAITING)]
)
def test_only_so_many_requests_of_one_person_are_taken(path: str, most: int) -> None:
    async def flood() -> list[int]:
        held = asyncio.Event()

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await held.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body"})

        shares, statuses = RequestShares(app), []

        async def send(message: Any) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        async def open_one(name: str) -> None:
            scope = {"type": "http", "path": path, "headers": [], PRINCIPAL: Principal(name, name)}
            await shares(scope, None, send)  # type: ignore[arg-type]

        streams = [asyncio.create_task(open_one("ann")) for _ in range(most + 5)]
        streams.append(asyncio.create_task(open_one("bob")))
        await asyncio.sleep(0.01)
        assert statuses == [429] * 5
        held.set()
        await asyncio.gather(*streams)
        await open_one("ann")
        return statuses

    assert asyncio.run(flood()).count(200) == most + 2


@pytest.mark.parametrize("world", [{"max_jobs": 1}], indirect=True)
def test_only_so_many_documents_of_one_person_may_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "num_active", lambda jobs: int(jobs.view.principal.name == "ann"))
    refused = world.call("ann", "POST", "documents", **FILE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_jobs")
    assert "retry-after" in refused.headers
    assert world.call("bob", "POST", "documents", **FILE).status_code != 429


@pytest.mark.parametrize("world", [{"max_questions": 1}], indirect=True)
def test_a_question_that_nobody_waits_for_any_more_is_withdrawn_from_the_queue(world: World) -> None:
    body, client = {"question": "What of the dam?"}, world.clients["ann"]
    with client.stream("POST", "ask", json=body):
        until(lambda: world.begun)
        with client.stream("POST", "ask", json=body) as waiting:
            lines = waiting.iter_lines()
            next(lines)
            assert world.ask("ann").status_code == 429

        def accepted() -> bool:
            with client.stream("POST", "ask", json=body) as response:
                return response.status_code == 200

        until(accepted)
        assert len(world.begun) == 1
