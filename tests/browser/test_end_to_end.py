"""The whole path in a real browser over a real library: files, catalogue, memory, a tiny random model, PDFium."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.api import build_app
from app.assembly import open_library
from app.settings import load_settings
from app.work import JobRunner
from retrieval.library import Library
from tests.app.serving import served, settings_for
from tests.browser.pages import squeezed, text_under
from tests.tiny_model import tiny_model

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import escape, reload  # noqa: E402

TWO_COLUMNS = """<!doctype html><title>Two columns</title><style>@page { size: A5; margin: 15mm }
body { columns: 2; font: 10pt/1.4 serif } h1 { font-size: 13pt }</style><h1>On the reservoir</h1>"""
SENTENCES = [
    f"Paragraph {number}: the reservoir holds {number * 17} thousand litres when gate {number} is shut. "
    for number in range(1, 41)
]
SAMPLE = Path(__file__).parents[2] / "app" / "web" / "sample" / "cairn-handbook.pdf"


@pytest.fixture(scope="module")
def columns_pdf(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pdf") / "two columns.pdf"
    page = chromium.new_page()
    page.set_content(TWO_COLUMNS + "".join(f"<p>{sentence}</p>" for sentence in SENTENCES))
    page.pdf(path=path, prefer_css_page_size=True)
    page.close()
    return path


SETTLED = """() => {
    const sheet = document.querySelector('.sheet'), image = sheet?.querySelector('img');
    const box = document.querySelector('.viewer .box');
    if (!image || !image.complete || !image.naturalWidth || !box) return false;
    const now = JSON.stringify([sheet.getBoundingClientRect(), box.getBoundingClientRect(),
        document.querySelector('.viewer .position').textContent]);
    const before = window.placedBefore; window.placedBefore = now;
    return now === before; }"""
"""The page image is there, and nothing moved between two frames."""


@pytest.mark.usefixtures("attention_decides")
def test_two_pdfs_from_upload_to_delete(open_tab: Callable[..., Any], columns_pdf: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    model = tiny_model(block_size=32, stop=())
    with Library.open(home, model) as library:
        (home / "sample-offered").touch()  # this test brings its own documents
        app = build_app(settings_for(home, questions_at_once=1), library)
        with JobRunner(library), served(app) as url:
            page = open_tab(f"{url}/#/library")
            _upload(page, columns_pdf)
            block = _ask_and_choose(page)
            _compare_boxes_with_pdfium(page, columns_pdf, library)
            _export(page, tmp_path)
            _delete(page, home)
            assert block
            page.close()


def _upload(page: Any, columns_pdf: Path) -> None:
    page.locator("#file-input").set_input_files([SAMPLE, columns_pdf])
    page.get_by_role("button", name="Read all 2").click()
    expect(page.locator(".document")).to_have_count(2)
    reload(page)
    expect(page.locator(".document")).to_have_count(2)
    expect(page.locator(".document .tag.ingesting")).to_have_count(0)


def _ask_and_choose(page: Any) -> str:
    page.get_by_role("tab", name="Ask", exact=True).click()
    page.locator("#scope").click()
    page.get_by_role("dialog").locator(".pick", has_text=re.compile("on the reservoir", re.I)).click()
    page.get_by_role("button", name="Use these").click()
    expect(page.locator("#scope")).to_contain_text(re.compile("on the reservoir", re.I))
    page.get_by_label("Question").fill("How much does the reservoir hold when gate 7 is shut?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn .actions")).to_be_visible()
    shown = [index for index, text in enumerate(page.locator(".answer-text .token").all_inner_texts()) if text.strip()]
    page.locator(".answer-text .token").nth(shown[0]).click()
    expect(page.locator(".focus")).to_contain_text("For the word")
    page.get_by_role("button", name="Back to the whole answer").click()
    mark = page.locator(".passage-text mark").first
    mark.click()
    page.get_by_role("button", name="Measure effect").click()
    expect(page.locator(".block-card")).to_contain_text("Without this part the answer would have been")
    page.mouse.move(5, 5)
    return mark.get_attribute("data-block")


def _compare_boxes_with_pdfium(page: Any, pdf: Path, library: Library) -> None:
    page.get_by_role("button", name="Show on the page").first.click()
    expect(page.locator(".viewer .box").first).to_be_visible()
    page.wait_for_function(SETTLED)
    number = int(re.match(r"Page (\d+)", page.locator(".viewer .position").inner_text()).group(1))  # type: ignore[union-attr]
    drawn: dict[str, list[list[float]]] = page.evaluate(
        """() => { const sheet = document.querySelector('.sheet').getBoundingClientRect(), found = {};
            for (const box of document.querySelectorAll('.viewer .box')) { const at = box.getBoundingClientRect();
                (found[box.dataset.block] ||= []).push([
                    (at.left - sheet.left) / sheet.width, (at.top - sheet.top) / sheet.height,
                    (at.right - sheet.left) / sheet.width, (at.bottom - sheet.top) / sheet.height]); }
            return found; }"""
    )
    assert drawn
    for block, boxes in drawn.items():
        marked = "".join(page.locator(f'.viewer mark[data-block="{block}"]').all_inner_texts())
        under = "".join(text_under(pdf, number, *box) for box in boxes)
        assert squeezed(marked) in squeezed(under) and len(squeezed(under)) <= len(squeezed(marked)) + 4
    escape(page)


def _export(page: Any, folder: Path) -> None:
    with page.expect_download() as download:
        page.get_by_role("link", name="Export HTML").click()
    download.value.save_as(folder / "answer.html")
    exported = (folder / "answer.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in exported and "gate 7" in exported and "<script" not in exported


def _delete(page: Any, home: Path) -> None:
    page.get_by_role("tab", name="Library", exact=True).click()
    for _ in range(2):
        before = page.locator(".document").count()
        page.locator(".document").first.get_by_role("button", name=re.compile("^Delete")).click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.locator(".document")).to_have_count(before - 1)
    page.get_by_role("tab", name="History", exact=True).click()
    expect(page.locator(".history .item")).to_have_count(0)
    left = [path for folder in ("kv", "files", "pages") for path in (home / folder).rglob("*") if path.is_file()]
    assert left == []


def test_a_quotation_is_underlined_in_its_passage_and_what_answers_stands_in_sight(
    open_tab: Callable[..., Any], tmp_path: Path
) -> None:
    """The sample document through the shipped model: what a newcomer sees first."""
    with open_library(load_settings(home=tmp_path / "home")) as library:
        (tmp_path / "home" / "sample-offered").touch()
        document = library.jobs.run(library.documents.submit(SAMPLE).id)
        assert document.state == "done", document.error
        while library.descriptions.make_next():
            pass
        suggested = {one.question for one in library.descriptions.suggestions(3)}
        assert suggested == {"What is a cairn?", "What is an estimate?", "What is a guess?"}, "no words of the trade"
        app = build_app(settings_for(tmp_path / "home", questions_at_once=1), library)
        with served(app) as url:
            page = open_tab(f"{url}/#/ask")
            page.get_by_label("Question").fill("How long is a block?")
            page.keyboard.press("Enter")
            expect(page.locator(".turn .actions")).to_be_visible()
            answer = page.locator(".answer-text").inner_text()
            underlined = page.locator(".passage").first.locator(".quoted")
            assert squeezed("".join(underlined.all_inner_texts())) == squeezed(answer)
            expect(page.locator(".actions")).to_contain_text("what answers in bold")
            page.wait_for_function(
                """() => { const words = document.querySelector('.passage .quoted .exact').getBoundingClientRect();
                    const text = document.querySelector('.passage .passage-text').getBoundingClientRect();
                    return words.top >= text.top && words.bottom <= text.bottom; }"""
            )
            page.close()
