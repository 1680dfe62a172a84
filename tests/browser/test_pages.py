"""The web page as people use it, over a library without a model: tests decide when ingestion moves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.fake_library import FakeLibrary

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

expect.set_options(timeout=15_000)

PDF = b"%PDF-1.7\n" + b"/Type /Page\n" * 6
HOSTILE = "${alert(1)} {{alert(2)}} <img src=x onerror=alert(3)> `alert(4)` </script><script>alert(5)</script>"


def view(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def ask(page: Any, question: str) -> None:
    page.get_by_label("Question").fill(question)
    page.keyboard.press("Enter")
    expect(page.get_by_role("meter")).to_have_count(page.locator(".turn").count() or 1)


def add_files(page: Any, *files: tuple[str, bytes]) -> None:
    page.locator("#file-input").set_input_files(
        [{"name": name, "mimeType": "application/pdf", "buffer": content} for name, content in files]
    )


def test_a_question_is_answered_with_evidence_that_can_be_followed(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary, tmp_path: Path
) -> None:
    page = open_tab(serve(library))
    ask(page, "When was the dam raised?")
    tokens, marks = page.locator(".answer-text .token"), page.locator(".passage-text mark")
    assert tokens.count() > 4 and page.locator(".passage").count() == 8
    expect(page.locator(".meter-text")).to_contain_text("of the attention was on the documents")

    tokens.nth(2).click()
    expect(page.locator(".focus")).to_contain_text("For the word")
    assert page.locator(".passage.dim").count() > 0, "blocks that this word did not read step back"
    page.keyboard.press("Escape")

    marks.first.click()
    expect(page.locator(".block-card")).to_contain_text("Attention")
    assert page.locator(".token.uses").count() > 0, "the words that used the block light up"
    page.get_by_role("button", name="Measure effect").click()
    expect(page.locator(".block-card")).to_contain_text("Effect on the answer")
    expect(page.locator(".block-card")).to_contain_text("less likely without it")

    page.get_by_role("tab", name="Layers and heads").click()
    assert page.locator(".heat .cell").count() == 11 * 9
    page.get_by_role("tab", name="Timeline").click()
    assert page.locator(".timeline .row").count() == 8
    page.get_by_role("tab", name="Near misses").click()
    expect(page.locator(".passage.missed")).to_have_count(4)

    others = page.locator(".others li")
    expect(others).to_have_count(2)
    expect(others.first.locator(".exact")).not_to_be_empty()
    others.first.get_by_role("button").click()
    expect(page.locator(".viewer .box").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".viewer")).to_have_count(0)

    page.get_by_role("tab", name="Passages").click()
    page.get_by_role("button", name="Show on the page").first.click()
    box = page.locator(".viewer .box").first
    expect(box).to_be_visible()
    expect(page.locator(".viewer .page-words mark").first).to_be_visible()
    position = page.locator(".viewer .position")
    shown = position.inner_text()
    page.locator(".viewer button[aria-label$=' page']:enabled").first.click()
    expect(position).not_to_have_text(shown)
    expect(position).to_have_text(re.compile(r"^Page \d of \d$"))
    page.keyboard.press("Escape")
    expect(page.locator(".viewer")).to_have_count(0)

    for kind in ("HTML", "JSON"):
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Export {kind}").click()
        file = tmp_path / f"export.{kind}"
        download.value.save_as(file)
        assert "When was the dam raised?" in file.read_text(encoding="utf-8")
    assert json.loads((tmp_path / "export.JSON").read_text())["format"] == "cairn-answer/2"


@pytest.mark.parametrize(("source", "kind"), [("renamed.txt", "pdf"), ("renamed.pdf", "txt")])
def test_the_kind_of_a_document_and_not_its_name_decides_whether_pages_have_pictures(
    serve: Callable[..., str], open_tab: Callable[..., Any], source: str, kind: str
) -> None:
    library = FakeLibrary(token_seconds=0.001)
    library.add(source, pages=2, kind=kind)
    page = open_tab(serve(library))
    view(page, "Library")
    page.locator(".document .item-title").click()
    expect(page.locator(".viewer .page-words")).to_be_visible()
    expect(page.locator(".viewer .page-image")).to_be_visible(visible=kind == "pdf")
    page.keyboard.press("Escape")

    view(page, "Ask")
    ask(page, "When was the dam raised?")
    page.get_by_role("button", name="Show on the page").first.click()
    expect(page.locator(".viewer .page-words mark").first).to_be_visible()
    expect(page.locator(".viewer .page-image")).to_be_visible(visible=kind == "pdf")


def test_everything_can_be_reached_by_keyboard(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    page = open_tab(serve(library))
    ask(page, "When was the dam raised?")
    page.locator(".answer-text").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".token.chosen")).to_have_attribute("data-token", "2")
    page.keyboard.press("Escape")
    page.locator(".passage-text mark").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".block-card")).to_be_visible()
    page.get_by_role("tab", name="Passages").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Layers and heads")).to_have_attribute("aria-selected", "true")


def test_every_control_has_a_name_for_screen_readers(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    page = open_tab(serve(library))
    ask(page, "When was the dam raised?")
    for name in ("Ask", "Library", "History", "Settings", "Machine"):
        view(page, name)
        page.wait_for_timeout(250)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('.mount :is(button, input, select, textarea, [role=button])')]
                .filter((one) => one.offsetParent && !one.textContent.trim() && !one.getAttribute('aria-label')
                    && !one.labels?.length && !one.title).map((one) => one.outerHTML)"""
        )
        assert nameless == [], name


