"""A real browser (Debian's chromium) over a real server. Everything a page says or asks for is watched.

A tab that logs an error, opens a dialog, runs injected script or asks another machine for anything fails its test.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from retrieval.query import answer
from retrieval.types.answers import EvidenceCheck
from tests.app.conftest import (  # noqa: F401
    cheap_passwords,
    filled_home,
    home,
    library,
    one_reader,
    reading_here,
)
from tests.app.serving import OWNER_TOKEN, served, settings_for

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
]

LATE = """() => {
  const fetched = window.fetch;
  const pause = () => new Promise((resume) => setTimeout(resume, 700 * Math.random() ** 2));
  window.fetch = async (...given) => {
    await pause();
    const answer = await fetched(...given);
    await pause();
    return answer;
  };
}"""
"""With LATE=1 in the environment every request is sent late and its answer read late, by up to 0.7 s each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """Until a file of another folder comes: its driver keeps an event loop running, which asynchronous tests cannot
    share."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no chromium: what needs a browser is not left out in CI")
        pytest.skip("no chromium: `apt-get install chromium`, or name one in CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Watch:
    """What tabs did that they must not do."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.expected_statuses: set[int] = set()
        self.expected_failures = False  # requests that reach no server

    def over(self, page: Any) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", self._request)
        page.on("dialog", self._dialog)

    def _console(self, message: Any) -> None:
        expected = any(f"status of {status}" in message.text for status in self.expected_statuses)
        expected |= self.expected_failures and "net::ERR" in message.text
        if message.type == "error" and not expected:
            self.complaints.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1":
            self.complaints.append(f"foreign request: {request.url}")

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    assert watch.complaints == []


@pytest.fixture
def open_tab(chromium: Any, watch: Watch) -> Iterator[Callable[..., Any]]:
    """`open_tab(url, **context options)` -> a page of the server's owner; `same=page` opens a second tab beside it."""
    from tests.browser.acting import WAIT_MS

    contexts = []

    def opened(url: str, *, same: Any = None, let_in: bool = True, **options: Any) -> Any:
        if same is None:
            context = chromium.new_context(
                # Animations are drawn by the processor here.
                accept_downloads=True,
                **{"viewport": {"width": 1360, "height": 880}, "reduced_motion": "reduce", **options},
            )
            contexts.append(context)
            if let_in and url.startswith("http"):
                context.request.get(f"http://{urlsplit(url).netloc}/?token={OWNER_TOKEN}")  # a session's cookie
        else:
            context = same.context
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        if os.environ.get("LATE"):
            page.add_init_script(f"({LATE})()")
        watch.over(page)
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def attention_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """What attention read is found to have made every answer that the model words. The models here are no language
    models: what they word is found to be from themselves, and then nothing of their attention is shown."""
    monkeypatch.setattr(answer, "EvidenceCheck", lambda *found: replace(EvidenceCheck(*found), decided=True))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """`serve(library, **settings)` -> address of the web app over it."""
    import contextlib

    from app.api import build_app

    with contextlib.ExitStack() as stack:

        def start(library: Any, **settings: Any) -> str:
            home = tmp_path / "home"
            home.mkdir(exist_ok=True)
            app = build_app(settings_for(home, **settings), library)
            return stack.enter_context(served(app))

        yield start
