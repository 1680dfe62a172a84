"""A library of 1,000 documents and 10,000 past questions: what each view asks for comes in under a second.

Measured in CPU seconds of this process, so that a busy machine does not fail the test.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert

from app.api import build_app
from retrieval.library import Library
from storage.catalogue import Catalogue
from storage.fingerprint import MemoryFingerprint
from storage.schema import answers, documents
from tests.app.serving import FakeSettings

DOCUMENTS, ANSWERS = 1_000, 10_000
VIEWS = {
    "library": ["documents?limit=50", "collections", "jobs?limit=60", "uploads", "preferences"],
    "library, last page": ["documents?limit=50&offset=950&sort=title"],
    "library, searched": ["documents?limit=50&search=report 77"],
    "ask": ["preferences", "documents?limit=1"],
    "choosing documents": ["collections", "documents?limit=100&sort=title"],
    "history": ["answers?limit=50"],
    "history, last page": ["answers?limit=50&offset=9950"],
    "history, searched": ["answers?limit=50&search=question 77"],
    "one answer": ["answers/" + f"{77:032x}"],
}


def never() -> object:
    raise AssertionError("no view needs the model")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    home: Path = tmp_path_factory.mktemp("home")
    catalogue = Catalogue.open(f"sqlite:///{home / 'cairn.sqlite3'}")
    fingerprint = catalogue.put_fingerprint(MemoryFingerprint({"weights": "sha256:ab", "kv_dtype": "bf16"}))
    body = json.dumps({"evidence": "x" * 3000})
    with catalogue.database.write() as connection:
        connection.execute(insert(documents), [_document(number, fingerprint) for number in range(DOCUMENTS)])
        connection.execute(insert(answers), [_answer(number, body) for number in range(ANSWERS)])
    catalogue.close()
    with Library.open(home, never) as library:  # type: ignore[arg-type]
        library.answer = lambda _id: _Plain()  # type: ignore[assignment,method-assign]
        library.warm_up = lambda: None  # type: ignore[method-assign]
        app = build_app(FakeSettings(home), library, page=False)
        with TestClient(app, base_url="http://127.0.0.1") as client:
            yield client


class _Plain:
    def to_dict(self) -> dict[str, str]:
        return {}


def _document(number: int, fingerprint: str) -> dict[str, object]:
    name = f"report {number}"
    return {
        "id": f"{number:032x}", "source": f"{name}.pdf", "title": name.title(), "kind": "pdf", "state": "ready",
        "content_sha256": f"{number:064x}", "fingerprint": fingerprint, "search_text": name, "notes": "[]",
        "added_at": f"2026-01-01T00:00:{number % 60:02d}.{number:06d}+00:00", "num_pages": 10, "num_characters": 20_000,
        "num_tokens": 5_000, "num_blocks": 80, "size_bytes": 4_000_000,
    }  # fmt: skip


def _answer(number: int, body: str) -> dict[str, object]:
    question = f"question {number} about the dam and the lake"
    return {
        "id": f"{number:032x}", "conversation_id": None, "question": question, "text": f"Answer {number}.",
        "created_at": f"2026-01-01T00:00:00.{number:06d}+00:00", "search_text": question, "body": body,
    }  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_opens_in_under_a_second(client: TestClient, view: str) -> None:
    begun = time.process_time()
    for path in VIEWS[view]:
        response = client.get(f"/api/v1/{path}")
        assert response.status_code == 200, response.text
    assert time.process_time() - begun < 1.0


def test_lists_come_in_pages(client: TestClient) -> None:
    first = client.get("/api/v1/documents?limit=50").json()
    assert len(first["documents"]) == 50 and first["total"] == DOCUMENTS
    last = client.get("/api/v1/answers?limit=50&offset=9950").json()
    assert len(last["answers"]) == 50 and last["more"] is False
