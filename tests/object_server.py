"""A real S3 server (moto) in this process, and one before it that fails as networks and servers do."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

ACCESS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
_HOP = {"host", "connection", "transfer-encoding", "content-length"}


@cache
def endpoint() -> str:
    """Of the server, started at the first call and stopped with the process."""
    from moto.server import ThreadedMotoServer  # here: every test imports this file, and few need it

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


def new_store(monkeypatch: pytest.MonkeyPatch | None = None, *, through: str | None = None) -> str:
    """CAIRN_STORE_URL of a new bucket; `through` another endpoint than the server's own."""
    if monkeypatch is not None:
        for name, value in ACCESS.items():
            monkeypatch.setenv(name, value)
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    request = urllib.request.Request(f"{endpoint()}/{bucket}", method="PUT")
    urllib.request.urlopen(request).close()
    return f"s3://{bucket}/library?endpoint={through or endpoint()}"


Fault = Callable[[str, str], int | None]
"""Method and path of a request -> None to let it pass, a status to answer with, `STALL` or `LOSE`."""
STALL, LOSE = -1, -2  # never answer; let it pass, but lose the answer


@dataclass
class Proxy:
    url: str
    fault: Fault = lambda method, path: None
    requests: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def failing_proxy() -> Iterator[Proxy]:
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            proxy.requests.append((self.command, self.path))
            fault = proxy.fault(self.command, self.path)
            if fault == STALL:
                ended.wait(30)
                self.close_connection = True
                return
            if fault is not None and fault != LOSE:
                self.answer(fault, b"", {})
                return
            headers = {"Content-Type": "application/octet-stream"}  # else urllib says it is a form
            headers |= {name.title(): value for name, value in self.headers.items() if name.lower() not in _HOP}
            request = urllib.request.Request(
                endpoint() + self.path, data=body or None, headers=headers, method=self.command
            )
            try:
                with urllib.request.urlopen(request) as found:
                    status, contents, told = found.status, found.read(), dict(found.headers)
            except urllib.error.HTTPError as error:
                status, contents, told = error.code, error.read(), dict(error.headers)
            if fault == LOSE:
                self.close_connection = True
                return
            self.answer(status, contents, told)

        def answer(self, status: int, contents: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in _HOP and name.lower() not in ("server", "date"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", headers.get("content-length")) if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(contents)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(contents)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = Proxy(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
