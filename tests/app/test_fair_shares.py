"""One person's many requests keep nobody else waiting, and are refused beyond a number. Over a real socket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api import build_app
from app.auth import fresh_token, hash_password
from retrieval.library import Library
from retrieval.types.records import Estimate
from storage.records import Principal
from tests.app.api_client import PDF, events, until
from tests.app.fake_library import FakeLibrary
from tests.app.serving import FakeSettings, served


class SharedLibrary(FakeLibrary):
    """A library of two people, with accounts of a real one. `slow`: what each estimate and page image takes."""

    def __init__(self, accounts: Any, slow: float = 0.0, token_seconds: float = 0.0):
        super().__init__(token_seconds=token_seconds)
        self._accounts, self.slow = accounts, slow

    @property
    def accounts(self) -> Any:
        return self._accounts

    def as_seen_by(self, principal: Principal) -> FakeLibrary:
        import copy

        seen = copy.copy(self)
        seen.principal = principal
        return seen

    def estimate(self, path: Path, *, password: str | None = None) -> Estimate:
        time.sleep(self.slow)
        return super().estimate(path, password=password)

    def page_image(self, document_id: str, page: int, *, width_px: int = 1200) -> bytes:
        time.sleep(self.slow)
        return b"\x89PNG"


class World:
    def __init__(self, url: str, tokens: dict[str, str]):
        self.url = url
        self.clients = {
            name: httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
            for name, token in tokens.items()
        }

    def call(self, name: str, method: str, path: str, **more: Any) -> httpx.Response:
        return self.clients[name].request(method, f"/api/v1/{path}", **more)

    def ask(self, name: str) -> httpx.Response:
        return self.call(name, "POST", "ask", json={"question": "long answer please"})


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Any]:
    def never() -> Any:
        raise AssertionError("no model needed")

    with Library.open(tmp_path / "accounts", never) as library:
        yield library.accounts


@pytest.fixture
def world(tmp_path: Path, accounts: Any, request: pytest.FixtureRequest) -> Iterator[World]:
    options = dict(getattr(request, "param", {}))
    slow, token_seconds = options.pop("slow", 0.0), options.pop("token_seconds", 0.0)
    tokens = {}
    for name in ("ann", "bob"):
        tokens[name], digest = fresh_token()
        accounts.set_token_digest(accounts.add(name, hash_password("a quiet pile of stones")), digest)
    library = SharedLibrary(accounts, slow, token_seconds)
    library.add("reservoir.pdf")
    settings = FakeSettings(tmp_path / "home", questions_at_once=2, questions_at_once_each=1, **options)
    with served(build_app(settings, library, page=False)) as url:  # type: ignore[arg-type]
        world = World(url, tokens)
        yield world
        for client in world.clients.values():
            client.close()


@pytest.mark.parametrize("world", [{"token_seconds": 0.03, "max_questions": 16}], indirect=True)
def test_seventy_questions_of_one_person_do_not_delay_anothers_and_are_refused_beyond_a_number(world: World) -> None:
    with ThreadPoolExecutor(70) as threads:
        began = time.monotonic()
        world.ask("bob")
        alone = time.monotonic() - began
        flood = [threads.submit(world.ask, "ann") for _ in range(70)]
        time.sleep(0.3)
        began = time.monotonic()
        name, _answer = events(world.ask("bob").text)[-1]
        beside = time.monotonic() - began
        statuses = [asked.result().status_code for asked in flood[:5]]
        refused = [done for done in flood if done.done() and done.result().status_code == 429]
        for client in world.clients.values():
            client.close()
    assert name == "answer" and beside < 2 * alone + 0.5, (beside, alone)
    assert len(refused) >= 20 and statuses[0] == 200
    body = refused[0].result()
    assert body.json()["error"]["code"] == "too_many_questions" and int(body.headers["retry-after"]) >= 1


@pytest.mark.parametrize("world", [{"slow": 0.3, "max_uploads": 100}], indirect=True)
def test_one_persons_slow_files_do_not_delay_anothers_estimate(world: World) -> None:
    send = {"files": {"file": ("a.pdf", PDF)}}
    for _ in range(30):
        assert world.call("ann", "POST", "uploads", **send).status_code == 201
    began = time.monotonic()
    assert world.call("bob", "POST", "estimate", **send).status_code == 200
    assert time.monotonic() - began < 1.0
    waiting = [file for file in world.call("ann", "GET", "uploads").json()["uploads"] if file["state"] == "estimating"]
    assert len(waiting) > 10


@pytest.mark.parametrize("world", [{"slow": 0.5}], indirect=True)
def test_one_persons_sixty_slow_requests_leave_threads_for_others(world: World) -> None:
    documents = world.call("bob", "GET", "documents").json()["documents"]
    picture = f"documents/{documents[0]['id']}/pages/1.png"
    with ThreadPoolExecutor(60) as threads:
        flood = [threads.submit(world.call, "ann", "GET", picture) for _ in range(60)]
        time.sleep(0.2)
        began = time.monotonic()
        assert world.call("bob", "GET", "documents").status_code == 200
        assert time.monotonic() - began < 0.5
        assert {asked.result().status_code for asked in flood} == {200}


@pytest.mark.parametrize("world", [{"max_jobs": 3}], indirect=True)
def test_only_so_many_documents_of_one_person_may_wait(world: World) -> None:
    send = {"files": {"file": ("a.pdf", PDF)}}
    responses = [world.call("ann", "POST", "documents", **send) for _ in range(4)]
    assert [one.status_code for one in responses] == [202, 202, 202, 429]
    assert responses[3].json()["error"]["code"] == "too_many_jobs" and "retry-after" in responses[3].headers


def test_a_question_that_nobody_waits_for_any_more_is_withdrawn_from_the_queue(tmp_path: Path) -> None:
    library = FakeLibrary(token_seconds=0.05)
    library.add("reservoir.pdf")
    settings = FakeSettings(tmp_path, questions_at_once=1, questions_at_once_each=1, max_questions=1)
    app = build_app(settings, library, page=False)  # type: ignore[arg-type]
    body = {"question": "long answer please"}
    with served(app) as url, httpx.Client(base_url=f"{url}/api/v1", timeout=60) as client:
        with client.stream("POST", "/ask", json=body):
            until(lambda: library.asked)
            with client.stream("POST", "/ask", json=body) as waiting:
                lines = waiting.iter_lines()
                next(lines)
                assert client.post("/ask", json=body).status_code == 429
            del lines
            until(lambda: client.post("/search", json={"query": "dam"}).status_code == 200)
        assert len(library.asked) == 1
