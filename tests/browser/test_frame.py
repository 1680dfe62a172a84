"""The page as a whole: names of controls, settings, appearance, phones, signing in, and text that is not trusted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.api import changes
from retrieval.library import Library
from tests.app.api_client import PDF
from tests.app.serving import BEARER
from tests.app.small_library import QUESTION, WALKS, pdf_of

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import add_files, ask, box, escape, in_its_own_words, reload, view, view_whole  # noqa: E402

HOSTILE = "${alert(1)} {{alert(2)}} <img src=x onerror=alert(3)> `alert(4)` </script><script>alert(5)</script>"
ELSEWHERE = "http://198.51.100.7"
TRICKS = (  # style, links and frames, and characters that turn the direction of what follows
    f"</style><style>* {{ display: none !important; background: url({ELSEWHERE}/a) }}</style>"
    f"<link rel=stylesheet href={ELSEWHERE}/b><base href={ELSEWHERE}/><iframe src={ELSEWHERE}/c></iframe>"
    f"<svg onload=alert(6)><a href='javascript:alert(7)'>here</a>"
    f"<meta http-equiv=refresh content='0;url={ELSEWHERE}/d'>"
    "\u202egnitset\u2067\u200f"
)


@pytest.mark.usefixtures("attention_decides")
def test_everything_can_be_reached_by_keyboard(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    in_its_own_words(url)
    page = open_tab(url)
    page.get_by_role("tab", name="Machine", exact=True).wait_for()  # the frame has come: nothing moves any more
    ask(page, QUESTION)
    third = re.findall(r"[\w'’-]+|[^\w\s]", library.answers.get(library.answers.list()[0].id).text)[2]
    page.locator(".answer-text").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".focus q")).to_have_text(third)
    escape(page)
    page.locator(".passage-text mark").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".block-card")).to_be_visible()
    page.get_by_role("tab", name="Passages").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Word by word")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Ask", exact=True).focus()
    for name in ("Library", "History", "Library"):
        page.keyboard.press("ArrowLeft" if name == "Library" and "history" in page.url else "ArrowRight")
        expect(page.get_by_role("tab", name=name, exact=True)).to_be_focused()
        expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute("aria-selected", "true")
        expect(page).to_have_url(re.compile(f"#/{name.lower()}"))
    page.get_by_role("button", name="Properties of Walks around the lake").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Authors")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Properties of Walks around the lake")).to_be_focused()


def test_every_control_has_a_name_for_screen_readers(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    for name in ("Ask", "Library", "History", "Settings", "Machine"):
        view_whole(page, name)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('.mount :is(button, input, select, textarea, [role=button])')]
                .filter((one) => one.offsetParent && !one.textContent.trim() && !one.getAttribute('aria-label')
                    && !one.labels?.length && !one.title).map((one) => one.outerHTML)"""
        )
        assert nameless == [], name
        assert page.get_by_role("heading", level=1).all_inner_texts() == [f"Cairn: {name.lower()}"]


