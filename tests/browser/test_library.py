"""The library at the page: files on their way in, documents, collections."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from app.api import documents
from app.work import JobRunner
from retrieval.documents import Documents
from retrieval.extraction import extract
from retrieval.extraction.process import sandbox
from retrieval.ingest import pipeline
from retrieval.library import Library
from tests.app.api_client import PDF, locked_pdf
from tests.app.small_library import PAGES, RESERVOIR, WALKS, ByHand, pdf_of

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import add_files, ask, reload  # noqa: E402

CHANGED = """shown => {
    const now = [...document.querySelectorAll(".jobs, .job")].map((each) => each.innerText);
    return JSON.stringify(now) !== JSON.stringify(shown);
}"""
NOTE_CANCELLING = """() => {
    const look = () => {
        window.saidCancelling ||= document.querySelector(".job")?.textContent.includes("Cancelling…");
    };
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
NEVER_ENDS = """import json, pathlib, sys, time
request = json.load(sys.stdin)
pathlib.Path(request["folder"], "progress.json").write_text("[3, 6, 1200]")
time.sleep(60)
"""
SIX_PAGES = pdf_of([f"{text} {text.upper()}" for text in PAGES[RESERVOIR]])


def test_an_empty_library_takes_files_on_the_first_page_and_comes_back_to_it(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    library.documents.delete([one.id for one in library.documents.list()])
    page = open_tab(serve(library))
    expect(page.locator(".first-files")).to_contain_text("PDF, Word")
    page.locator("#first-files").set_input_files(
        [{"name": "first.pdf", "mimeType": "application/pdf", "buffer": SIX_PAGES}]
    )
    expect(page.locator(".staged .item")).to_have_count(1)
    page.get_by_role("button", name="Read it").click()
    expect(page.locator(".hero")).to_be_visible()


def test_files_are_estimated_read_and_deleted_and_a_second_tab_sees_the_same(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "REPORT_SECONDS", 0.0)  # every step is told
    url = serve(library)
    page = open_tab(f"{url}/#/library")
    with ByHand(library) as reading:
        add_files(page, ("first.pdf", SIX_PAGES))
        expect(page.locator(".staged .item")).to_have_count(1)
        add_files(page, ("second.pdf", PDF))
        expect(page.locator(".staged .item")).to_have_count(2)
        expect(page.locator(".staged")).to_contain_text("6 pages")
        expect(page.locator(".staged")).to_contain_text("on disk")
        page.get_by_role("button", name="Read all 2").click()
        expect(page.locator(".job")).to_have_count(2)
        first = page.locator(".job", has_text="first.pdf")
        expect(first).to_contain_text("Extracting the text")
        reading.step()
        while next(job for job in library.jobs.list() if job.source == "first.pdf").stage == "extracting":
            reading.step()  # if that takes long, it tells of its pages
        expect(first).to_contain_text(re.compile(r"page \d of 6"))
        expect(first).to_contain_text("tokens/s")
        expect(first).to_contain_text("left")

        reload(page)
        expect(page.locator(".job", has_text="first.pdf")).to_contain_text("of 6")
        other = open_tab(f"{url}/#/library", same=page)
        expect(other.locator(".job")).to_have_count(2)
        cancel = other.get_by_role("button", name="Cancel second.pdf")
        cancel.focus()
        for _ in range(2):  # the list changes by itself meanwhile
            shown = other.locator(".jobs, .job").all_inner_texts()
            reading.step()
            other.wait_for_function(CHANGED, arg=shown)
        expect(cancel).to_be_focused()
        other.keyboard.press("Enter")
        for tab in (page, other):
            expect(tab.locator(".job", has_text="second.pdf")).to_contain_text("Cancelled.")
            expect(tab.locator(".documents .document")).to_have_count(2)  # no second row for what is being read
        other.get_by_role("button", name="Read second.pdf after all").click()
        expect(other.get_by_role("button", name="Cancel second.pdf")).to_be_visible()
        other.get_by_role("button", name="Cancel second.pdf").click()
        other.get_by_role("button", name="Remove second.pdf").click()
        reading.let_go()
        for tab in (page, other):
            expect(tab.locator(".documents .document")).to_have_count(3)
            expect(tab.locator(".job")).to_have_count(0)
    assert {one.source for one in library.documents.list()} == {RESERVOIR, WALKS, "first.pdf"}, (
        "nothing is left of a cancelled"
    )

    other.get_by_role("button", name="Rename First").click()
    other.get_by_label("Title").fill("Renamed elsewhere")
    other.keyboard.press("Enter")
    expect(page.locator(".document", has_text="Renamed elsewhere")).to_be_visible()

    page.get_by_role("button", name="Delete Renamed elsewhere").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".toast")).to_contain_text("freed")
    expect(page.locator(".document", has_text="first.pdf")).to_have_count(0)


