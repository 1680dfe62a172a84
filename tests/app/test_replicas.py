"""Two servers with homes of their own, one catalogue in PostgreSQL and one bucket: whoever is asked knows the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.auth import fresh_token, hash_password
from retrieval.library import Library
from tests.app.api_client import ask, opened, send
from tests.app.serving import settings_for
from tests.app.small_library import PAGES, QUESTION, WALKS, pdf_of
from tests.object_server import new_store
from tests.postgresql import Databases
from tests.tiny_model import shipped_model


@pytest.fixture
def replicas(
    tmp_path: Path, postgresql: Databases, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[TestClient, TestClient, Library]]:
    """Two servers that read no documents, and the library as a worker has it."""
    places = {"database_url": postgresql.take(), "store_url": new_store(monkeypatch)}

    @contextmanager
    def library(name: str) -> Iterator[Library]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "sample-offered").touch()
        with Library.open(tmp_path / name, shipped_model, **places) as opened_library:
            yield opened_library

    @contextmanager
    def server(name: str) -> Iterator[TestClient]:
        with library(name) as behind:
            yield from opened(behind, settings_for(tmp_path / name))

    with ExitStack() as stack:
        yield tuple(stack.enter_context(each) for each in (server("one"), server("two"), library("worker")))  # type: ignore[misc]
    postgresql.give_back()


def sources(client: TestClient) -> list[str]:
    return [document["source"] for document in client.get("/api/v1/documents").json()["documents"]]


def test_what_one_server_takes_in_and_answers_the_other_knows(
    replicas: tuple[TestClient, TestClient, Library],
) -> None:
    one, two, worker = replicas
    assert sources(one) == sources(two) == []
    assert send(one, WALKS, pdf_of(PAGES[WALKS])).status_code < 300
    done = worker.run_next_job()
    assert done is not None and done.state == "done", done
    assert sources(one) == sources(two) == [WALKS]
    question = "Who built the tower on the eastern shore?"
    answers = [ask(client, question) for client in (one, two)]
    assert answers[0]["text"] == answers[1]["text"] and "forestry office" in answers[0]["text"]
    kept = [{answer["id"] for answer in client.get("/api/v1/answers").json()["answers"]} for client in (one, two)]
    assert kept[0] == kept[1] == {answer["id"] for answer in answers}
    (document,) = two.get("/api/v1/documents").json()["documents"]
    assert two.get(f"/api/v1/documents/{document['id']}/original").status_code == 200, "from the bucket"
    assert one.delete(f"/api/v1/documents/{document['id']}").status_code < 300
    assert sources(two) == [] and ask(two, QUESTION).get("outcome") != "found"


def test_accounts_and_their_tokens_count_at_both(replicas: tuple[TestClient, TestClient, Library]) -> None:
    one, two, worker = replicas
    token, digest = fresh_token()
    anna = worker.accounts.add("anna", hash_password("a password"))
    for client in (one, two):
        assert client.get("/api/v1/documents").status_code == 401
    worker.accounts.set_token_digest(anna, digest)
    for client in (one, two):
        assert client.get("/api/v1/documents", headers={"Authorization": f"Bearer {token}"}).status_code == 200
