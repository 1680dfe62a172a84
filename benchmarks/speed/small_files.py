"""Seconds to store a small file and to draw a page, with a reading process started ahead and without.

    python benchmarks/speed/small_files.py --tokens 300 --files 20

Every file is read, and every page drawn, by a process of its own; the alternative starts it when it is needed. Runs
alternate; medians are compared. Prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import pypdf
import subject

from retrieval.extraction import extract as extraction
from retrieval.extraction.process.sandbox import Sandbox
from retrieval.library import Library


class StartedWhenNeeded(Sandbox):
    """The obvious alternative."""

    def start_next(self) -> None:
        pass


def main() -> None:
    parser = subject.options(__doc__)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two pages, as of somebody who reads")
    arguments = subject.chosen(parser)
    model = subject.load(arguments.model)
    ahead, needed = extraction._SANDBOX, StartedWhenNeeded()
    seconds: dict[str, list[float]] = {"file ahead": [], "file": [], "page ahead": [], "page": []}

    def timed(name: str, sandbox: Sandbox, work: Callable[[], object]) -> None:
        extraction._SANDBOX = sandbox
        began = time.perf_counter()
        work()
        seconds[name].append(time.perf_counter() - began)

    with tempfile.TemporaryDirectory() as folder, Library.open(Path(folder) / "home", model) as library:
        sheet = Path(folder) / "page.pdf"
        writer = pypdf.PdfWriter()
        writer.add_blank_page(width=612, height=792)
        writer.write(sheet)

        def store(number: int) -> None:
            path = Path(folder) / f"{number}.txt"
            path.write_text(subject.text_of(model, arguments.tokens, seed=number))
            assert library.run_job(library.submit(path).id).state == "done"

        for number in range(arguments.files + 1):  # the first warms up
            for name, sandbox in ((" ahead", ahead), ("", needed)):
                document = 2 * number + bool(name)
                timed(f"file{name}", sandbox, lambda document=document: store(document))
                time.sleep(arguments.pause)
                timed(f"page{name}", sandbox, lambda: extraction.render_page(sheet, 0))
                time.sleep(arguments.pause)
    medians = {name: round(statistics.median(found[1:]), 4) for name, found in seconds.items()}
    ratios = {what: round(medians[what] / medians[f"{what} ahead"], 2) for what in ("file", "page")}
    print(json.dumps({**machine.described(arguments.threads), "seconds": medians, "ratio": ratios}, indent=1))


if __name__ == "__main__":
    main()
