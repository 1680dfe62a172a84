"""How long a question's first token takes while a long PDF is being ingested, against the same questions before it.

    python benchmarks/load/while_ingesting.py --pages 500

The job runner works as in `cairn serve`: a thread of the same process. Questions come at random moments until the
document is read (or `--seconds` have passed); every one is asked of the same stored document. Prints one JSON object;
`ratio` is the median while ingesting over the median before (target: 2).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import subject
from speed.first_token import ask_seconds

from app.jobs import JobRunner
from retrieval.library import Library
from retrieval.types.records import Scope
from tests.retrieval.pdf_maker import Sheet, make_pdf

LINES, LINE_CHARACTERS = 50, 90


def make_long_pdf(path: Path, pages: int) -> None:
    """Pages of 50 lines of 90 characters: a full page of a report."""
    chance = random.Random(0)
    words = subject.WORDS.split()
    sheets = []
    for _ in range(pages):
        lines = []
        for number in range(LINES):
            line = ""
            while len(line) < LINE_CHARACTERS - 10:
                line += f"{chance.choice(words)} "
            lines.append((50.0, 750.0 - 14 * number, 10.0, f"{line}{chance.randrange(1000)}."))
        sheets.append(Sheet(lines))
    path.write_bytes(make_pdf(sheets))


def ask_until(library: Library, job_id: str, scope: Scope, seconds: float, pause: float) -> dict[str, list[float]]:
    """Seconds to the first token, by the job's stage when the question came."""
    chance, found = random.Random(1), defaultdict(list)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        job = library.job(job_id)
        if job.state not in ("queued", "running"):
            break
        found[job.stage].append(ask_seconds(library, scope))
        time.sleep(chance.uniform(0, pause))
    return found


def measure(arguments: argparse.Namespace, folder: Path) -> dict:
    model = subject.load(arguments.model)
    stored, long_pdf = folder / "stored.txt", folder / "long.pdf"
    stored.write_text(subject.text_of(model, arguments.tokens))
    make_long_pdf(long_pdf, arguments.pages)
    with Library.open(folder / "home", model) as library:
        done = library.run_job(library.submit(stored).id)
        assert done.state == "done", done.error
        scope = Scope((done.document_id,))
        for _ in range(3):  # what the first questions load
            ask_seconds(library, scope)
        before = [ask_seconds(library, scope) for _ in range(arguments.runs)]
        job = library.submit(long_pdf)
        with JobRunner(library):
            by_stage = ask_until(library, job.id, scope, arguments.seconds, pause=10 * statistics.median(before))
            job = library.job(job.id)
        after = [ask_seconds(library, scope) for _ in range(arguments.runs)]
    during = [seconds for found in by_stage.values() for seconds in found]
    return {
        **machine.described(arguments.threads),
        "model": model.source,
        "pages": arguments.pages,
        "tokens": job.tokens,
        "tokens_read_meanwhile": job.tokens_done,
        "ingestion": job.error or job.state,
        "tokens_per_second": job.tokens_per_second,
        "before_median_seconds": statistics.median(before),
        "after_median_seconds": statistics.median(after),
        "during_median_seconds": statistics.median(during),
        "during_worst_seconds": max(during),
        "by_stage": {
            stage: {"questions": len(found), "median_seconds": statistics.median(found), "worst_seconds": max(found)}
            for stage, found in by_stage.items()
        },
        "ratio": statistics.median(during) / statistics.median(before),
        "ratio_to_before_and_after": statistics.median(during) / statistics.median(before + after),
    }


def main() -> None:
    parser = subject.options(__doc__)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=32_768, help="of the document that the questions are about")
    parser.add_argument("--seconds", type=float, default=120, help="stop asking after that long")
    parser.add_argument("--runs", type=int, default=15, help="questions before and after")
    arguments = subject.chosen(parser)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(arguments, Path(folder))))


if __name__ == "__main__":
    main()
