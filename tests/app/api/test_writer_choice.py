"""Choosing and trying a writer over HTTP, and what a served question with a writer gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.api import writer_choice
from app.writers import CHOICE_FILE, Chosen, choose, chosen_on_the_page, writer_name
from retrieval.library import Library
from retrieval.types.answers import Progress
from retrieval.writers.local import LocalWriter
from tests.app.api_client import ask, error_code, events, opened
from tests.app.serving import settings_for
from tests.app.small_library import QUESTION
from tests.chat_server import ChatServer, chat_server
from tests.scripted_writer import ScriptedWriter
from tests.tiny_model import tiny_chat_model


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


def test_without_a_writer_the_page_is_told_how_to_get_one(client: TestClient) -> None:
    found = client.get("/api/v1/writer").json()
    assert found["name"] is None and not found["own_words"] and found["may_choose"]
    assert "name a writer in the settings" in found["how_to"]


def test_a_writer_is_chosen_tried_and_kept(client: TestClient, home: Path, server: ChatServer) -> None:
    server.reply = lambda _system, _user: "From November to March [1]."
    chosen = client.put("/api/v1/writer", json={"name": server.address}).json()
    assert chosen["kind"] == "server" and not chosen["leaves_machine"] and chosen["own_words"]
    assert chosen_on_the_page(home) == Chosen(server.address)
    trial = client.post("/api/v1/writer/test", json={}).json()
    assert trial["text"] == "From November to March [1]." and trial["cites"] and not trial["problem"]
    assert ask(client, QUESTION)["writer"]["name"] == "tiny"
    gone = client.put("/api/v1/writer", json={"name": ""}).json()
    assert gone["name"] is None and not (home / CHOICE_FILE).exists()


def test_a_writer_can_be_tried_before_it_is_chosen_and_says_why_it_does_not_write(client: TestClient) -> None:
    trial = client.post("/api/v1/writer/test", json={"name": "http://127.0.0.1:9/v1#m"}).json()
    assert "cannot be reached" in trial["problem"] and client.get("/api/v1/writer").json()["name"] is None
    assert error_code(client.post("/api/v1/writer/test", json={})) == "no_writer"


def test_saving_tries_the_writer_and_keeps_its_key_for_its_server_alone(
    client: TestClient, home: Path, server: ChatServer
) -> None:
    server.begin_anew(models=["tiny", "small"])
    refused = client.put("/api/v1/writer", json={"name": "http://127.0.0.1:9/v1#m"})
    assert error_code(refused) == "no_writer" and "cannot be reached" in refused.text
    assert chosen_on_the_page(home) is None
    listed = client.post("/api/v1/writer/models", json={"name": f"{server.address}#x", "key": "sk-one"}).json()
    assert listed == {"models": ["tiny", "small"]}
    saved = client.put("/api/v1/writer", json={"name": f"{server.address}#tiny", "key": "sk-one"})
    assert saved.json()["has_key"] and "sk-one" not in saved.text and server.keys[-1].endswith("sk-one")
    assert (home / CHOICE_FILE).stat().st_mode & 0o077 == 0
    client.put("/api/v1/writer", json={"name": f"{server.address}#small"})
    assert chosen_on_the_page(home) == Chosen(f"{server.address}#small", "sk-one")
    assert Chosen(f"{server.address}#small", "sk-one").key_for("http://elsewhere.example/v1") is None


def test_the_writer_that_was_tried_is_the_one_that_answers(
    client: TestClient, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_here: list[ScriptedWriter] = []

    def open_() -> ScriptedWriter:
        opened_here.append(ScriptedWriter(lambda _request: "From November to March [1]."))
        return opened_here[-1]

    monkeypatch.setattr(writer_choice, "opener_of", lambda *_given: open_)
    assert client.put("/api/v1/writer", json={"name": "org/model"}).json()["name"] == "scripted"
    assert opened_here == [library.writer]


def test_a_local_writer_that_is_loaded_leaves_the_choice_as_it_is(home: Path, tmp_path: Path) -> None:
    model, folder = tiny_chat_model(), str(tmp_path / "checkpoint")
    model.backbone.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    choose(home, folder)
    LocalWriter(folder, home=home, device="cpu").loaded()
    assert chosen_on_the_page(home) == Chosen(folder)


def test_a_name_that_cannot_be_a_writer_is_not_kept(client: TestClient, home: Path) -> None:
    refused = client.put("/api/v1/writer", json={"name": "http://user:secret@localhost/v1"})
    assert refused.status_code >= 400 and "secret" not in refused.text and chosen_on_the_page(home) is None


def test_a_writer_of_the_settings_is_not_changed_on_the_page(library: Library, home: Path) -> None:
    for client in opened(library, settings_for(home, writer="http://localhost:1/v1#m", writer_key="sk-secret")):
        assert not client.get("/api/v1/writer").json()["may_choose"]
        assert error_code(client.put("/api/v1/writer", json={"name": "http://localhost:2/v1"})) == "fixed_writer"
        assert error_code(client.post("/api/v1/writer/test", json={"name": "http://x/v1"})) == "fixed_writer"
        assert "sk-secret" not in client.get("/api/v1/writer").text


def test_whoever_does_not_sit_at_the_machine_cannot_make_the_server_call_an_address(
    library: Library, home: Path, server: ChatServer
) -> None:
    token = "token-for-programs-0123456789"
    signed_in = {"Authorization": f"Bearer {token}"}
    calls = len(server.requests)
    for settings in (
        settings_for(home, host="0.0.0.0", token=token, writer_key="sk-secret"),
        settings_for(home, proxies="10.0.0.1", token=token, writer_key="sk-secret"),
    ):
        for client in opened(library, settings):
            told = client.get("/api/v1/writer", headers=signed_in).json()
            assert not told["may_choose"] and "in the settings" not in told["how_to"]
            for method, path in (("PUT", "/api/v1/writer"), ("POST", "/api/v1/writer/test")):
                refused = client.request(method, path, json={"name": f"{server.address}#m"}, headers=signed_in)
                assert error_code(refused) == "not_here"
    assert len(server.requests) == calls and chosen_on_the_page(home) is None


def test_a_command_or_the_environment_wins_over_the_page(home: Path) -> None:
    (home / CHOICE_FILE).write_text('{"name": "http://localhost:1/v1"}')
    assert writer_name(settings_for(home)) == "http://localhost:1/v1"
    assert writer_name(settings_for(home, writer="org/model")) == "org/model"
    (home / CHOICE_FILE).write_text("{")
    assert writer_name(settings_for(home)) is None


def test_a_served_answer_has_citations_claims_and_progress(client: TestClient, library: Library) -> None:
    writer = ScriptedWriter(
        lambda request: f"The dam was raised in 1981 [{1 if request.notes else request.passages[0].number}]."
    )
    library.use_writer(lambda: writer)
    answer = ask(client, QUESTION)
    assert answer["citations"] == [{"number": 1, "passage": 0, "start": 27, "end": 30}]
    (claim,) = answer["claims"]
    assert claim["verdict"] == "supported" and "raised by three metres in 1981" in claim["sentence"]
    page = client.get(f"/api/v1/answers/{answer['id']}/export").text
    assert "What scripted was given" in page and "supported: The dam was raised in 1981." in page
    assert "of the attention was" not in page and "Attention by layer" not in page
    everything = client.post("/api/v1/ask", json={"question": "Summarise.", "whole": True})
    names = [name for name, _ in events(everything.text)]
    assert "progress" in names and names[-1] == "answer"
    assert Progress.from_dict(dict(events(everything.text))["progress"]).total > 1


def test_cited_words_of_which_the_documents_support_nothing_do_not_stay_the_headline(
    client: TestClient, library: Library
) -> None:
    writer = ScriptedWriter(lambda _request: "Zebras graze on the moon at midnight [1].")
    library.use_writer(lambda: writer)
    answer = ask(client, QUESTION)
    assert "Zebras" in answer["set_aside"] and "Zebras" not in answer["text"] and "1981" in answer["text"]
