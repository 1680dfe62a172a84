"""The HTTP API over a library without a model: what programs and the web page get."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api import build_app
from tests.app.fake_library import FakeLibrary
from tests.app.serving import FakeSettings, served

PDF = b"%PDF-1.7\n/Type /Page\n/Type /Page\n"
HOSTILE = "${alert(1)}{{7*7}}<img src=x onerror=alert(1)>`x`</script><script>alert(2)</script>"


@pytest.fixture
def library() -> FakeLibrary:
    library = FakeLibrary()
    library.add("reservoir.pdf", pages=4)
    library.add("walks.pdf", pages=2)
    return library


@pytest.fixture
def client(library: FakeLibrary, tmp_path: Path) -> Iterator[TestClient]:
    yield from opened(library, FakeSettings(tmp_path))


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


class TestFiles:
    def test_an_upload_becomes_a_job_and_a_document(self, client: TestClient, library: FakeLibrary) -> None:
        body = send(client, "new report.pdf", collection="Reports").json()
        job = body["jobs"][0]
        assert (job["source"], job["state"], job["pages"]) == ("new report.pdf", "queued", 2)
        library.deliver(2)
        assert client.get(f"/api/v1/jobs/{job['id']}").json()["state"] == "done"
        document = client.get(f"/api/v1/documents/{job['document_id']}").json()
        assert document["state"] == "ready"
        assert [one["name"] for one in client.get("/api/v1/collections").json()["collections"]] == ["Reports"]

    def test_a_staged_file_is_estimated_and_waits_until_it_is_started(self, client: TestClient, tmp_path: Path) -> None:
        staged = send(client, "big.pdf", path="uploads").json()
        ready = until(
            lambda: [one for one in client.get("/api/v1/uploads").json()["uploads"] if one["state"] == "ready"]
        )
        assert ready[0]["estimate"]["pages"] == 2 and ready[0]["estimate"]["size_bytes"] > 0
        assert client.get("/api/v1/jobs").json()["jobs"] == []
        job = client.post(f"/api/v1/uploads/{staged['id']}/start", json={"collection": "A"}).json()
        assert job["source"] == "big.pdf"
        assert client.get("/api/v1/uploads").json()["uploads"] == []
        assert list((tmp_path / "uploads").iterdir()) == []

    def test_a_discarded_file_leaves_nothing_behind(self, client: TestClient, tmp_path: Path) -> None:
        staged = send(client, "big.pdf", path="uploads").json()
        assert client.delete(f"/api/v1/uploads/{staged['id']}").status_code == 204
        assert error_code(client.post(f"/api/v1/uploads/{staged['id']}/start", json={})) == "not_found"
        assert list((tmp_path / "uploads").iterdir()) == []

    def test_the_name_on_disk_is_random_and_the_shown_name_is_the_persons(
        self, client: TestClient, tmp_path: Path
    ) -> None:
        staged = send(client, "../../etc/pass\u202ewd (final).pdf", path="uploads").json()
        assert staged["name"] == "passwd (final).pdf"
        (stored,) = (tmp_path / "uploads").iterdir()
        assert stored.stem == staged["id"] and "pass" not in stored.name

    def test_an_estimate_keeps_nothing(self, client: TestClient, tmp_path: Path) -> None:
        body = send(client, "a.pdf", path="estimate").json()
        assert body["pages"] == 2 and body["fits"] is True and body["source"] == "a.pdf"
        assert list((tmp_path / "uploads").iterdir()) == []

    @pytest.mark.parametrize(
        ("name", "content", "code"),
        [
            ("a.exe", b"MZ", "unknown_kind"),
            ("a.pdf", b"PK\x03\x04 not a pdf", "unknown_kind"),
            ("a.docx", b"%PDF-1.7", "unknown_kind"),
            ("a.txt", b"text with a \0 byte", "unknown_kind"),
            ("a.txt", b"", "empty_file"),
            ("a.txt", b"x" * 20_000_001, "too_large"),
        ],
    )
    def test_what_is_not_accepted_is_refused_with_a_reason(
        self, client: TestClient, tmp_path: Path, name: str, content: bytes, code: str
    ) -> None:
        response = send(client, name, content)
        assert response.status_code >= 400 and error_code(response) == code
        assert list((tmp_path / "uploads").iterdir()) == []

    def test_a_hostile_pdf_is_refused_in_words_and_others_go_on(self, client: TestClient) -> None:
        send(client, "bad.pdf", b"%PDF-1.7 HOSTILE", path="uploads")
        send(client, "good.pdf", path="uploads")
        states = until(
            lambda: (
                (s := {one["name"]: one for one in client.get("/api/v1/uploads").json()["uploads"]})
                and all(one["state"] != "estimating" for one in s.values())
                and s
            )
        )
        assert states["bad.pdf"]["state"] == "refused" and "damaged" in states["bad.pdf"]["problem"]
        assert states["good.pdf"]["state"] == "ready"
        assert error_code(send(client, "bad.pdf", b"%PDF-1.7 HOSTILE")) == "unreadable_file"

    def test_a_locked_pdf_opens_with_its_password(self, client: TestClient) -> None:
        locked = b"%PDF-1.7 ENCRYPTED"
        assert "password" in send(client, "locked.pdf", locked).json()["error"]["message"]
        assert send(client, "locked.pdf", locked, password="open sesame").status_code == 202

    def test_only_so_many_files_may_wait(self, library: FakeLibrary, tmp_path: Path) -> None:
        for client in opened(library, FakeSettings(tmp_path, max_uploads=2)):
            for _ in range(2):
                assert send(client, "a.pdf", path="uploads").status_code == 201
            assert error_code(send(client, "a.pdf", path="uploads")) == "too_many_files"

    def test_a_full_library_and_a_full_disk_take_no_more(self, library: FakeLibrary, tmp_path: Path) -> None:
        for client in opened(library, FakeSettings(tmp_path, max_library_bytes=1000)):
            assert error_code(send(client, "a.pdf")) == "quota"
        for client in opened(library, FakeSettings(tmp_path, min_free_bytes=10**18)):
            assert error_code(send(client, "a.pdf")) == "not_enough_space"

    def test_files_left_by_a_crash_are_removed_at_start(self, library: FakeLibrary, tmp_path: Path) -> None:
        (tmp_path / "uploads").mkdir()
        (tmp_path / "uploads" / "left.pdf").write_bytes(b"x")
        for _client in opened(library, FakeSettings(tmp_path)):
            assert list((tmp_path / "uploads").iterdir()) == []


class TestJobs:
    def test_a_job_can_be_cancelled_and_tried_again(self, client: TestClient) -> None:
        job = send(client, "a.pdf").json()["jobs"][0]
        assert client.post(f"/api/v1/jobs/{job['id']}/cancel").json()["state"] == "cancelled"
        assert client.get("/api/v1/jobs?active_only=true").json()["jobs"] == []
        assert client.post(f"/api/v1/jobs/{job['id']}/retry").json()["state"] == "queued"

    def test_unknown_jobs_are_not_found(self, client: TestClient) -> None:
        assert error_code(client.get("/api/v1/jobs/nothing")) == "not_found"


class TestDocuments:
    def test_documents_are_searched_sorted_and_paged(self, client: TestClient) -> None:
        body = client.get("/api/v1/documents?sort=title&limit=1&offset=1").json()
        assert [one["source"] for one in body["documents"]] == ["walks.pdf"] and body["total"] == 2
        found = client.get("/api/v1/documents?search=RESERVOIR").json()
        assert [one["source"] for one in found["documents"]] == ["reservoir.pdf"]
        assert error_code(client.get("/api/v1/documents?sort=colour")) == "invalid_request"

    def test_a_document_is_renamed_moved_and_deleted(self, client: TestClient) -> None:
        identity = client.get("/api/v1/documents").json()["documents"][0]["id"]
        group = client.post("/api/v1/collections", json={"name": "Walks"}).json()["id"]
        changed = client.patch(
            f"/api/v1/documents/{identity}", json={"title": "On foot", "collection_id": group}
        ).json()
        assert (changed["title"], changed["collection_id"]) == ("On foot", group)
        assert (
            client.patch(f"/api/v1/documents/{identity}", json={"collection_id": None}).json()["collection_id"] is None
        )
        gone = client.delete(f"/api/v1/documents/{identity}").json()
        assert gone["documents"] == 1 and gone["freed_bytes"] > 0
        assert error_code(client.delete(f"/api/v1/documents/{identity}")) == "not_found"

    def test_deleting_a_document_deletes_the_answers_that_used_it(self, client: TestClient) -> None:
        answer = ask(client)
        ids = [one["id"] for one in client.get("/api/v1/documents").json()["documents"]]
        assert client.post("/api/v1/documents/delete", json={"document_ids": ids}).json()["answers"] == 1
        assert error_code(client.get(f"/api/v1/answers/{answer['id']}")) == "not_found"

    def test_pages_come_as_picture_and_as_text_with_boxes(self, client: TestClient) -> None:
        identity = client.get("/api/v1/documents").json()["documents"][0]["id"]
        image = client.get(f"/api/v1/documents/{identity}/pages/1.png?width_px=400")
        assert image.headers["content-type"] == "image/png" and image.content.startswith(b"\x89PNG")
        assert int.from_bytes(image.content[16:20], "big") == 600  # the next of a few widths
        text = client.get(f"/api/v1/documents/{identity}/pages/1").json()
        assert text["blocks"][0]["boxes"][0]["page"] == 1
        assert error_code(client.get(f"/api/v1/documents/{identity}/pages/99.png")) == "not_found"

    def test_a_collection_goes_and_its_documents_stay(self, client: TestClient, library: FakeLibrary) -> None:
        group = client.post("/api/v1/collections", json={"name": "Old"}).json()["id"]
        identity = next(iter(library.document_rows))
        client.patch(f"/api/v1/documents/{identity}", json={"collection_id": group})
        assert client.patch(f"/api/v1/collections/{group}", json={"name": "New"}).json()["name"] == "New"
        assert client.delete(f"/api/v1/collections/{group}").status_code == 204
        assert client.get(f"/api/v1/documents/{identity}").json()["collection_id"] is None


class TestQuestions:
    def test_an_answer_streams_token_by_token_and_ends_with_its_evidence(self, client: TestClient) -> None:
        response = client.post("/api/v1/ask", json={"question": "When was the dam raised?"})
        assert response.headers["content-type"].startswith("text/event-stream")
        names = [name for name, _ in events(response.text)]
        assert names[0] == "started" and names[-1] == "answer" and set(names[1:-1]) == {"token"}
        answer = events(response.text)[-1][1]
        assert answer["passages"][0]["blocks"][0]["boxes"] and answer["heat"] and answer["near_misses"]
        assert client.get(f"/api/v1/answers/{answer['id']}").json() == answer

    def test_a_question_takes_what_it_does_not_say_from_the_preferences(
        self, client: TestClient, library: FakeLibrary
    ) -> None:
        client.patch("/api/v1/preferences", json={"top_k": 3, "quote": False, "max_tokens": 16, "voters": "head"})
        ask(client)
        assert {key: library.asked[-1][key] for key in ("k", "quote", "max_tokens", "voters")} == {
            "k": 3, "quote": False, "max_tokens": 16, "voters": "head",
        }  # fmt: skip
        ask(client, k=5, quote=True)
        assert (library.asked[-1]["k"], library.asked[-1]["quote"]) == (5, True)

    def test_preferences_survive_a_restart_and_refuse_nonsense(self, library: FakeLibrary, tmp_path: Path) -> None:
        for client in opened(library, FakeSettings(tmp_path)):
            assert error_code(client.patch("/api/v1/preferences", json={"top_k": 0})) == "invalid_request"
            client.patch("/api/v1/preferences", json={"top_k": 12})
        for client in opened(library, FakeSettings(tmp_path)):
            assert client.get("/api/v1/preferences").json()["top_k"] == 12
        (tmp_path / "preferences.json").write_text("{broken")
        for client in opened(library, FakeSettings(tmp_path)):
            assert client.get("/api/v1/preferences").json()["top_k"] == 8

    def test_a_question_is_restricted_to_the_documents_it_names(self, client: TestClient, library: FakeLibrary) -> None:
        walks = next(one.id for one in library.document_rows.values() if one.source == "walks.pdf")
        answer = ask(client, within={"document_ids": [walks]})
        assert {passage["document_id"] for passage in answer["passages"]} == {walks}
        found = client.post(
            "/api/v1/search", json={"query": "lake", "k": 2, "within": {"document_ids": [walks]}}
        ).json()
        assert {passage["document_id"] for passage in found["passages"]} == {walks} and len(found["passages"]) == 2

    def test_what_the_documents_do_not_say_is_said(self, client: TestClient) -> None:
        assert ask(client, "Where do unicorns sleep?")["found"] is False

    def test_an_empty_question_is_refused(self, client: TestClient) -> None:
        assert error_code(client.post("/api/v1/ask", json={"question": "  "})) == "invalid_request"
        assert error_code(client.post("/api/v1/ask", json={})) == "invalid_request"

    def test_an_error_while_answering_ends_the_stream_in_words(self, client: TestClient, library: FakeLibrary) -> None:
        def broken(*_args: Any, **_named: Any) -> Any:
            raise RuntimeError("secret path /home/somebody")

        library.ask = broken  # type: ignore[method-assign]
        name, body = events(client.post("/api/v1/ask", json={"question": "why"}).text)[-1]
        assert name == "error" and body["error"]["code"] == "internal" and "secret" not in str(body)

    def test_the_effect_of_a_block_is_measured(self, client: TestClient) -> None:
        answer = ask(client)
        block = answer["passages"][0]["block_ids"][0]
        effect = client.post(f"/api/v1/answers/{answer['id']}/effect/{block}").json()
        assert effect["delta"] == pytest.approx(effect["logprob_without"] - effect["logprob_with"])
        assert error_code(client.post(f"/api/v1/answers/{answer['id']}/effect/999999")) == "not_found"

    def test_history_is_listed_searched_paged_and_deleted(self, client: TestClient) -> None:
        ids = [ask(client, f"Question number {number}", conversation_id="c1")["id"] for number in range(3)]
        body = client.get("/api/v1/answers?limit=2").json()
        assert [one["id"] for one in body["answers"]] == ids[:0:-1] and body["more"] is True
        assert client.get("/api/v1/answers?limit=2&offset=2").json()["more"] is False
        assert len(client.get("/api/v1/answers?search=number 1").json()["answers"]) == 1
        assert len(client.get("/api/v1/answers?conversation_id=c1").json()["answers"]) == 3
        assert client.delete(f"/api/v1/answers/{ids[0]}").status_code == 204
        assert error_code(client.get(f"/api/v1/answers/{ids[0]}")) == "not_found"


class TestStreaming:
    """Over a real socket: the test client waits for whole responses."""

    def test_stopping_ends_the_stream_with_the_answer_so_far(self, tmp_path: Path) -> None:
        import httpx

        library = FakeLibrary(token_seconds=0.1)
        library.add("reservoir.pdf")
        with served(build_app(FakeSettings(tmp_path), library, page=False)) as url:  # type: ignore[arg-type]
            seen = []
            with httpx.stream("POST", f"{url}/api/v1/ask", json={"question": "long answer please"}) as response:
                for line in response.iter_lines():
                    if line.startswith("event: "):
                        seen.append(line[7:])
                    if line.startswith("data: ") and seen[-1] == "started":
                        ask_id = json.loads(line[6:])["ask_id"]
                    if seen.count("token") == 2 and line == "":
                        httpx.post(f"{url}/api/v1/ask/{ask_id}/stop")
            assert seen[-1] == "answer" and seen.count("token") < 8

    def test_a_reader_that_goes_away_stops_the_work(self, tmp_path: Path) -> None:
        import httpx

        library = FakeLibrary(token_seconds=0.05)
        library.add("reservoir.pdf")
        with served(build_app(FakeSettings(tmp_path), library, page=False)) as url:  # type: ignore[arg-type]
            with httpx.stream("POST", f"{url}/api/v1/ask", json={"question": "long answer please"}) as response:
                next(response.iter_lines())
            until(lambda: library.heads)
            assert len(library.answer(library.heads[0].id).tokens) < 10

    def test_eight_people_asking_at_once_get_the_answers_they_would_get_alone(self, tmp_path: Path) -> None:
        import httpx

        library = FakeLibrary(token_seconds=0.002)
        library.add("reservoir.pdf", pages=6)
        questions = [f"Question {number} about the dam and the lake" for number in range(8)]
        with served(build_app(FakeSettings(tmp_path), library, page=False)) as url:  # type: ignore[arg-type]

            def put(question: str) -> tuple[str, Any]:
                text = httpx.post(f"{url}/api/v1/ask", json={"question": question}, timeout=30).text
                answer = events(text)[-1][1]
                return answer["text"], [token["blocks"] for token in answer["tokens"]]

            alone = [put(question) for question in questions]
            together: dict[int, Any] = {}
            threads = [
                threading.Thread(target=lambda n=n, q=q: together.__setitem__(n, put(q)))
                for n, q in enumerate(questions)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert [together[number] for number in range(8)] == alone


class TestExport:
    def test_json_holds_the_whole_record(self, client: TestClient) -> None:
        answer = ask(client)
        response = client.get(f"/api/v1/answers/{answer['id']}/export?format=json")
        assert 'attachment; filename="cairn-answer-' in response.headers["content-disposition"]
        assert response.json() == {"format": "cairn-answer/1", **answer}

    def test_html_needs_nothing_else_and_runs_nothing(self, library: FakeLibrary, tmp_path: Path) -> None:
        library.add(f"{HOSTILE}.pdf", title=HOSTILE, text=f"wombat {HOSTILE} wombat ")
        for client in opened(library, FakeSettings(tmp_path)):
            answer = ask(client, f"wombat {HOSTILE}")
            page = client.get(f"/api/v1/answers/{answer['id']}/export").text
            assert "<script" not in page and "<img src=x" not in page and "http:" not in page and "https:" not in page
            assert "&lt;img src=x onerror=alert(1)&gt;" in page
            assert "default-src 'none'" in page and "data:image/png;base64," in page

    def test_an_unknown_format_is_refused(self, client: TestClient) -> None:
        assert client.get(f"/api/v1/answers/{ask(client)['id']}/export?format=exe").status_code == 422


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

    def test_every_route_of_the_api_is_described(self, client: TestClient) -> None:
        reference = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text(encoding="utf-8")
        for path, methods in client.get("/api/v1/openapi.json").json()["paths"].items():
            for method in methods:
                assert f"{method.upper()} {path.removeprefix('/api/v1')}`" in reference, f"{method} {path}"

    def test_unknown_addresses_answer_in_the_one_shape(self, client: TestClient) -> None:
        assert error_code(client.get("/api/v1/nothing")) == "not_found"
        assert error_code(client.put("/api/v1/documents")) in {"wrong_method", "not_found"}

    def test_validation_errors_do_not_repeat_what_was_sent(self, client: TestClient) -> None:
        response = client.post("/api/v1/ask", json={"question": "x", "k": HOSTILE})
        assert error_code(response) == "invalid_request" and "alert" not in response.text and "k" in response.text

    def test_the_machine_page_says_what_there_is(self, client: TestClient) -> None:
        assert client.get("/api/v1/machine").json()["problems"] == []

    def test_an_empty_library_is_offered_the_sample_once(self, tmp_path: Path) -> None:
        library = FakeLibrary()
        for _client in opened(library, FakeSettings(tmp_path)):
            until(lambda: library.document_rows)
        assert [one.source for one in library.document_rows.values()] == ["The Cairn handbook.pdf"]
        library.document_rows.clear()
        library.job_rows.clear()
        for _client in opened(library, FakeSettings(tmp_path)):
            time.sleep(0.1)
        assert not library.document_rows


class TestMcp:
    def call(self, client: TestClient, method: str, params: dict[str, Any]) -> Any:
        response = client.post(
            "/mcp/",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            headers={"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"},
        )
        assert response.status_code == 200, response.text
        return response.json()["result"]

    def test_three_tools_are_offered_and_no_event_of_the_page(self, client: TestClient) -> None:
        assert {tool["name"] for tool in self.call(client, "tools/list", {})["tools"]} == {"ask", "search", "list"}

    def test_ask_answers_with_passages(self, client: TestClient) -> None:
        result = self.call(client, "tools/call", {"name": "ask", "arguments": {"question": "When was the dam raised?"}})
        answer = json.loads(result["content"][0]["text"])
        assert answer["found"] is True and answer["passages"][0]["pages"][0] >= 1

    def test_list_and_search_work(self, client: TestClient) -> None:
        listed = self.call(client, "tools/call", {"name": "list", "arguments": {"search": "walks"}})
        assert "walks.pdf" in str(listed) and "reservoir.pdf" not in str(listed)
        assert "page" in str(self.call(client, "tools/call", {"name": "search", "arguments": {"query": "dam", "k": 2}}))
