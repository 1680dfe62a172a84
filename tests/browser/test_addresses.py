"""The address says what is shown: other views, reloads and Back lose nothing, also in the middle of an answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retrieval.library import Library
from tests.app.small_library import QUESTION, held, pdf_of

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import ask, held_back, reload, view  # noqa: E402

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
    reload(page)
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
    reload(page)
    expect(page.locator(".question")).to_have_text(QUESTION)
    expect(page.locator(".turn .interrupted")).to_be_visible()
    let_go()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".turn .actions")).to_be_visible()
    expect(page.locator(".turn .interrupted")).to_have_count(0)
    expect(page.locator(".turn .source")).to_be_visible()
    expect(page.locator(".answer-text")).to_contain_text("1981")
    expect(page).to_have_url(AN_ANSWER)
    assert page.url.endswith(library.answers.list()[0].id)


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


def test_back_and_forward_lead_through_all_views_an_empty_conversation_and_the_page_of_a_document(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    shown = page.locator("h1")
    for name in ("Library", "History", "Settings", "Machine"):
        view(page, name)
        expect(shown).to_have_text(f"Cairn: {name.lower()}")
    for name in ("settings", "history", "library", "ask"):
        page.go_back()
        expect(shown).to_have_text(f"Cairn: {name}")
    expect(page.locator("#question")).to_be_visible()
    for name in ("library", "history"):
        page.go_forward()
        expect(shown).to_have_text(f"Cairn: {name}")

    view(page, "Ask")
    ask(page, QUESTION)
    expect(page).to_have_url(AN_ANSWER)
    page.get_by_role("button", name="New conversation").click()
    expect(page.locator(".question")).to_have_count(0)
    page.go_back()
    expect(page.locator(".question")).to_have_text(QUESTION)
    page.go_forward()
    expect(page.locator(".question")).to_have_count(0)
    page.go_back()

    page.locator(".turn .source").first.click()
    viewer = page.locator(".viewer .position")
    expect(viewer).to_have_text("Page 1 of 6")
    page.go_back()
    expect(viewer).to_have_count(0)
    page.go_forward()
    expect(viewer).to_have_text("Page 1 of 6")
    reload(page)
    expect(page.locator(".question")).to_have_text(QUESTION)
    expect(viewer).to_have_count(0)
    page.go_back()  # no dead step: the page that was open left none behind
    expect(shown).to_have_text("Cairn: history")


def test_a_page_is_named_by_its_printed_number_and_its_place_and_opens_by_either(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    """The second page of three is printed as "ii", the third as "1"."""
    made = pdf_of(["The preface thanks nobody.", "The wombat digs at night.", "Sold by subscription only, post free."])
    labels = b"/Type /Catalog /PageLabels << /Nums [0 << /S /r >> 2 << /S /D >>] >>"
    (tmp_path / "animals.pdf").write_bytes(made.replace(b"/Type /Catalog", labels, 1))
    library.jobs.run(library.documents.submit(tmp_path / "animals.pdf").id)
    page = open_tab(serve(library))
    ask(page, "When does the wombat dig?")
    source = page.locator(".turn .source").first
    expect(source).to_have_text("animals, page ii (2 of 3)")
    source.click()
    position, typed = page.locator(".viewer .position"), page.get_by_label("Page", exact=True)
    expect(position).to_have_text("Page ii (2 of 3)")
    for number, shown in (("1", "Page 1 (3 of 3)"), ("i", "Page i (1 of 3)"), ("2", "Page ii (2 of 3)")):
        typed.fill(number)
        typed.press("Enter")
        expect(position).to_have_text(shown)

    with held_back(page, "/pages/3$"):
        typed.fill("1")
        typed.press("Enter")
        expect(position).to_have_text("Page 1 (3 of 3)")
        typed.fill("i")
    expect(page.locator(".viewer .page-words")).to_have_text("Sold by subscription only, post free.")
    expect(typed).to_have_value("i")  # what is typed while a page comes stays
    typed.press("Enter")
    expect(position).to_have_text("Page i (1 of 3)")
    expect(typed).to_have_value("i")
    typed.fill("9")
    typed.blur()
    expect(typed).to_have_value("i")  # there is no such page


def test_a_conversation_stands_together_in_the_history_and_what_was_understood_can_be_changed(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    ask(page, "Who was in charge of it?")
    page.get_by_role("button", name="New conversation").click()
    ask(page, "How long is the path around the lake?")
    view(page, "History")
    together = page.locator(".conversation-group")
    expect(together).to_have_count(1)
    expect(together.locator(".item-title")).to_have_text([QUESTION, "Who was in charge of it?"])
    expect(page.locator(".history .item")).to_have_count(3)
    together.locator(".item").nth(1).get_by_role("button").first.click()
    expect(page.locator(".question")).to_have_count(2)
    understood = page.locator(".understood")
    expect(understood).to_contain_text(f"Understood as: {QUESTION} Who was in charge of it?")
    understood.get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_label("Question").fill("Who was in charge of the works at the dam?")
    page.keyboard.press("Enter")
    expect(page.locator(".question")).to_have_count(3)
    expect(page.locator(".turn").nth(2).locator(".answer-text")).to_contain_text("Martha Lindqvist")


def test_a_question_put_while_an_earlier_answer_is_fetched_stays_and_of_two_answers_the_later_chosen_is_shown(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    for question in (QUESTION, "How long is the path around the lake?"):
        ask(page, question)
        page.get_by_role("button", name="New conversation").click()
    later, earlier = [answer.id for answer in library.answers.list()]
    chosen = page.locator(".question")
    with held_back(page, f"/answers/{earlier}"):
        page.evaluate(f"location.hash = '#/ask/{earlier}'")
        page.evaluate(f"location.hash = '#/ask/{later}'")
        expect(chosen).to_have_text("How long is the path around the lake?")
    page.wait_for_load_state("networkidle")
    expect(chosen).to_have_text("How long is the path around the lake?")

    page.get_by_role("button", name="New conversation").click()
    with held_back(page, f"/answers/{earlier}"):
        page.evaluate(f"location.hash = '#/ask/{earlier}'")
        ask(page, "When does the ferry leave?")
    page.wait_for_load_state("networkidle")
    expect(chosen).to_have_text("When does the ferry leave?")
