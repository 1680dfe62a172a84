"""What the API does not know is refused by name: a misspelt restriction must not search everything."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.api_client import PDF, error_code


@pytest.fixture
def client(shared_client: TestClient) -> TestClient:
    return shared_client


@pytest.mark.parametrize(
    ("method", "path", "body", "meant"),
    [
        ("POST", "/search", {"query": "dam", "withn": {}}, "'within'"),
        ("POST", "/search", {"query": "dam", "filter": {"collection_id": "x"}}, "'filter' is no key"),
        ("POST", "/search", {"query": "dam", "within": {"document_id": ["x"]}}, "'document_ids'"),
        ("POST", "/ask", {"question": "dam?", "collection_id": "x"}, "'collection_id' is no key"),
        ("PATCH", "/preferences", {"topk": 3}, "'top_k'"),
        ("PATCH", "/preferences", {"top_k": None}, "top_k: Input should be a valid integer"),
        ("PATCH", "/preferences", {"voters": None, "positions": None, "low_share": None}, "low_share: "),
        ("PATCH", "/documents/x", {"titel": "y"}, "'title'"),
        ("GET", "/documents?colection_id=x", None, "'collection_id'"),
        ("GET", "/documents?where=date>>2024", None, "'>>' is not an operator"),
        ("GET", "/documents?where=date>=2024-02-31", None, "'2024-02-31' is not a date"),
        ("GET", "/documents?where=autor=Lee", None, "'author'"),
        ("POST", "/search", {"query": "dam", "k": 0}, "k: Input should be greater than or equal to 1"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_and_named(
    client: TestClient, method: str, path: str, body: Any, meant: str
) -> None:
    response = client.request(method, f"/api/v1{path}", json=body)
    assert response.status_code == 422 and error_code(response) == "invalid_request"
    assert meant in response.json()["error"]["message"]


def test_an_unknown_field_of_an_upload_is_refused_and_nothing_is_stored(client: TestClient) -> None:
    response = client.post("/api/v1/documents", files={"file": ("new.pdf", PDF)}, data={"colection": "Water"})
    assert response.status_code == 422 and "'collection'" in response.json()["error"]["message"]
    assert "new.pdf" not in client.get("/api/v1/documents").text


@pytest.mark.parametrize(
    ("body", "said"), [(b"{not json", "not JSON"), (b"[" * 100_000 + b"]" * 100_000, "nested too deeply")]
)
def test_a_body_that_cannot_be_read_says_why(client: TestClient, body: bytes, said: str) -> None:
    response = client.post("/api/v1/search", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422) and said in response.json()["error"]["message"]


def test_documents_of_an_unknown_collection_are_not_found(client: TestClient) -> None:
    assert client.get("/api/v1/documents?collection_id=unknown").status_code == 404
