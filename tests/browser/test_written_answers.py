"""Answers that a writer words, at the page: choosing a writer, citations, checked sentences, and a server that fails.

The writer is a server of the chat-completions protocol that this test runs, reached over a real socket.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from retrieval.library import Library
from retrieval.writers import passages
from tests.app.small_library import QUESTION
from tests.chat_server import ChatServer, chat_server
from tests.scripted_writer import ScriptedWriter

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import ask, escape, reload, view  # noqa: E402

RAISED = "The dam was raised by three metres in 1981"
CHANGED = "The dam was raised by three metres in 1974"
MADE_UP = "Zebras graze on the moon at midnight"


def answering(_system: str, user: str) -> str:
    """One sentence that the cited passage supports, one with another year, and one that no document has."""
    numbers = re.findall(r"\[(\d+)\](?:(?!\[\d+\]).)*?raised by three", user, re.DOTALL)
    number = numbers[0] if numbers else "1"
    return f"{RAISED} [{number}]. {CHANGED} [{number}]. {MADE_UP} [{number}]."


@pytest.fixture(scope="module")
def one_server() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


@pytest.fixture
def server(one_server: ChatServer) -> ChatServer:
    return one_server.begin_anew(reply=answering)


def choose_writer(page: Any, server: ChatServer) -> None:
    view(page, "Settings")
    page.locator("#writer-name").fill(f"{server.address}#tiny")
    page.locator("#writer-save").click()
    expect(page.locator("#writer-state")).to_have_text("Answers are written by tiny, on this machine.")
    view(page, "Ask")


def test_a_list_of_models_that_comes_late_does_not_hide_what_was_saved(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, server: ChatServer
) -> None:
    page = open_tab(serve(library))
    held: list[Any] = []
    page.route("**/writer/models", lambda route: held.append(route))
    choose_writer(page, server)
    (route,) = held
    with page.expect_response("**/writer/models"):
        route.continue_()
    expect(page.locator("#writer-models option")).to_have_count(1)
    expect(page.locator("#writer-state")).to_have_text("Answers are written by tiny, on this machine.")


def test_a_writer_is_tried_and_chosen_in_the_settings(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, server: ChatServer
) -> None:
    page = open_tab(serve(library))
    expect(page.locator("#writer-line")).to_contain_text("name a writer in the settings")
    expect(page.locator("#quote")).to_be_hidden()  # nothing but quotations can be had
    view(page, "Settings")
    state = page.locator("#writer-state")
    expect(state).to_contain_text("name a server such as Ollama, or a model")
    page.locator("#writer-name").fill(f"{server.address}#tiny")
    page.locator("#writer-test").click()
    expect(state).to_contain_text(f"It wrote: “{RAISED} [1].")
    expect(state).to_contain_text(re.compile(r"First word after \d+\.\d s\."))
    server.behaviour = "500"
    page.locator("#writer-test").click()
    expect(state).to_contain_text("500")
    assert library.writer is None, "what is tried is not chosen"
    server.behaviour = "well"
    page.locator("#writer-name").fill(server.address)
    page.locator("#writer-save").click()
    expect(state).to_have_text("Answers are written by tiny, on this machine.")  # the only model that it has
    choose_writer(page, server)
    expect(page.locator("#writer-line")).to_have_text("Answers are written by tiny, on this machine.")
    expect(page.locator("#quote")).to_be_visible()
    view(page, "Settings")
    expect(page.get_by_label("In the model's own words")).to_have_count(1)


def test_citations_and_checked_sentences_lead_to_the_page(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, server: ChatServer
) -> None:
    page = open_tab(serve(library))
    choose_writer(page, server)
    ask(page, QUESTION)
    expect(page.locator(".answer-text .claim.supported")).to_contain_text([RAISED])
    expect(page.locator(".answer-text .claim.not_found")).to_contain_text([MADE_UP])
    expect(page.locator(".answer-text .unfounded").first).to_have_text("1974")
    claims = page.locator(".claims")
    expect(claims.locator("summary")).to_have_text("1 of 3 sentences are supported by the documents")
    expect(claims.locator("li.not_found")).to_contain_text("Not found in the documents.")
    expect(claims.locator("li.partly")).to_contain_text("Partly supported")
    expect(page.locator(".written-evidence")).to_contain_text("Written by tiny.")
    expect(page.locator(".written-evidence")).not_to_contain_text("another machine")

    citation = page.locator(".citation").first
    expect(citation).to_have_attribute("aria-label", re.compile(r"^Citation \d+: Handbook of the reservoir, pages? 1"))
    citation.click()
    expect(page.locator(".viewer .position")).to_have_text("Page 1 of 6")
    expect(page.locator(".viewer .quoted")).to_contain_text(["The dam was raised by three metres in 1981"])
    expect(page.locator(".viewer .box.answer").first).to_be_visible()
    escape(page)
    claims.get_by_role("button", name=re.compile("^Supported")).click()
    expect(page.locator(".viewer .position")).to_have_text("Page 1 of 6")
    escape(page)
    expect(page.locator(".viewer")).to_be_hidden()
    reload(page)
    expect(page.locator(".claims li")).to_have_count(3)


def test_a_written_answer_is_stopped_and_begun_anew(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, server: ChatServer
) -> None:
    page = open_tab(serve(library))
    choose_writer(page, server)
    server.behaviour = "goes on slowly"
    page.get_by_label("Question").fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator(".streaming .token")).not_to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".turn .interrupted")).to_be_visible()
    expect(page.locator(".answer-text")).to_contain_text("The dam and and")
    expect(page.locator(".evidence .passage").first).to_be_visible()
    server.behaviour = "well"
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".answer-text .claim.supported")).to_contain_text([RAISED])
    expect(page.locator(".turn")).to_have_count(1)


def test_a_whole_document_is_read_part_by_part_and_can_be_stopped(
    serve: Callable[..., str],
    open_tab: Callable[..., Any],
    library: Library,
    server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passages, "SEGMENTS_A_PART", 1)
    go_on, asked = threading.Event(), list[str]()

    def noting(_system: str, user: str) -> str:
        asked.append(user)
        if len(asked) == 2:
            go_on.wait(60)
        return f"{RAISED} [1]."

    page = open_tab(serve(library))
    choose_writer(page, server)
    server.reply = noting
    page.locator("#scope").click()
    page.get_by_label("Handbook of the reservoir").check()
    page.get_by_role("button", name="Use these").click()
    page.get_by_label("Question").fill("Summarise the handbook.")
    page.keyboard.press("Enter")
    expect(page.locator(".status-line")).to_have_text("1 of 4 parts done: reading Handbook of the reservoir.")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".turn .interrupted")).to_be_visible()
    go_on.set()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".turn .interrupted")).to_have_count(0)
    expect(page.locator(".answer-text .claim.supported")).to_contain_text([RAISED])
    expect(page.locator(".turn")).to_have_count(1)


@pytest.mark.parametrize(
    ("behaviour", "kept"),
    [("breaks off", "The dam"), ("error in the middle", "The dam"), ("500", "Nothing was written.")],
)
def test_a_server_that_fails_leaves_the_passages_and_says_what_happened(
    serve: Callable[..., str],
    open_tab: Callable[..., Any],
    library: Library,
    server: ChatServer,
    behaviour: str,
    kept: str,
) -> None:
    page = open_tab(serve(library))
    choose_writer(page, server)
    server.behaviour = behaviour
    ask(page, QUESTION)
    expect(page.locator(".answer-text")).to_have_text(kept)
    expect(page.locator(".written-evidence .verdict")).to_contain_text("tiny")
    expect(page.locator(".evidence .passage").first).to_be_visible()
    page.get_by_role("button", name="Show on the page").first.click()
    expect(page.locator(".viewer .page-words mark").first).to_be_visible()


def test_passages_that_leave_this_machine_are_announced_before_and_behind_the_answer(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    library.use_writer(lambda: ScriptedWriter(lambda _request: f"{RAISED} [1].", name="far", leaves_machine=True))
    page = open_tab(serve(library, writer="https://far.example/v1#far"))
    expect(page.locator("#writer-line")).to_have_text("Passages are sent to far, on another machine.")
    ask(page, QUESTION)
    expect(page.locator(".written-evidence")).to_contain_text("The passages were sent to another machine for it.")
    view(page, "Settings")
    expect(page.locator("#writer-name")).to_be_disabled()
    expect(page.locator("#writer-state")).to_have_text("Passages are sent to far, on another machine.")
