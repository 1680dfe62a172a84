"""Takes the pictures of docs/images from a real run: `python -m tests.browser.pictures QUESTION --pdf FILE`, or
`make pictures QUESTION="..." PDFS="..."`.

The sample document and the given PDFs are read and described with the shipped model (or `--model`), or a copy of the
library in `--home` is taken; the question is asked in a browser, and each view is photographed, in 256 colours.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from app.api import build_app
from app.api.startup import SAMPLE, SAMPLE_NAME
from app.assembly import open_library, server_token
from app.settings import load_settings
from tests.app.serving import served
from tests.browser.conftest import ARGUMENTS, CHROMIUM

IMAGES = Path(__file__).parents[2] / "docs" / "images"
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
PATIENCE_MS = 180_000


@contextmanager
def running(home: Path, model: str | None, pdfs: list[Path], existing: Path | None) -> Iterator[str]:
    settings = load_settings(home=home, model=model, questions_at_once=1)
    if existing is not None:
        shutil.copytree(existing, home)
    home.mkdir(exist_ok=True)
    (home / "sample-offered").touch()
    with open_library(settings) as library:
        if existing is None:
            for pdf in (SAMPLE, *pdfs):
                library.documents.submit(pdf, source=SAMPLE_NAME if pdf == SAMPLE else None)
        while library.jobs.run_next() or library.descriptions.make_next():
            pass
        with served(build_app(settings, library)) as url:
            yield f"{url}/?token={server_token(settings)}"


def keep(page: Any, name: str) -> None:
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def photograph(browser: Any, url: str, question: str, quote: bool) -> None:
    page = browser.new_page(viewport=DESKTOP, color_scheme="light")
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    page.get_by_role("tab", name="Machine", exact=True).wait_for()
    page.locator(".sample").first.wait_for()
    keep(page, "welcome")
    if quote:
        page.locator("#quote").click()
    page.get_by_label("Question").fill(question)
    page.keyboard.press("Enter")
    page.locator(".turn .actions").wait_for()
    page.mouse.move(5, 5)
    page.wait_for_timeout(800)
    keep(page, "ask")
    address = page.url
    page.get_by_role("button", name="Show on the page").first.click()
    page.locator(".viewer .box").first.wait_for()
    page.mouse.move(5, 5)
    page.wait_for_timeout(500)
    keep(page, "evidence")
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Library", exact=True).click()
    page.locator(".document").first.wait_for()
    page.wait_for_timeout(500)
    keep(page, "library")
    for name, options in {
        "ask-dark": {"viewport": DESKTOP, "color_scheme": "dark"},
        "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2},
    }.items():
        other = browser.new_page(**options)
        other.set_default_timeout(PATIENCE_MS)
        other.goto(address)
        other.locator(".turn .actions").wait_for()
        if name == "phone":  # evidence is a sheet from below there
            other.locator(".open-evidence").click()
        other.locator(".passage").first.wait_for()
        other.wait_for_timeout(800)
        keep(other, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question")
    parser.add_argument("--pdf", type=Path, action="append", default=[])
    parser.add_argument("--model")
    parser.add_argument("--home", type=Path, help="a library that has read its documents, to be copied")
    parser.add_argument("--quote", action="store_true", help="answer word for word from the documents")
    chosen = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder) / "home", chosen.model, chosen.pdf, chosen.home) as url,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        photograph(browser, url, chosen.question, chosen.quote)
        browser.close()


if __name__ == "__main__":
    main()