class NothingWaits(sandbox.Sandbox):
    """Starts a process for each file, and none ahead."""

    def start_next(self) -> None:
        pass


def test_cancelling_while_the_text_is_extracted_leaves_nothing(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, home = serve(library), library.view.workspace.home
    before = {path for path in home.rglob("*") if path.is_file()}
    page = open_tab(f"{url}/#/library")
    add_files(page, ("slow.pdf", SIX_PAGES))
    expect(page.get_by_role("button", name="Read it")).to_be_visible()
    never_ends = [sys.executable, "-c", NEVER_ENDS]
    readers: list[Any] = []

    def start(*_arguments: str) -> Any:
        readers.append(subprocess.Popen(never_ends, stdin=subprocess.PIPE, stderr=subprocess.PIPE))
        return readers[-1]

    monkeypatch.setattr(sandbox, "start_reader", start)
    monkeypatch.setattr(extract, "SANDBOX", NothingWaits())
    with JobRunner(library, idle_seconds=0.02):
        page.get_by_role("button", name="Read it").click()
        expect(page.locator(".job")).to_contain_text("Extracting the text · 50 %, page 4 of 6")
        expect(page.get_by_role("progressbar", name="slow.pdf")).to_have_attribute("aria-valuenow", "50")
        other = open_tab(f"{url}/#/library", same=page)
        page.evaluate(NOTE_CANCELLING)
        page.get_by_role("button", name="Cancel slow.pdf").click()
        page.get_by_role("button", name="Remove slow.pdf").click()
        for tab in (page, other):
            expect(tab.locator(".job")).to_have_count(0)
            expect(tab.locator(".documents .document")).to_have_count(2)
    assert page.evaluate("() => window.saidCancelling"), "it was said until the reader had ended"
    assert [reader.poll() is not None for reader in readers] == [True]
    left = {path.name for path in home.rglob("*") if path.is_file()} - {path.name for path in before}
    assert {name for name in left if "slow" in name or name.endswith((".pdf", ".kv"))} == set()
    assert {one.source for one in library.documents.list()} == {RESERVOIR, WALKS}


def test_documents_are_found_renamed_and_put_into_collections(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(f"{serve(library)}/#/library")
    page.get_by_label("Find documents").fill("walks")  # "Everybody below the dam walks" stands in the other one
    expect(page.locator(".document")).to_have_count(2)
    page.get_by_label("Find documents").fill(WALKS)
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


def test_properties_are_shown_set_and_narrow_the_list(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, watch: Any
) -> None:
    watch.expected_statuses.add(422)  # a date that is none
    (walks,) = library.documents.list(search=WALKS)
    library.documents.set_properties(walks.id, {"author": ["Ann Lee"], "department": ["Paths"]})
    page = open_tab(f"{serve(library)}/#/library")
    row = page.locator(".document", has_text="Walks around the lake")
    expect(row.locator(".property")).to_have_text(["Author Ann Lee"])
    page.get_by_role("button", name="Properties of Walks around the lake").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Department")).to_have_value("Paths")
    dialog.get_by_label("Date").fill("soon")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("'soon' is not a date")
    dialog.get_by_label("Date").fill("2024-05")
    dialog.get_by_label("Tags").fill("outdoors; checked")
    dialog.get_by_label("Department").fill("")
    dialog.get_by_label("Name of a new field").fill("Region")
    dialog.get_by_label("Value of the new field").fill("North")
    dialog.get_by_role("button", name="Save").click()
    expect(row.locator(".property")).to_have_count(4)
    assert library.documents.get(walks.id).properties == {
        "author": ("Ann Lee",), "date": ("2024-05",), "tag": ("outdoors", "checked"), "region": ("North",),
    }  # fmt: skip

    expect(page.locator(".document")).to_have_count(2)
    row.get_by_role("button", name="Tag outdoors").click()
    expect(page.locator(".document")).to_have_count(1)
    page.get_by_role("button", name="No longer only tag=outdoors").click()
    expect(page.locator(".document")).to_have_count(2)


def test_what_waits_is_folded_and_cancelled_together(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(f"Note {number} about the lake.")
        library.documents.submit(tmp_path / f"{number}.txt")
    page = open_tab(f"{serve(library)}/#/library")
    expect(page.locator(".job")).to_have_count(3)
    page.get_by_role("button", name="3 more are waiting").click()
    expect(page.locator(".job")).to_have_count(6)
    page.get_by_role("button", name="Cancel all").click()
    cancelled = page.get_by_role("button", name=re.compile(r"Read \d.txt after all"))
    expect(cancelled).to_have_count(6)
    page.get_by_role("button", name="Read all of them").click()
    expect(page.get_by_role("button", name="Cancel all")).to_be_visible()
    page.get_by_role("button", name="Cancel all").click()
    expect(cancelled).to_have_count(6)
    page.get_by_role("button", name="Remove all").click()
    expect(page.locator(".job")).to_have_count(0)
    expect(page.locator(".documents .document")).to_have_count(2)
    assert library.jobs.num_active() == 0


def test_all_are_cancelled_although_they_are_just_being_queued_again(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"Note {number} about the lake.")
        library.jobs.cancel(library.documents.submit(tmp_path / f"{number}.txt").id)
    page = open_tab(f"{serve(library)}/#/library")
    first: list[Any] = []
    held: list[Any] = []

    def hold_all_but_two(route: Any) -> None:
        if len(first) == 2 and not clicked:
            held.append(route)
            return
        first.append(route)
        route.continue_()

    clicked = False
    page.route("**/retry", hold_all_but_two)
    page.get_by_role("button", name="Read all of them").click()
    page.get_by_role("button", name="Cancel all").click()  # two of four wait again, the others are still cancelled
    clicked = True
    for route in held:
        route.continue_()
    expect(page.get_by_role("button", name=re.compile(r"Read \d.txt after all"))).to_have_count(4)
    assert library.jobs.num_active() == 0


def test_a_collection_goes_out_as_a_file_and_comes_in_again(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, watch: Any, tmp_path: Path
) -> None:
    watch.expected_statuses.add(422)
    (walks,) = library.documents.list(search=WALKS)
    library.documents.move(walks.id, library.collections.create("Outdoors").id)
    page = open_tab(f"{serve(library)}/#/library")
    page.locator(".chip", has_text="Outdoors").click()
    expect(page.locator(".document")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    assert download.value.suggested_filename == "Outdoors.cairn"
    download.value.save_as(tmp_path / "Outdoors.cairn")
    library.documents.delete([walks.id])
    page.locator(".chip", has_text="All").click()
    expect(page.locator(".document")).to_have_count(1)

    cut = (tmp_path / "Outdoors.cairn").read_bytes()[:5000]
    choose = page.get_by_label("A file that Export made")
    choose.set_input_files({"name": "cut.cairn", "mimeType": "application/zip", "buffer": cut})
    expect(page.locator(".toast.bad")).to_contain_text("cut.cairn")
    expect(page.get_by_role("button", name="Import", exact=True)).to_be_enabled()
    choose.set_input_files(tmp_path / "Outdoors.cairn")
    expect(page.locator(".toast", has_text="1 document imported.")).to_be_visible()
    expect(page.locator(".document", has_text="Walks around the lake").locator(".tag")).to_have_text("Outdoors")
    *_, answer = library.ask("How long is the path?")
    assert "eleven kilometres" in answer.text
    assert not [path for path in (tmp_path / "home" / "uploads").iterdir() if path.is_file()], "nothing is left"


def test_a_damaged_pdf_fails_alone_and_in_words(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, watch: Any
) -> None:
    watch.expected_statuses.add(415)
    page = open_tab(f"{serve(library)}/#/library")
    add_files(page, ("bad.pdf", b"%PDF-1.7\nnothing of a document"), ("no.pdf", b"MZ executable"), ("good.pdf", PDF))
    expect(page.locator(".toast.bad")).to_contain_text("no.pdf is named .pdf but its content is not PDF")
    page.locator(".toast.bad").click(position={"x": 12, "y": 12})
    expect(page.locator(".toast")).to_have_count(0)
    expect(page.locator(".staged .item", has_text="bad.pdf")).to_contain_text("cannot be read")
    expect(page.get_by_role("button", name="Read it")).to_be_visible()


def test_a_kind_that_cannot_be_read_is_refused_in_one_line_which_leads_to_those_that_can(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, watch: Any
) -> None:
    watch.expected_statuses.add(415)
    page = open_tab(f"{serve(library)}/#/library")
    add_files(page, ("march.mp3", b"ID3"))
    refused = page.locator(".toast.bad")
    expect(refused).to_have_text("march.mp3: Sound cannot be read. See what can be read.")
    refused.get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text("PDF, Word, Excel, PowerPoint")
    expect(refused).to_have_count(0)
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_locked_pdf_asks_for_its_password(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(f"{serve(library)}/#/library")
    add_files(page, ("locked.pdf", locked_pdf("open sesame")))
    page.get_by_role("button", name="Enter password").click()
    page.get_by_label("Password of locked.pdf", exact=True).fill("open sesame")
    page.get_by_role("button", name="Read it").click()
    expect(page.locator(".job")).to_contain_text("locked.pdf")


def test_what_is_still_being_checked_is_read_with_the_rest(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate, checked = Documents.estimate, threading.Event()

    def slow(documents: Documents, path: Path, *, watch: Callable[[int, int], object], **more: Any) -> Any:
        if path.stat().st_size > len(PDF):
            watch(3, 6)
            checked.wait(30)
        return estimate(documents, path, watch=watch, **more)

    monkeypatch.setattr(Documents, "estimate", slow)
    page = open_tab(f"{serve(library)}/#/library")
    add_files(page, ("quick.pdf", PDF))  # alone first: a person's files are checked one after the other
    expect(page.locator(".staged .item")).to_have_count(1)
    expect(page.locator(".start-row")).not_to_contain_text("being checked")
    add_files(page, ("slow.pdf", SIX_PAGES))
    expect(page.locator(".start-row")).to_contain_text("1 file still being checked")
    expect(page.locator(".staged .item", has_text="slow.pdf")).to_contain_text("checking it… 50 %, page 4 of 6")
    page.get_by_role("button", name="Read all 2").click()
    expect(page.locator(".job")).to_have_count(2)
    expect(page.locator(".staged .item")).to_have_count(0)
    checked.set()


def test_a_search_finds_what_stands_in_the_documents_too(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(f"{serve(library)}/#/library")
    page.get_by_label("Find documents").fill("turbines in the lower gallery")
    expect(page.locator(".document .item-title")).to_have_text([re.compile("^Handbook of the reservoir")])
    first = page.locator(".in-text .item").first
    expect(first).to_contain_text("turbines")
    expect(first).to_contain_text("Handbook of the reservoir, page")
    first.get_by_role("button").click()
    expect(page.locator(".viewer .position")).to_have_text("Page 2 of 6")


def test_a_misspelt_word_finds_what_holds_the_nearest_and_says_so(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(f"{serve(library)}/#/library")
    page.get_by_label("Find documents").fill("spilway")
    said = page.get_by_text("No document has these words. The nearest in the library: spillway")
    expect(said).to_be_visible()
    expect(page.locator(".document .item-title")).to_have_text([re.compile("^Handbook of the reservoir")])
    page.get_by_label("Find documents").fill("spillway")
    expect(said).to_be_hidden()
    expect(page.locator(".document .item-title")).to_have_text([re.compile("^Handbook of the reservoir")])


def test_a_document_is_searched_paged_through_and_fetched(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(f"{serve(library)}/#/library")
    page.locator(".document", has_text="Handbook").locator(".item-title").click()
    position = page.locator(".viewer .position")
    page.get_by_label("Page", exact=True).fill("4")
    page.keyboard.press("Enter")
    expect(position).to_have_text("Page 4 of 6")
    page.get_by_label("Page", exact=True).fill("99")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Page", exact=True)).to_have_value("4")

    page.get_by_label("Find in the document").fill("ROSENTAL")
    page.keyboard.press("Enter")
    expect(page.locator(".find-count")).to_have_text("1 of 2")
    expect(position).to_have_text("Page 3 of 6")
    expect(page.locator(".viewer .quoted")).to_have_text("Rosental")
    expect(page.locator(".viewer .box.answer")).to_be_visible()
    page.get_by_role("button", name="Next place").click()
    expect(position).to_have_text("Page 5 of 6")
    page.get_by_label("Find in the document").fill("unicorn")
    page.keyboard.press("Enter")
    expect(page.locator(".find-count")).to_have_text("Not found")

    with page.expect_download() as download:
        page.get_by_role("link", name="The original file").click()
    assert download.value.suggested_filename == RESERVOIR
    (document,) = library.documents.list(search=RESERVOIR)
    assert Path(download.value.path()).read_bytes() == library.documents.original(document.id).read_bytes()


def test_small_pictures_of_the_pages_lead_to_them(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(f"{serve(library)}/#/library")
    page.locator(".document", has_text="Handbook").locator(".item-title").click()
    wanted = page.get_by_role("button", name="Small pictures of the pages")
    expect(page.locator(".thumbnail")).to_have_count(0)
    wanted.click()
    expect(page.locator(".thumbnail")).to_have_count(6)
    page.get_by_role("button", name="Page 3", exact=True).click()
    expect(page.locator(".viewer .position")).to_have_text("Page 3 of 6")
    expect(page.locator(".thumbnail[aria-current]")).to_have_attribute("aria-label", "Page 3")
    wanted.click()
    expect(page.locator(".thumbnails")).to_be_hidden()


def test_files_dropped_on_the_ask_page_are_taken(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    page.locator("#question").wait_for()
    page.evaluate(
        """() => { const files = new DataTransfer();
            files.items.add(new File(["The mill was closed in 1951."], "mill.txt", { type: "text/plain" }));
            document.querySelector("#question").dispatchEvent(
                new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true })); }"""
    )
    expect(page.locator(".staged .item")).to_contain_text("mill.txt")


def test_text_is_pasted_and_a_web_page_added_by_its_address(
    serve: Callable[..., str],
    open_tab: Callable[..., Any],
    library: Library,
    watch: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch.expected_statuses.add(422)
    page = open_tab(f"{serve(library)}/#/library")
    page.get_by_role("button", name="Paste text").click()
    page.get_by_label("Text", exact=True).fill("Rules of the pool\n\nNobody dives after nine.")
    page.get_by_role("button", name="Add it").click()
    expect(page.locator(".staged .item")).to_contain_text("Rules of the pool.txt")

    page.get_by_role("button", name="Add a web page").click()
    page.get_by_label("Address").fill("http://127.0.0.1/secret")
    page.get_by_role("button", name="Fetch it").click()
    expect(page.locator(".toast.bad")).to_contain_text("127.0.0.1 is not a public server.")

    def pool(url: str, most_bytes: int, file: BinaryIO) -> str:
        file.write(b"<h1>Pool</h1><p>Open until ten.</p>")
        return "pool.html"

    monkeypatch.setattr(documents, "fetch_page", pool)
    page.get_by_role("button", name="Add a web page").click()
    page.get_by_label("Address").fill("https://example.org/pool")
    page.keyboard.press("Enter")
    expect(page.locator(".staged .item")).to_have_count(2)
    with JobRunner(library, idle_seconds=0.02):
        page.get_by_role("button", name="Read all 2").click()
        expect(page.locator(".documents .document")).to_have_count(4)


def test_one_document_is_asked_about_and_a_sheet_is_shown_as_a_grid(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    (tmp_path / "boats.csv").write_text("Boat,Length,Berth\nTern,7 m,12\nHeron,9 m,14\nCoot,6 m,3\n", encoding="utf-8")
    library.jobs.run(library.documents.submit(tmp_path / "boats.csv").id)
    page = open_tab(f"{serve(library)}/#/library")
    page.get_by_role("button", name="Ask about boats").click()
    expect(page.locator("#scope")).to_have_text("boats")
    expect(page.locator("#question")).to_be_focused()
    ask(page, "What length has the Heron?")
    page.locator(".turn .source").first.click()
    grid = page.locator(".viewer .grid table")
    expect(grid.locator("th")).to_have_text(["Boat", "Length", "Berth"])
    expect(grid.locator("tbody tr")).to_have_count(3)
    expect(grid.locator("tr.quoted td")).to_have_text(["Heron", "9 m", "14"])
