"""A server with single sign-on at a provider that runs beside it, and a browser in front of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi.testclient import TestClient

from app.api import build_app
from retrieval.library import Library
from tests.app.serving import settings_for
from tests.app.single_sign_on.provider_server import CLIENT_ID, CLIENT_SECRET, ProviderServer, running_provider
from tests.app.small_library import without_model

ADDRESS = "http://127.0.0.1:7860"


@cache
def _outside() -> httpx2.Client:
    """One for all: the certificates that each would read take longer than what it asks."""
    return httpx2.Client(timeout=60)


class Browser:
    """Follows the way of a sign-in by hand, so that a test can stop and disturb it anywhere."""

    def __init__(self, client: TestClient):
        self.client = client

    def to_provider(self) -> str:
        """Where "Sign in with ..." leads."""
        response = self.client.get("/login/sso")
        assert response.status_code == 303, response.text
        return str(response.headers["location"])

    def back(self, there: str) -> str:
        """Path and query with which the provider sends the browser back."""
        location = _outside().get(there).headers["location"]
        assert location.startswith(f"{ADDRESS}/login/sso/callback?")
        parts = urlsplit(location)
        return f"{parts.path}?{parts.query}"

    def sign_in(self) -> httpx2.Response:
        return self.client.get(self.back(self.to_provider()))

    def name(self) -> str | None:
        """Who is signed in; None if nobody is."""
        response = self.client.get("/api/v1/account")
        return str(response.json()["name"]) if response.status_code == 200 else None


@pytest.fixture(scope="module")
def running() -> Iterator[ProviderServer]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(running: ProviderServer) -> ProviderServer:
    """As it was at first."""
    issuer, app_codes = running.issuer, running.codes
    running.__dict__ |= ProviderServer().__dict__
    running.issuer, running.codes, running.sign = issuer, app_codes, running.signed
    return running


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with without_model(tmp_path) as library:
        yield library


@contextmanager
def browsers_at(provider: ProviderServer, library: Library, home: Path) -> Iterator[Callable[..., Browser]]:
    """Makes a browser in front of one server; `settings` are of the server, which the first call starts."""
    with ExitStack() as stack:
        apps: list[Any] = []

        def opened(**settings: Any) -> Browser:
            if not apps:
                given = {
                    "oidc_issuer": provider.issuer, "oidc_client_id": CLIENT_ID, "oidc_client_secret": CLIENT_SECRET,
                    "oidc_address": ADDRESS,
                } | settings  # fmt: skip
                apps.append(build_app(settings_for(home, **given), library, page=False))
                client = stack.enter_context(TestClient(apps[0], base_url=ADDRESS, follow_redirects=False))
            else:
                client = TestClient(apps[0], base_url=ADDRESS, follow_redirects=False)
            return Browser(client)

        yield opened


@pytest.fixture
def browsers(provider: ProviderServer, library: Library, tmp_path: Path) -> Iterator[Callable[..., Browser]]:
    with browsers_at(provider, library, tmp_path) as opened:
        yield opened


@pytest.fixture
def visitor(browsers: Callable[..., Browser]) -> Browser:
    return browsers()
