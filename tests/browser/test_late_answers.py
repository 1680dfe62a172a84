"""Whatever order answers come in, the page shows what was wanted last, and every click counts once.

Requests are held back, so that nothing here depends on how fast anything is.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.api.uploads import Uploads
from retrieval.library import Library
from retrieval.suggestions.questions import describe, keep
from tests.app.api_client import PDF
from tests.app.serving import BEARER, OWNER_TOKEN
from tests.app.small_library import QUESTION, RESERVOIR, UNANSWERED, WALKS, pdf_of

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import add_files, ask, box, escape, held_back, overtaken, reload, view  # noqa: E402

PATH = "How long is the path around the lake?"


def renamed(url: str, library: Library, source: str, title: str) -> None:
    """By somebody else, through the same server."""
    (document,) = library.documents.list(search=source)
    httpx2.patch(f"{url}/api/v1/documents/{document.id}", json={"title": title}, headers=BEARER).raise_for_status()


def test_documents_and_their_collections_are_shown_as_they_are_at_one_time(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    (walks,) = library.documents.list(search=WALKS)
    outdoors = library.collections.create("Outdoors")
    library.documents.move(walks.id, outdoors.id)
    page = open_tab(serve(library))
    rows, row = page.locator(".document"), page.locator(".document", has_text="Walks around the lake")
    with held_back(page, "/collections$"):
        view(page, "Library")
    expect(row.locator(".tag")).to_have_text("Outdoors")

    find, found = page.get_by_label("Find documents"), page.locator(".in-text .item")
    find.fill("turbines in the lower gallery")
    expect(found.first).to_contain_text("turbines")
    page.locator(".chip", has_text="Outdoors").click()
    expect(found.first).to_contain_text("Walks around the lake")
    expect(found.filter(has_text="turbines")).to_have_count(0)  # that stands in no document of the collection
    find.fill("")
    expect(rows).to_have_count(1)
    library.collections.delete(outdoors.id)
    view(page, "Ask")
    view(page, "Library")
    expect(rows).to_have_count(2)
    expect(page.locator(".chip[aria-pressed=true]")).to_have_text("All")


def test_what_changes_while_the_page_is_fetched_is_shown_and_no_older_list_comes_back(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    page = open_tab("about:blank")
    with held_back(page, "/api/v1/events"):
        page.goto(f"{url}/?token={OWNER_TOKEN}#/library")
        expect(page.locator(".document")).to_have_count(2)
        renamed(url, library, WALKS, "On foot")
    expect(page.locator(".document", has_text="On foot")).to_be_visible()

    with overtaken(page, "/documents[?].*sort=title") as begun:
        page.get_by_label("Sort").select_option("title")
        begun()
        renamed(url, library, WALKS, "On four paws")
        expect(page.locator(".document", has_text="On four paws")).to_be_visible()
    expect(page.locator(".document", has_text="On four paws")).to_be_visible()


def test_a_click_counts_although_the_list_changes_before_the_button_is_let_go(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    page = open_tab(f"{url}/#/library")
    page.locator(".document", has_text="Handbook").locator(".item-title").hover()
    page.mouse.down()
    with page.expect_response(re.compile("/documents[?]")):
        renamed(url, library, WALKS, "On foot")
    page.mouse.up()
    expect(page.locator(".viewer .position")).to_have_text("Page 1 of 6")
    escape(page)
    expect(page.locator(".document", has_text="On foot")).to_be_visible()


def test_a_click_counts_although_the_frame_comes_before_the_button_is_let_go(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab("about:blank")
    with held_back(page, "/assets/index-.*js$"):
        page.goto(f"{serve(library)}/?token={OWNER_TOKEN}", wait_until="commit")
        page.locator("#scope").hover()
        page.mouse.down()
    page.locator("#cairn-tabs [data-tab-id=machine]").wait_for(state="attached")
    page.mouse.up()
    expect(page.get_by_role("dialog")).to_contain_text("Which documents may be read")
    expect(page.locator("#cairn-shell")).to_have_count(0)


def test_what_stands_below_the_question_stays_in_its_place_when_the_first_answers_come(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab("about:blank")
    with held_back(page, "/api/v1/first"):
        page.goto(f"{serve(library)}/?token={OWNER_TOKEN}", wait_until="commit")
        before = box(page.locator("#scope"))
    expect(page.locator("#writer-line")).not_to_be_empty()
    assert box(page.locator("#scope")) == before


def test_a_file_that_is_started_before_its_sending_is_answered_stands_there_once_and_does_not_come_back(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, answer = Uploads.stage, threading.Event()

    def answered_late(*given: Any, **named: Any) -> Any:
        staged = stage(*given, **named)
        assert answer.wait(60)
        return staged

    monkeypatch.setattr(Uploads, "stage", answered_late)
    page = open_tab(f"{serve(library)}/#/library")
    add_files(page, ("first.pdf", PDF))
    expect(page.get_by_role("button", name="Read it")).to_be_visible()
    expect(page.locator(".staged .item")).to_have_count(1)
    page.get_by_role("button", name="Read it").click()
    expect(page.locator(".job")).to_contain_text("first.pdf")
    with page.expect_response("**/uploads"):
        answer.set()
    expect(page.locator(".staged .item")).to_have_count(0)
    expect(page.get_by_role("button", name="Read it")).to_have_count(0)


def test_what_is_being_started_is_not_discarded_as_well(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(f"{serve(library)}/#/library")
    add_files(page, ("first.pdf", PDF), ("second.pdf", pdf_of(["Another page."])))
    with held_back(page, "/start$"):
        page.get_by_role("button", name="Read all 2").click()
        page.get_by_role("button", name="Discard all").click()
        page.get_by_role("button", name="Read all 2").click()
    expect(page.locator(".job")).to_have_count(2)
    expect(page.locator(".staged .item")).to_have_count(0)
    expect(page.locator(".toast")).to_have_count(0)


def test_a_conversation_that_is_left_before_it_is_there_does_not_come(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    (answer,) = library.answers.list()
    page.get_by_role("button", name="New conversation").click()
    with overtaken(page, f"/answers/{answer.id}$") as begun:
        page.evaluate(f"location.hash = '#/ask/{answer.id}'")
        begun()
        page.go_back()
        expect(page).to_have_url(re.compile("#/ask$"))
    expect(page.locator(".question")).to_have_count(0)
    expect(page).to_have_url(re.compile("#/ask$"))


def test_a_question_that_is_put_again_comes_with_its_own_evidence_and_alone(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, UNANSWERED)
    with held_back(page, "/answers/[0-9a-f]{32}$"):  # the refusal is removed first
        page.get_by_role("button", name="Answer from these anyway").click()
        page.get_by_label("Question").fill(QUESTION)
        page.keyboard.press("Enter")  # one answer at a time
    expect(page.locator(".turn .actions")).to_have_count(1)
    expect(page.locator(".question")).to_have_text(UNANSWERED)
    expect(page.get_by_label("Question")).to_have_value(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator(".turn .actions")).to_have_count(2)
    page.locator(".turn").nth(0).get_by_role("button", name="Ask again").click()
    expect(page.locator(".turn .actions")).to_have_count(3)
    expect(page.locator(".turn").nth(2)).to_have_class(re.compile("current"))


def test_suggestions_are_of_the_documents_that_are_chosen_now(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    asked = {RESERVOIR: "Who was Martha Lindqvist?", WALKS: PATH}
    for document in library.documents.list():
        described = describe(document, library.documents.page_text(document.id, 1).text, [asked[document.source]])
        keep(library.view.workspace.pages_folder / document.id, described)
    url = serve(library)
    page = open_tab(url)
    chips, scope = page.locator(".sample"), page.locator("#scope")
    expect(chips).to_have_count(2)
    with overtaken(page, "/suggestions") as begun:  # asked for because of a change
        renamed(url, library, WALKS, "On foot")
        begun()  # else both changes may come as one
        httpx2.post(
            f"{url}/api/v1/documents/delete",
            json={"document_ids": [one.id for one in library.documents.list(search=RESERVOIR)]},
            headers=BEARER,
        ).raise_for_status()
        expect(chips).to_have_text([re.compile(re.escape(PATH))])
    expect(chips).to_have_text([re.compile(re.escape(PATH))])

    ask(page, PATH)
    scope.click()
    page.get_by_label("On foot").check()
    page.get_by_role("button", name="Use these").click()
    with held_back(page, "/suggestions"):
        page.get_by_role("button", name="New conversation").click()
        expect(page.locator(".hero")).to_be_visible()
        expect(chips).to_have_count(0)  # those of other documents are gone at once
    expect(chips).to_have_count(1)


def test_a_document_that_was_chosen_has_its_name_although_it_is_fetched_late(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    (walks,) = library.documents.list(search=WALKS)
    page = open_tab(serve(library))
    page.locator("#scope").click()
    page.get_by_label("Walks around the lake").check()
    page.get_by_role("button", name="Use these").click()
    with overtaken(page, f"/documents/{walks.id}$"):
        reload(page)
        page.locator("#scope").click()
        expect(page.get_by_label("Walks around the lake")).to_be_checked()
        page.get_by_role("button", name="Use these").click()
        expect(page.locator("#scope")).to_have_text("Walks around the lake")


def test_in_the_viewer_the_page_that_was_turned_to_last_stays(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, watch: Any
) -> None:
    watch.expected_statuses.add(503)
    page = open_tab(serve(library))
    ask(page, QUESTION)
    source, position = page.locator(".turn .source").first, page.locator(".viewer .position")
    with held_back(page, "/boxes"):
        source.click()
        page.get_by_role("button", name="Next page").click()
        expect(page.locator(".viewer .page-words")).to_contain_text("Maintenance")
    expect(position).to_have_text("Page 2 of 6")

    find, count = page.get_by_label("Find in the document"), page.locator(".find-count")
    page.route("**/find*", lambda route: route.fulfill(status=503, json={"error": {"message": "Not now."}}))
    find.fill("Rosental")
    find.press("Enter")
    expect(count).to_have_text("Not now.")
    page.unroute("**/find*")
    find.press("Enter")  # once more, the same words
    expect(count).to_have_text("1 of 2")
    with overtaken(page, "/find.*sirens"):
        find.fill("sirens")
        find.press("Enter")
        expect(count).to_be_empty()
        find.fill("kiosk")
        find.press("Enter")
        expect(count).to_have_text("Not found")
    expect(count).to_have_text("Not found")
    expect(position).to_have_text("Page 3 of 6")

    # Closing it goes back in the history, which takes a moment: what is opened or gone to meanwhile stays.
    page.evaluate(
        """() => { const dialog = document.querySelector("dialog.viewer");
            dialog.addEventListener("close", () => document.querySelector(".turn .source").click());
            dialog.close(); }"""
    )
    expect(position).to_have_text("Page 1 of 6")
    expect(page.locator("dialog.viewer")).to_have_count(1)
    page.evaluate(
        """() => { const dialog = document.querySelector("dialog.viewer");
            dialog.addEventListener("close", () => { location.hash = "#/ask"; });
            dialog.addEventListener("close", () => document.querySelector("#cairn-header .brand button").click());
            dialog.close(); }"""
    )
    expect(page.locator("dialog.viewer")).to_have_count(0)


def test_a_printed_page_number_counts_before_the_page_knows_the_printed_numbers(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    made = pdf_of(["The preface thanks nobody.", "The wombat digs at night.", "The emu runs at noon."])
    labels = b"/Type /Catalog /PageLabels << /Nums [0 << /S /r >> 2 << /S /D >>] >>"
    (tmp_path / "animals.pdf").write_bytes(made.replace(b"/Type /Catalog", labels, 1))
    job = library.jobs.run(library.documents.submit(tmp_path / "animals.pdf").id)
    page = open_tab(f"{serve(library)}/#/library")
    with held_back(page, f"/documents/{job.document_id}$"):
        page.locator(".document", has_text="animals").locator(".item-title").click()
        page.get_by_role("button", name="Small pictures of the pages").click()
        page.get_by_label("Page", exact=True).fill("ii")
        page.keyboard.press("Enter")
    expect(page.locator(".viewer .position")).to_have_text("Page ii (2 of 3)")
    expect(page.locator(".thumbnail").nth(1)).to_have_attribute("aria-label", "Page ii")


def test_what_is_checked_once_is_shown_wherever_one_has_gone_meanwhile(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    without, said = page.get_by_role("button", name="Leave it out").first, page.locator(".passage .effect").first
    with held_back(page, "/without/0$"):
        without.click()
        expect(said).to_have_text("Asking again without it…")
        page.get_by_role("tab", name="Near misses").click()
        page.get_by_role("tab", name="Passages").click()
        expect(said).to_have_text("Asking again without it…")
        expect(without).to_be_disabled()
    expect(said).to_contain_text("Without this passage")
    expect(without).to_be_enabled()


def test_the_state_of_the_machine_and_of_the_writer_is_the_newest(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    (tmp_path / "reports").mkdir()
    page = open_tab(serve(library))
    counted = page.locator(".card dt:text-is('Documents') + dd")
    with overtaken(page, "/api/v1/machine") as begun:
        view(page, "Machine")
        begun()
        view(page, "Ask")
        library.documents.delete([one.id for one in library.documents.list(search=WALKS)])
        with page.expect_response("**/api/v1/machine"):
            view(page, "Machine")
        expect(counted).to_have_text("1")
    expect(counted).to_have_text("1")

    folder = page.get_by_label("Folder on this machine")
    folder.fill(str(tmp_path / "reports"))
    with held_back(page, "/api/v1/folders$"):
        page.get_by_role("button", name="Follow", exact=True).click()
        folder.fill("/typed/meanwhile")
    expect(page.locator(".folder")).to_contain_text("reports")
    expect(folder).to_have_value("/typed/meanwhile")


def test_what_is_typed_while_a_writer_is_saved_stays(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, watch: Any
) -> None:
    watch.expected_statuses.add(422)
    page = open_tab(serve(library))
    name, state = page.locator("#writer-name"), page.locator("#writer-state")
    with overtaken(page, "/api/v1/writer$") as begun:  # as the settings are opened
        view(page, "Settings")
        begun()
        name.fill("http://127.0.0.1:9/v1")
        page.locator("#writer-save").click()
        expect(state).not_to_have_text("One moment…")
        expect(state).not_to_be_empty()
        said = state.inner_text()
    expect(state).to_have_text(said)
    expect(name).to_have_value("http://127.0.0.1:9/v1")


def test_the_keyboard_comes_back_from_a_dialog_to_a_list_that_was_drawn_anew_meanwhile(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    page = open_tab(url)
    view(page, "Library")
    properties = page.get_by_role("button", name="Properties of Walks around the lake")
    expect(properties).to_be_visible()
    view(page, "Ask")
    renamed(url, library, RESERVOIR, "The works")
    with held_back(page, r"/documents\?"):
        view(page, "Library")
        properties.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator(".document", has_text="The works")).to_have_count(1)
    escape(page)
    expect(properties).to_be_focused()
