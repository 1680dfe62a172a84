"""A server that is told to stop finishes the answers that came, takes no new ones, and ends."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from app.api import build_app
from app.operations.server import DrainingServer
from retrieval.library import Library
from tests.app.api_client import events
from tests.app.serving import BEARER, settings_for
from tests.app.small_library import QUESTION
from tests.waiting import until


@contextmanager
def draining(library: Library, home: Path, drain_seconds: float, **given: Any) -> Iterator[tuple[DrainingServer, str]]:
    """`given`: settings."""
    app = build_app(settings_for(home, **given), library, page=False)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
    server = DrainingServer(
        config,
        at_work=lambda: any(app.state.ask_queue.counts()),
        when_draining=[lambda: app.state.readiness.become("stopping"), app.state.ask_queue.drain],
        cut_short=app.state.ask_queue.close,
        drain_seconds=drain_seconds,
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def held(library: Library) -> threading.Event:
    """Answers stay open after their first item until the event is set."""
    goes_on, asked = threading.Event(), library.ask

    def slow(*args: Any, cancelled: Any, **named: Any) -> Iterator[Any]:
        for number, item in enumerate(asked(*args, cancelled=cancelled, **named)):
            while number == 0 and not goes_on.wait(0.02) and not cancelled():
                pass
            yield item

    library.ask = slow  # type: ignore[method-assign,assignment]
    return goes_on


def asking(url: str, answers: list[str]) -> threading.Thread:
    def run() -> None:
        with suppress(httpx2.RemoteProtocolError):  # of a server that does not wait
            answers.append(
                httpx2.post(f"{url}/api/v1/ask", json={"question": QUESTION}, headers=BEARER, timeout=60).text
            )

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_running_answer_is_finished_and_no_new_one_is_begun(library: Library, home: Path) -> None:
    goes_on, answers = held(library), []
    with draining(library, home, 30) as (server, url):
        thread = asking(url, answers)
        until(lambda: httpx2.get(f"{url}/readyz").status_code == 200)
        until(lambda: "cairn_questions_running 1.0" in httpx2.get(f"{url}/metrics", headers=BEARER).text)
        server.handle_exit(signal.SIGTERM, None)
        until(lambda: httpx2.get(f"{url}/readyz").status_code == 503)
        refused = httpx2.post(f"{url}/api/v1/ask", json={"question": QUESTION}, headers=BEARER, timeout=60)
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "stopping"
        assert refused.headers["retry-after"] and httpx2.get(f"{url}/healthz").status_code == 200
        goes_on.set()
        thread.join(30)
        until(lambda: server.should_exit)
    name, answer = events(answers[0])[-1]
    assert name == "answer" and answer["found"] and not answer["settings"]["interrupted"]


def test_an_answer_that_takes_too_long_is_cut_short(library: Library, home: Path) -> None:
    answers: list[str] = []
    held(library)
    with draining(library, home, 0.3) as (server, url):
        thread = asking(url, answers)
        until(lambda: "cairn_questions_running 1.0" in httpx2.get(f"{url}/metrics", headers=BEARER).text)
        began = time.monotonic()
        server.handle_exit(signal.SIGTERM, None)
        thread.join(30)
        assert 0.3 <= time.monotonic() - began < 20
    name, answer = events(answers[0])[-1]
    assert name == "answer" and answer["settings"]["interrupted"]


def endless(library: Library) -> threading.Event:
    """No answer comes; the event is set when one is cancelled."""
    ended = threading.Event()

    def ask(*_args: Any, cancelled: Any, **_named: Any) -> Iterator[Any]:
        while not cancelled():
            time.sleep(0.02)
        ended.set()
        yield from ()

    library.ask = ask  # type: ignore[method-assign,assignment]
    return ended


def until_asked(url: str, state: str, number: int) -> None:
    until(lambda: f"cairn_questions_{state} {number}.0" in httpx2.get(f"{url}/metrics", headers=BEARER).text)


def test_what_still_waits_is_told_that_the_server_stops(library: Library, home: Path) -> None:
    answers: list[str] = []
    ended = endless(library)
    with draining(library, home, 0.3, questions_at_once=1) as (server, url), ThreadPoolExecutor(2) as threads:

        def post(path: str, **body: Any) -> Future[httpx2.Response]:
            return threads.submit(httpx2.post, f"{url}/{path}", json=body, headers=BEARER, timeout=60)

        begun = asking(url, answers)
        until_asked(url, "running", 1)
        waits = asking(url, answers)
        whole = post("v1/chat/completions", messages=[{"role": "user", "content": QUESTION}])
        search = post("api/v1/search", query=QUESTION)
        until_asked(url, "waiting", 3)
        server.handle_exit(signal.SIGTERM, None)
        for thread in (begun, waits):
            thread.join(30)
        for refused in (whole.result(), search.result()):
            assert refused.status_code == 503 and refused.headers["retry-after"]
    assert ended.is_set()
    assert [events(text)[-1][1]["error"]["code"] for text in answers] == ["stopping"] * 2


def test_an_answer_for_an_assistant_is_cut_short_too(library: Library, home: Path) -> None:
    ended = endless(library)
    call = {"name": "ask", "arguments": {"question": QUESTION}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {**BEARER, "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    with draining(library, home, 0.3) as (server, url), ThreadPoolExecutor(1) as threads:
        called = threads.submit(httpx2.post, f"{url}/mcp/", json=message, headers=headers, timeout=60)
        until_asked(url, "running", 1)
        server.handle_exit(signal.SIGTERM, None)
        assert ended.wait(30) and called.result().status_code == 200


def test_an_idle_server_ends_at_once_and_a_second_signal_does_not_wait(library: Library, home: Path) -> None:
    with draining(library, home, 3600) as (server, _):
        server.handle_exit(signal.SIGTERM, None)
        until(lambda: server.should_exit, 5)
    answers: list[str] = []
    goes_on = held(library)
    with draining(library, home, 3600) as (server, url):
        asking(url, answers)
        until(lambda: "cairn_questions_running 1.0" in httpx2.get(f"{url}/metrics", headers=BEARER).text)
        server.handle_exit(signal.SIGTERM, None)
        server.handle_exit(signal.SIGTERM, None)
        assert server.should_exit
        goes_on.set()