def test_nothing_that_is_said_anywhere_is_ever_executed(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    (tmp_path / "hostile.pdf").write_bytes(pdf_of([f"The wombat says {HOSTILE} to every visitor of the zoo."]))
    job = library.documents.submit(tmp_path / "hostile.pdf", source=f"{HOSTILE}.pdf", collection=HOSTILE)
    assert library.jobs.run(job.id).state == "done"
    library.documents.rename(job.document_id, HOSTILE)
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
    ask(page, f"What does the wombat say? {HOSTILE}")
    expect(page.locator(".question")).to_have_text(f"What does the wombat say? {HOSTILE}")
    expect(page.locator(".passages")).to_contain_text("<img src=x onerror=alert(3)>")
    page.get_by_role("button", name="Show on the page").first.click()
    expect(page.locator(".page-words")).to_contain_text("{{alert(2)}}")
    escape(page)
    page.locator("#scope").click()
    expect(page.get_by_role("dialog")).to_contain_text("`alert(4)`")
    escape(page)
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


def test_text_that_tries_style_links_and_directions_loads_nothing_and_turns_nothing_else(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    (tmp_path / "tricks.txt").write_text(f"The wombat says {TRICKS} to every visitor of the zoo.", encoding="utf-8")
    name = TRICKS.replace("/", "|")
    job = library.documents.submit(tmp_path / "tricks.txt", source=f"{name}.txt", collection=name)
    assert library.jobs.run(job.id).state == "done"
    library.documents.rename(job.document_id, TRICKS)
    document, (collection,) = library.documents.get(job.document_id), library.collections.list()
    for shown in (document.title, document.source, collection.name):
        assert not set(shown) & set("\u202e\u2067\u200f"), "names are cleaned where they enter"
    url = serve(library)
    page = open_tab(f"{url}/#/library")
    expect(page.locator(".document", has_text="gnitset").first).to_be_visible()
    view(page, "Ask")
    ask(page, f"What does the wombat say? {TRICKS}")
    expect(page.locator(".passages")).to_contain_text("gnitset")
    expect(page.locator(".passages")).to_be_visible()
    assert page.evaluate(BACKWARDS) == [], "what is turned stays in its own paragraph"
    page.get_by_role("button", name="Show on the page").first.click()
    expect(page.locator(".page-words")).to_contain_text("<link rel=stylesheet")
    escape(page)
    view(page, "History")
    expect(page.locator(".history")).to_contain_text("What does the wombat say?")
    assert page.locator(f"[href^='{ELSEWHERE}'], [src^='{ELSEWHERE}'], [href^='javascript']").count() == 0
    exported = open_tab("about:blank")
    address = f"{url}/api/v1/answers/{library.answers.list()[0].id}/export"
    exported.set_content(httpx2.get(address, headers=BEARER, timeout=60).text)
    expect(exported.locator("h1")).to_be_visible()
    assert exported.locator("link, iframe, base, svg, script, [href]").count() == 0
    assert exported.evaluate(BACKWARDS) == []


# Every text without characters that turn it whose end stands left of its beginning on one line.
BACKWARDS = """() => {
    const turned = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const left = (node, at) => { const range = document.createRange(); range.setStart(node, at);
        range.setEnd(node, at + 1); return range.getBoundingClientRect(); };
    while (walk.nextNode()) {
        const text = walk.currentNode.data, block = walk.currentNode.parentElement.closest('p, div, li, h1, pre, td');
        if (text.trim().length < 3 || /[\u2067\u202e\u200f]/.test(block ? block.textContent : text)) continue;
        const at = text.search(/\\S/), first = left(walk.currentNode, at), second = left(walk.currentNode, at + 1);
        if (first.width && second.width && first.top === second.top && second.left < first.left) turned.push(text);
    }
    return turned; }"""


def test_settings_are_kept_and_used(serve: Callable[..., str], open_tab: Callable[..., Any], library: Library) -> None:
    url = serve(library)
    page = open_tab(f"{url}/#/settings")
    expect(page.locator("#setting-top-k input[type=number]")).to_have_value("8")  # what is stored has arrived
    # The shipped model cannot write, and there is no writer: own words are not offered.
    expect(page.get_by_label("In the model's own words")).to_have_count(0)
    page.locator("#setting-top-k input[type=number]").fill("3")
    page.locator("#setting-top-k input[type=number]").press("Enter")
    expect(page.locator("#setting-state")).to_contain_text("3 parts read at a time")
    page.wait_for_function("async () => (await (await fetch('/api/v1/preferences')).json()).top_k === 3")
    page.get_by_label("Word for word from the documents").check()
    expect(page.locator("#setting-state")).to_contain_text("answers word for word from the documents")
    reload(page)
    expect(page.locator("#setting-top-k input[type=number]")).to_have_value("3")
    expect(page.get_by_label("Word for word from the documents")).to_be_checked()
    view(page, "Ask")
    ask(page, QUESTION)
    settings = library.answers.get(library.answers.list()[0].id).settings
    assert (settings["k"], settings["quote"]) == (3, True)


def test_a_server_that_comes_back_is_noticed(
    serve: Callable[..., str],
    open_tab: Callable[..., Any],
    library: Library,
    watch: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "STREAM_SECONDS", 1.0)
    watch.expected_failures = True
    page = open_tab(f"{serve(library)}/#/machine")
    expect(page.locator(".machine .cards .card").first).to_be_visible()
    page.context.set_offline(True)
    page.get_by_role("button", name="Look again").click()
    expect(page.locator(".machine .verdict.bad")).to_have_text("The server does not answer. Is it still running?")
    away = page.get_by_role("status").filter(has_text="The server does not answer. What you see may be out of date.")
    expect(away).to_be_visible()
    page.context.set_offline(False)
    expect(page.locator(".machine .cards .card").first).to_be_visible()
    expect(away).to_be_hidden()


def test_light_and_dark_are_chosen_and_remembered(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library), color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    for _ in range(2):
        page.get_by_role("button", name=re.compile("^Appearance")).click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    reload(page)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("body")).to_have_class(re.compile("dark"))


UNDER_ICONS = """() => [...document.querySelectorAll('.document')].flatMap((row) => {
    const title = row.querySelector('.item-title').getBoundingClientRect();
    return [...row.querySelectorAll('.icon-button')].filter((icon) => { const at = icon.getBoundingClientRect();
        return at.left < title.right && title.left < at.right && at.top < title.bottom && title.top < at.bottom; })
        .map((icon) => icon.getAttribute('aria-label')); })"""


OUTSIDE = """() => [...document.querySelectorAll('button, a, input')]
    .filter((one) => one.checkVisibility() && !one.closest(".subtabs"))
    .filter((one) => one.getBoundingClientRect().right > innerWidth)
    .map((one) => one.getAttribute('aria-label') || one.textContent)"""


@pytest.mark.usefixtures("attention_decides")
def test_a_phone_shows_everything_without_scrolling_sideways(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    (walks,) = library.documents.list(search=WALKS)
    library.documents.rename(walks.id, "Walks around the lake and to the tower on its eastern shore, in summer")
    url = serve(library)
    in_its_own_words(url)
    page = open_tab(url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    ask(page, QUESTION)
    evidence = page.get_by_role("complementary", name="Evidence")
    expect(evidence).to_be_hidden()
    page.get_by_role("button", name="What was read").click()
    expect(evidence.locator(".passage").first).to_be_in_viewport()
    escape(page)
    expect(evidence).to_be_hidden()
    page.locator(".answer-text .token").nth(1).tap()  # a word shows what it was read from
    expect(evidence.locator(".focus q")).to_be_in_viewport()
    page.get_by_role("button", name="Close what was read").tap()
    expect(evidence).to_be_hidden()
    for name in ("Ask", "Library", "History", "Settings", "Machine"):
        view_whole(page, name)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        assert page.evaluate(OUTSIDE) == [], name
    assert box(page.get_by_label("Folder on this machine"))["width"] > 200
    view(page, "Library")
    assert page.evaluate(UNDER_ICONS) == [], "names stand beside the icons"
    page.get_by_label("Choose Handbook of the reservoir").check()
    said, move = (box(page.locator(part)) for part in (".bulk .grow", ".bulk select"))
    assert said["y"] + said["height"] <= move["y"], "what is chosen stands above what can be done with it"
    page.get_by_role("button", name="Properties of Walks around the lake").click()
    at = box(page.get_by_role("dialog"))
    assert at["x"] >= 8 and at["x"] + at["width"] <= 382


def test_a_password_is_asked_for_and_a_wrong_one_refused(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, watch: Any
) -> None:
    watch.expected_statuses.add(401)
    page = open_tab(serve(library, password="a quiet pile of stones"))
    page.get_by_label("Password").fill("guess guess")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("Wrong password.")
    page.get_by_label("Password").fill("a quiet pile of stones")
    page.keyboard.press("Enter")
    ask(page, QUESTION)
    page.context.clear_cookies()
    view(page, "History")
    expect(page.get_by_label("Password")).to_be_visible()


def test_the_api_page_describes_the_api(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(f"{serve(library)}/docs")
    expect(page.locator("code", has_text="/api/v1/ask").first).to_be_visible()
    assert page.locator(".operation").count() > 25


def test_the_machine_page_says_sizes_in_words_and_breaks_none_of_them(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    view_whole(page, "Machine")
    index = page.locator(".card", has=page.get_by_role("heading", name="Index", exact=True))
    said = index.locator("dd")
    expect(said.filter(has_text="GB")).not_to_have_count(0)
    lines = "(one) => { const r = new Range(); r.selectNodeContents(one); return r.getClientRects().length; }"
    assert [one.evaluate(lines) for one in said.all()] == [1] * said.count()
