"""One file handed in by many processes at the same moment: is it stored once, whole, and with nothing left over?

    python tests/stress/duplicates.py --rounds 50

In each round six processes hand in a new file at once and work its job off; in every third round two of them delete the
document as soon as they know it. Prints one JSON object; exit status 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch

from retrieval.errors import NotFound
from retrieval.extraction import extract
from retrieval.library import Library
from tests.retrieval.conftest import prose
from tests.retrieval.reading_here import ReadingHere
from tests.tiny_model import tiny_model

PROCESSES = 6


class Crowd:
    def __init__(self, folder: Path):
        self.home = folder / "home"
        self.model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
        self.folder, self.counts = folder, Counter[str]()
        self.violations: list[str] = []
        self._open().close()

    def _open(self) -> Library:
        return Library.open(self.home, self.model, shard_bytes=20_000)

    def round(self, number: int) -> None:
        path = self.folder / f"{number}.txt"
        path.write_text(prose(number, 400))
        starting, go = os.pipe()
        children = []
        deletes = number % 3 == 2
        for place in range(PROCESSES):
            child = os.fork()
            if child == 0:
                self._hand_in(path, starting, go, deletes=deletes and place < 2)
            children.append(child)
        os.close(go)  # all of them wait for the end of this pipe
        os.close(starting)
        failed = [status for child in children if (status := os.waitpid(child, 0)[1])]
        if failed:
            self.violations.append(f"round {number}: {len(failed)} processes failed")
        self._examine(number, path, deletes=deletes)

    def _hand_in(self, path: Path, starting: int, go: int, *, deletes: bool) -> None:
        status = 1
        try:
            with self._open() as library:
                os.close(go)
                os.read(starting, 1)
                job = library.documents.submit(path)
                try:
                    if deletes:
                        library.documents.delete([job.document_id])
                    while job.active:
                        job = library.jobs.run(job.id)
                except NotFound:
                    pass  # another process deleted it
            status = 0
        finally:
            os._exit(status)

    def _examine(self, number: int, path: Path, *, deletes: bool) -> None:
        with self._open() as library:
            while library.jobs.run_next() is not None:
                pass
            found = [document for document in library.documents.list() if document.source == path.name]
            originals = len(list((self.home / "files").iterdir()))
            report = library.maintenance.verify()
            self.counts[f"{len(found)} stored"] += 1
            if not (len(found) == 1 or (deletes and len(found) <= 2)):
                self.violations.append(f"round {number}: stored {len(found)} times")
            if any(document.state != "ready" for document in found):
                self.violations.append(f"round {number}: {[document.state for document in found]}")
            if not report.ok or (report.orphans and not deletes) or originals < len(found):
                self.violations.append(f"round {number}: {report.damage} {report.orphans} {originals} originals")
            library.documents.delete([document.id for document in found])
            library.maintenance.gc(grace_seconds=0)
            left = [each for name in ("kv", "files", "sidecars") for each in (self.home / name).rglob("*")]
            if left:
                self.violations.append(f"round {number}: left over {left}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a forked child must not wait for threads that it does not have
    extract.SANDBOX = ReadingHere()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cairn-crowd-") as folder:
        crowd = Crowd(Path(folder))
        for number in range(arguments.rounds):
            crowd.round(number)
    result = {"rounds": arguments.rounds, "processes": PROCESSES, "counts": dict(crowd.counts)}
    result |= {"violations": crowd.violations, "seconds": round(time.monotonic() - began, 1)}
    print(json.dumps({**machine.described(1), **result}))
    return 1 if crowd.violations else 0


if __name__ == "__main__":
    sys.exit(main())
