"""Two machines, one catalogue, workers that are killed and paused: is each document stored exactly once?

    python benchmarks/campaign/machines.py --documents 500 --every 10 --lease 5 --catalogue postgresql
    python benchmarks/campaign/machines.py --documents 60 --every 2 --lease 1 --unchecked     # must find violations

Four workers, two on each of two machines (processes that take each other for processes of another machine) with one
home, work off a queue of documents. Again and again two of them are struck: one is killed and started anew, the other
is paused for longer than a lease, so that it goes on with a job which is another's by then. At the end every document
is compared with what one worker alone made in SQLite: blocks, keys and values bit for bit, answers token for token.
Prints one JSON object; exit status 1 if anything did not hold. `--unchecked` lets workers commit without comparing
their lease.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch

from retrieval.extraction import extract
from retrieval.library import Library
from retrieval.types.records import Scope
from storage import workers
from storage.catalogue import documents as document_rows
from storage.catalogue import shards as shard_rows
from storage.records import Job
from tests import postgresql
from tests.retrieval.conftest import prose
from tests.retrieval.reading_here import ReadingHere
from tests.tiny_model import tiny_model

HOSTS = ("machine-a", "machine-b")
SHARD_BYTES = 20_000
CHARACTERS = 1500
ASKED = 5


class Site:
    """One shared home and catalogue, with workers of two machines."""

    def __init__(self, folder: Path, url: str | None, options: argparse.Namespace):
        self.folder, self.url, self.options = folder, url, options
        self.model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
        self.journal = folder / "journal"
        self.journal.touch()
        self.running: dict[int, str] = {}
        self.counts = Counter[str]()

    def open(self, home: str = "shared") -> Library:
        settings: dict[str, Any] = {"database_url": self.url} if home == "shared" else {}
        lease = self.options.lease
        return Library.open(self.folder / home, self.model, shard_bytes=SHARD_BYTES, lease_seconds=lease, **settings)

    def submit(self, library: Library) -> None:
        for number in range(self.options.documents):
            path = self.folder / f"{number}.txt"
            path.write_text(prose(number, CHARACTERS))
            library.submit(path)

    def start(self, host: str) -> None:
        child = os.fork()
        if child == 0:
            try:
                self._work(host)
            finally:
                os._exit(1)
        self.running[child] = host

    def _work(self, host: str) -> None:
        workers._this_machine = lambda: host  # type: ignore[assignment]
        handler = logging.FileHandler(self.journal)
        logging.getLogger("retrieval.ingest").addHandler(handler)
        if self.options.unchecked:
            shard_rows.hold = document_rows.hold = lambda connection, job: None  # type: ignore[attr-defined]
            Job.is_same_claim = lambda self, other: True  # type: ignore[method-assign]
        with self.open() as library:
            while True:
                if library.run_next_job() is None:
                    time.sleep(0.05)

    def strike(self, dice: random.Random) -> None:
        """Kill one worker, pause another until its lease has expired; both are on any machine."""
        killed, paused = dice.sample(sorted(self.running), 2)
        os.kill(killed, signal.SIGKILL)
        os.waitpid(killed, 0)
        os.kill(paused, signal.SIGSTOP)
        self.start(self.running.pop(killed))
        time.sleep(2 * self.options.lease)
        os.kill(paused, signal.SIGCONT)
        self.counts["kills"] += 1
        self.counts["pauses"] += 1

    def stop(self) -> None:
        while self.running:
            process, _ = self.running.popitem()
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def made(library: Library) -> dict[str, list[str]]:
    """By source: of every document with that name, a digest of its blocks and of all their keys and values."""
    catalogue, store = library._workspace.catalogue, library._workspace.loaded().store
    found: dict[str, list[str]] = {}
    for document in catalogue.documents():
        blocks = catalogue.blocks_of_document(document.id)
        digest = hashlib.sha256(repr([(b.ordinal, b.start, b.end, b.tokens) for b in blocks]).encode())
        refs = [(block.shard, block.index_in_shard) for block in blocks]
        for layer in store.layout.layers:
            for numbers in store.read_many(refs, layer) if refs else ():
                digest.update(numbers.view(torch.uint8).numpy().tobytes())
        found.setdefault(document.source, []).append(f"{document.state} {len(blocks)} {digest.hexdigest()}")
    return found


def answers(library: Library) -> dict[str, str]:
    """By source: what is answered of that document alone."""
    chosen = sorted(library.documents(), key=lambda document: document.source)[:ASKED]
    said = {}
    for document in chosen:
        *_, answer = library.ask("Who guards the tower?", within=Scope((document.id,)), k=3, max_tokens=6)
        said[document.source] = str(answer.text)
    return said


def violations(site: Site, shared: Library, alone: Library) -> list[str]:
    expected, found = made(alone), made(shared)
    wrong = [f"{name}: stored {len(found.get(name, []))} times" for name in expected if len(found.get(name, [])) != 1]
    wrong += [
        f"{name}: {found[name]}, alone {expected[name]}" for name in expected if found.get(name) != expected[name]
    ]
    if answers(shared) != answers(alone):
        wrong.append("answers differ")
    states = Counter(job.state for job in shared._workspace.catalogue.jobs())
    if set(states) != {"done"}:
        wrong.append(f"jobs: {dict(states)}")
    report = shared.verify()
    wrong += [f"damaged: {each}" for each in report.damage]
    site.counts["orphans"] = len(report.orphans)  # of the killed: what `cairn gc` is for
    return wrong


def campaign(site: Site) -> list[str]:
    dice = random.Random(site.options.seed)
    with site.open("alone") as alone:
        site.submit(alone)
        while alone.run_next_job() is not None:
            pass
        with site.open() as library:
            site.submit(library)
        for number in range(site.options.workers):
            site.start(HOSTS[number % 2])
        struck = began = time.monotonic()
        with site.open() as library:
            while library.num_active_jobs():
                if time.monotonic() - began > site.options.patience:
                    return [f"{library.num_active_jobs()} documents were not stored in {site.options.patience} s"]
                if time.monotonic() - struck >= site.options.every:
                    site.strike(dice)
                    struck = time.monotonic()
                time.sleep(0.1)
            site.counts["seconds at work"] = round(time.monotonic() - began)
            time.sleep(2 * site.options.lease)  # for whoever was paused to do harm
            site.stop()
            site.counts["leases lost"] = site.journal.read_text().count("was taken over")
            return violations(site, library, alone)


@contextmanager
def catalogue_url(kind: str) -> Iterator[str | None]:
    if kind == "sqlite":
        yield None
        return
    with postgresql.running_server() as server:
        databases = postgresql.Databases(server)
        yield databases.take_bare()
        databases.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=60)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between strikes")
    parser.add_argument("--lease", type=float, default=1.0, help="seconds")
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds until it counts as stuck")
    parser.add_argument("--catalogue", choices=["sqlite", "postgresql"], default="postgresql")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # a forked child must not wait for threads that it does not have
    extract._SANDBOX = ReadingHere()
    with tempfile.TemporaryDirectory(prefix="cairn-machines-") as folder, catalogue_url(options.catalogue) as url:
        site = Site(Path(folder), url, options)
        try:
            found = campaign(site)
        finally:
            site.stop()
    result = {"catalogue": options.catalogue, "documents": options.documents, "workers": options.workers}
    result |= {"lease": options.lease, "every": options.every, "counts": dict(site.counts), "violations": found[:20]}
    print(json.dumps({**machine.described(1), **result}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
