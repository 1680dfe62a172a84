"""The first page in a browser, and again with what the browser kept: requests, bytes, first paint, time until a
question can be typed and until the frame is complete; beside /docs, a page of one script:
`python benchmarks/speed/first_page.py`.

`--runs`: how often each is opened; the median is printed. Needs chromium.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import uvicorn
from playwright.sync_api import sync_playwright

from app.api import build_app
from app.assembly import open_library, server_token
from app.settings import load_settings

PORT = 7897
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


class Network:
    """Requests that reached the server, and their bytes as sent."""

    def __init__(self, page: Any):
        self.requests, self.bytes = set[str](), 0.0
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.requestWillBeSent", lambda event: self.requests.add(event["requestId"]))
        session.on("Network.requestServedFromCache", lambda event: self.requests.discard(event["requestId"]))
        session.on("Network.responseReceived", self._received)
        session.on("Network.loadingFinished", self._finished)

    def _received(self, event: Any) -> None:
        if event["response"].get("fromDiskCache"):
            self.requests.discard(event["requestId"])

    def _finished(self, event: Any) -> None:
        self.bytes += event["encodedDataLength"] if event["requestId"] in self.requests else 0


def opened(page: Any, url: str, *, frame: bool) -> dict[str, float]:
    network, begun, seconds = Network(page), time.perf_counter(), {}
    page.goto(url, wait_until="commit")
    if frame:
        page.locator("#question").wait_for()
        seconds["question_s"] = time.perf_counter() - begun
        page.get_by_role("tab", name="Machine", exact=True).wait_for()
        seconds["frame_s"] = time.perf_counter() - begun
    page.wait_for_function(PAINT)
    paint = page.evaluate(PAINT) / 1000
    page.wait_for_timeout(1000)
    return {"requests": len(network.requests), "bytes": network.bytes, "paint_s": paint, **seconds}


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(row[name] for row in rows), 3) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        settings = load_settings(home=home)
        with open_library(settings) as library, sync_playwright() as playwright:
            (home / "sample-offered").touch()
            library.warm_up()
            server = uvicorn.Server(uvicorn.Config(build_app(settings, library), port=PORT, log_level="warning"))
            thread = threading.Thread(target=server.run, daemon=True)
            thread.start()
            while not server.started:
                time.sleep(0.1)
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            rows: dict[str, list[dict[str, float]]] = {"plain": [], "first": [], "again": []}
            for _ in range(runs):
                for name, path in (("plain", "/docs"), ("first", "/"), ("again", "/")):
                    if name != "again":
                        page = browser.new_context().new_page()
                        page.context.request.get(f"http://127.0.0.1:{PORT}/?token={server_token(settings)}")
                    rows[name].append(opened(page, f"http://127.0.0.1:{PORT}{path}", frame=name != "plain"))
                    page.goto("about:blank")
            browser.close()
            server.should_exit = True
            thread.join()
    print(
        json.dumps({**{name: medians(each) for name, each in rows.items()}, "machine": machine.described()}, indent=1)
    )


if __name__ == "__main__":
    main()
