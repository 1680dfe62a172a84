"""Descriptions of documents and the questions that they can answer: made in the background, told everywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.work import JobRunner
from retrieval.errors import PermissionDenied
from retrieval.library import Library
from retrieval.suggestions import answered
from retrieval.suggestions.descriptions import Descriptions
from retrieval.suggestions.questions import Candidate
from retrieval.types.answers import Answer
from retrieval.types.records import Scope
from retrieval.view import View
from storage.records import Principal
from tests.app.cli_client import Commands, cairn
from tests.app.small_library import RESERVOIR, WALKS
from tests.waiting import until


def test_every_suggested_question_is_answered_by_its_document_and_surely(library: Library) -> None:
    while library.descriptions.make_next():
        pass
    suggested = library.descriptions.suggestions(9)
    assert suggested and library.descriptions.num_made == 2 and not library.answers.list(), (
        "trying leaves no answers behind"
    )
    for one in suggested:
        *_, answer = library.ask(one.question, within=Scope(document_ids=(one.document_id,)))
        assert isinstance(answer, Answer) and answer.outcome == "found", one.question
    ids = {one.source: one.id for one in library.documents.list()}
    narrowed = library.descriptions.suggestions(9, within=Scope(document_ids=(ids[WALKS],)))
    assert {one.document_id for one in narrowed} == {ids[WALKS]}


def test_suggested_questions_are_of_documents_that_a_question_may_read(client: TestClient, library: Library) -> None:
    while library.descriptions.make_next():
        pass
    ids = {one.source: one.id for one in library.documents.list()}
    library.documents.set_properties(ids[WALKS], {"tag": ["outdoors"]})

    def asked(**params: Any) -> set[str]:
        answer = client.get("/api/v1/suggestions", params={"count": 9, **params})
        assert answer.status_code == 200, answer.text
        return {one["document_id"] for one in answer.json()["suggestions"]}

    assert asked() == {ids[WALKS]}, "the other one is too short for questions"
    assert asked(where="tag=outdoors") == {ids[WALKS]}
    assert asked(where="tag!=outdoors") == set()
    assert asked(where="tag=outdoors", document_id=ids[RESERVOIR]) == set()
    assert asked(where="tag!=outdoors", document_id=ids[WALKS]) == set()
    refused = client.get("/api/v1/suggestions", params={"where": "no condition"})
    assert refused.status_code == client.get("/api/v1/documents", params={"where": "no condition"}).status_code == 422


def test_a_server_with_nothing_to_read_describes_what_it_holds(library: Library) -> None:
    with JobRunner(library, idle_seconds=0.02) as runner:
        for _ in range(600):
            if library.descriptions.num_made == 2:
                break
            runner._stopping.wait(0.05)
    assert len(library.descriptions.made_for(library.documents.list())) == 2


def test_what_is_deleted_while_it_is_described_is_passed_over(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleted_first(view: View, document_id: str, found: Sequence[Candidate]) -> list[str]:
        library.documents.delete([document_id])
        return best_questions(view, document_id, found)

    best_questions = answered.best_questions
    monkeypatch.setattr(answered, "best_questions", deleted_first)
    while library.descriptions.make_next():
        pass
    assert library.documents.list() == []


def test_a_description_that_fails_does_not_end_the_reading_of_documents(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_once(self: Descriptions) -> bool:
        monkeypatch.undo()
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(Descriptions, "make_next", fails_once)
    with JobRunner(library, idle_seconds=0.02, pause_seconds=0.02):
        until(lambda: library.descriptions.num_made == 2)


def test_descriptions_go_with_their_documents_and_are_made_by_the_library_only(library: Library) -> None:
    while library.descriptions.make_next():
        pass
    document = library.documents.list(search=WALKS)[0]
    library.documents.delete([document.id])
    assert document.id not in {one.document_id for one in library.descriptions.suggestions(9)}
    assert not list(library.view.workspace.pages_folder.glob(f"{document.id}/*"))
    with pytest.raises(PermissionDenied):
        library.as_seen_by(Principal("somebody")).descriptions.make_next()


def test_http_and_the_command_line_tell_what_a_document_is_about(
    client: TestClient, library: Library, commands: Commands
) -> None:
    (document,) = library.documents.list(search=RESERVOIR)
    plain = client.get(f"/api/v1/documents/{document.id}").json()["description"]
    assert plain["kind"] == "PDF" and plain["first_lines"].startswith("The reservoir supplies")
    assert plain["questions"] == [], "what nobody has tried is not offered"
    assert client.get("/api/v1/documents").json()["documents"][0]["description"] is None
    while library.descriptions.make_next():
        pass
    listed = client.get("/api/v1/documents").json()["documents"]
    assert all(one["description"]["first_lines"] for one in listed)
    offered = client.get("/api/v1/suggestions", params={"count": 3}).json()["suggestions"]
    assert offered and {"question", "document_id", "title"} == set(offered[0])
    rows = [json.loads(line) for line in cairn("list", "--json").stdout.splitlines()]
    assert all(row["description"]["first_lines"] for row in rows)
    shown = cairn("show", WALKS).stdout
    assert "It can be asked:" in shown and "The footpath around the lake" in shown
