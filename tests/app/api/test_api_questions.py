"""The HTTP API: questions, their streams, answers and exports."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api import build_app
from retrieval.library import Library
from tests.app.api_client import HOSTILE, ask, error_code, events, opened
from tests.app.serving import BEARER, served, settings_for
from tests.app.small_library import QUESTION, UNANSWERED, WALKS, pdf_of, slowed
from tests.waiting import until


class TestQuestions:
    def test_an_answer_streams_token_by_token_and_ends_with_its_evidence(self, shared_client: TestClient) -> None:
        response = shared_client.post("/api/v1/ask", json={"question": QUESTION, "k": 4})
        assert response.headers["content-type"].startswith("text/event-stream")
        names = [name for name, _ in events(response.text)]
        assert names[0] == "started" and names[-1] == "answer" and set(names[1:-1]) == {"token"}
        answer = events(response.text)[-1][1]
        assert answer["passages"][0]["blocks"][0]["boxes"] and answer["near_misses"]
        assert answer["decided_by"] in ("reader", "search") and not answer["heat"], "attention decided nothing"
        assert shared_client.get(f"/api/v1/answers/{answer['id']}").json() == answer

    def test_a_question_takes_what_it_does_not_say_from_the_preferences(self, client: TestClient) -> None:
        client.patch("/api/v1/preferences", json={"top_k": 3, "quote": False, "max_tokens": 16, "voters": "head"})
        used = ask(client)["settings"]
        assert {key: used[key] for key in ("k", "quote", "max_tokens", "voters")} == {
            "k": 3, "quote": False, "max_tokens": 16, "voters": "head",
        }  # fmt: skip
        used = ask(client, k=5, quote=True)["settings"]
        assert (used["k"], used["quote"]) == (5, True)

    def test_preferences_survive_a_restart_and_refuse_nonsense(self, library: Library, home: Path) -> None:
        for client in opened(library, settings_for(home)):
            assert error_code(client.patch("/api/v1/preferences", json={"top_k": 0})) == "invalid_request"
            client.patch("/api/v1/preferences", json={"top_k": 12})
        for client in opened(library, settings_for(home)):
            assert client.get("/api/v1/preferences").json()["top_k"] == 12
        (home / "preferences.json").write_text("{broken")
        for client in opened(library, settings_for(home)):
            assert client.get("/api/v1/preferences").json()["top_k"] == 8

    def test_a_question_is_restricted_to_the_documents_it_names(
        self, shared_client: TestClient, shared_library: Library
    ) -> None:
        walks = next(one.id for one in shared_library.documents.list() if one.source == WALKS)
        answer = ask(shared_client, within={"document_ids": [walks]})
        assert {passage["document_id"] for passage in answer["passages"] + answer["near_misses"]} == {walks}
        found = shared_client.post(
            "/api/v1/search", json={"query": "lake", "k": 2, "within": {"document_ids": [walks]}}
        ).json()
        assert {passage["document_id"] for passage in found["passages"]} == {walks} and len(found["passages"]) == 2

    def test_what_the_documents_do_not_say_is_said(self, shared_client: TestClient) -> None:
        assert ask(shared_client, UNANSWERED)["found"] is False

    def test_an_empty_question_is_refused(self, shared_client: TestClient) -> None:
        assert error_code(shared_client.post("/api/v1/ask", json={"question": "  "})) == "invalid_request"
        assert error_code(shared_client.post("/api/v1/ask", json={})) == "invalid_request"

    def test_an_error_while_answering_ends_the_stream_in_words(
        self, shared_client: TestClient, shared_library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_args: Any, **_named: Any) -> Any:
            raise RuntimeError("secret path /home/somebody")

        monkeypatch.setattr(shared_library, "ask", broken)
        name, body = events(shared_client.post("/api/v1/ask", json={"question": "why"}).text)[-1]
        assert name == "error" and body["error"]["code"] == "internal" and "secret" not in str(body)

    def test_the_effect_of_a_block_is_measured(self, shared_client: TestClient) -> None:
        answer = ask(shared_client, quote=False)
        assert answer["decided_by"] == "attention" and answer["heat"]
        block = (answer["passages"] or answer["near_misses"])[0]["block_ids"][0]
        effect = shared_client.post(f"/api/v1/answers/{answer['id']}/effect/{block}").json()
        assert effect["delta"] == pytest.approx(effect["logprob_without"] - effect["logprob_with"])
        assert error_code(shared_client.post(f"/api/v1/answers/{answer['id']}/effect/999999")) == "invalid_request"

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

    def test_stopping_ends_the_stream_with_the_answer_so_far(self, library: Library, home: Path) -> None:
        import httpx2

        slowed(library, 0.1)
        with served(build_app(settings_for(home), library, page=False)) as url:
            seen = []
            with httpx2.stream("POST", f"{url}/api/v1/ask", json={"question": QUESTION}, headers=BEARER) as response:
                for line in response.iter_lines():
                    if line.startswith("event: "):
                        seen.append(line[7:])
                    if line.startswith("data: ") and seen[-1] == "started":
                        ask_id = json.loads(line[6:])["ask_id"]
                    if seen.count("token") == 2 and line == "":
                        httpx2.post(f"{url}/api/v1/ask/{ask_id}/stop", headers=BEARER)
            assert seen[-1] == "answer" and seen.count("token") < 8

    def test_a_reader_that_goes_away_stops_the_work(self, library: Library, home: Path) -> None:
        import httpx2

        slowed(library, 0.05)
        with served(build_app(settings_for(home), library, page=False)) as url:
            with httpx2.stream("POST", f"{url}/api/v1/ask", json={"question": QUESTION}, headers=BEARER) as response:
                next(response.iter_lines())
            until(library.answers.list)
            assert len(library.answers.get(library.answers.list()[0].id).tokens) < 10

    def test_eight_people_asking_at_once_get_the_answers_they_would_get_alone(
        self, library: Library, home: Path
    ) -> None:
        import httpx2

        questions = [f"What of the dam in {1960 + number}?" for number in range(8)]
        with served(build_app(settings_for(home), library, page=False)) as url:

            def put(question: str) -> tuple[str, Any]:
                text = httpx2.post(f"{url}/api/v1/ask", json={"question": question}, headers=BEARER, timeout=30).text
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
    def test_json_holds_the_whole_record(self, shared_client: TestClient) -> None:
        answer = ask(shared_client)
        response = shared_client.get(f"/api/v1/answers/{answer['id']}/export?format=json")
        assert 'attachment; filename="cairn-answer-' in response.headers["content-disposition"]
        assert response.json() == answer | {"format": "cairn-answer/2"}

    def test_html_needs_nothing_else_and_runs_nothing(self, library: Library, home: Path) -> None:
        (home / "hostile.pdf").write_bytes(pdf_of([f"The wombat says {HOSTILE} to every visitor of the zoo."]))
        job = library.documents.submit(home / "hostile.pdf", source=f"{HOSTILE}.pdf")
        library.jobs.run(job.id)
        library.documents.rename(job.document_id, HOSTILE)
        for client in opened(library, settings_for(home)):
            answer = ask(client, f"What does the wombat say, {HOSTILE}?", within={"document_ids": [job.document_id]})
            page = client.get(f"/api/v1/answers/{answer['id']}/export").text
            assert "<script" not in page and "<img src=x" not in page and "http:" not in page and "https:" not in page
            assert "&lt;img src=x onerror=alert(1)&gt;" in page
            assert "default-src 'none'" in page and "data:image/png;base64," in page

    def test_an_unknown_format_is_refused(self, shared_client: TestClient) -> None:
        assert shared_client.get(f"/api/v1/answers/{ask(shared_client)['id']}/export?format=exe").status_code == 422
