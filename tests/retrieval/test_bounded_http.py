"""An answer without an end, and one that unpacks to gigabytes, cost no memory."""

from __future__ import annotations

import gzip
import threading
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from retrieval.bounded_http import PLAIN, at_most
from retrieval.errors import WriterError
from retrieval.types.writer import WriterRequest
from retrieval.writers import server
from retrieval.writers.server import ServerWriter

BOMB = gzip.compress(b"x" * 50_000_000)


class Endless(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        packed = self.path.endswith("/packed")
        self.send_header("Content-Type", "text/event-stream")
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        try:
            if packed:
                self.wfile.write(BOMB)
            while not packed:
                self.wfile.write(b"data: " + b"x" * 100_000)
        except OSError:
            self.close_connection = True

    do_POST = do_GET

    def log_message(self, *_given: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize("path", ["/endless", "/packed"])
def test_no_more_is_read_than_any_answer_has(address: str, path: str) -> None:
    tracemalloc.start()
    with httpx2.Client(headers=PLAIN, event_hooks=at_most(1_000_000)) as client, pytest.raises(httpx2.ReadError):
        client.get(address + path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


def test_a_writer_that_sends_a_line_without_an_end_is_given_up(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_BYTES", 1_000_000)
    writer = ServerWriter(f"{address}/v1#model", timeout_seconds=30)
    with pytest.raises(WriterError):
        list(writer.write(WriterRequest("Answer.", "What?"), lambda: False))
