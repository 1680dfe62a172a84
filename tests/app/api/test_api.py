"""The HTTP API as a whole: what programs and the web page get, over a small library."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api import build_app
from retrieval.library import Library
from storage.errors import CatalogueDamaged, CatalogueFull
from tests.app.api_client import HOSTILE, error_code, opened
from tests.app.serving import settings_for
from tests.app.small_library import WALKS
from tests.waiting import until


@pytest.fixture
def client(shared_client: TestClient) -> TestClient:
    return shared_client


def fields_of(route: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """What a route takes in its address and in its body, forms included."""
    bodies = [each["schema"] for each in route.get("requestBody", {}).get("content", {}).values()]
    named = [schemas[body["$ref"].rpartition("/")[2]] if "$ref" in body else body for body in bodies]
    address = [each["name"] for each in route.get("parameters", []) if each["in"] == "query"]
    return address + [field for body in named for field in body.get("properties", {})]


class TestWholeApp:
    def test_health_needs_nothing(self, client: TestClient) -> None:
        assert client.get("/healthz").json() == {"status": "ok"}

    def test_the_api_page_and_description_name_every_route_and_load_nothing_foreign(self, client: TestClient) -> None:
        page = client.get("/docs").text
        assert "http://" not in page and "https://" not in page and "/ui/reference.js" in page
        paths = client.get("/api/v1/openapi.json").json()["paths"]
        assert {"/api/v1/ask", "/api/v1/search", "/api/v1/documents", "/api/v1/answers/{answer_id}/export"} <= set(
            paths
        )

    def test_every_route_of_the_api_is_described_with_every_field_that_it_takes(
        self, shared_library: Library, tmp_path: Path
    ) -> None:
        rows = (Path(__file__).parents[3] / "docs" / "http-api.md").read_text(encoding="utf-8").splitlines()
        sign_on = {"oidc_issuer": "https://id.example", "oidc_client_id": "cairn", "oidc_address": "https://a.example"}
        description = build_app(settings_for(tmp_path, **sign_on), shared_library, page=False).openapi()
        for path, methods in description["paths"].items():
            for method, route in methods.items():
                name = f"{method.upper()} {path.removeprefix('/api/v1')}`"
                row = next((row for row in rows if name in row), None)
                assert row is not None, name
                if path.startswith("/api/v1"):  # others are another protocol's
                    taken = fields_of(route, description["components"]["schemas"])
                    assert [field for field in taken if f'"{field}' not in row and f"`{field}" not in row] == [], name

    def test_unknown_addresses_answer_in_the_one_shape(self, client: TestClient) -> None:
        assert error_code(client.get("/api/v1/nothing")) == "not_found"
        assert error_code(client.put("/api/v1/documents")) in {"wrong_method", "not_found"}

    def test_validation_errors_do_not_repeat_what_was_sent(self, client: TestClient) -> None:
        response = client.post("/api/v1/ask", json={"question": "x", "k": HOSTILE})
        assert error_code(response) == "invalid_request" and "alert" not in response.text and "k" in response.text

    def test_the_machine_page_says_what_there_is(self, client: TestClient) -> None:
        assert client.get("/api/v1/machine").json()["problems"] == []

    @pytest.mark.parametrize(
        ("error", "status", "code"),
        [
            (CatalogueDamaged("/secret/home/cairn.sqlite3", "malformed"), 503, "unavailable"),
            (CatalogueFull("/secret/home/cairn.sqlite3 cannot grow"), 507, "not_enough_space"),
        ],
    )
    def test_a_catalogue_that_cannot_be_used_is_one_line_in_the_log_and_no_secret_outside(
        self, client: TestClient, shared_library: Library, error: Exception, status: int, code: str,
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    ) -> None:  # fmt: skip
        def broken(**_settings: object) -> None:
            raise error

        monkeypatch.setattr(shared_library.documents, "list", broken)
        response = client.get("/api/v1/documents")
        assert (response.status_code, error_code(response)) == (status, code) and "secret" not in response.text
        (line,) = [record for record in caplog.records if record.name == "cairn.api" and record.levelname == "ERROR"]
        assert "/secret/home" in line.getMessage() and line.exc_info is None

    def test_an_empty_library_is_offered_the_sample_once(self, empty_library: Library, tmp_path: Path) -> None:
        settings = settings_for(tmp_path / "empty")
        (settings.home / "sample-offered").unlink()
        for _client in opened(empty_library, settings):
            until(empty_library.documents.list)
        assert [one.source for one in empty_library.documents.list()] == ["The Cairn handbook.pdf"]
        empty_library.documents.delete([one.id for one in empty_library.documents.list()])
        for _client in opened(empty_library, settings):
            time.sleep(0.1)
        assert not empty_library.documents.list()


class TestMcp:
    def call(self, client: TestClient, method: str, params: dict[str, Any]) -> Any:
        response = client.post(
            "/mcp/",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            headers={"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"},
        )
        assert response.status_code == 200, response.text
        return response.json()["result"]

    def test_tools_that_only_read_are_offered_and_no_event_of_the_page(self, client: TestClient) -> None:
        tools = self.call(client, "tools/list", {})["tools"]
        assert {tool["name"] for tool in tools} == {"ask", "search", "find", "grep", "read", "list"}
        assert all(tool["annotations"]["readOnlyHint"] for tool in tools)

    def test_the_address_may_be_given_without_the_slash_at_its_end(self, client: TestClient) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
        response = client.post("/mcp", json=message, headers=headers)
        assert [one.status_code for one in response.history] == [307]
        assert response.status_code == 200 and response.url.path == "/mcp/"

    def test_ask_answers_with_passages(self, client: TestClient) -> None:
        result = self.call(client, "tools/call", {"name": "ask", "arguments": {"question": "When was the dam raised?"}})
        answer = json.loads(result["content"][0]["text"])
        assert answer["found"] is True and answer["passages"][0]["pages"][0] >= 1

    def test_list_and_search_work(self, client: TestClient) -> None:
        listed = self.call(client, "tools/call", {"name": "list", "arguments": {"search": "walks"}})
        assert listed["structuredContent"]["result"][0]["source"] == WALKS, "before those whose text holds the word"
        assert "page" in str(self.call(client, "tools/call", {"name": "search", "arguments": {"query": "dam", "k": 2}}))

    def test_text_is_found_and_read_where_it_stands(self, client: TestClient) -> None:
        def result(name: str, **arguments: Any) -> Any:
            called = self.call(client, "tools/call", {"name": name, "arguments": arguments})
            return called["structuredContent"]["result"]

        (hit, *_) = result("grep", pattern="martha LINDQVIST")
        assert "Martha Lindqvist" in hit["line"] and hit["source"] == "reservoir.pdf"
        assert [one["source"] for one in result("find", search="Lindqvist")] == ["reservoir.pdf"]
        called = self.call(client, "tools/call", {"name": "find", "arguments": {"search": "dam " * 2000}})
        assert called["isError"] and "Search for fewer words" in called["content"][0]["text"]
        (page,) = result("read", document_id=hit["document_id"], first=hit["page"], last=hit["page"])
        assert "Martha Lindqvist" in page["text"]

    def test_a_misspelt_word_is_answered_with_the_nearest_word_of_the_library(self, client: TestClient) -> None:
        def result(name: str, **arguments: Any) -> Any:
            called = self.call(client, "tools/call", {"name": name, "arguments": arguments})
            return called["structuredContent"]["result"]

        said, *found = result("find", search="Lindqvst")
        assert said == {"nowhere": "Lindqvst", "nearest": "Lindqvist"} and found == result("find", search="Lindqvist")
        assert (
            result("grep", pattern="Lindqvst") == [said] and result("grep", pattern="Lindqvst", expression=True) == []
        )
        found = client.get("/api/v1/documents", params={"search": "Lindqvst"}).json()
        assert found["nearest"] == "Lindqvist" and [one["source"] for one in found["documents"]] == ["reservoir.pdf"]
        found = client.get("/api/v1/grep", params={"pattern": "Lindqvst"}).json()
        assert found == {"matches": [], "more": False, "nearest": "Lindqvist"}

    def test_arguments_that_a_tool_does_not_have_are_refused(self, client: TestClient) -> None:
        wrong = {"name": "ask", "arguments": {"question": "When was the dam raised?", "collection": "Water"}}
        assert "'collection' is no argument of ask" in str(self.call(client, "tools/call", wrong))

    def test_conditions_narrow_what_is_listed_searched_and_asked(self, client: TestClient) -> None:
        for name, asked in (
            ("list", {}),
            ("search", {"query": "dam"}),
            ("ask", {"question": "When was the dam raised?"}),
        ):
            result = self.call(client, "tools/call", {"name": name, "arguments": {"where": ["title~walks"], **asked}})
            assert "reservoir.pdf" not in str(result["content"]), name
        wrong = {"name": "search", "arguments": {"query": "dam", "where": ["nonsense"]}}
        assert "is not a condition" in str(self.call(client, "tools/call", wrong))
