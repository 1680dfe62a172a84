"""Several people at one server, over HTTP and with a real library: nobody comes by what is not theirs.

The walk goes over every route of the app: one that is added and not thought about here fails it.
"""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from app.api import build_app, changes
from app.api.errors import Refused
from app.api.questions import AskQueue, _stopping
from app.auth import fresh_token
from app.operations.metrics import Metrics
from retrieval.library import Library
from tests.app.api_client import events
from tests.app.serving import settings_for
from tests.retrieval.conftest import BLOCK_SIZE, prose
from tests.retrieval.extraction.drawn_pages import data_address
from tests.tiny_model import tiny_model

NAMES = [f"user{number}" for number in range(8)]
QUESTION = "What does the keeper do near the bridge?"
CONVERSATION = "c" * 32


@dataclass
class Person:
    client: TestClient
    name: str
    headers: dict[str, str]

    def call(self, method: str, path: str, **more: Any) -> Any:
        return self.client.request(method, f"/api/v1/{path}", headers=self.headers, **more)

    def get(self, path: str) -> Any:
        response = self.call("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    def ask(self, question: str = QUESTION, **more: Any) -> tuple[str, dict[str, Any]]:
        """The last event of the stream."""
        body = {"question": question, "k": 3, "max_tokens": 4, "quote": False, **more}
        return events(self.call("POST", "ask", json=body).text)[-1]


@dataclass
class World:
    app: Any
    library: Library
    people: list[Person]
    documents: list[str]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Eight people with a private document each, put in over HTTP."""
    home: Path = tmp_path_factory.mktemp("home")
    (home / "sample-offered").touch()
    model = tiny_model(block_size=BLOCK_SIZE, window_blocks=4, context_blocks=2)
    with pytest.MonkeyPatch.context() as patch, Library.open(home, model, shard_bytes=20_000) as library:
        patch.setattr(changes, "STREAM_SECONDS", 0.1)
        patch.setattr(changes, "IDLE_SECONDS", 0.1)
        tokens = {}
        for name in NAMES:
            tokens[name], digest = fresh_token()
            library.accounts.set_token_digest(library.accounts.create(name, "no password"), digest)
        app = build_app(settings_for(home), library, page=False)
        with TestClient(app, base_url="http://127.0.0.1") as client:
            people = [Person(client, name, {"Authorization": f"Bearer {tokens[name]}"}) for name in NAMES]
            documents = []
            for number, person in enumerate(people):
                file = (f"secret-{number}.txt", prose(50 + number, 500, f"The secretword{number} is here. ").encode())
                (job,) = person.call("POST", "documents", files={"file": file}).json()["jobs"]
                documents.append(job["document_id"])
                assert library.jobs.run(job["id"]).state == "done"
            yield World(app, library, people, documents)


def marks(answer: dict[str, Any]) -> set[str]:
    return {passage["document_id"] for passage in (*answer["passages"], *answer["near_misses"])}


def substance(answer: dict[str, Any]) -> dict[str, Any]:
    changing = ("id", "timings", "created_at", "conversation_id")
    return {key: value for key, value in answer.items() if key not in changing}


def test_each_sees_the_own_document_only(world: World) -> None:
    for person, document_id in zip(world.people, world.documents, strict=True):
        found = person.get("documents")
        assert [one["id"] for one in found["documents"]] == [document_id] and found["total"] == 1
        assert [one["document_id"] for one in person.get("jobs")["jobs"]] == [document_id]
        machine = person.get("machine")
        assert machine["memory"]["num_documents"] == 1 and not {"machine", "home", "versions"} & set(machine)
        assert "/" not in json.dumps(machine), "no paths"
        assert person.get("account") == {"name": person.name, "people": NAMES}


def test_eight_people_asking_at_once_get_the_answers_that_each_gets_alone(world: World) -> None:
    def both(person: Person) -> tuple[Any, Any]:
        name, answer = person.ask()
        assert name == "answer", answer
        found = person.call("POST", "search", json={"query": QUESTION, "k": 3}).json()
        return substance(answer), found

    alone = [both(person) for person in world.people]
    for (answer, found), document_id in zip(alone, world.documents, strict=True):
        assert marks(answer) == {document_id} == {passage["document_id"] for passage in found["passages"]}
    with ThreadPoolExecutor(len(world.people)) as pool:
        assert list(pool.map(both, world.people)) == alone


def test_a_shared_collection_is_read_by_those_named_and_changed_by_its_owner(world: World) -> None:
    owner, reader, other = world.people[:3]
    collection = owner.call("POST", "collections", json={"name": "Reports"}).json()["id"]
    owner.call("PATCH", f"documents/{world.documents[0]}", json={"collection_id": collection})
    shared = owner.call("PUT", f"collections/{collection}/sharing", json={"people": [reader.name]}).json()
    assert shared["shared_with"] == [reader.name] and shared["mine"] and shared["owner"] == owner.name
    assert {one["id"] for one in reader.get("documents")["documents"]} == set(world.documents[:2])
    (seen,) = reader.get("collections")["collections"]
    assert (seen["owner"], seen["mine"], seen["shared_with"]) == (owner.name, False, [])
    assert other.get("collections") == {"collections": []}
    _, answer = reader.ask(within={"collection_ids": [collection]})
    assert marks(answer) == {world.documents[0]}
    refused = reader.call("DELETE", f"documents/{world.documents[0]}")
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "not_yours"
    assert reader.call("PUT", f"collections/{collection}/sharing", json={"everyone": True}).status_code == 403
    assert owner.call("PUT", f"collections/{collection}/sharing", json={"people": ["nobody"]}).status_code == 404
    owner.call("PUT", f"collections/{collection}/sharing", json={})
    assert reader.call("GET", f"answers/{answer['id']}").status_code == 404
    assert reader.get("collections") == {"collections": []} and len(reader.get("documents")["documents"]) == 1
    assert owner.call("DELETE", f"collections/{collection}").status_code == 204


def test_preferences_are_everybodys_own(world: World) -> None:
    first, second = world.people[:2]
    first.call("PATCH", "preferences", json={"top_k": 3})
    assert first.get("preferences")["top_k"] == 3 and second.get("preferences")["top_k"] == 8


def test_tools_of_assistants_see_what_their_user_sees(world: World) -> None:
    def tool(person: Person, name: str, **arguments: Any) -> str:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        headers = {
            **person.headers, "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18",
        }  # fmt: skip
        response = person.client.post("/mcp/", json=message, headers=headers)
        assert response.status_code == 200, response.text
        return json.dumps(response.json()["result"])

    mine, theirs = world.people[0], world.documents[1]
    assert world.documents[0] in tool(mine, "list") and theirs not in tool(mine, "list")
    assert world.documents[0] in tool(mine, "search", query="secretword1") and theirs not in tool(
        mine, "search", query="secretword1", k=50
    )
    for name, what in (("search", {"query": "keeper"}), ("ask", {"question": "keeper?"})):
        assert "There is no document" in tool(mine, name, **what, document_ids=[theirs])


# The walk. Addresses with ids in them get those of another person and must answer 404; what is sent to the others is
# listed here, and nothing of another person may come back.

FILE = {"files": {"file": ("mine.txt", b"A few words of my own, enough for a block or two of text.")}}
PICTURED = f"<h1>Mill</h1><p>A drawing of the mill.</p><img src='{data_address()}'>".encode()
PLAIN: dict[str, dict[str, Any]] = {
    "POST /api/v1/estimate": FILE,
    "GET /api/v1/bundle": {},
    "POST /api/v1/bundle": FILE,
    "POST /api/v1/documents": FILE,
    "POST /api/v1/uploads": FILE,
    "POST /api/v1/uploads/page": {"json": {"url": "http://127.0.0.1:9/"}},
    "GET /api/v1/uploads": {},
    "GET /api/v1/jobs": {},
    "GET /api/v1/documents": {"params": {"limit": 500}},
    "GET /api/v1/suggestions": {},
    "GET /api/v1/grep": {"params": {"pattern": "the"}},
    "GET /api/v1/first": {},
    "POST /api/v1/documents/delete": {"json": {"document_ids": ["{document_id}"]}},
    "GET /api/v1/collections": {},
    "POST /api/v1/collections": {"json": {"name": "Private papers"}},
    "POST /api/v1/search": {"json": {"query": "secretword0", "k": 200}},
    "POST /api/v1/ask": {"json": {"question": "secretword0?", "k": 20, "max_tokens": 2}},
    "GET /api/v1/answers": {"params": {"limit": 500}},
    "GET /api/v1/events": {},
    "GET /api/v1/machine": {},
    "GET /metrics": {},
    "GET /api/v1/folders": {},
    "POST /api/v1/folders": {"json": {"path": "/"}},
    "GET /api/v1/preferences": {},
    "PATCH /api/v1/preferences": {"json": {"top_k": 5}},
    "GET /api/v1/account": {},
    "GET /api/v1/writer": {},
    "PUT /api/v1/writer": {"json": {"name": "http://127.0.0.1:9/v1"}},
    "POST /api/v1/writer/test": {"json": {"name": "http://127.0.0.1:9/v1"}},
    "POST /api/v1/writer/models": {"json": {"name": "http://127.0.0.1:9/v1"}},
    "GET /v1/models": {},
    "POST /v1/chat/completions": {
        "json": {"model": "cairn", "max_tokens": 2, "messages": [{"role": "user", "content": "secretword0?"}]}
    },
    "POST /api/v1/account/password": {"json": {"old": "guess guess", "new": "something else"}},
}
BODIES: dict[str, dict[str, Any]] = {
    "POST /api/v1/uploads/{upload_id}/start": {},
    "POST /api/v1/jobs/{job_id}/retry": {},
    "PATCH /api/v1/documents/{document_id}": {"title": "Stolen"},
    "PATCH /api/v1/collections/{collection_id}": {"name": "Stolen"},
    "PUT /api/v1/collections/{collection_id}/sharing": {"everyone": True},
}
# The same for all, or nothing but signing in and out.
FOR_ALL = {
    "GET /healthz", "GET /readyz", "GET /login", "POST /login", "POST /logout", "GET /docs", "GET /api/{rest:path}",
    "GET /api/v1/openapi.json", "ANY /ui", "GET /ui/{part}.{digest}.{ending}", "ANY /mcp",
    "GET /mcp", "POST /mcp", "DELETE /mcp",
}  # fmt: skip
WITHIN = [
    ("search", {"query": "keeper", "within": {"document_ids": ["{document_id}"]}}),
    ("search", {"query": "keeper", "within": {"collection_ids": ["{collection_id}"]}}),
    ("ask", {"question": "keeper?", "within": {"document_ids": ["{document_id}"]}}),
    ("ask", {"question": "keeper?", "within": {"collection_ids": ["{collection_id}"]}}),
    ("ask", {"question": "keeper?", "conversation_id": CONVERSATION}),
]


def routes_of(app: Any) -> list[tuple[str, str]]:
    """(method, path) of every route; of what is mounted whole (static files, MCP, the page) "ANY"."""
    found = {
        (method, context.path or "")
        for context in iter_route_contexts(app.routes)
        for method in context.methods or {"ANY"}
    }
    return sorted((method, path) for method, path in found if method != "HEAD")


def filled(value: Any, ids: dict[str, str]) -> Any:
    text = json.dumps(value)
    for name, identity in ids.items():
        text = text.replace("{" + name + "}", identity)
    return json.loads(text)


def test_no_route_shows_or_changes_what_belongs_to_somebody_else(world: World, tmp_path: Path) -> None:
    victim, thief = world.people[0], world.people[1]
    document_id = world.documents[0]
    collection = victim.call("POST", "collections", json={"name": "Private papers"}).json()["id"]
    file = {"file": ("secret-0-next.txt", b"some secretword0 text")}
    upload = victim.call("POST", "uploads", files=file).json()["id"]
    _, answer = victim.ask("Where is secretword0?", conversation_id=CONVERSATION)
    (papers := tmp_path / "papers").mkdir()
    followed = world.library.folders.follow(papers).id
    ids = {
        "document_id": document_id,
        "collection_id": collection,
        "upload_id": upload,
        "job_id": victim.get("jobs")["jobs"][0]["id"],
        "answer_id": answer["id"],
        "block_id": str(answer["passages"][0]["block_ids"][0]),
        "page": "1",
        "ask_id": "0" * 32,
        "folder_id": followed,
        "number": "1",
        "passage": "0",
    }
    sheet = {"file": ("costs.csv", b"Region,Price\nNorth,41.50\nSouth,39.00\n")}
    (job,) = victim.call("POST", "documents", files=sheet).json()["jobs"]
    assert world.library.jobs.run(job["id"]).state == "done"
    (drawn,) = victim.call("POST", "documents", files={"file": ("mill.html", PICTURED)}).json()["jobs"]
    assert world.library.jobs.run(drawn["id"]).state == "done"
    (figure,) = victim.get(f"documents/{drawn['document_id']}/exhibits")["figures"]
    holders = {
        "/tables/": {"document_id": job["document_id"]},
        "/pictures/": {"document_id": drawn["document_id"], "name": figure["picture"]},
    }

    secrets = (document_id, collection, upload, answer["id"], ids["job_id"], "secret-0", "Where is secretword0")

    def belongings() -> Any:
        kept = {path: victim.get(path) for path in ("documents", "collections", "answers", "preferences")}
        return kept, [one["id"] for one in victim.get("uploads")["uploads"]]

    before = belongings()
    for method, path in routes_of(world.app):
        key = f"{method} {path}"
        if key in FOR_ALL:
            continue
        if "{" in path:
            holder = next((holder for part, holder in holders.items() if part in path), {})
            # An unknown kind of id fails here: think about it, then name it above.
            address = path.format(**ids | holder)
            response = thief.client.request(method, address, headers=thief.headers, json=BODIES.get(key))
            assert response.status_code == 404, (key, response.status_code, response.text)
            if method == "GET":
                own = victim.client.get(address, headers=victim.headers)
                assert own.status_code != 404, (key, "would prove nothing")
        else:
            assert key in PLAIN, f"{key} is new: what may it show to whom?"
            sent = PLAIN[key] if "files" in PLAIN[key] else filled(PLAIN[key], ids)
            response = thief.client.request(method, path, headers=thief.headers, **sent)
            assert response.status_code < 500, (key, response.text)
        if response.status_code != 404:  # which may repeat the id that was asked for
            assert [secret for secret in secrets if secret in response.text] == [], key
    for path, body in WITHIN:
        response = thief.call("POST", path, json=filled(body, ids))
        if path == "search":
            assert response.status_code == 404
        else:
            name, error = events(response.text)[-1]
            assert (name, error["error"]["code"]) == ("error", "not_found"), error
    assert thief.call("GET", f"answers?conversation_id={CONVERSATION}").status_code == 404
    assert thief.call("GET", f"bundle?collection_id={collection}").status_code == 404
    own = zipfile.ZipFile(io.BytesIO(thief.call("GET", "bundle").content))
    assert "secretword0" not in "".join(own.read(name).decode("utf-8", "ignore") for name in own.namelist())
    assert thief.call("GET", f"documents?collection_id={collection}").status_code == 404
    moved = thief.call("PATCH", f"documents/{world.documents[1]}", json={"collection_id": collection})
    assert moved.status_code == 404
    assert belongings() == before


def test_a_running_answer_is_stopped_by_who_asked_only(tmp_path: Path) -> None:
    ask_queue, event = AskQueue(settings_for(tmp_path), Metrics(), lambda message: False), threading.Event()
    ask_queue._stops[_stopping("a", "user")] = event
    for stranger in (None, "other"):
        with pytest.raises(Refused):
            ask_queue.stop("a", stranger)
    assert not event.is_set()
    ask_queue.stop("a", "user")
    assert event.is_set()
    ask_queue.close()


def test_a_removed_account_and_an_ended_token_are_out_at_once(world: World) -> None:
    leaving = world.people[7]
    account = world.library.accounts.get(leaving.name)
    world.library.accounts.set_token_digest(account, None)
    assert leaving.call("GET", "documents").status_code == 401
    world.library.accounts.delete(account, world.library.documents.delete)
    assert {one.id for one in world.library.documents.list()}.isdisjoint({world.documents[7]})