def test_writing_can_be_stopped_and_gone_on_with(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    library.token_seconds = 0.15
    page = open_tab(serve(library))
    page.get_by_label("Question").fill("When was the dam raised?")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator(".streaming .token")).not_to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("meter")).to_be_visible()
    assert page.locator(".answer-text .token").count() < 12
    library.token_seconds = 0.0
    ask(page, "And by how much?")
    assert library.asked[0]["conversation_id"] == library.asked[1]["conversation_id"]
    page.get_by_role("button", name="New conversation").click()
    ask(page, "Something else?")
    assert library.asked[2]["conversation_id"] != library.asked[1]["conversation_id"]


def test_a_question_can_be_kept_to_chosen_documents(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    page = open_tab(serve(library))
    page.locator("#scope").click()
    page.get_by_label("Walks around the lake").check()
    page.get_by_role("button", name="Use these").click()
    expect(page.locator("#scope")).to_contain_text("Walks around the lake")
    ask(page, "How long is the path?")
    assert set(page.locator(".passage-title").all_inner_texts()) == {"Walks around the lake"}


def test_what_the_documents_do_not_say_is_said(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    page = open_tab(serve(library))
    ask(page, "Where do unicorns sleep?")
    expect(page.locator(".verdict")).to_contain_text("The documents do not say.")
    expect(page.locator(".meter.low .warning")).to_be_visible()
    expect(page.locator(".verdict")).not_to_contain_text("still being read")


def test_a_quotation_does_not_rest_on_the_model_itself(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    url = serve(library)
    for quote in (True, False):
        httpx.patch(f"{url}/api/v1/preferences", json={"low_share": 0.95, "quote": quote}).raise_for_status()
        page = open_tab(url)
        ask(page, "When was the dam raised?")
        expect(page.locator(".meter-text")).to_be_visible()
        expect(page.locator(".meter.low .warning")).to_have_count(0 if quote else 1)


def test_what_is_still_being_read_is_no_part_of_a_refusal(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary, tmp_path: Path
) -> None:
    (tmp_path / "slow.pdf").write_bytes(PDF)
    library.submit(tmp_path / "slow.pdf")
    page = open_tab(serve(library))
    ask(page, "Where do unicorns sleep?")
    expect(page.locator(".verdict")).to_contain_text("One document is still being read and may say more")


def test_history_survives_a_reload_and_a_link_opens_the_answer(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    page = open_tab(serve(library))
    ask(page, "When was the dam raised?")
    expect(page).to_have_url(re.compile(r"#/ask/\w+"))
    page.reload()
    expect(page.locator(".question")).to_have_text("When was the dam raised?")
    expect(page.locator(".passage")).to_have_count(8)
    view(page, "History")
    page.get_by_label("Find in the history").fill("dam")
    expect(page.locator(".history .item")).to_have_count(1)
    page.get_by_role("button", name="Delete this answer").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(".history .item")).to_have_count(0)


def test_files_are_estimated_read_and_deleted_and_a_second_tab_sees_the_same(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    url = serve(library)
    page = open_tab(f"{url}/#/library")
    add_files(page, ("first.pdf", PDF), ("second.pdf", PDF))
    expect(page.locator(".staged .item")).to_have_count(2)
    expect(page.locator(".staged")).to_contain_text("6 pages")
    expect(page.locator(".staged")).to_contain_text("on disk")
    page.get_by_role("button", name="Read all 2").click()
    expect(page.locator(".job")).to_have_count(2)
    library.deliver(3, "first.pdf")
    first = page.locator(".job", has_text="first.pdf")
    expect(first).to_contain_text("page 4 of 6")
    expect(first).to_contain_text("tokens/s")
    expect(first).to_contain_text("left")

    page.reload()
    expect(page.locator(".job", has_text="first.pdf")).to_contain_text("page 4 of 6")
    other = open_tab(f"{url}/#/library", same=page)
    expect(other.locator(".job")).to_have_count(2)
    other.get_by_role("button", name="Cancel second.pdf").click()
    expect(page.locator(".job", has_text="second.pdf")).to_contain_text("Cancelled")
    library.deliver(3, "first.pdf")
    for tab in (page, other):
        expect(tab.locator(".documents .document")).to_have_count(3)
        expect(tab.locator('.job[data-state="running"]')).to_have_count(0)
    page.get_by_role("button", name="Try second.pdf again").click()
    expect(page.locator('.job[data-state="queued"]')).to_have_count(1)

    page.get_by_role("button", name="Delete First").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".toast")).to_contain_text("freed")
    expect(page.locator(".document", has_text="first.pdf")).to_have_count(0)


def test_documents_are_found_renamed_and_put_into_collections(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    page = open_tab(f"{serve(library)}/#/library")
    page.get_by_label("Find documents").fill("walks")
    expect(page.locator(".document")).to_have_count(1)
    page.get_by_role("button", name="Rename Walks around the lake").click()
    page.get_by_label("Title").fill("On foot")
    page.keyboard.press("Enter")
    expect(page.locator(".document")).to_contain_text("On foot")
    page.get_by_role("button", name="New collection").click()
    page.get_by_role("textbox", name="Name").fill("Outdoors")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".chip", has_text="Outdoors")).to_be_visible()
    page.get_by_label("Choose On foot").check()
    page.get_by_label("Move to a collection").select_option(label="Outdoors")
    expect(page.locator(".document .tag")).to_have_text("Outdoors")


def test_a_hostile_pdf_fails_alone_and_in_words(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary, watch: Any
) -> None:
    watch.expected_statuses.add(415)
    page = open_tab(f"{serve(library)}/#/library")
    add_files(page, ("bad.pdf", b"%PDF-1.7 HOSTILE"), ("no.pdf", b"MZ executable"), ("good.pdf", PDF))
    expect(page.locator(".toast.bad")).to_contain_text("no.pdf is named .pdf but its content is not PDF")
    expect(page.locator(".staged .item", has_text="bad.pdf")).to_contain_text("damaged")
    expect(page.get_by_role("button", name="Read it")).to_be_visible()


def test_a_locked_pdf_asks_for_its_password(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    page = open_tab(f"{serve(library)}/#/library")
    add_files(page, ("locked.pdf", b"%PDF-1.7 ENCRYPTED"))
    page.get_by_role("button", name="Enter password").click()
    page.get_by_label("Password of locked.pdf").fill("open sesame")
    page.get_by_role("button", name="Read it").click()
    expect(page.locator(".job")).to_contain_text("locked.pdf")


def test_nothing_that_is_said_anywhere_is_ever_executed(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary, watch: Any
) -> None:
    library.add(f"{HOSTILE}.pdf", title=HOSTILE, text=f"wombat {HOSTILE} wombat. ", pages=2)
    group = library.create_collection(HOSTILE)
    library.move_document(next(reversed(library.document_rows)), group.id)
    page = open_tab(f"{serve(library)}/#/library")
    add_files(page, (f"{HOSTILE.replace('/', '')}.pdf", PDF))
    expect(page.locator(".staged .item")).to_contain_text("onerror=alert(3)")
    page.get_by_role("button", name="Read it").click()
    expect(page.locator(".job")).to_contain_text("onerror=alert(3)")
    expect(page.locator(".document .tag", has_text="onerror")).to_have_text(HOSTILE)
    page.locator(".document", has=page.locator(".tag", has_text="onerror")).get_by_role(
        "button", name=re.compile("^Rename")
    ).click()
    page.get_by_label("Title").fill(f"again {HOSTILE}")
    page.keyboard.press("Enter")
    expect(page.locator(".document .item-title", has_text="again")).to_contain_text("${alert(1)}")
    view(page, "Ask")
    ask(page, f"wombat {HOSTILE}")
    expect(page.locator(".question")).to_have_text(f"wombat {HOSTILE}")
    expect(page.locator(".passages")).to_contain_text("<img src=x onerror=alert(3)>")
    page.get_by_role("button", name="Show on the page").first.click()
    expect(page.locator(".page-words")).to_contain_text("{{alert(2)}}")
    page.keyboard.press("Escape")
    page.locator("#scope").click()
    expect(page.get_by_role("dialog")).to_contain_text("`alert(4)`")
    page.keyboard.press("Escape")
    view(page, "History")
    expect(page.locator(".history")).to_contain_text("</script><script>alert(5)</script>")
    assert page.locator("img[src='x']").count() == 0
    with page.expect_download() as download:
        page.evaluate(
            """async () => { const found = await (await fetch('/api/v1/answers')).json();
                const link = document.createElement('a');
                link.download = ''; link.href = `/api/v1/answers/${found.answers[0].id}/export`;
                document.body.append(link); link.click(); }"""
        )
    exported = open_tab("about:blank")
    exported.set_content(Path(download.value.path()).read_text(encoding="utf-8"))
    assert exported.locator("img[src='x']").count() == 0 and HOSTILE in exported.locator("h1").inner_text()


def test_settings_are_kept_and_used(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    url = serve(library)
    page = open_tab(f"{url}/#/settings")
    expect(page.locator("#setting-top-k input[type=number]")).to_have_value("8")  # what is stored has arrived
    page.get_by_label("In the model's own words").check()
    page.wait_for_function("async () => (await (await fetch('/api/v1/preferences')).json()).quote === false")
    page.locator("#setting-top-k input[type=number]").fill("3")
    page.locator("#setting-top-k input[type=number]").press("Enter")
    page.wait_for_function("async () => (await (await fetch('/api/v1/preferences')).json()).top_k === 3")
    page.reload()
    expect(page.locator("#setting-top-k input[type=number]")).to_have_value("3")
    view(page, "Ask")
    expect(page.locator("#quote")).to_have_attribute("aria-pressed", "false")
    ask(page, "When was the dam raised?")
    assert (library.asked[0]["k"], library.asked[0]["quote"]) == (3, False)


def test_light_and_dark_are_chosen_and_remembered(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    page = open_tab(serve(library), color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    for _ in range(2):
        page.get_by_role("button", name=re.compile("^Appearance")).click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("body")).to_have_class(re.compile("dark"))


def test_a_phone_shows_everything_without_scrolling_sideways(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    page = open_tab(serve(library), viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    ask(page, "When was the dam raised?")
    for name in ("Ask", "Library", "History", "Settings", "Machine"):
        view(page, name)
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name


def test_a_password_is_asked_for_and_a_wrong_one_refused(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary, watch: Any
) -> None:
    watch.expected_statuses.add(401)
    page = open_tab(serve(library, password="a quiet pile of stones"))
    page.get_by_label("Password").fill("guess guess")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("This is not the password.")
    page.get_by_label("Password").fill("a quiet pile of stones")
    page.keyboard.press("Enter")
    ask(page, "When was the dam raised?")
    page.context.clear_cookies()
    view(page, "History")
    expect(page.get_by_label("Password")).to_be_visible()


def test_the_api_page_describes_the_api(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: FakeLibrary
) -> None:
    page = open_tab(f"{serve(library)}/docs")
    expect(page.locator("code", has_text="/api/v1/ask").first).to_be_visible()
    assert page.locator(".operation").count() > 25
