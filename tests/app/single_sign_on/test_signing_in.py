"""Signing in at a provider: who gets in, with which account, and what happens at the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from app.api.sign_on import sign_on_of
from app.auth import hash_password
from app.cli import cli
from app.errors import SettingsError
from app.single_sign_on.provider import Client, Provider
from retrieval.library import Library
from storage.records import Principal
from tests.app.own_values import authenticator
from tests.app.serving import settings_for
from tests.app.single_sign_on.conftest import ADDRESS, Browser
from tests.app.single_sign_on.provider_server import ProviderServer, made_key

PASSWORD = "a quiet pile of stones"


def test_somebody_new_gets_an_account_of_their_own(visitor: Browser, library: Library) -> None:
    assert "Sign in with Example" in visitor.client.get("/login").text and visitor.name() is None
    response = visitor.sign_in()
    assert response.status_code == 200 and 'content="0; url=/"' in response.text
    cookie = next(one for one in response.headers.get_list("set-cookie") if one.startswith("cairn_session"))
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower() and "Max-Age=43200" in cookie
    assert visitor.name() == "ann"
    assert library.accounts.get("ann").password_hash == "" and len(library.accounts.list()) == 1
    visitor.client.post("/logout")
    assert visitor.name() is None
    visitor.sign_in()
    assert visitor.name() == "ann" and len(library.accounts.list()) == 1


def test_the_address_may_be_written_in_capitals(browsers: Callable[..., Browser]) -> None:
    capitals = browsers(oidc_address=ADDRESS.replace("127.0.0.1", "LocalHost"))
    capitals.client.base_url = ADDRESS.replace("127.0.0.1", "localhost")
    assert "/authorize?" in capitals.to_provider()


def test_the_account_follows_the_subject_whatever_name_and_address_it_has(
    visitor: Browser, provider: ProviderServer, library: Library
) -> None:
    visitor.sign_in()
    provider.person = {"sub": "1", "preferred_username": "anna", "email": "new@example.org"}
    visitor.sign_in()
    assert visitor.name() == "ann"
    provider.person = {"sub": "2", "preferred_username": "ann"}
    visitor.sign_in()
    assert visitor.name() == "ann-2" and len(library.accounts.list()) == 2


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "Ann Müller"}, "ann-m-ller"),
        ({"email": "ben@example.org"}, "ben"),
        ({"preferred_username": "../../etc", "email": ""}, "etc"),
        ({}, "user"),
    ],
)
def test_names_of_new_accounts_are_made_of_what_is_said(
    visitor: Browser, provider: ProviderServer, claims: dict[str, str], name: str
) -> None:
    provider.person = {"sub": "7", **claims}
    visitor.sign_in()
    assert visitor.name() == name


def test_accounts_with_passwords_stay_and_an_account_without_one_has_none(visitor: Browser, library: Library) -> None:
    visitor.sign_in()
    library.accounts.create("ben", hash_password(PASSWORD))
    for password in ("", "x", PASSWORD):
        data = {"name": "ann", "password": password}
        assert visitor.client.post("/login", data=data).status_code == 401
    assert visitor.client.post("/login", data={"name": "ben", "password": PASSWORD}).status_code == 303
    assert visitor.name() == "ben"


class TestLinking:
    def test_an_existing_account_is_not_taken_over_by_its_name_or_address(
        self, visitor: Browser, provider: ProviderServer, library: Library
    ) -> None:
        library.accounts.create("ann", hash_password(PASSWORD))
        provider.person |= {"email": "ann@example.org", "email_verified": True}
        response = visitor.sign_in()
        assert response.status_code == 403 and "is not linked to yours" in response.text
        assert visitor.name() is None and library.accounts.get("ann").subject is None

    def test_whoever_is_signed_in_links_their_own_account(self, visitor: Browser, library: Library) -> None:
        library.accounts.create("carol", hash_password(PASSWORD))
        visitor.client.post("/login", data={"name": "carol", "password": PASSWORD})
        assert visitor.client.get("/api/v1/account").json()["single_sign_on"] == {
            "title": "Example", "linked": False, "has_password": True, "groups": [],
        }  # fmt: skip
        there = visitor.client.post("/api/v1/account/link").json()["address"]
        assert visitor.client.get(visitor.back(there)).status_code == 200
        visitor.client.post("/logout")
        visitor.sign_in()
        assert visitor.name() == "carol"
        assert visitor.client.get("/api/v1/account").json()["single_sign_on"]["linked"]

    def test_an_identity_of_somebody_else_cannot_be_linked(self, visitor: Browser, library: Library) -> None:
        visitor.sign_in()
        library.accounts.create("carol", hash_password(PASSWORD))
        visitor.client.post("/login", data={"name": "carol", "password": PASSWORD})
        there = visitor.client.post("/api/v1/account/link").json()["address"]
        assert "You have another account here already, ann" in visitor.client.get(visitor.back(there)).text
        assert library.accounts.get("carol").subject is None

    def test_an_account_that_is_linked_is_not_linked_again(
        self, visitor: Browser, provider: ProviderServer, library: Library
    ) -> None:
        visitor.sign_in()
        there = visitor.client.post("/api/v1/account/link").json()["address"]
        provider.person = {"sub": "2"}
        assert "linked to somebody else" in visitor.client.get(visitor.back(there)).text
        assert library.accounts.get("ann").subject == "1"

    def test_a_link_needs_somebody_who_is_signed_in(self, visitor: Browser) -> None:
        assert visitor.client.post("/api/v1/account/link").status_code == 401

    def test_names_open_existing_accounts_only_where_that_is_declared(
        self, browsers: Any, provider: ProviderServer, library: Library
    ) -> None:
        library.accounts.create("ann", hash_password(PASSWORD))
        library.accounts.create("ben", hash_password(PASSWORD))
        visitor = browsers(oidc_link_names=True)
        provider.person = {"sub": "2", "email": "ben@example.org", "email_verified": True}
        assert visitor.sign_in().status_code == 403, "an e-mail address is no name"
        provider.person = {"sub": "2", "preferred_username": "Ben"}
        assert visitor.sign_in().status_code == 403, "another name"
        provider.person = {"sub": "1", "preferred_username": "ann"}
        visitor.sign_in()
        assert visitor.name() == "ann" and library.accounts.get("ann").subject == "1"

    def test_the_administrator_links_and_unlinks(
        self, visitor: Browser, provider: ProviderServer, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def cairn(*words: str) -> Any:
            return CliRunner().invoke(cli, ["user", *words, "--home", str(library.view.workspace.home)])

        library.accounts.create("carol", hash_password(PASSWORD))
        assert "--issuer" in cairn("link", "carol", "--subject", "1").output
        monkeypatch.setenv("CAIRN_OIDC_ISSUER", provider.issuer)
        assert "The subject is empty" in cairn("link", "carol", "--subject", "").output
        assert cairn("link", "carol", "--subject", "1").exit_code == 0
        assert json.loads(cairn("list", "--json").stdout)["linked"] is True
        visitor.sign_in()
        assert visitor.name() == "carol"
        assert cairn("unlink", "carol").exit_code == 0
        assert visitor.name() is None, "the session ended with the link"

    def test_without_new_accounts_nobody_unknown_gets_in(self, browsers: Any, library: Library) -> None:
        visitor = browsers(oidc_new_accounts=False)
        assert "You have no account here" in visitor.sign_in().text
        assert not library.accounts.any and visitor.name() is None


class TestGroups:
    def test_collections_are_shared_with_groups(
        self, browsers: Any, provider: ProviderServer, library: Library
    ) -> None:
        ann, ben = browsers(), browsers()
        ann.sign_in()
        shelf = library.as_seen_by(Principal(library.accounts.get("ann").id)).collections.create("Reports")
        assert ann.client.get("/api/v1/account").json()["single_sign_on"]["groups"] == ["water"]
        shared = {"groups": ["water"]}
        assert ann.client.put(f"/api/v1/collections/{shelf.id}/sharing", json=shared).json()["groups"] == ["water"]
        other = ann.client.put(f"/api/v1/collections/{shelf.id}/sharing", json={"groups": ["legal"]})
        assert other.status_code == 404
        provider.person = {"sub": "2", "preferred_username": "ben", "groups": ["water", "legal"]}
        ben.sign_in()
        seen = ben.client.get("/api/v1/collections").json()["collections"]
        assert [one["name"] for one in seen] == ["Reports"] and seen[0]["groups"] == []
        provider.person["groups"] = []
        ben.sign_in()
        assert ben.client.get("/api/v1/collections").json()["collections"] == []

    def test_a_group_may_be_needed(self, browsers: Any, provider: ProviderServer, library: Library) -> None:
        visitor = browsers(oidc_allowed_groups="legal, board")
        assert "groups do not open this server" in visitor.sign_in().text and not library.accounts.any
        provider.person["groups"] = ["board"]
        visitor.sign_in()
        assert visitor.name() == "ann"

    def test_groups_may_come_with_the_user_info(self, visitor: Browser, provider: ProviderServer) -> None:
        provider.person = {"sub": "1"}
        provider.user_info = {"sub": "1", "preferred_username": "ann", "groups": ["water"]}
        visitor.sign_in()
        assert (
            visitor.client.get("/api/v1/account").json()["single_sign_on"]["groups"] == ["water"]
            and visitor.name() == "ann"
        )

    def test_groups_that_are_no_names_are_refused(self, visitor: Browser, provider: ProviderServer) -> None:
        provider.person["groups"] = [{"id": 1}]
        assert "about your groups cannot be used" in visitor.sign_in().text and visitor.name() is None


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"oidc_client_id": None}, "CAIRN_OIDC_CLIENT_ID"),
            ({"oidc_address": None}, "CAIRN_OIDC_ADDRESS"),
            ({"oidc_issuer": "http://id.example"}, "https://"),
            ({"oidc_address": "https://library.example/cairn"}, "without a path"),
            ({"oidc_scopes": "profile"}, "openid"),
            ({"oidc_groups_claim": None, "oidc_allowed_groups": "x"}, "CAIRN_OIDC_GROUPS_CLAIM"),
        ],
    )
    def test_what_cannot_work_is_refused_at_the_start(
        self, tmp_path: Any, library: Library, given: dict[str, Any], said: str
    ) -> None:
        complete = {"oidc_issuer": "https://id.example", "oidc_client_id": "cairn", "oidc_address": ADDRESS}
        with pytest.raises(SettingsError, match=said):
            sign_on_of(settings_for(tmp_path, **(complete | given)), library.accounts, library.replicas.values)

    def test_the_provider_is_asked_when_somebody_signs_in_and_not_before(
        self, visitor: Browser, provider: ProviderServer
    ) -> None:
        visitor.client.get("/login")
        assert not provider.asked
        visitor.sign_in()
        assert provider.asked == {"description": 1, "keys": 1, "token": 1}

    def test_before_the_first_account_the_server_is_shut(self, browsers: Any) -> None:
        visitor = browsers(password="the server's password", token="token-for-programs-0123456789")
        assert visitor.name() is None
        assert visitor.client.post("/login", data={"password": "the server's password"}).status_code == 401
        headers = {"Authorization": "Bearer token-for-programs-0123456789"}
        assert visitor.client.get("/api/v1/documents", headers=headers).status_code == 401


def test_new_keys_count_at_once_and_unknown_ones_are_asked_for_twice_a_minute_at_most(
    provider: ProviderServer,
) -> None:
    clock = [0.0]
    source = Provider(provider.issuer, Client("cairn", None, "", "openid"), clock=lambda: clock[0])
    assert [key.kid for key in source.signing_keys()] == ["first"]
    provider.keys = [made_key("second")]
    assert [key.kid for key in source.signing_keys(unknown=True)] == ["first"] and provider.asked["keys"] == 1
    clock[0] += 31
    assert [key.kid for key in source.signing_keys()] == ["first"], "known keys are not asked for again"
    assert [key.kid for key in source.signing_keys(unknown=True)] == ["second"] and provider.asked["keys"] == 2
    for _ in range(10):
        source.signing_keys(unknown=True)
    assert provider.asked["keys"] == 2
    clock[0] += 3601
    source.signing_keys()
    assert provider.asked["keys"] == 3 and provider.asked["description"] == 2


def test_a_session_ends_after_its_hours(library: Library) -> None:
    now = [0.0]
    signing = authenticator(accounts=library.accounts, single_sign_on=True, clock=lambda: now[0])
    account = library.accounts.create("ann", "", issuer="https://id.example", subject="1")
    session = signing.open_session(account, 60)
    assert signing.principal_of_session(session) is not None
    now[0] = 61
    assert signing.principal_of_session(session) is None
