"""Signing in by name: what opens a server with accounts, and what ends it."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from app.api import build_app
from app.auth import fresh_token, hash_password
from app.cli import cli
from app.operations.logs import JsonLines
from app.writers import opener_of
from model.checkpoint.load import load_backbone
from retrieval.accounts import Accounts
from retrieval.errors import InvalidRequest
from retrieval.library import Library
from storage.errors import CatalogueUnavailable
from tests.app.serving import settings_for
from tests.app.small_library import without_model
from tests.tiny_model import shipped_model

PASSWORD, TOKEN = "a quiet pile of stones", "token-for-programs-0123456789"


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with without_model(tmp_path) as library:
        yield library


def opened(library: Library, home: Path, **settings: Any) -> Iterator[TestClient]:
    app = build_app(settings_for(home, **settings), library, page=False)
    with TestClient(app, base_url="http://library.example", follow_redirects=False) as client:
        yield client


@pytest.fixture
def client(library: Library, tmp_path: Path) -> Iterator[TestClient]:
    library.accounts.create("ann", hash_password(PASSWORD))
    yield from opened(library, tmp_path, host="0.0.0.0", password="the server's password", token=TOKEN)


def sign_in(client: TestClient, name: str = "ann", password: str = PASSWORD) -> int:
    return client.post("/login", data={"name": name, "password": password}).status_code


def test_people_sign_in_by_name_and_the_server_says_who_they_are(client: TestClient) -> None:
    assert 'name="name"' in client.get("/login").text
    assert client.get("/api/v1/account").status_code == 401
    assert sign_in(client, "Ann ") == 303
    assert client.get("/api/v1/account").json() == {"name": "ann", "people": ["ann"]}
    client.post("/logout")
    assert client.get("/api/v1/account").status_code == 401


def test_who_signed_in_from_where_is_logged_and_what_was_typed_wrong_is_not(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="cairn.sign_in"):
        sign_in(client, "my secret password", "ann")
        sign_in(client)
    wrong, right = (record.getMessage() for record in caplog.records if record.name == "cairn.sign_in")
    assert wrong == "a wrong password, from testclient" and right == "ann signed in, from testclient"


def test_every_request_of_a_user_is_a_line_with_their_name_and_address(
    library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library.accounts.create("ann", hash_password(PASSWORD))
    for client in opened(library, tmp_path, log_format="json", proxies="testclient"):
        client.headers["X-Forwarded-For"] = "203.0.113.9"
        sign_in(client)
        with caplog.at_level("INFO", logger="cairn.requests"):
            client.get("/api/v1/account")
    line = json.loads(JsonLines().format(caplog.records[-1]))
    assert (line["path"], line["account"], line["address"]) == ("/api/v1/account", "ann", "203.0.113.9")


@pytest.mark.parametrize("wrong", ["a model that is not there", "a writer that is not there", "nothing"])
def test_a_user_is_told_nothing_of_the_machine_and_of_no_path_on_it(tmp_path: Path, wrong: str) -> None:
    folder = str(tmp_path / "secret" / "place")
    absent = wrong.startswith("a model")
    model = partial(load_backbone, folder) if absent else shipped_model
    with without_model(tmp_path, model) as library:
        settings = {"writer": folder} if wrong.startswith("a writer") else {}
        library.use_writer(opener_of(settings_for(tmp_path), folder) if settings else None)
        library.accounts.create("ann", hash_password(PASSWORD))
        for client in opened(library, tmp_path, **settings):
            sign_in(client)
            for address in ("machine", "writer", "first", "folders", "preferences", "account"):
                answer = client.get(f"/api/v1/{address}")
                assert answer.status_code == 200, answer.text
                for secret in (str(tmp_path), platform.release(), platform.python_version(), torch.__version__):
                    assert secret not in answer.text, address
            assert ("administrator" in client.get("/api/v1/machine").text) == absent


@pytest.mark.parametrize(
    ("name", "password"), [("ann", "wrong password"), ("bob", PASSWORD), ("", PASSWORD), ("ann", "")]
)
def test_a_wrong_name_and_a_wrong_password_are_told_alike(client: TestClient, name: str, password: str) -> None:
    response = client.post("/login", data={"name": name, "password": password})
    assert response.status_code == 401 and "Wrong name or password." in response.text


def test_the_servers_own_password_and_token_open_nothing_once_there_are_accounts(client: TestClient) -> None:
    for name in ("", "ann"):
        assert sign_in(client, name, "the server's password") == 401
    assert client.get("/api/v1/documents", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 401


def test_a_session_from_before_the_first_account_ends_with_it(library: Library, tmp_path: Path) -> None:
    for client in opened(library, tmp_path, password=PASSWORD):
        assert client.post("/login", data={"password": PASSWORD}).status_code == 303
        assert client.get("/api/v1/account").json() == {"name": "", "people": []}
        library.accounts.create("ann", hash_password(PASSWORD))
        assert client.get("/api/v1/documents").status_code == 401


def test_another_password_ends_the_sessions_of_the_one_before(client: TestClient, library: Library) -> None:
    sign_in(client)
    wrong = client.post("/api/v1/account/password", json={"old": "guess guess", "new": "new password"})
    assert wrong.status_code == 403
    short = client.post("/api/v1/account/password", json={"old": PASSWORD, "new": "short"})
    assert short.status_code == 422
    assert client.get("/api/v1/account").status_code == 200
    changed = client.post("/api/v1/account/password", json={"old": PASSWORD, "new": "new password"})
    assert changed.status_code == 204 and client.get("/api/v1/account").status_code == 401
    assert sign_in(client) == 401 and sign_in(client, password="new password") == 303


def test_a_removed_account_is_signed_out_and_a_server_on_the_network_stays_shut(
    client: TestClient, library: Library
) -> None:
    sign_in(client)
    library.accounts.delete(library.accounts.get("ann"))
    assert client.get("/api/v1/documents").status_code == 401


def test_a_server_on_the_network_that_had_accounts_only_shuts_when_the_last_goes(
    library: Library, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="cairn user add"):
        build_app(settings_for(tmp_path, host="0.0.0.0"), library, page=False)
    library.accounts.create("ann", hash_password(PASSWORD))
    for client in opened(library, tmp_path, host="0.0.0.0"):
        assert sign_in(client) == 303
        library.accounts.delete(library.accounts.get("ann"))
        assert client.get("/api/v1/documents").status_code == 401


def test_programs_use_their_users_token(client: TestClient, library: Library) -> None:
    token, digest = fresh_token()
    library.accounts.set_token_digest(library.accounts.get("ann"), digest)
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get("/api/v1/account", headers=headers).json()["name"] == "ann"
    library.accounts.set_token_digest(library.accounts.get("ann"), fresh_token()[1])
    assert client.get("/api/v1/account", headers=headers).status_code == 401


def test_while_nobody_can_be_identified_requests_are_refused_in_words(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise CatalogueUnavailable("no answer of secret-host") from OSError("no such file")

    monkeypatch.setattr(Accounts, "of_token", away)
    refused = client.post("/api/v1/ask", json={"question": "Who?"}, headers={"Authorization": "Bearer anything"})
    assert refused.status_code == 503 and refused.json()["error"]["code"] == "unavailable"
    assert "try again later" in refused.text and "secret" not in refused.text


def test_accounts_on_this_machine_ask_for_a_name_too(library: Library, tmp_path: Path) -> None:
    library.accounts.create("ann", hash_password(PASSWORD))
    for client in opened(library, tmp_path):
        assert client.get("/api/v1/documents").status_code == 401 and sign_in(client) == 303


def test_passwords_are_kept_as_argon2_and_short_ones_refused(library: Library) -> None:
    user = library.accounts.create("ann", hash_password(PASSWORD))
    assert user.password_hash.startswith("$argon2") and PASSWORD not in user.password_hash
    with pytest.raises(InvalidRequest, match="8 to"):
        hash_password("short")


class TestCommands:
    def cairn(self, home: Path, *words: str, input: str | None = None) -> Any:
        return CliRunner().invoke(cli, ["user", *words, "--home", str(home)], input=input)

    def test_accounts_are_made_listed_changed_and_removed(self, tmp_path: Path) -> None:
        assert "no accounts" in self.cairn(tmp_path, "list").stderr
        made = json.loads(self.cairn(tmp_path, "add", "Ann", "--json").stdout)
        assert made["name"] == "ann" and len(made["password"]) > 20
        assert "already" in self.cairn(tmp_path, "add", "ann").stderr
        shown = self.cairn(tmp_path, "password", "ann").stdout
        assert "shown only this once" in shown and made["password"] not in shown
        given = self.cairn(tmp_path, "add", "ben", "--password-stdin", input="a password of his own\n")
        assert given.exit_code == 0 and "password of his" not in given.output
        token = json.loads(self.cairn(tmp_path, "token", "ben", "--json").stdout)["token"]
        assert token.startswith("cairn_")
        rows = [json.loads(line) for line in self.cairn(tmp_path, "list", "--json").stdout.splitlines()]
        assert [(row["name"], row["has_token"]) for row in rows] == [("ann", False), ("ben", True)]
        assert self.cairn(tmp_path, "token", "ben", "--off").exit_code == 0
        assert self.cairn(tmp_path, "remove", "ann").exit_code == 0
        last = self.cairn(tmp_path, "remove", "ben")
        assert last.exit_code == 0 and "no accounts left" in last.stderr
        assert self.cairn(tmp_path, "remove", "ben").exit_code == 1

    def test_an_unknown_user_is_named(self, tmp_path: Path) -> None:
        result = CliRunner().invoke(cli, ["list", "--user", "nobody", "--home", str(tmp_path)])
        assert result.exit_code == 1 and "nobody" in result.stderr and "`cairn user list` shows" in result.stderr

    def test_an_empty_heir_is_no_reason_to_remove_an_account_without_one(self, tmp_path: Path) -> None:
        self.cairn(tmp_path, "add", "ann")
        refused = self.cairn(tmp_path, "remove", "ann", "--give-to", "")
        assert refused.exit_code == 1 and "There is no user ''" in refused.stderr
        assert "ann" in self.cairn(tmp_path, "list").stdout
