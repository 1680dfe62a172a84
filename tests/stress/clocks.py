"""A clock that jumps by up to twenty years before every step: is anything lost, swept early or counted below nothing?

    python tests/stress/clocks.py --jumps 200

Documents are handed in, read, asked about and deleted, garbage is collected, the catalogue is backed up and the library
opened anew, with the clock somewhere else each time. After every step each document that was acknowledged must be there
and undamaged, and no time that is shown may be negative. Prints one JSON object; exit status 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from tests.stress.shim import begin_again_with_shim

QUESTION = "What does the keeper of the tower carry?"
MOST = 20 * 365 * 24 * 3600
STEPS = ("ingest", "ingest", "ask", "delete", "gc", "backup", "reopen")


class Traveller:
    """Works in one home while its clock jumps."""

    def __init__(self, folder: Path, seed: int):
        from retrieval.extraction import extract
        from retrieval.library import Library
        from tests.retrieval.reading_here import ReadingHere
        from tests.tiny_model import tiny_model

        extract.SANDBOX = ReadingHere()  # a process for each file would take most of the time
        self.folder, self.random = folder, random.Random(seed)
        self.model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
        self._open = lambda: Library.open(folder / "home", self.model, shard_bytes=20_000)
        self.library = self._open()
        self.stored: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.step("ingest")

    def step(self, name: str) -> None:
        if name == "delete" and len(self.stored) < 3:
            name = "ingest"
        self.counts[name] += 1
        getattr(self, f"_{name}")()
        report = self.library.maintenance.verify()
        ready = {document.id for document in self.library.documents.list() if document.state == "ready"}
        if not report.ok or ready != self.stored:
            self.violations.append(f"after {name}: {report.damage} {self.stored ^ ready}")
        for job in self.library.jobs.list():
            if min(job.seconds, job.tokens_per_second, job.eta_seconds or 0.0) < 0:
                self.violations.append(f"after {name}: a job of {job.seconds} s")

    def _ingest(self) -> None:
        from tests.retrieval.conftest import prose

        path = self.folder / f"{self.random.getrandbits(64)}.txt"
        path.write_text(prose(self.random.getrandbits(32), self.random.randrange(200, 900)))
        job = self.library.jobs.run(self.library.documents.submit(path).id)
        if job.state != "done":
            self.violations.append(f"ingest: {job.error}")
        self.stored.add(job.document_id)

    def _ask(self) -> None:
        *_, answer = self.library.ask(QUESTION, k=2, max_tokens=1)
        if self.library.answers.get(answer.id) != answer:
            self.violations.append("an answer reads otherwise than it was given")

    def _delete(self) -> None:
        gone = self.random.choice(sorted(self.stored))
        self.library.documents.delete([gone])
        self.stored.discard(gone)

    def _gc(self) -> None:
        swept = self.library.maintenance.gc().files
        if swept:
            self.violations.append(f"gc swept {swept}")

    def _backup(self) -> None:
        self.library.collections.create(str(self.random.getrandbits(64)))
        self.library.maintenance.keep_backup().join()
        copies = len(list((self.folder / "home" / "backups").iterdir()))
        if not 1 <= copies <= 4:
            self.violations.append(f"{copies} backups")

    def _reopen(self) -> None:
        self.library.close()
        self.library = self._open()


def main() -> int:
    shim = begin_again_with_shim()
    import machine
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jumps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began, before = time.monotonic(), time.time()
    shim.failing_disk_clock(MOST)
    assert time.time() > before + MOST / 2, "the clock does not jump"
    with tempfile.TemporaryDirectory(prefix="cairn-clock-") as folder:
        traveller = Traveller(Path(folder), arguments.seed)
        for _ in range(arguments.jumps):
            shim.failing_disk_clock(traveller.random.randrange(-MOST, MOST))
            traveller.step(traveller.random.choice(STEPS))
        traveller.library.close()
    shim.failing_disk_clock(0)
    result = {
        **machine.described(1),
        "jumps": arguments.jumps,
        "counts": dict(sorted(traveller.counts.items())),
        "violations": traveller.violations,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    return 1 if traveller.violations else 0


if __name__ == "__main__":
    sys.exit(main())
