"""Seconds until each view of the page stands in a real browser, with 1,000 documents and 10,000 past questions.

    python benchmarks/speed/views.py --runs 5

Made without reading a file; the model is a tiny random one, as no view needs more. Measured twice: without accounts,
and signed in as one of eight users who owns everything. Prints one JSON line a view (median and worst of the runs, in
seconds, from the click until what was asked for is shown), then a summary. The first line of each pass is the page
itself: Gradio's scripts, styles and the first view. Needs chromium, or its path in CHROMIUM.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
from playwright.sync_api import Page, sync_playwright

from app.api import build_app
from app.auth import hash_password
from retrieval.library import Library
from tests.app.full_home import ANSWERS, DOCUMENTS, fill
from tests.app.serving import served, settings_for
from tests.app.small_library import QUESTION
from tests.app.small_library import fill as fill_small
from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.tiny_model import shipped_model, tiny_model

LIMIT_SECONDS = 1.0
PASSWORD, TOKEN = "a quiet pile of stones", "token-of-this-measurement"
OPENED = 77  # number of the answer that is opened
WAIT_MS = 60_000


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def views(url: str) -> dict[str, tuple[Callable[[Page], object], Callable[[Page], object]]]:
    """Name -> (what a person does, where to wait); before each the page shows the Machine view or, for that, Ask."""
    return {
        "ask": (lambda page: tab(page, "Ask"), lambda page: shown(page, "#question")),
        "choosing documents": (
            lambda page: page.locator("#scope").click(),
            lambda page: shown(page, ".pick-list .pick"),
        ),
        "library": (lambda page: tab(page, "Library"), lambda page: shown(page, ".documents .document")),
        "library, searched": (
            lambda page: page.get_by_label("Find documents").fill(f"report {DOCUMENTS - 1}"),
            lambda page: count(page, ".documents .document", 1),
        ),
        "history": (lambda page: tab(page, "History"), lambda page: shown(page, ".history .item")),
        "history, searched": (
            lambda page: page.get_by_label("Find in the history").fill(f"question {ANSWERS - 7} "),
            lambda page: count(page, ".history .item", 1),
        ),
        "one answer": (
            lambda page: page.evaluate(f"location.hash = '#/ask/{OPENED:032x}'"),
            lambda page: shown(page, ".passage"),
        ),
        "settings": (lambda page: tab(page, "Settings"), lambda page: shown(page, "#setting-top-k input:enabled")),
        "machine": (lambda page: tab(page, "Machine"), lambda page: shown(page, "#cairn-machine .card")),
    }


def shown(page: Page, selector: str) -> None:
    page.locator(selector).first.wait_for(state="visible", timeout=WAIT_MS)


def count(page: Page, selector: str, number: int) -> None:
    page.wait_for_function(
        "([selector, number]) => document.querySelectorAll(selector).length === number",
        arg=[selector, number],
        timeout=WAIT_MS,
    )


# What a view needs on the screen before it is opened, besides itself.
BEFORE = {"choosing documents": "ask", "library, searched": "library", "history, searched": "history"}


def measured(browser: Any, url: str, signed_in: bool) -> dict[str, float]:
    """Seconds of each view, once, in a fresh tab with nothing cached."""
    context = browser.new_context(viewport={"width": 1360, "height": 880})
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    if signed_in:
        page.goto(f"{url}/login")
        page.get_by_label("Name").fill("user0")
        page.get_by_label("Password").fill(PASSWORD)
    seconds = {}
    began = time.perf_counter()
    if signed_in:
        page.get_by_role("button", name="Sign in").click()
    else:
        page.goto(f"{url}/?token={TOKEN}")
    shown(page, "#question")
    seconds["the page itself"] = time.perf_counter() - began
    all_views = views(url)
    for name, (act, wait) in all_views.items():
        for step in (
            all_views[BEFORE[name]] if name in BEFORE else all_views["settings" if name != "settings" else "history"],
        ):
            step[0](page)
            step[1](page)
        began = time.perf_counter()
        act(page)
        wait(page)
        seconds[name] = time.perf_counter() - began
        page.keyboard.press("Escape")
    context.close()
    return seconds


def one_answer(folder: Path) -> str:
    """The body of an answer with all of its evidence."""
    with Library.open(fill_small(folder), shipped_model) as library:
        *_, answer = library.ask(QUESTION)
    return json.dumps(answer.to_dict() | {"id": f"{OPENED:032x}"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    model = tiny_model(block_size=16)
    results: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        about = {**machine.described(), "chromium": browser.version, "documents": DOCUMENTS, "answers": ANSWERS}
        body = one_answer(Path(folder))
        home = Path(folder) / "full"
        home.mkdir()
        (home / "sample-offered").touch()
        with Library.open(home, model) as library:
            fill(home, library._workspace.loaded().fingerprint, bodies={OPENED: body})
            for passed in ("without accounts", "as a user"):
                if passed == "as a user":
                    users = [library.accounts.add(f"user{n}", hash_password(PASSWORD)) for n in range(8)]
                    library.accounts.transfer_ownership(users[0])
                with served(build_app(settings_for(home, token=TOKEN), library)) as url:
                    for _ in range(runs):
                        for name, seconds in measured(browser, url, passed == "as a user").items():
                            results.setdefault(passed, {}).setdefault(name, []).append(seconds)
        browser.close()
    slowest = 0.0
    for passed, found in results.items():
        for name, seconds in found.items():
            median = statistics.median(seconds)
            slowest = max(slowest, median) if name != "the page itself" else slowest
            line = {
                "pass": passed,
                "view": name,
                "median_seconds": round(median, 3),
                "worst_seconds": round(max(seconds), 3),
            }
            print(json.dumps(line))
    print(
        json.dumps(
            {**about, "runs": runs, "slowest_view_seconds": round(slowest, 3), "within": slowest < LIMIT_SECONDS}
        )
    )


if __name__ == "__main__":
    main()
