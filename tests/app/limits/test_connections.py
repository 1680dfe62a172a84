"""Slow, many and broken connections at a real socket: each gets its time and its place, and nobody else pays."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from app.api import build_app
from app.http_security import declared_proxies
from app.limits.connections import PROBE_ROOM, ConnectionLimits, limited_protocol
from retrieval.library import Library
from tests.app.serving import BEARER, served, settings_for
from tests.waiting import until

HALF = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "
BODY = b"POST /length HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n"
LIMITS = ConnectionLimits(in_all=12, each=8, head_seconds=0.6, body_seconds=1.0, body_bytes=100, unread_seconds=0.6)


class Server:
    def __init__(self, url: str, held: threading.Event):
        self.url, self.held = url, held
        self.working = 0
        self.port = urlsplit(url).port
        self._stack = contextlib.ExitStack()

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port or 0), timeout=20, source_address=(source, 0))
        return self._stack.enter_context(made)

    def get(self, path: str = "/hello", source: str = "127.0.0.1") -> bytes:
        with self.connect(source) as made:
            made.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: made.recv(65536), b""))

    def close(self) -> None:
        self._stack.close()


def is_closed(connection: socket.socket) -> bool:
    """Waits until the server has closed it."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65536):
            pass
    return True


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        connection.settimeout(20)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    held = threading.Event()

    async def hello(_request: Request) -> Response:
        return PlainTextResponse("hello")

    def hold(_request: Request) -> Response:
        server.working += 1
        held.wait(30)
        return PlainTextResponse("held")

    async def length(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    async def large(_request: Request) -> Response:
        return Response(b"x" * 50_000_000)

    async def well(_request: Request) -> Response:
        return PlainTextResponse("well")

    routes = [Route("/hello", hello), Route("/healthz", well), Route("/hold", hold), Route("/large", large)]
    app = Starlette(routes=[*routes, Route("/length", length, methods=["POST"])])
    protocol = limited_protocol(LIMITS, declared_proxies(getattr(request, "param", "")))
    with served(app, http=protocol) as url:
        server = Server(url, held)
        yield server
        held.set()
        server.close()


def test_a_request_whose_head_does_not_come_is_given_up_also_if_it_trickles(server: Server) -> None:
    silent, half, trickling = server.connect(), server.connect(), server.connect()
    half.sendall(HALF)
    began = time.monotonic()
    with contextlib.suppress(OSError):
        for _ in range(100):
            trickling.sendall(HALF[:1] if _ == 0 else HALF[_ % len(HALF) :][:1] or b"x")
            time.sleep(0.05)
            if time.monotonic() - began > 10:
                break
    assert time.monotonic() - began < 9 and is_closed(silent) and is_closed(half)
    assert server.get().endswith(b"hello")


def test_a_body_that_does_not_come_is_given_up_and_one_that_flows_is_not(server: Server) -> None:
    stuck, flowing = server.connect(), server.connect()
    stuck.sendall(BODY)
    flowing.sendall(BODY)
    for _ in range(10):
        flowing.sendall(b"x" * 10_000)
        time.sleep(0.12)
    assert flowing.recv(65536).endswith(b"100000") and is_closed(stuck)


def test_an_answer_that_nobody_reads_is_given_up(server: Server) -> None:
    lazy = server.connect()
    lazy.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(1.5)
    received = 0
    with contextlib.suppress(ConnectionResetError):
        while piece := lazy.recv(1 << 20):
            received += len(piece)
    assert received < 50_000_000
    assert server.get("/large").endswith(b"x" * 1000), "one that is read arrives whole"


def test_half_sent_requests_give_their_place_to_the_next_one_of_their_address(server: Server) -> None:
    half = [server.connect() for _ in range(LIMITS.each)]
    for each in half:
        each.sendall(HALF)
    time.sleep(0.1)
    assert server.get().endswith(b"hello")
    assert [is_open(each) for each in half] == [False] + [True] * (LIMITS.each - 1)


def received(connection: socket.socket, end: bytes) -> bool:
    """Whether what comes ends so; head and body may come apart."""
    come = b""
    while not come.endswith(end) and (piece := connection.recv(65536)):
        come += piece
    return come.endswith(end)


def test_where_all_of_an_address_are_at_work_the_next_is_refused_and_other_addresses_are_not(server: Server) -> None:
    working = [server.connect() for _ in range(LIMITS.each)]
    for each in working:
        each.sendall(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
    until(lambda: server.working == len(working))
    with contextlib.suppress(ConnectionResetError):  # where the refusal crosses the request
        refused = server.get()
        assert refused.startswith(b"HTTP/1.1 503") and b"Retry-After" in refused
    assert server.get(source="127.0.0.2").endswith(b"hello")
    server.held.set()
    assert all(received(each, b"held") for each in working)
    assert server.get().endswith(b"hello")


def test_all_addresses_together_are_limited_too_and_the_longest_half_sent_one_goes(server: Server) -> None:
    half = [server.connect(f"127.0.0.{2 + number % 4}") for number in range(LIMITS.in_all)]
    time.sleep(0.1)
    assert server.get().endswith(b"hello")
    assert is_closed(half[0])


def test_a_thousand_dripping_bodies_keep_nobody_out(server: Server) -> None:
    """As ten addresses did with a sign-in form."""
    dripping = [server.connect(f"127.0.0.{2 + number % 4}") for number in range(LIMITS.in_all)]
    for each in dripping:
        each.sendall(BODY + b"x")
    time.sleep(1.2)
    for each in dripping:
        with contextlib.suppress(OSError):
            each.sendall(b"x")
    began = time.monotonic()
    assert server.get().endswith(b"hello") and time.monotonic() - began < 1.0


def test_probes_have_room_of_their_own(server: Server) -> None:
    working = [server.connect(f"127.0.0.{2 + number % 4}") for number in range(LIMITS.in_all)]
    for each in working:
        each.sendall(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
    until(lambda: server.working == len(working))
    silent = [server.connect("127.0.0.9") for _ in range(3 * PROBE_ROOM)]
    assert server.get("/healthz").endswith(b"well") and server.get().startswith(b"HTTP/1.1 503")
    assert is_closed(silent[0]) and is_open(working[0])
    server.held.set()
    assert all(received(each, b"held") for each in working)
    assert server.get().endswith(b"hello")


@pytest.mark.parametrize("server", ["127.0.0.9"], indirect=True)
def test_a_declared_proxy_has_as_many_as_there_are(server: Server) -> None:
    working = [server.connect("127.0.0.9") for _ in range(LIMITS.each + 2)]
    for each in working:
        each.sendall(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
    until(lambda: server.working == len(working))
    assert server.get(source="127.0.0.9").endswith(b"hello")


def test_a_connection_that_is_kept_serves_many_requests(server: Server) -> None:
    with httpx2.Client(base_url=server.url) as client:
        for number in range(5):
            assert client.get("/hello").text == "hello"
            assert client.post("/length", content=b"x" * number * 1000).text == str(number * 1000)
        time.sleep(0.7)  # longer than a head may take: idle, it is nobody's fault
        assert client.get("/hello").text == "hello"


def test_broken_connections_leave_no_traceback_in_the_log(
    library: Library, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Heads, bodies and uploads that end in the middle, and what is no HTTP at all."""
    upload = b"POST /api/v1/documents HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n%PDF-'
    ask = b"POST /api/v1/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900\r\n\r\n{"
    sent = [
        HALF, b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", ask, upload + b"Content-Length: 9000\r\n\r\n" + part,
        upload + b"Transfer-Encoding: chunked\r\n\r\n5\r\n--b\r\n", upload + b"Content-Length: 5\r\n\r\n" + part,
        upload.replace(b"boundary=b", b"boundary=") + b"Content-Length: 5\r\n\r\n12345",
    ]  # fmt: skip
    app = build_app(settings_for(home), library, page=False)
    with caplog.at_level(logging.INFO), served(app, http=limited_protocol(LIMITS)) as url:
        for request in sent:
            with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=10) as connection:
                connection.sendall(request)
                time.sleep(0.1)
        until(lambda: httpx2.get(f"{url}/healthz").status_code == 200)
        time.sleep(0.3)
    assert [record for record in caplog.records if record.exc_info or "Traceback" in record.getMessage()] == []


@pytest.mark.parametrize(("proxies", "believed"), [("", False), ("127.0.0.9", False), ("127.0.0.1", True)])
def test_forwarded_headers_are_believed_of_declared_proxies_only(
    library: Library, home: Path, proxies: str, believed: bool
) -> None:
    seen: list[Any] = []
    app = build_app(settings_for(home, proxies=proxies), library, page=False)

    @app.get("/api/v1/seen")
    async def see(request: Request) -> None:
        seen.append((request.client.host if request.client else "", request.url.scheme, dict(request.headers)))

    routes = app.router.routes
    routes.insert(0, routes.pop())
    sent = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
    with served(app) as url:
        httpx2.get(
            f"{url}/api/v1/seen", headers=sent | {"Forwarded": "for=203.0.113.7", "X-Real-IP": "203.0.113.7"} | BEARER
        )
    host, scheme, headers = seen[0]
    assert (host, scheme) == (("203.0.113.7", "https") if believed else ("127.0.0.1", "http"))
    assert any(name.startswith("x-forwarded") or name in ("forwarded", "x-real-ip") for name in headers) is believed
