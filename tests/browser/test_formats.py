"""Documents that are no PDFs, figures and tables, and folders that are followed, as they look at the page."""

from __future__ import annotations

from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from app.work import JobRunner
from retrieval.library import Library
from retrieval.types.answers import FOR_WRITERS, WHO_CHOSE

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import ask, escape, view  # noqa: E402
from tests.retrieval.extraction.drawn_pages import data_address  # noqa: E402

CODE = '"""Watering."""\n\nMAX_MINUTES = 45  # a zone is never watered longer\n'


def mail_with_workbook(folder: Path) -> Path:
    book = Workbook()
    stock = book.active
    assert stock is not None
    stock.title = "Stock"
    for row in (("Part", "In stock"), ("Brass valve", 48), ("Copper elbow", 310)):
        stock.append(row)
    suppliers = book.create_sheet("Suppliers")
    for line in (("Supplier", "City"), ("Aldermann", "Kiel")):
        suppliers.append(line)
    book.save(folder / "stock.xlsx")
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "karin@example.org", "board@example.org", "Roof repair"
    mail.set_content("The roofer wants 14,300 euros. Work would begin on 22 April and take nine days.")
    content = (folder / "stock.xlsx").read_bytes()
    mail.add_attachment(content, maintype="application", subtype="octet-stream", filename="stock.xlsx")
    path = folder / "roof.eml"
    path.write_bytes(bytes(mail))
    return path


def test_a_plain_question_over_a_table_is_computed_and_shows_its_rows(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    rows = "Boat,Harbour,Seats\nAlbatross,Rosental,120\nBooby,Lindau,80\nCormorant,Rosental,40\n"
    (tmp_path / "fleet.csv").write_text(rows)
    assert library.jobs.run(library.documents.submit(tmp_path / "fleet.csv").id).state == "done"
    page = open_tab(serve(library))
    ask(page, "What is the sum of the seats in Rosental?")
    expect(page.locator(".answer-text")).to_have_text("160: the sum of Seats over 2 rows where Harbour is Rosental.")
    expect(page.locator(".who-chose")).to_contain_text(WHO_CHOSE["rows"])
    expect(page.locator(".passage").first).to_contain_text("Boat: Albatross; Harbour: Rosental; Seats: 120.")
    expect(page.locator(".score")).to_have_count(0)
    ask(page, "How many rows have a captain?")
    expect(page.locator(".turn").nth(1)).to_contain_text(FOR_WRITERS)


def test_a_mail_its_sheets_and_code_are_read_beside_their_tables(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    (tmp_path / "watering.py").write_text(CODE)
    for path in (mail_with_workbook(tmp_path), tmp_path / "watering.py"):
        assert library.jobs.run(library.documents.submit(path).id).state == "done"
    page = open_tab(serve(library), permissions=["clipboard-read", "clipboard-write"])
    ask(page, "When would the work on the roof begin?")
    expect(page.locator(".turn .source")).to_have_text("Roof repair, the message")

    view(page, "Library")
    page.locator(".document", has_text="Roof repair").locator(".item-title").click()
    viewer = page.locator(".viewer")
    expect(viewer.locator(".position")).to_have_text("the message · 1 of 3")
    expect(viewer.get_by_role("button", name="Small pictures of the pages")).to_be_hidden()
    viewer.get_by_role("button", name="Figures and tables").click()
    tables = viewer.locator(".exhibit")
    expect(tables).to_have_count(2)
    tables.last.locator(".exhibit-name").click()
    expect(viewer.locator(".position")).to_have_text("attachment stock.xlsx, sheet Suppliers · 3 of 3")
    expect(viewer.locator(".page-words")).to_contain_text("Aldermann")
    expect(tables.first).to_be_visible()
    tables.first.locator("summary").click()
    expect(tables.first.locator("tbody tr").first).to_contain_text("Brass valve")
    tables.first.get_by_role("button", name="Copy table 1 as CSV").click()
    expect(page.locator(".toast")).to_have_text("The table is copied as CSV.")
    assert page.evaluate("navigator.clipboard.readText()").splitlines()[1] == "Brass valve,48"
    escape(page)
    expect(viewer).to_have_count(0)

    page.locator(".document", has_text="watering").locator(".item-title").click()
    expect(viewer.locator(".page-text.code .page-words")).to_contain_text("MAX_MINUTES = 45")


def test_figures_of_a_web_page_stand_at_their_place_and_are_listed(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    shown = f"<figure><img src='{data_address()}'><figcaption>Figure 1: The mill in 1850</figcaption></figure>"
    words = "".join(f"<p>Paragraph {number} about mills and millers.</p>" for number in range(40))
    (tmp_path / "mills.html").write_text(f"<title>Old mills</title><h1>Old mills</h1>{words}{shown}<p>The end.</p>")
    assert library.jobs.run(library.documents.submit(tmp_path / "mills.html").id).state == "done"
    page = open_tab(f"{serve(library)}/#/library")
    row = page.locator(".document", has_text="Old mills")
    expect(row).not_to_contain_text("1 page")
    row.locator(".item-title").click()
    viewer = page.locator(".viewer")
    picture = viewer.locator(".page-figure img")
    expect(picture).to_have_attribute("alt", "Figure 1: The mill in 1850")
    expect(picture).not_to_be_in_viewport()
    assert picture.evaluate("node => node.parentElement.nextSibling.textContent").startswith("Figure 1: The mill")
    assert picture.evaluate("async node => (await node.decode(), node.naturalWidth)") == 200
    expect(viewer.get_by_label("Page", exact=True)).to_have_count(0)
    viewer.get_by_role("button", name="Figures and tables").click()
    viewer.locator(".exhibit-name", has_text="Figure 1").click()
    expect(picture).to_be_in_viewport()


def test_a_folder_is_followed_looked_at_and_let_go(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path, watch: Any
) -> None:
    watch.expected_statuses |= {404, 422}
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "mill.txt").write_text("The mill was closed in 1951.")
    page = open_tab(f"{serve(library)}/#/machine")
    path, follow = page.get_by_label("Folder on this machine"), page.get_by_role("button", name="Follow", exact=True)
    path.fill(str(tmp_path / "absent"))
    follow.click()
    expect(page.locator(".toast.bad")).to_contain_text("absent")
    path.fill(str(reports))
    page.get_by_label("Collection", exact=True).fill("Reports")
    follow.click()
    row = page.locator(".folder")
    expect(row).to_contain_text("1 being read")
    with JobRunner(library, idle_seconds=0.02):
        view(page, "Library")
        expect(page.locator(".document", has_text="mill")).to_contain_text("Reports")
    view(page, "Machine")
    (reports / "mill.txt").unlink()
    row.get_by_role("button", name=f"Look at {reports} now").click()
    expect(row).to_contain_text("1 removed")
    row.get_by_role("button", name=f"Follow {reports} no longer").click()
    page.get_by_role("button", name="Stop following").click()
    expect(row).to_have_count(0)
    assert library.documents.list(search="mill"), "documents of removed files are kept unless told otherwise"
