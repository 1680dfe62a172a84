"""What tests of the HTTP API say to it, and how they read what it says."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pypdf
from fastapi.testclient import TestClient

from app.api import build_app
from app.settings import Settings
from retrieval.library import Library
from tests.app.serving import let_in
from tests.app.small_library import QUESTION, pdf_of

PDF = pdf_of(["The gate is shut at six in the evening.", "The key hangs behind the door of the lower gallery."])
HOSTILE = "${alert(1)}{{7*7}}<img src=x onerror=alert(1)>`x`</script><script>alert(2)</script>"


def locked_pdf(password: str) -> bytes:
    writer, out = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(PDF))), io.BytesIO()
    writer.encrypt(password, algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()


def opened(library: Library, settings: Settings) -> Iterator[TestClient]:
    app = build_app(settings, library, page=False)  # type: ignore[arg-type]
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield let_in(client)


def send(client: TestClient, name: str, content: bytes = PDF, path: str = "documents", **form: str) -> Any:
    return client.post(f"/api/v1/{path}", files={"file": (name, content)}, data=form)


def events(text: str) -> list[tuple[str, Any]]:
    pairs = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            pairs.append((lines["event"], json.loads(lines["data"])))
    return pairs


def ask(client: TestClient, question: str = QUESTION, **more: Any) -> dict[str, Any]:
    response = client.post("/api/v1/ask", json={"question": question, **more})
    assert response.status_code == 200
    return events(response.text)[-1][1]


def error_code(response: Any) -> str:
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"code", "message"}
    return body["error"]["code"]
