"""Text as the page shows it: what producers of PDFs put between the words is gone, and titles are what a reader would
call the document."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retrieval.library import Library
from tests.retrieval.pdf_maker import Sheet, column, make_pdf

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import ask, view  # noqa: E402

TITLE, RUNNING_HEAD = "Dams of the North", "Gazette of Dams 2024"
HEADINGS = ["Walls of clay", "Spillways of stone", "Valves of bronze"]
BODIES = [  # \256 is the ligature fi, \257 fl
    ["Except where noted, the \256rst wall was raised from clay. The engineers of Norden de\256ned its", "height."],
    ["The over\257ow is led away by a spillway of stone. Its steps were cut by hand in an under-", "taking of 1931."],
    ["The valves are of bronze. They are opened by two keepers when the melting snow begins to", "\257ow."],
]


def produced(folder: Path) -> Path:
    """As word processors and typesetters write: the title is a file name, headings have hidden counters, every page a
    running head, and words are hyphenated and have ligatures."""
    sheets = []
    for number, (heading, lines) in enumerate(zip(HEADINGS, BODIES, strict=True)):
        texts = [(770, 9, RUNNING_HEAD), (690, 14, f"{number}B{heading}")]
        texts += [(660 - 14 * at, 11, line) for at, line in enumerate(lines)]
        texts += [(y, size, line) for _, y, size, line in column(72, 610, 12, width=80)]
        texts += [(30, 9, f"{number + 1}")]
        if number == 0:
            texts.insert(1, (735, 22, TITLE))
        drawn = "".join(f"/F2 {size} Tf 1 0 0 1 72 {y} Tm ({text}) Tj\n" for y, size, text in texts)
        sheets.append(Sheet(content=b"BT " + drawn.encode("latin-1") + b" ET"))
    path = folder / "dams_final_v3.pdf"
    path.write_bytes(make_pdf(sheets, title="dams_final_v3.indd"))
    return path


def test_titles_and_text_are_those_that_a_reader_sees(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    job = library.jobs.run(library.documents.submit(produced(tmp_path)).id)
    assert job.state == "done", job.error
    page = open_tab(f"{serve(library)}/#/library")
    row = page.locator(".document", has_text="dams_final_v3.pdf")
    expect(row.locator(".item-title")).to_have_text(TITLE)
    row.locator(".item-title").click()
    words = page.locator(".viewer .page-words")
    for number, (heading, seen) in enumerate(
        zip(HEADINGS, ["the first wall was", "The overflow is led", "begins to flow"], strict=True), start=1
    ):
        page.get_by_label("Page", exact=True).fill(str(number))
        page.keyboard.press("Enter")
        expect(page.locator(".viewer .position")).to_have_text(f"Page {number} of 3")
        expect(words).to_contain_text(heading)
        expect(words).to_contain_text(re.compile(seen.replace(" ", r"\s+")))
        shown = words.inner_text()
        assert not re.search(r"\dB[A-Z]|[\ufb00-\ufb06]", shown), "no counter, no ligature"
        assert shown.count(RUNNING_HEAD) == (number == 1), "a running head is said once, where it stands first"
    page.get_by_label("Find in the document").fill("undertaking")  # which is hyphenated there
    page.keyboard.press("Enter")
    expect(page.locator(".find-count")).to_have_text("1 of 1")
    expect(page.locator(".viewer .box.answer").first).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")

    view(page, "Ask")
    ask(page, "When were the steps of the spillway cut?")
    expect(page.locator(".turn .source")).to_contain_text(f"{TITLE}, page 2")
    expect(page.locator(".answer-text")).to_contain_text("undertaking of 1931")
    expect(page.locator(".passage-title", has_text=TITLE).first).to_be_visible()
    for passage in page.locator(".passage").all():
        shown = passage.locator(".passage-text").inner_text()
        assert not re.search(r"\dB[A-Z]|[\ufb00-\ufb06]", shown)
        if RUNNING_HEAD in shown:  # once, in what begins on the first page
            assert shown.count(RUNNING_HEAD) == 1
            assert re.search(r"pages? 1\b", passage.inner_text())
