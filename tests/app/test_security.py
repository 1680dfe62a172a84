"""Who gets in, from where, with what, and what a browser may do with the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api import build_app
from app.auth import (
    SESSION_SECONDS,
    WrongPassword,
    check_binding,
    fresh_password,
    is_loopback,
    owner_token,
)
from app.errors import SettingsError
from app.http_security import GRADIO_PATHS, OWN_PATHS, content_policy
from app.preferences import PreferenceFolder
from app.settings import Settings
from storage.blobs.files import FileBlobs
from storage.records import ADMINISTRATOR
from tests import elsewhere
from tests.app.limits.test_sign_in import Clock
from tests.app.own_values import authenticator
from tests.app.serving import BEARER, OWNER_TOKEN, let_in, settings_for
from tests.app.small_library import without_model

PASSWORD, TOKEN = "a quiet pile of stones", "token-for-programs-0123456789"


def opened(
    settings: Settings, *, base_url: str = "http://127.0.0.1", page: bool = False, owner: bool = True
) -> Iterator[TestClient]:
    """Over an empty library: none of these tests gets as far as a document."""
    with without_model(settings.home) as library:
        app = build_app(settings, library, page=page)  # type: ignore[arg-type]
        with TestClient(app, base_url=base_url, follow_redirects=False) as client:
            yield let_in(client) if owner else client


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[TestClient]:
    settings = settings_for(tmp_path, host="0.0.0.0", password=PASSWORD, token=TOKEN)
    yield from opened(settings, base_url="http://library.example", owner=False)


@pytest.fixture(scope=elsewhere.shared("module"))
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    yield from opened(settings_for(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope=elsewhere.shared("module"))
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    yield from opened(settings_for(tmp_path_factory.mktemp("home")), page=True)


class TestBinding:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.9.1"])
    def test_this_machine_needs_no_password(self, host: str) -> None:
        check_binding(host, password=None, token=None)
        assert is_loopback(host)

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", ""])
    def test_any_other_address_is_refused_without_one_and_a_random_one_is_proposed(self, host: str) -> None:
        with pytest.raises(ValueError, match=r"CAIRN_PASSWORD=\S{20,}"):
            check_binding(host, password=None, token=None)
        check_binding(host, password=PASSWORD, token=None)
        check_binding(host, password=None, token=TOKEN)

    def test_the_app_itself_refuses(self, tmp_path: Path) -> None:
        with without_model(tmp_path) as library, pytest.raises(ValueError, match="password"):
            build_app(settings_for(tmp_path, host="0.0.0.0"), library, page=False)

    def test_proposed_passwords_differ(self) -> None:
        assert len({fresh_password() for _ in range(50)}) == 50

    def test_short_secrets_are_refused(self) -> None:
        with pytest.raises(ValueError, match="too short"):
            authenticator(password="short")
        with pytest.raises(ValueError, match="too short"):
            authenticator(token="short")


class TestTheOwnersToken:
    """A server that was started without a secret of its settings."""

    @pytest.fixture
    def stranger(self, tmp_path: Path) -> Iterator[TestClient]:
        yield from opened(settings_for(tmp_path), owner=False)

    def test_somebody_else_on_the_machine_gets_nothing_and_has_nothing_read(
        self, stranger: TestClient, tmp_path: Path
    ) -> None:
        (tmp_path / "private").mkdir(mode=0o700)
        asked: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", "/api/v1/folders", {"json": {"path": str(tmp_path / "private")}}),
            ("GET", f"/api/v1/documents/{'0' * 32}/original", {}),
            ("PUT", "/api/v1/writer", {"json": {"name": "http://127.0.0.1:1/v1"}}),
            ("POST", "/api/v1/ask", {"json": {"question": "Who?"}}),
            ("POST", "/v1/chat/completions", {"json": {}}),
            ("POST", "/mcp/", {"json": {}}),
            ("GET", "/metrics", {}),
            ("GET", "/", {}),
        ]
        for method, path, more in asked:
            for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer wrong"}):
                answer = stranger.request(method, path, headers=headers, **more)
                assert answer.status_code in (401, 429), path
        assert stranger.app.state.library.folders.list() == []

    def test_the_printed_address_opens_the_page_and_does_not_stay_in_it(self, stranger: TestClient) -> None:
        opening = stranger.get("/", params={"token": OWNER_TOKEN})
        assert (opening.status_code, opening.headers["location"]) == (303, "/")
        assert "httponly" in opening.headers["set-cookie"].lower() and OWNER_TOKEN not in str(opening.headers)
        assert stranger.get("/api/v1/documents").status_code == 200
        stranger.post("/logout")
        assert stranger.get("/api/v1/documents").status_code == 401

    def test_a_wrong_one_opens_nothing_and_guessing_is_slowed(self, stranger: TestClient) -> None:
        seen = [
            stranger.get("/", params={"token": f"wrong {number}"}, headers={"Accept": "text/html"})
            for number in range(9)
        ]
        assert [one.status_code for one in (seen[0], seen[-1])] == [303, 429]
        assert seen[0].headers["location"] == "/login" and "set-cookie" not in seen[0].headers
        assert stranger.get("/", params={"token": OWNER_TOKEN}).headers["location"] == "/"

    def test_it_can_be_entered_on_the_page_and_sent_by_programs(self, stranger: TestClient) -> None:
        assert "cairn token" in stranger.get("/login").text
        assert stranger.get("/api/v1/documents", headers=BEARER).status_code == 200
        assert "Wrong token" in stranger.post("/login", data={"password": "wrong"}).text
        assert stranger.post("/login", data={"password": OWNER_TOKEN}).status_code == 303
        assert stranger.get("/api/v1/documents").status_code == 200

    def test_where_there_are_accounts_it_opens_nothing_and_its_sessions_end(self, stranger: TestClient) -> None:
        let_in(stranger)
        stranger.app.state.library.accounts.create("ann", "no password")
        assert stranger.get("/api/v1/documents").status_code == 401
        assert stranger.get("/api/v1/documents", headers=BEARER).status_code == 401
        assert "set-cookie" not in let_in(stranger).get("/", params={"token": OWNER_TOKEN}).headers

    def test_the_file_is_the_owners_alone_and_made_once(self, tmp_path: Path) -> None:
        first, path = owner_token(tmp_path), tmp_path / "token"
        assert len(first) >= 40 and first == owner_token(tmp_path) and path.stat().st_mode & 0o777 == 0o600
        assert [each.name for each in tmp_path.iterdir()] == ["token"]
        path.chmod(0o644)
        with pytest.raises(SettingsError, match="Others may read"):
            owner_token(tmp_path)
        path.chmod(0o600)
        path.write_text("")
        with pytest.raises(SettingsError, match="no token"):
            owner_token(tmp_path)


class TestAccess:
    def test_the_password_opens_a_session_that_ends(self) -> None:
        clock = Clock()
        signing = authenticator(password=PASSWORD, clock=clock)
        session = signing.log_in(PASSWORD, "a").result()
        assert signing.principal_of_session(session) == ADMINISTRATOR
        assert signing.principal_of_session("x") is None and signing.principal_of_session(None) is None
        clock.now += SESSION_SECONDS + 1
        assert signing.principal_of_session(session) is None

    def test_signing_out_ends_a_session(self) -> None:
        signing = authenticator(password=PASSWORD)
        session = signing.log_in(PASSWORD, "a").result()
        signing.log_out(session)
        assert signing.principal_of_session(session) is None

    def test_a_password_may_be_given_as_argon2_hash(self) -> None:
        from argon2 import PasswordHasher

        signing = authenticator(password=PasswordHasher().hash(PASSWORD))
        assert signing.log_in(PASSWORD, "a").result()
        with pytest.raises(WrongPassword):
            signing.log_in("wrong password", "a").result()

    def test_the_password_is_not_kept_in_plain(self) -> None:
        assert PASSWORD not in str(vars(authenticator(password=PASSWORD))) and TOKEN not in str(
            vars(authenticator(token=TOKEN))
        )


class TestSigningIn:
    def test_nothing_is_shown_without_signing_in(self, guarded: TestClient) -> None:
        documents = guarded.get("/api/v1/documents")
        assert documents.status_code == 401 and documents.headers["www-authenticate"] == "Bearer"
        paths = ["/", "/config", "/theme.css", "/api/v1/answers", "/api/v1/openapi.json", "/docs", "/mcp/",
                 "/ui/main.js", "/gradio_api/info", "/gradio_api/heartbeat/x", "/assets/x.js"]  # fmt: skip
        assert {path: guarded.get(path).status_code for path in paths} == dict.fromkeys(paths, 401)
        identity = "0" * 31 + "1"
        assert guarded.get(f"/api/v1/documents/{identity}/pages/1.png").status_code == 401

    def test_a_browser_is_sent_to_the_sign_in_page(self, guarded: TestClient) -> None:
        response = guarded.get("/", headers={"Accept": "text/html"})
        assert (response.status_code, response.headers["location"]) == (303, "/login")
        page = guarded.get("/login")
        assert page.status_code == 200 and 'type="password"' in page.text

    def test_the_right_password_opens_and_signing_out_closes(self, guarded: TestClient) -> None:
        response = guarded.post("/login", data={"password": PASSWORD})
        cookie = response.headers["set-cookie"]
        assert response.status_code == 303 and "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
        assert guarded.get("/api/v1/documents").status_code == 200
        assert guarded.post("/logout").status_code == 303
        assert guarded.get("/api/v1/documents").status_code == 401

    def test_a_wrong_password_does_not_and_guessing_is_slowed(self, guarded: TestClient) -> None:
        for _ in range(5):
            assert guarded.post("/login", data={"password": "<b>wrong</b>"}).status_code == 401
        response = guarded.post("/login", data={"password": PASSWORD})
        assert response.status_code == 429 and int(response.headers["retry-after"]) >= 1
        assert "<b>wrong" not in response.text

    def test_programs_use_the_token(self, guarded: TestClient) -> None:
        assert guarded.get("/api/v1/documents", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert guarded.get("/api/v1/documents", headers={"Authorization": f"bearer {TOKEN}x"}).status_code == 401
        assert guarded.get("/api/v1/documents", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401

    def test_health_needs_no_password(self, guarded: TestClient) -> None:
        assert guarded.get("/healthz").status_code == 200

    def test_the_cookie_is_secure_over_https(self, tmp_path: Path) -> None:
        for client in opened(settings_for(tmp_path, password=PASSWORD), base_url="https://127.0.0.1"):
            assert "Secure" in client.post("/login", data={"password": PASSWORD}).headers["set-cookie"]


class TestOtherSites:
    @pytest.mark.parametrize(
        "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7860", "", "[", "[::1", "a]b"]
    )
    def test_a_foreign_host_name_is_refused_on_this_machine(self, local: TestClient, host: str) -> None:
        assert local.get("/api/v1/documents", headers={"Host": host}).status_code == 421

    def test_a_reverse_proxy_on_this_machine_may_use_its_name_when_there_is_a_password(self, tmp_path: Path) -> None:
        for client in opened(settings_for(tmp_path, token=TOKEN), base_url="https://library.example"):
            assert client.get("/api/v1/documents").status_code == 401
            assert client.get("/api/v1/documents", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200

    @pytest.mark.parametrize("host", ["localhost:7860", "127.0.0.1", "[::1]:7860"])
    def test_local_names_are_accepted(self, local: TestClient, host: str) -> None:
        assert local.get("/api/v1/documents", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "http://127.0.0.1@evil.example", "http://["]
    )
    def test_requests_of_other_sites_are_refused(self, local: TestClient, origin: str) -> None:
        for method, path in (
            ("POST", "/api/v1/documents/delete"),
            ("GET", "/api/v1/documents"),
            ("POST", "/login"),
            ("POST", "/mcp/"),
        ):
            assert local.request(method, path, headers={"Origin": origin}).status_code == 403

    def test_the_own_page_is_accepted(self, local: TestClient) -> None:
        headers = {"Origin": "http://127.0.0.1"}
        assert local.post("/api/v1/collections", json={"name": "A"}, headers=headers).status_code == 201

    def test_a_form_of_another_site_without_origin_is_refused(self, local: TestClient) -> None:
        response = local.post("/api/v1/collections", json={"name": "A"}, headers={"Sec-Fetch-Site": "cross-site"})
        assert response.status_code == 403

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_another_site_may_link_here_but_load_nothing_into_its_pages(self, local: TestClient, site: str) -> None:
        loaded = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
        for path in ("/api/v1/documents", "/api/v1/events", "/ui/main.js"):
            assert local.get(path, headers=loaded).status_code == 403
        followed = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert local.get("/docs", headers=followed).status_code == 200
        assert local.post("/api/v1/collections", json={"name": "A"}, headers=followed).status_code == 403

    def test_no_other_site_is_ever_allowed_to_read(self, whole: TestClient) -> None:
        for path in ("/", "/api/v1/documents", "/config", "/ui/main.js"):
            assert "access-control-allow-origin" not in whole.get(path).headers


class TestPage:
    def test_scripts_are_ours_or_carry_this_pages_nonce(self, whole: TestClient) -> None:
        first, second = whole.get("/"), whole.get("/")
        policies = [response.headers["content-security-policy"] for response in (first, second)]
        nonces = [re.search(r"'nonce-([\w-]+)'", policy).group(1) for policy in policies]  # type: ignore[union-attr]
        assert nonces[0] != nonces[1]
        tags = re.findall(r"<script[^>]*>", first.text)
        assert tags and all(f'nonce="{nonces[0]}"' in tag for tag in tags)
        script = re.search(r"script-src ([^;]*)", policies[0]).group(1)  # type: ignore[union-attr]
        assert "unsafe" not in script and "http" not in policies[0] and "*" not in policies[0]

    def test_the_policy_forbids_everything_that_is_not_named(self) -> None:
        policy = content_policy("n")
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy and "form-action 'self'" in policy

    def test_the_page_names_no_foreign_address_to_load(self, whole: TestClient) -> None:
        page = whole.get("/").text
        loads = re.findall(r"""(?:src|href|content)=["'](https?:)?//[^"']+""", page)
        assert not loads

    @pytest.mark.parametrize(
        "path", ["/", "/api/v1/documents", "/login", "/healthz", "/nothing", "/docs", "/ui/cairn.css"]
    )
    def test_every_response_carries_the_headers(self, whole: TestClient, path: str) -> None:
        headers = whole.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert (
            headers["referrer-policy"] == "same-origin" and "default-src 'none'" in headers["content-security-policy"]
        )

    def test_answers_of_the_api_are_not_kept_by_caches(self, whole: TestClient) -> None:
        assert whole.get("/api/v1/documents").headers["cache-control"] == "no-store"


class TestGradio:
    @pytest.mark.parametrize(
        "path",
        [
            "/gradio_api/file=http://example.org/x",
            "/gradio_api/file=/etc/passwd",
            "/gradio_api/file/etc/passwd",
            "/gradio_api/proxy=http://example.org",
            "/file=/etc/passwd",
            "/monitoring",
            "/monitoring/summary",
            "/gradio_api/vibe-code/",
            "/gradio_api/deep_link",
            "/gradio_api/runs",
            "/gradio_api/openapi.json",
            "/gradio_api/component_server",
            "/gradio_api/stream/x",
            "/custom_component/x/y/z/w.js",
            "/gradio_api//file=http://example.org/x",
            "/gradio_api/info/../file=http://example.org/x",
        ],
    )
    def test_its_doors_that_we_do_not_need_are_shut(self, whole: TestClient, path: str) -> None:
        assert whole.get(path).status_code in (404, 405)

    @pytest.mark.parametrize(
        "path",
        [
            "/gradio_api/upload",
            "/gradio_api/vibe-edit/",
            "/gradio_api/run/save",
            "/gradio_api/call/save",
            "/gradio_api/process_recording",
        ],
    )
    def test_nothing_is_uploaded_or_run_around_our_own_routes(self, whole: TestClient, path: str) -> None:
        assert whole.post(path, json={}).status_code in (404, 405)

    def test_a_stream_of_nobodys_session_ends_without_a_traceback(
        self, whole: TestClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        whole.get("/gradio_api/queue/data", params={"session_hash": "nobody's"})
        assert not [record for record in caplog.records if record.exc_info]

    @pytest.mark.parametrize("path", ["/?page=x", "/config?page=x", "/?deep_link=x", "/gradio_api/info?page=x"])
    def test_what_its_page_is_asked_and_does_not_know_ends_without_a_traceback(
        self, whole: TestClient, caplog: pytest.LogCaptureFixture, path: str
    ) -> None:
        assert whole.get(path, headers={"X-Gradio-Server": "http://["}).status_code == 200
        assert not [record for record in caplog.records if record.exc_info]

    def test_nobody_tells_it_where_it_is_served(self, whole: TestClient) -> None:
        page = whole.get("/", headers={"X-Gradio-Server": "http://foreign.example"}).text
        assert "foreign.example" not in page

    def test_allowed_paths_are_exact(self) -> None:
        assert GRADIO_PATHS.fullmatch("/gradio_api/queue/join") and OWN_PATHS.fullmatch("/api/v1/documents")
        assert GRADIO_PATHS.fullmatch("/assets/fonts/a-b_c.woff2") and GRADIO_PATHS.fullmatch("/")
        assert not any(GRADIO_PATHS.fullmatch(f"/{kind}/{'x' * 300}") for kind in ("assets", "static", "svelte"))
        assert not GRADIO_PATHS.fullmatch("/static" + "/x" * 3000), "longer than any file's name: an error of the disk"
        assert not GRADIO_PATHS.fullmatch("/gradio_api/heartbeat/\n"), "no address, when its reader goes"
        assert not GRADIO_PATHS.fullmatch("/gradio_api/queue/join/../x") and not OWN_PATHS.fullmatch("/apix")

    def test_events_of_the_page_are_no_public_api(self, whole: TestClient) -> None:
        assert whole.get("/gradio_api/info").json()["named_endpoints"] == {}
        assert whole.get("/config").json().get("is_in_mcp_mode") in (None, False)

    def test_its_events_are_those_of_the_settings_and_take_no_id_of_anything(self, whole: TestClient) -> None:
        """What they change is the signed-in person's own (tests/browser/test_accounts.py)."""
        config = whole.get("/config").json()
        (opened,) = config["dependencies"]  # the tab of the settings, whose controls are drawn when it is opened
        (tab,) = (one for one in config["components"] if one["id"] == opened["targets"][0][0])
        assert tab["type"] == "tabitem" and tab["props"]["label"] == "Settings" and opened["inputs"] == []

    def test_the_events_of_the_controls_touch_the_controls_alone(self, tmp_path: Path) -> None:
        """They are drawn when the settings are opened, so they do not stand in the page's configuration."""
        import gradio as gr  # here: it takes more than a second, in every process of the tests

        from app.web.frame import _controls

        with gr.Blocks() as drawn:
            preferences = PreferenceFolder(FileBlobs(tmp_path))
            _controls(preferences, preferences.of(ADMINISTRATOR).current, own_words=True)
        config = drawn.get_config_file()
        settings = {
            one["id"] for one in config["components"] if str(one["props"].get("elem_id")).startswith("setting-")
        }
        assert len(config["dependencies"]) == 6
        for event in config["dependencies"]:
            assert event["inputs"] and set(event["inputs"]) | set(event["outputs"]) <= settings

    def test_nothing_of_a_run_is_kept_in_the_browser_and_nothing_is_reported(self, whole: TestClient) -> None:
        config = whole.get("/config").json()
        assert not config.get("run_history") and config["analytics_enabled"] is False
        assert config.get("footer_links") in ([], None)


class TestSizes:
    def test_large_bodies_are_refused_by_declaration_and_by_count(self, local: TestClient) -> None:
        declared = local.post("/api/v1/search", content=b"x", headers={"Content-Length": "9999999999"})
        assert declared.status_code == 413

        def pieces() -> Iterator[bytes]:
            for _ in range(40):
                yield b" " * 50_000

        counted = local.post("/api/v1/search", content=pieces(), headers={"Content-Type": "application/json"})
        assert counted.status_code == 413 and counted.json()["error"]["code"] == "too_large"

    def test_nobody_sends_much_without_signing_in(self, guarded: TestClient) -> None:
        response = guarded.post("/login", data={"password": "x" * 20_000})
        assert response.status_code == 413 and response.json()["error"]["code"] == "too_large"

    def test_errors_inside_show_nothing_of_the_inside(self, tmp_path: Path) -> None:
        def broken(**_named: Any) -> Any:
            raise RuntimeError("secret /home/somebody/library.sqlite3")

        for client in opened(settings_for(tmp_path)):
            client.app.state.library.documents.list = broken
            response = client.get("/api/v1/documents")
        assert response.status_code == 500 and "secret" not in response.text
        assert response.json()["error"]["code"] == "internal"
        assert "default-src 'none'" in response.headers["content-security-policy"]
