"""Two servers with homes of their own, one catalogue in PostgreSQL and one bucket: whoever is asked knows the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from app.api import uploads
from app.api.uploads import Uploads
from app.auth import fresh_token, hash_password
from retrieval.library import Library
from tests.app.api_client import ask, opened, send
from tests.app.serving import settings_for
from tests.app.small_library import PAGES, QUESTION, WALKS, pdf_of
from tests.object_server import ACCESS, new_store
from tests.postgresql import Databases
from tests.tiny_model import shipped_model
from tests.waiting import until


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
    done = worker.jobs.run_next()
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
    anna = worker.accounts.create("anna", hash_password("a password"))
    for client in (one, two):
        assert client.get("/api/v1/documents").status_code == 401
    worker.accounts.set_token_digest(anna, digest)
    for client in (one, two):
        assert client.get("/api/v1/documents", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def signed_in(client: TestClient, name: str = "anna", password: str = "a password") -> Response:
    return client.post("/login", data={"name": name, "password": password}, follow_redirects=False)


def test_who_signed_in_at_one_server_is_signed_in_at_the_other(
    replicas: tuple[TestClient, TestClient, Library],
) -> None:
    one, two, worker = replicas
    anna = worker.accounts.create("anna", hash_password("a password"))
    assert signed_in(one).status_code == 303
    two.cookies = one.cookies
    assert two.get("/api/v1/account").json()["name"] == "anna"
    assert two.post("/logout", follow_redirects=False).status_code == 303
    assert one.get("/api/v1/account").status_code == 401, "out at one is out at both"
    assert signed_in(two).status_code == 303
    one.cookies = two.cookies
    worker.accounts.set_password_hash(anna, hash_password("another password"))
    assert [each.get("/api/v1/account").status_code for each in (one, two)] == [401, 401]


def test_guesses_at_both_servers_count_together(replicas: tuple[TestClient, TestClient, Library]) -> None:
    one, two, worker = replicas
    worker.accounts.create("anna", hash_password("a password"))
    guesses = [signed_in(client, password="wrong").status_code for client in (one, two) * 3]
    assert guesses == [401] * 5 + [429]


def test_a_file_sent_to_one_server_is_started_discarded_and_counted_at_the_other(
    replicas: tuple[TestClient, TestClient, Library],
) -> None:
    one, two, worker = replicas
    staged = send(one, WALKS, pdf_of(PAGES[WALKS]), path="uploads").json()
    unwanted = send(one, "other.txt", b"Nothing that anybody wants to keep.", path="uploads").json()

    def waiting() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = two.get("/api/v1/uploads").json()["uploads"]
        return found if all(each["state"] == "ready" for each in found) else []

    assert [each["id"] for each in until(waiting)] == [staged["id"], unwanted["id"]]
    assert two.delete(f"/api/v1/uploads/{unwanted['id']}").status_code == 204
    job = two.post(f"/api/v1/uploads/{staged['id']}/start", json={}).json()
    assert job["source"] == WALKS
    assert [client.get("/api/v1/uploads").json()["uploads"] for client in (one, two)] == [[], []]
    assert list(worker.replicas.upload_files.listing()) == [], "nothing is left in the bucket"
    assert [client.get(f"/api/v1/jobs/{job['id']}").json()["state"] for client in (one, two)] == ["queued", "queued"]
    done = worker.jobs.run_next()
    assert done is not None and done.state == "done"
    assert [client.get(f"/api/v1/jobs/{job['id']}").json()["state"] for client in (one, two)] == ["done", "done"]


def test_a_file_whose_server_ended_is_estimated_by_the_other(
    replicas: tuple[TestClient, TestClient, Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = replicas
    monkeypatch.setattr(Uploads, "_begin_estimate", lambda *_: None)  # it ended before it came to that
    send(one, WALKS, pdf_of(PAGES[WALKS]), path="uploads")
    monkeypatch.undo()
    monkeypatch.setattr(uploads, "ESTIMATED_SECONDS", -1.0)
    for name, value in ACCESS.items():
        monkeypatch.setenv(name, value)
    until(lambda: two.get("/api/v1/uploads").json()["uploads"][0]["state"] == "ready")


def test_preferences_are_the_same_at_both(replicas: tuple[TestClient, TestClient, Library]) -> None:
    one, two, _ = replicas
    assert one.patch("/api/v1/preferences", json={"top_k": 12}).json()["top_k"] == 12
    until(lambda: two.get("/api/v1/preferences").json()["top_k"] == 12)


def test_a_page_at_one_server_learns_what_happens_at_the_other(
    replicas: tuple[TestClient, TestClient, Library],
) -> None:
    one, two, _ = replicas
    told: list[int] = []
    changes = two.app.state.changes  # type: ignore[attr-defined]
    changes.notify = lambda notify=changes.notify: (told.append(1), notify())
    names = itertools.count()
    # Of those that it is told, the first may be that it listens at all.
    until(lambda: (one.post("/api/v1/collections", json={"name": f"Water {next(names)}"}), len(told) > 1)[1])


def test_an_answer_is_stopped_from_either_server(replicas: tuple[TestClient, TestClient, Library]) -> None:
    one, two, worker = replicas
    with one.app.state.ask_queue.stoppable(worker) as (ask_id, stopped):  # type: ignore[attr-defined]
        assert two.post(f"/api/v1/ask/{ask_id}/stop").status_code == 204
        assert stopped.wait(20)
    assert two.post("/api/v1/ask/nothing/stop").status_code == 404
