"""What tests do at the page, as a person would."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
from playwright.sync_api import expect

from tests.app.serving import BEARER

WAIT_MS = 90_000
"""What a state may take to come on a machine that does much else at the time. Nothing waits longer than it has to."""
expect.set_options(timeout=WAIT_MS)

SHOWN = {
    "Ask": "#send",
    "Library": ".document",
    "History": ".history .item",
    "Settings": "#setting-top-k input[type=number]",
    "Machine": ".machine .cards .card",
}
"""What each view shows when all that it fetches has come, of a library with documents and an answer."""


def view(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def view_whole(page: Any, name: str) -> None:
    """Opens a view and waits until what it fetches is there."""
    view(page, name)
    expect(page.locator(SHOWN[name]).first).to_be_visible()
    if name == "Settings":
        expect(page.locator(SHOWN[name]).first).to_have_value(re.compile("."))


def ask(page: Any, question: str) -> None:
    page.get_by_label("Question").fill(question)
    page.keyboard.press("Enter")
    expect(page.locator(".turn .actions")).to_have_count(page.locator(".turn").count() or 1)


def in_its_own_words(url: str) -> None:
    """Answers at this server are written by the model, so that its attention chooses the words."""
    httpx2.patch(
        f"{url}/api/v1/preferences", json={"quote": False, "max_tokens": 16}, headers=BEARER
    ).raise_for_status()


@contextlib.contextmanager
def held_back(page: Any, address: str) -> Iterator[None]:
    """Requests to addresses that match reach the server when the block ends, at least one."""
    late: list[Any] = []
    page.route(re.compile(address), lambda route: late.append(route))
    yield
    while not late:
        page.wait_for_timeout(10)
    for route in late:
        route.continue_()
    page.unroute(re.compile(address))


@contextlib.contextmanager
def overtaken(page: Any, address: str) -> Iterator[Callable[[], None]]:
    """The first request to an address that matches is answered as things were then, but only when the block ends;
    later ones are answered at once. Gives what waits until that first one has been made."""
    late: list[Any] = []

    def hold(route: Any) -> None:
        if late:
            route.continue_()
        else:
            late.append(route)
            late.append(route.fetch())

    def begun() -> None:
        while len(late) < 2:
            page.wait_for_timeout(10)

    page.route(re.compile(address), hold)
    yield begun
    begun()
    route, response = late
    with page.expect_response(lambda one: one.request == route.request):
        route.fulfill(response=response)
    page.wait_for_timeout(100)  # for what the page must not do with it
    page.unroute(re.compile(address))


def reload(page: Any) -> None:
    """Closing the viewer goes back in the history, which takes a moment; a page that is loaded meanwhile is lost."""
    page.wait_for_function("() => !history.state?.viewer || document.querySelector('dialog.viewer[open]')")
    page.reload()


def box(part: Any) -> dict[str, float]:
    """Where a part of the page is drawn, once it is."""
    while True:
        expect(part).to_be_visible()
        if found := part.bounding_box():  # none while it is drawn anew
            return dict(found)


def escape(page: Any) -> None:
    """Closes what is open on top."""
    page.keyboard.press("Escape")


def add_files(page: Any, *files: tuple[str, bytes]) -> None:
    page.locator("#file-input").set_input_files(
        [{"name": name, "mimeType": "application/pdf", "buffer": content} for name, content in files]
    )
