"""The HTTP API: files on their way in, jobs, documents, collections, pages."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api import changes, uploads
from retrieval.documents import Documents
from retrieval.library import Library
from tests.app.api_client import PDF, ask, error_code, events, locked_pdf, opened, send
from tests.app.serving import settings_for
from tests.app.small_library import RESERVOIR, WALKS
from tests.waiting import until


class TestFiles:
    def test_an_upload_becomes_a_job_and_a_document(self, client: TestClient, library: Library) -> None:
        body = send(client, "new report.pdf", collection="Reports").json()
        job = body["jobs"][0]
        assert (job["source"], job["state"]) == ("new report.pdf", "queued")
        library.jobs.run(job["id"])
        done = client.get(f"/api/v1/jobs/{job['id']}").json()
        assert (done["state"], done["pages"]) == ("done", 2)
        document = client.get(f"/api/v1/documents/{job['document_id']}").json()
        assert document["state"] == "ready"
        assert [one["name"] for one in client.get("/api/v1/collections").json()["collections"]] == ["Reports"]

    def test_a_staged_file_is_estimated_and_waits_until_it_is_started(self, client: TestClient, home: Path) -> None:
        staged = send(client, "big.pdf", path="uploads").json()
        ready = until(
            lambda: [one for one in client.get("/api/v1/uploads").json()["uploads"] if one["state"] == "ready"]
        )
        assert ready[0]["estimate"]["pages"] == 2 and ready[0]["estimate"]["size_bytes"] > 0
        assert client.get("/api/v1/jobs?active_only=true").json()["jobs"] == []
        job = client.post(f"/api/v1/uploads/{staged['id']}/start", json={"collection": "A"}).json()
        assert job["source"] == "big.pdf"
        assert client.get("/api/v1/uploads").json()["uploads"] == []
        assert list((home / "uploads").iterdir()) == []

    def test_a_discarded_file_leaves_nothing_behind(self, client: TestClient, home: Path) -> None:
        staged = send(client, "big.pdf", path="uploads").json()
        assert client.delete(f"/api/v1/uploads/{staged['id']}").status_code == 204
        assert error_code(client.post(f"/api/v1/uploads/{staged['id']}/start", json={})) == "not_found"
        assert list((home / "uploads").iterdir()) == []

    def test_the_name_on_disk_is_random_and_the_shown_name_is_the_persons(self, client: TestClient, home: Path) -> None:
        staged = send(client, "../../etc/pass\u202ewd (final).pdf", path="uploads").json()
        assert staged["name"] == "passwd (final).pdf"
        (stored,) = (home / "uploads").iterdir()
        assert stored.stem == staged["id"] and "pass" not in stored.name

    def test_an_estimate_keeps_nothing(self, shared_client: TestClient, shared_library: Library) -> None:
        body = send(shared_client, "a.pdf", path="estimate").json()
        assert body["pages"] == 2 and body["fits"] is True and body["source"] == "a.pdf"
        assert list((shared_library.view.workspace.home / "uploads").iterdir()) == []

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
        self, shared_client: TestClient, shared_library: Library, name: str, content: bytes, code: str
    ) -> None:
        response = send(shared_client, name, content)
        assert response.status_code >= 400 and error_code(response) == code
        assert list((shared_library.view.workspace.home / "uploads").iterdir()) == []

    def test_of_several_files_those_that_cannot_be_taken_are_named_and_the_others_are_stored(
        self, client: TestClient
    ) -> None:
        sent = [("a.pdf", locked_pdf("open")), ("b.pdf", locked_pdf("sesame")), ("c.exe", b"MZ"), ("d.pdf", PDF)]
        response = client.post("/api/v1/documents", files=[("file", one) for one in sent], data={"password": "open"})
        assert response.status_code == 202 and [job["source"] for job in response.json()["jobs"]] == ["a.pdf", "d.pdf"]
        refused = {one["source"]: one["code"] for one in response.json()["refused"]}
        assert refused == {"b.pdf": "unreadable_file", "c.exe": "unknown_kind"}

    def test_a_damaged_pdf_is_refused_in_words_and_others_go_on(self, client: TestClient) -> None:
        send(client, "bad.pdf", b"%PDF-1.7\nnothing of a document", path="uploads")
        send(client, "good.pdf", path="uploads")
        states = until(
            lambda: (
                (s := {one["name"]: one for one in client.get("/api/v1/uploads").json()["uploads"]})
                and all(one["state"] != "estimating" for one in s.values())
                and s
            )
        )
        assert states["bad.pdf"]["state"] == "refused" and "cannot be read" in states["bad.pdf"]["problem"]
        assert states["good.pdf"]["state"] == "ready"

    def test_a_small_file_does_not_wait_behind_a_large_one(
        self, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go_on, estimate = threading.Event(), Documents.estimate

        def slow_for_large(documents: Documents, path: Path, *more: Any, **named: Any) -> Any:
            if path.stat().st_size > 2000:
                assert go_on.wait(60)
            return estimate(documents, path, *more, **named)

        def states() -> dict[str, str]:
            return {one["name"]: one["state"] for one in client.get("/api/v1/uploads").json()["uploads"]}

        monkeypatch.setattr(Documents, "estimate", slow_for_large)
        monkeypatch.setattr(uploads, "LARGE_BYTES", 2000)
        for number in range(uploads.ESTIMATES_AT_ONCE + 1):
            send(client, f"large-{number}.txt", b"A long text. " * 400, path="uploads")
        send(client, "small.txt", b"A short text.", path="uploads")
        until(lambda: states()["small.txt"] == "ready")
        assert states()["large-0.txt"] == "estimating"
        go_on.set()
        until(lambda: set(states().values()) == {"ready"})

    def test_a_file_that_failed_does_not_keep_its_name_from_a_good_one(
        self, client: TestClient, library: Library
    ) -> None:
        (job,) = send(client, "report.pdf", b"%PDF-1.7\nnothing of a document").json()["jobs"]
        assert library.jobs.run(job["id"]).state == "failed"
        (job,) = send(client, "report.pdf").json()["jobs"]
        assert library.jobs.run(job["id"]).state == "done"
        documents = client.get("/api/v1/documents").json()["documents"]
        assert [(one["source"], one["state"]) for one in documents if one["source"] == "report.pdf"] == [
            ("report.pdf", "ready")
        ]

    def test_a_locked_pdf_opens_with_its_password(self, client: TestClient, library: Library) -> None:
        (job,) = send(client, "locked.pdf", locked_pdf("open sesame")).json()["jobs"]
        library.jobs.run(job["id"])
        failed = client.get(f"/api/v1/jobs/{job['id']}").json()
        assert failed["state"] == "failed" and "password" in failed["error"]
        client.post(f"/api/v1/jobs/{job['id']}/retry", json={"password": "open sesame"})
        assert library.jobs.run(job["id"]).state == "done"
        (opened_at_once,) = send(client, "also.pdf", locked_pdf("at once"), password="at once").json()["jobs"]
        assert library.jobs.run(opened_at_once["id"]).state == "done"

    def test_only_so_many_files_may_wait(self, library: Library, home: Path) -> None:
        for client in opened(library, settings_for(home, max_uploads=2)):
            for _ in range(2):
                assert send(client, "a.pdf", path="uploads").status_code == 201
            refused = send(client, "a.pdf", path="uploads")
            assert error_code(refused) == "too_many_files" and int(refused.headers["retry-after"]) >= 1

    def test_a_full_library_and_a_full_disk_take_no_more(self, library: Library, home: Path) -> None:
        for client in opened(library, settings_for(home, max_library_bytes=1000)):
            assert error_code(send(client, "a.pdf")) == "quota"
        for client in opened(library, settings_for(home, min_free_bytes=10**18)):
            assert error_code(send(client, "a.pdf")) == "not_enough_space"

    def test_files_left_by_a_crash_are_removed_at_start(self, library: Library, home: Path) -> None:
        (home / "uploads").mkdir()
        left, arriving = home / "uploads" / "left.pdf", home / "uploads" / "arriving.pdf"
        left.write_bytes(b"x")
        arriving.write_bytes(b"x")  # perhaps at another server of this library
        long_ago = time.time() - 7200
        os.utime(left, (long_ago, long_ago))
        for _client in opened(library, settings_for(home)):
            assert not left.exists() and arriving.exists()

    def test_the_clock_of_the_store_is_asked_once_however_many_files_lie_there(
        self, library: Library, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, asked = library.replicas.upload_files, []
        for name in ("a.pdf", "b.pdf"):
            store.create(name, memoryview(b"x"))
        monkeypatch.setattr(type(store), "now", lambda _store: asked.append(1) or time.time())
        for _client in opened(library, settings_for(home)):
            assert asked == [1]


class TestJobs:
    def test_a_job_can_be_cancelled_and_tried_again(self, client: TestClient) -> None:
        job = send(client, "a.pdf").json()["jobs"][0]
        assert client.post(f"/api/v1/jobs/{job['id']}/cancel").json()["state"] == "cancelled"
        assert client.get("/api/v1/jobs?active_only=true").json()["jobs"] == []
        assert client.post(f"/api/v1/jobs/{job['id']}/retry").json()["state"] == "queued"

    def test_a_job_that_is_cancelled_and_discarded_leaves_nothing(self, client: TestClient, library: Library) -> None:
        job = send(client, "a.pdf").json()["jobs"][0]
        client.post(f"/api/v1/jobs/{job['id']}/cancel?discard=true")
        until(lambda: len(library.documents.list()) == 2)
        assert error_code(client.get(f"/api/v1/jobs/{job['id']}")) == "not_found"

    def test_events_tell_of_files_at_once_and_of_the_library_when_it_changed(
        self, client: TestClient, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(changes, "STREAM_SECONDS", 0.1)
        monkeypatch.setattr(changes, "IDLE_SECONDS", 0.1)
        first = client.get("/api/v1/events")
        told = dict(events(first.text))
        assert told["files"]["uploads"] == [] and len(told["files"]["jobs"]) == 2 and told["library"] == {}
        seen = {"Last-Event-ID": re.findall("id: (.*)", first.text)[-1]}
        assert [name for name, _ in events(client.get("/api/v1/events", headers=seen).text)] == ["files"]
        document = library.documents.list()[0]
        client.patch(f"/api/v1/documents/{document.id}", json={"title": "Another"})
        assert [name for name, _ in events(client.get("/api/v1/events", headers=seen).text)] == ["files", "library"]

    def test_unknown_jobs_are_not_found(self, shared_client: TestClient) -> None:
        assert error_code(shared_client.get("/api/v1/jobs/nothing")) == "not_found"


class TestDocuments:
    def test_documents_are_searched_sorted_and_paged(self, shared_client: TestClient) -> None:
        body = shared_client.get("/api/v1/documents?sort=title&limit=1&offset=1").json()
        assert [one["source"] for one in body["documents"]] == [WALKS] and body["total"] == 2
        found = shared_client.get("/api/v1/documents?search=RESERVOIR").json()
        assert [one["source"] for one in found["documents"]] == [RESERVOIR]
        assert error_code(shared_client.get("/api/v1/documents?sort=colour")) == "invalid_request"

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

    @pytest.mark.parametrize(
        ("refused", "status"),
        [
            ({"properties": {"pages": ["3"]}}, 422),
            ({"properties": {"date": ["yesterday"]}}, 422),
            ({"title": "\u202e"}, 422),
            ({"collection_id": "unknown"}, 404),
        ],
    )
    def test_a_change_of_which_one_part_is_refused_changes_nothing(
        self, client: TestClient, refused: dict[str, Any], status: int
    ) -> None:
        before = client.get("/api/v1/documents").json()["documents"][0]
        group = client.post("/api/v1/collections", json={"name": "Walks"}).json()["id"]
        whole = {"title": "On foot", "collection_id": group, "properties": {"tag": ["new"]}}
        assert client.patch(f"/api/v1/documents/{before['id']}", json=whole | refused).status_code == status
        assert client.get("/api/v1/documents").json()["documents"][0] == before

    def test_deleting_a_document_deletes_the_answers_that_used_it(self, client: TestClient) -> None:
        answer = ask(client)
        ids = [one["id"] for one in client.get("/api/v1/documents").json()["documents"]]
        assert client.post("/api/v1/documents/delete", json={"document_ids": ids}).json()["answers"] == 1
        assert error_code(client.get(f"/api/v1/answers/{answer['id']}")) == "not_found"

    def test_pages_come_as_picture_and_as_text_with_boxes(self, shared_client: TestClient) -> None:
        identity = shared_client.get("/api/v1/documents").json()["documents"][0]["id"]
        image = shared_client.get(f"/api/v1/documents/{identity}/pages/1.png?width_px=400")
        assert image.headers["content-type"] == "image/png" and image.content.startswith(b"\x89PNG")
        assert int.from_bytes(image.content[16:20], "big") == 600  # the next of a few widths
        text = shared_client.get(f"/api/v1/documents/{identity}/pages/1").json()
        assert text["blocks"][0]["boxes"][0]["page"] == 1

    def test_a_page_that_is_not_there_is_not_found(self, shared_client: TestClient, shared_library: Library) -> None:
        document = shared_library.documents.list()[0]
        for page in (0, -1, document.pages + 1):
            for address in (f"pages/{page}", f"pages/{page}.png"):
                response = shared_client.get(f"/api/v1/documents/{document.id}/{address}")
                assert error_code(response) == "not_found"
                message = response.json()["error"]["message"]
                assert message == f"There is no page {page} in {document.source}. It has pages 1 to {document.pages}."

    def test_words_are_found_with_their_pages_and_the_original_is_given_back(
        self, shared_client: TestClient, shared_library: Library
    ) -> None:
        (document,) = shared_library.documents.list(search=RESERVOIR)
        address = f"/api/v1/documents/{document.id}"
        hits = shared_client.get(f"{address}/find", params={"text": " rosental  REPORTS "}).json()["hits"]
        assert [hit["page"] for hit in hits] == [3]
        boxes = shared_client.get(f"{address}/boxes", params={key: hits[0][key] for key in ("start", "end")}).json()[
            "boxes"
        ]
        assert {box["page"] for box in boxes} == {3}
        assert shared_client.get(f"{address}/find", params={"text": "  "}).json() == {"hits": []}
        original = shared_client.get(f"{address}/original")
        assert original.content == shared_library.documents.original(document.id).read_bytes()
        assert f'filename="{RESERVOIR}"' in original.headers["content-disposition"]

    def test_a_collection_goes_and_its_documents_stay(self, client: TestClient, library: Library) -> None:
        group = client.post("/api/v1/collections", json={"name": "Old"}).json()["id"]
        identity = library.documents.list()[0].id
        client.patch(f"/api/v1/documents/{identity}", json={"collection_id": group})
        assert client.patch(f"/api/v1/collections/{group}", json={"name": "New"}).json()["name"] == "New"
        assert client.delete(f"/api/v1/collections/{group}").status_code == 204
        assert client.get(f"/api/v1/documents/{identity}").json()["collection_id"] is None
