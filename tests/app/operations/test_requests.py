"""Ids of requests: in answers, in the log, and in threads that work for a request."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.operations.logs import REQUEST_ID, JsonLines
from retrieval.library import Library
from tests.app.api_client import ask, opened
from tests.app.serving import settings_for


class Lines(logging.Handler):
    """Keeps what is logged, as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.kept: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(json.loads(self.format(record)))


@pytest.fixture
def lines() -> Iterator[Lines]:
    root, handler = logging.getLogger(), Lines()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler
    root.setLevel(level)
    root.removeHandler(handler)


def test_every_answer_carries_an_id_and_keeps_a_proxys(client: TestClient) -> None:
    first, second = (client.get("/healthz").headers["x-request-id"] for _ in range(2))
    assert first != second and len(first) == 16
    assert client.get("/healthz", headers={"X-Request-Id": "proxy-7"}).headers["x-request-id"] == "proxy-7"
    for wrong in ("with space", "x" * 65, "a;b"):
        assert client.get("/healthz", headers={"X-Request-Id": wrong}).headers["x-request-id"] != wrong
    assert client.get("/nothing/here").headers["x-request-id"], "refusals too"


def test_a_request_is_a_line_and_so_is_what_its_thread_logs(library: Library, home: Path, lines: Lines) -> None:
    asked = library.ask

    def noted(*args: Any, **named: Any) -> Any:
        logging.getLogger("cairn.test").info("asked")
        return asked(*args, **named)

    library.ask = noted  # type: ignore[method-assign]
    for client in opened(library, settings_for(home, log_format="json")):
        lines.kept.clear()  # of the owner who came in
        client.headers["X-Request-Id"] = "one"
        ask(client)
    (in_thread,) = [line for line in lines.kept if line["logger"] == "cairn.test"]
    assert in_thread["request_id"] == "one"
    (line,) = [line for line in lines.kept if line["logger"] == "cairn.requests"]
    assert line["request_id"] == "one" and line["seconds"] > 0 and line["level"] == "info"
    assert (line["method"], line["path"], line["status"]) == ("POST", "/api/v1/ask", 200)
    assert line["address"] == "testclient" and line["account"] == ""


def test_a_logged_exception_is_one_line(lines: Lines) -> None:
    token = REQUEST_ID.set("abc")
    try:
        raise ValueError("of\ntwo lines")
    except ValueError:
        logging.getLogger("cairn.test").exception("it %s", "failed")
    finally:
        REQUEST_ID.reset(token)
    (line,) = lines.kept
    assert line["message"] == "it failed" and line["level"] == "error" and line["request_id"] == "abc"
    assert "ValueError: of\ntwo lines" in line["exception"]
