"""The address says what is shown: other views, reloads and Back lose nothing, also in the middle of an answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from retrieval.library import Library
from tests.app.small_library import QUESTION, held

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import ask, view  # noqa: E402

AN_ANSWER = re.compile(r"#/ask/[0-9a-f]{32}$")


def test_other_views_a_reload_and_back_keep_the_conversation(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    expect(page).to_have_url(AN_ANSWER)
    address = page.url
    view(page, "Library")
    expect(page).to_have_url(re.compile("#/library$"))
    view(page, "Ask")
    expect(page).to_have_url(address)
    page.reload()
    expect(page.locator(".question")).to_have_text(QUESTION)
    page.go_back()
    expect(page).to_have_url(re.compile("#/library$"))
    expect(page.locator(".documents .document").first).to_be_visible()
    page.go_back()
    expect(page.locator(".question")).to_have_text(QUESTION)
    expect(page).to_have_url(address)
    page.get_by_role("button", name="New conversation").click()
    expect(page).to_have_url(re.compile("#/ask$"))


def test_an_answer_that_is_left_in_the_middle_is_marked_and_gone_on_with(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    let_go = held(library)
    page = open_tab(serve(library))
    page.get_by_label("Question").fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator(".streaming .token")).not_to_have_count(0)
    view(page, "Library")
    view(page, "Ask")
    expect(page.locator(".question")).to_have_text(QUESTION)
    page.reload()
    expect(page.locator(".question")).to_have_text(QUESTION)
    expect(page.locator(".turn .interrupted")).to_be_visible()
    let_go()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".turn .actions")).to_be_visible()
    expect(page.locator(".turn .interrupted")).to_have_count(0)
    expect(page.locator(".turn .source")).to_be_visible()
    expect(page.locator(".answer-text")).to_contain_text("1981")
    expect(page).to_have_url(AN_ANSWER)
    assert page.url.endswith(library.answers()[0].id)


def test_a_server_that_is_gone_is_told_in_a_sentence(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, watch: Any
) -> None:
    watch.expected_failures = True
    page = open_tab(serve(library))
    page.locator("#question").wait_for()
    page.route("**/api/v1/ask", lambda route: route.abort())
    ask(page, QUESTION)
    expect(page.locator(".turn .verdict")).to_have_text("The server does not answer. Is it still running?")
    page.unroute("**/api/v1/ask")
    page.get_by_role("button", name="Ask again").click()
    expect(page.locator(".answer-text")).to_contain_text("1981")
    expect(page.locator(".turn")).to_have_count(1)
