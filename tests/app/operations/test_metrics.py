"""Figures of a running server: what is counted, who may see it, and whether the server wants requests."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from app.api import build_app
from app.auth import hash_password
from app.operations.metrics import Metrics
from retrieval.library import Library
from storage.errors import CatalogueUnavailable
from tests.app.api_client import ask, opened
from tests.app.serving import settings_for
from tests.waiting import until

TOKEN = "a token that is long enough"


def figures(client: TestClient, **headers: str) -> dict[tuple[str, ...], float]:
    """By name and label values."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    families = text_string_to_metric_families(answer.text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_a_question_a_request_and_a_problem_are_counted(client: TestClient, library: Library) -> None:
    before = figures(client)
    assert ask(client)["outcome"] == "found"
    client.get("/api/v1/documents/unknown", headers={"X-Forwarded-For": "ignored"})
    logging.getLogger("cairn.test").error("a problem")
    now = figures(client)
    grown = {key: now[key] - before.get(key, 0.0) for key in now}
    assert grown["cairn_questions_total", "found"] == 1 and grown["cairn_questions_total", "failed"] == 0
    for name in ("question_wait", "first_word", "answer"):
        assert grown[f"cairn_{name}_seconds_count",] == 1
    assert 0 < grown["cairn_first_word_seconds_sum",] <= grown["cairn_answer_seconds_sum",]
    assert grown["cairn_http_requests_total", "POST", "/api/v1/ask", "200"] == 1
    assert grown["cairn_http_requests_total", "GET", "/api/v1/documents/{document_id}", "404"] == 1
    assert grown["cairn_log_records_total", "error"] == 1
    assert now["cairn_documents",] == 2 and now["cairn_stored_tokens",] > 0 and now["cairn_free_disk_bytes",] > 0
    assert now["cairn_jobs", "done"] == 2 and now["cairn_jobs", "queued"] == 0
    assert now["cairn_questions_running",] == now["cairn_questions_waiting",] == 0
    assert now["process_resident_memory_bytes",] > 1e7


ROUTES = [
    ("GET", "/docs", "/docs", "200"),  # a route of the app itself
    ("GET", "/api/v1/jobs/unknown", "/api/v1/jobs/{job_id}", "404"),  # of a router with a prefix
    ("GET", "/api/v1/nothing/here", "/api/{rest:path}", "404"),
    ("GET", "/ui/mark.svg", "/ui", "200"),  # mounted apps are one route each
    ("GET", "/ui/no/such/file", "/ui", "404"),
    ("DELETE", "/mcp/", "/mcp", "405"),
    ("DELETE", "/docs", "/docs", "405"),
    ("GET", "/no/such/page", "other", "404"),  # refused before any route
]


def test_a_request_is_counted_under_its_route(client: TestClient) -> None:
    before = figures(client)
    for method, path, _, _ in ROUTES:
        client.request(method, path)
    now = figures(client)
    grown = {key[1:]: now[key] - before.get(key, 0.0) for key in now if key[0] == "cairn_http_requests_total"}
    expected = Counter((method, route, status) for method, _, route, status in ROUTES)
    assert {key: number for key, number in grown.items() if number} == {**expected, ("GET", "/metrics", "200"): 1}


def test_what_was_refused_failed_or_left_is_told_apart() -> None:
    metrics = Metrics()

    def items(error: Exception | None = None) -> Iterator[Any]:
        if error is not None:
            raise error
        yield from ()

    with pytest.raises(ValueError):
        list(metrics.watch(items(ValueError()), time.perf_counter(), refused=lambda error: True))
    with pytest.raises(ValueError):
        list(metrics.watch(items(ValueError()), time.perf_counter()))
    assert list(metrics.watch(items(), time.perf_counter())) == []
    counted = {
        one.labels["outcome"]: one.value
        for family in metrics.questions.collect()
        for one in family.samples
        if one.name.endswith("_total")
    }
    assert counted == {"found": 0, "perhaps": 0, "not_found": 0, "stopped": 1, "refused": 1, "failed": 1}


def test_figures_without_a_catalogue_still_come(client: TestClient, library: Library, monkeypatch: Any) -> None:
    def gone(*_: Any) -> Any:
        raise CatalogueUnavailable("no answer")

    monkeypatch.setattr(type(library.view.catalogue), "num_jobs_by_state", gone)
    now = figures(client)
    assert now["cairn_catalogue_up",] == 0 and ("cairn_documents",) not in now and ("cairn_ready",) in now


def test_accounts_close_the_figures_but_for_their_own_token(library: Library, home: Path) -> None:
    library.accounts.create("anna", hash_password("a password"))
    for settings, status in ((settings_for(home), 401), (settings_for(home, metrics_token=TOKEN), 401)):
        for client in opened(library, settings):
            assert client.get("/metrics").status_code == status
            bearer = {"Authorization": f"Bearer {TOKEN}"}
            opens = settings.metrics_token is not None
            assert client.get("/metrics", headers=bearer).status_code == (200 if opens else 401)
            assert client.get("/api/v1/documents", headers=bearer).status_code == 401, "it opens nothing else"


def test_somebody_with_an_account_does_not_see_the_servers_figures(library: Library, home: Path) -> None:
    library.accounts.create("anna", hash_password("a password"))
    for client in opened(library, settings_for(home)):
        signed_in = client.post("/login", data={"name": "anna", "password": "a password"}, follow_redirects=False)
        assert signed_in.status_code == 303
        assert client.get("/metrics").status_code == 403


def test_a_short_token_for_the_figures_is_refused(library: Library, home: Path) -> None:
    with pytest.raises(ValueError, match="too short"):
        build_app(settings_for(home, metrics_token="short"), library, page=False)


def test_a_server_is_ready_once_its_model_is_loaded_and_not_while_it_stops(client: TestClient) -> None:
    until(lambda: client.get("/readyz").status_code == 200)
    client.app.state.readiness.become("stopping")  # type: ignore[attr-defined]
    client.app.state.readiness.become("ready")  # type: ignore[attr-defined]
    refused = client.get("/readyz")
    assert (refused.status_code, refused.json()) == (503, {"status": "stopping"})
    assert client.get("/healthz").status_code == 200


def test_a_server_is_not_ready_without_its_catalogue(client: TestClient, library: Library, monkeypatch: Any) -> None:
    until(lambda: client.get("/readyz").status_code == 200)

    def gone(*_: Any) -> Any:
        raise CatalogueUnavailable("no answer")

    monkeypatch.setattr(type(library.view.catalogue), "num_active_jobs", gone)
    assert client.get("/readyz").json() == {"status": "catalogue unavailable"}


def test_a_model_that_cannot_be_loaded_is_not_ready(home: Path) -> None:
    def broken() -> Any:
        raise OSError("no such checkpoint")

    with Library.open(home, broken) as library:
        for client in opened(library, settings_for(home)):
            until(lambda: client.get("/readyz").json() == {"status": "failed"})  # noqa: B023
