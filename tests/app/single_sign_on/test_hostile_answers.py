"""Answers of a provider, or of somebody who plays one, that must not let anybody in."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from retrieval.library import Library
from tests import elsewhere
from tests.app.single_sign_on.conftest import ADDRESS, Browser, browsers_at
from tests.app.single_sign_on.provider_server import ALGORITHMS, CLIENT_SECRET, ProviderServer, made_key
from tests.app.small_library import without_model

# Times of the years 2000 and 2100: the same in every process, so that parallel runs collect the same tests.
LONG_AGO, FAR_AHEAD = 946_684_800, 4_102_444_800


def refused(visitor: Browser, response: httpx2.Response, said: str = "was not valid") -> None:
    assert response.status_code == 403 and said in response.text, response.text
    assert not any("cairn_session" in one for one in response.headers.get_list("set-cookie"))
    assert visitor.name() is None


@pytest.fixture(scope=elsewhere.shared("module"))
def one_server(running: ProviderServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Library]]:
    """For all who do not get in."""
    home = tmp_path_factory.mktemp("home")
    with without_model(home) as library, browsers_at(running, library, home) as browsers:
        yield browsers(), library


@pytest.fixture
def stranger(one_server: tuple[Browser, Library]) -> Iterator[Browser]:
    """Nobody has an account afterwards either."""
    browser, library = one_server
    yield browser
    assert not library.accounts.any


def with_claims(**changed: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """None takes a claim away."""
    return lambda claims: {name: value for name, value in (claims | changed).items() if value is not None}


def segment(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def now() -> int:
    return int(time.time())


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another client"},
        {"aud": ["another client"]},
        {"aud": None},
        {"aud": ["cairn", "another client"]},
        {"azp": "another client"},
        {"nonce": "another"},
        {"nonce": None},
        {"nonce": 1},
        {"exp": LONG_AGO},
        {"exp": None},
        {"exp": "never"},
        {"iat": FAR_AHEAD},
        {"iat": None},
        {"nbf": FAR_AHEAD},
        {"sub": None},
        {"sub": ""},
        {"sub": 1},
        {"sub": "x" * 300},
        {"at_hash": "of another token"},
    ],
    ids=str,
)
def test_claims_that_are_not_for_this_sign_in(
    stranger: Browser, provider: ProviderServer, changed: dict[str, Any]
) -> None:
    provider.claims = with_claims(**changed)
    refused(stranger, stranger.sign_in())


@pytest.mark.parametrize(("claim", "seconds"), [("exp", -30), ("iat", 30), ("nbf", 30)])
def test_clocks_may_differ_by_less_than_a_minute(
    visitor: Browser, provider: ProviderServer, claim: str, seconds: int
) -> None:
    provider.claims = lambda claims: claims | {claim: now() + seconds}
    visitor.sign_in()
    assert visitor.name() == "ann"


SIGNATURES: dict[str, Callable[[ProviderServer, dict[str, Any]], str]] = {
    "alg none": lambda provider, claims: f"{segment({'alg': 'none'})}.{segment(claims)}.",
    "alg None": lambda provider, claims: f"{segment({'alg': 'None'})}.{segment(claims)}.",
    "unsigned": lambda provider, claims: provider.signed(claims).rsplit(".", 1)[0] + ".",
    "altered": lambda provider, claims: ".".join(
        (lambda parts: (parts[0], segment(claims | {"sub": "2"}), parts[2]))(provider.signed(claims).split("."))
    ),
    "another key": lambda provider, claims: jwt.encode(
        {"alg": "RS256", "kid": provider.keys[0].kid}, claims, made_key("first", 1), algorithms=ALGORITHMS
    ),
    "another key, no name": lambda provider, claims: jwt.encode(
        {"alg": "RS256"}, claims, made_key("x"), algorithms=ALGORITHMS
    ),
    "a key that it brings itself": lambda provider, claims: (
        lambda key: jwt.encode({"alg": "RS256", "jwk": key.as_dict(private=False)}, claims, key, algorithms=ALGORITHMS)
    )(made_key("own")),
    "the client's secret": lambda provider, claims: jwt.encode(
        {"alg": "HS256"}, claims, OctKey.import_key(CLIENT_SECRET), algorithms=ALGORITHMS
    ),
    "the public key as a secret": lambda provider, claims: jwt.encode(
        {"alg": "HS256", "kid": provider.keys[0].kid},
        claims,
        OctKey.import_key(base64.b64encode(provider.keys[0].as_der(private=False)).decode()),
        algorithms=ALGORITHMS,
    ),
    "no token": lambda provider, claims: "hello",
    "no claims": lambda provider, claims: f"{segment({'alg': 'RS256'})}.{segment([1])}.x",
    "a huge token": lambda provider, claims: provider.signed(claims | {"more": "x" * 100_000}),
}


@pytest.mark.parametrize("kind", SIGNATURES)
def test_tokens_that_the_provider_did_not_sign(stranger: Browser, provider: ProviderServer, kind: str) -> None:
    provider.sign = lambda claims: SIGNATURES[kind](provider, claims)
    refused(stranger, stranger.sign_in())


class TestState:
    def test_an_answer_serves_once(self, visitor: Browser) -> None:
        back = visitor.back(visitor.to_provider())
        assert visitor.client.get(back).status_code == 200
        visitor.client.post("/logout")
        refused(visitor, visitor.client.get(back), "used already")

    def test_an_answer_of_another_browser_is_refused_and_does_not_disturb_it(self, browsers: Any) -> None:
        ann, eve = browsers(), browsers()
        back = ann.back(ann.to_provider())
        refused(eve, eve.client.get(back), "another browser")
        eve.to_provider()
        refused(eve, eve.client.get(back), "another browser")
        assert ann.client.get(back).status_code == 200 and ann.name() == "ann"

    @pytest.mark.parametrize("query", ["", "?code=x", "?state=x&code=y", "?error=access_denied", "?state=&code="])
    def test_answers_to_nothing_ask_the_provider_nothing(
        self, stranger: Browser, provider: ProviderServer, query: str
    ) -> None:
        stranger.to_provider()
        refused(stranger, stranger.client.get(f"/login/sso/callback{query}"), "Begin again")
        assert not provider.asked["token"]

    def test_ten_minutes_are_enough(self, visitor: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
        back = visitor.back(visitor.to_provider())
        real = time.monotonic()
        monkeypatch.setattr("app.single_sign_on.sign_on.BEGUN_SECONDS", -1)
        late = visitor.back(visitor.to_provider())
        refused(visitor, visitor.client.get(late), "took too long")
        assert real and visitor.client.get(back).status_code == 403, "its cookie was replaced"

    def test_another_issuer_cannot_answer(self, visitor: Browser, provider: ProviderServer) -> None:
        for other in ("&iss=https://evil.example", "&iss=", ""):
            back = visitor.back(visitor.to_provider())
            path, _, _ = back.partition("&iss=")
            answer = visitor.client.get(path.replace("?", "?", 1) + other)
            refused(visitor, answer, "Begin again")
        assert not provider.asked["token"]

    def test_whoever_begins_again_and_again_loses_only_their_own(self, visitor: Browser) -> None:
        first = visitor.back(visitor.to_provider())
        for _ in range(20):
            last = visitor.to_provider()
        refused(visitor, visitor.client.get(first), "Begin again")
        assert visitor.client.get(visitor.back(last)).status_code == 200

    def test_a_code_of_another_sign_in_does_not_fit_the_verifier(self, browsers: Any) -> None:
        ann, eve = browsers(), browsers()
        stolen = dict(part.split("=") for part in ann.back(ann.to_provider()).split("?")[1].split("&"))
        own = dict(part.split("=") for part in eve.back(eve.to_provider()).split("?")[1].split("&"))
        answer = eve.client.get(f"/login/sso/callback?state={own['state']}&iss={own['iss']}&code={stolen['code']}")
        refused(eve, answer, "did not accept")


class TestProvider:
    def test_a_refusal_is_said_in_words_of_our_own(self, visitor: Browser, provider: ProviderServer) -> None:
        provider.error = "access_denied"
        response = visitor.sign_in()
        refused(visitor, response, "did not let you in")
        assert "alert(" not in response.text
        provider.error = "<script>alert(2)</script>"
        response = visitor.sign_in()
        refused(visitor, response, "refused")
        assert "alert(" not in response.text

    @pytest.mark.parametrize(
        "described",
        [
            {"issuer": "https://evil.example"},
            {"token_endpoint": "http://evil.example/token"},
            {"authorization_endpoint": "javascript:alert(1)"},
            {"jwks_uri": None},
            {"token_endpoint": "https://user@evil.example/"},
            {"end_session_endpoint": "//evil.example"},
        ],
        ids=str,
    )
    def test_a_description_that_cannot_be_right(
        self, visitor: Browser, provider: ProviderServer, described: dict[str, Any]
    ) -> None:
        provider.described = described
        refused(visitor, visitor.client.get("/login/sso"), "not set up")

    def test_a_provider_that_does_not_answer_is_asked_again_later_only(
        self, browsers: Any, provider: ProviderServer
    ) -> None:
        visitor = browsers(oidc_issuer="http://127.0.0.1:9")
        for _ in range(3):
            refused(visitor, visitor.client.get("/login/sso"), "does not answer")

    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{",
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n" + b" " * 2_000_000,
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        ],
    )
    def test_a_provider_that_hangs_up_or_sends_nonsense_for_a_code(
        self, visitor: Browser, provider: ProviderServer, answer: bytes
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def hang_up() -> None:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(answer)

            threading.Thread(target=hang_up, daemon=True).start()
            provider.described = {"token_endpoint": f"http://127.0.0.1:{listening.getsockname()[1]}/token"}
            refused(visitor, visitor.sign_in(), "did not accept")

    def test_user_info_of_somebody_else(self, visitor: Browser, provider: ProviderServer) -> None:
        provider.person = {"sub": "1"}
        provider.user_info = {"sub": "2", "preferred_username": "admin", "groups": ["board"]}
        refused(visitor, visitor.sign_in())

    def test_a_wrong_secret_of_the_client(self, browsers: Any) -> None:
        visitor = browsers(oidc_client_secret="wrong")
        refused(visitor, visitor.sign_in(), "did not accept")


class TestRedirects:
    def test_nobody_else_says_where_to(self, visitor: Browser, provider: ProviderServer) -> None:
        for path in ("/login/sso?next=https://evil.example", "/login/sso?redirect_uri=https://evil.example"):
            location = visitor.client.get(path).headers["location"]
            assert location.startswith(f"{provider.issuer}/authorize?") and "evil" not in location
        end = visitor.client.get("/login/sso/end?post_logout_redirect_uri=https://evil.example").headers["location"]
        assert end.startswith(f"{provider.issuer}/end?client_id=cairn&") and "evil" not in end
        assert "127.0.0.1%3A7860%2Flogin" in end

    def test_another_host_name_leads_to_the_declared_address(self, visitor: Browser) -> None:
        response = visitor.client.get("/login/sso", headers={"Host": "localhost:7860"})
        assert response.headers["location"] == f"{ADDRESS}/login/sso"
        response = visitor.client.get("/login/sso", headers={"Host": "evil.example"})
        assert response.headers["location"] == f"{ADDRESS}/login/sso"

    def test_without_a_provider_there_is_no_such_way(self, browsers: Any) -> None:
        visitor = browsers(oidc_issuer=None)
        for path in ("/login/sso", "/login/sso/callback?state=x&code=y", "/login/sso/end"):
            assert visitor.client.get(path).status_code == 404
        assert "sso" not in visitor.client.get("/login", follow_redirects=True).text
