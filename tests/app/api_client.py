"""What tests of the HTTP API say to it, and how they read what it says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from fastapi.testclient import TestClient

from app.api import build_app
from tests.app.fake_library import FakeLibrary
from tests.app.serving import FakeSettings

PDF = b"%PDF-1.7\n/Type /Page\n/Type /Page\n"
HOSTILE = "${alert(1)}{{7*7}}<img src=x onerror=alert(1)>`x`</script><script>alert(2)</script>"


def opened(library: FakeLibrary, settings: FakeSettings) -> Iterator[TestClient]:
    app = build_app(settings, library, page=False)  # type: ignore[arg-type]
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def send(client: TestClient, name: str, content: bytes = PDF, path: str = "documents", **form: str) -> Any:
    return client.post(f"/api/v1/{path}", files={"file": (name, content)}, data=form)


def events(text: str) -> list[tuple[str, Any]]:
    pairs = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            pairs.append((lines["event"], json.loads(lines["data"])))
    return pairs


def ask(client: TestClient, question: str = "When was the dam raised?", **more: Any) -> dict[str, Any]:
    response = client.post("/api/v1/ask", json={"question": question, **more})
    assert response.status_code == 200
    return events(response.text)[-1][1]


def error_code(response: Any) -> str:
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"code", "message"}
    return body["error"]["code"]


def until(condition: Any, seconds: float = 5.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.02)
    raise AssertionError("did not happen in time")
