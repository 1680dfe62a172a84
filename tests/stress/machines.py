"""Two machines, one catalogue, workers that are killed and paused: is each document stored exactly once?

    python tests/stress/machines.py --documents 500 --every 10 --lease 5
    python tests/stress/machines.py --documents 60 --every 2 --lease 1 --unchecked     # must find violations
    python tests/stress/machines.py --catalogue sqlite --store file                    # one shared home folder

Four workers, two on each of two machines (processes that take each other for processes of another machine), work off a
queue of documents: the catalogue in PostgreSQL, memory and originals in a bucket (moto, a real S3 server), each machine
with a home of its own. Again and again two of them are killed and started anew, and a third is paused for longer than
a lease, so that it goes on with a job which is another's by then; each strike waits until something was stored since
the one before, so that slow computers come to an end as well. Then every document is compared with what one worker
alone made in SQLite and files: blocks, keys and values bit for bit, answers token for token. Prints one JSON object;
exit status 1 if anything did not hold. `--unchecked` lets workers commit without comparing their lease.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch

from retrieval.extraction import extract
from retrieval.library import Library
from retrieval.types.records import Scope
from storage import workers
from storage.catalogue import documents as document_rows
from storage.catalogue import memory as memory_rows
from storage.records import Job
from tests import object_server, postgresql
from tests.retrieval.conftest import prose
from tests.retrieval.reading_here import ReadingHere
from tests.tiny_model import tiny_model

HOSTS = ("machine-a", "machine-b")
SHARD_BYTES = 20_000
ASKED = 5


@dataclass(frozen=True)
class Shared:
    """Where everything lies that the machines share. `store_url` None: in one home folder."""

    folder: Path
    database_url: str
    store_url: str | None
    lease_seconds: float
    unchecked: bool

    def open(self, machine_name: str) -> Library:
        """The library as this machine has it."""
        home = self.folder / ("shared" if self.store_url is None else machine_name)
        return opened(home, self.lease_seconds, database_url=self.database_url, store_url=self.store_url)

    @property
    def journal(self) -> Path:
        return self.folder / "journal"


def opened(home: Path, lease_seconds: float, **places: str | None) -> Library:
    torch.set_num_threads(1)
    extract.SANDBOX = ReadingHere()
    model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
    settings: dict[str, Any] = {"shard_bytes": SHARD_BYTES, "lease_seconds": lease_seconds, "threads": 1}
    return Library.open(home, model, **settings, **places)


def work(shared: Shared, host: str) -> None:
    """What one worker does until it is killed, or the nursery has ended."""
    nursery = os.getppid()
    workers.this_machine = lambda: host  # type: ignore[assignment]
    logging.getLogger("retrieval.ingest").addHandler(logging.FileHandler(shared.journal))
    if shared.unchecked:
        memory_rows.hold = document_rows.hold = lambda connection, job: None  # type: ignore[attr-defined]
        Job.is_same_claim = lambda self, other: True  # type: ignore[method-assign]
    with shared.open(host) as library:
        while os.getppid() == nursery:
            if library.jobs.run_next() is None:
                time.sleep(0.05)


class Nursery:
    """A process that has imported everything and opened nothing, from which workers are forked: neither threads of a
    bucket's client nor connections to a database outlive a fork. It ends with this process."""

    def __init__(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        self._process = os.fork()
        if self._process == 0:
            ours.close()
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the killed
            self._serve(theirs)
        theirs.close()
        self._pipe = ours

    def start(self, shared: Shared, host: str) -> int:
        """A new worker's process id."""
        self._pipe.send((shared, host))
        return int(self._pipe.recv())

    def close(self) -> None:
        self._pipe.close()
        os.waitpid(self._process, 0)

    @staticmethod
    def _serve(pipe: Connection) -> None:
        while True:
            try:
                given = pipe.recv()
            except EOFError:
                os._exit(0)
            worker = os.fork()
            if worker == 0:
                pipe.close()
                try:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    work(*given)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
            pipe.send(worker)


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


class Site:
    """The workers of both machines, and who is struck."""

    def __init__(self, nursery: Nursery, shared: Shared, seed: int):
        self.shared, self._nursery, self._dice = shared, nursery, random.Random(seed)
        self._running: list[tuple[str, int]] = []
        self._paused: list[tuple[float, int]] = []  # until when, and which process
        self.counts = Counter[str]()
        shared.journal.touch()

    def start(self, host: str) -> None:
        self._running.append((host, self._nursery.start(self.shared, host)))

    def strike(self, at_work: Collection[int]) -> None:
        """Pause a worker until its lease has expired, one of the processes `at_work` if any is; kill two others of any
        machine and start them anew."""
        shuffled = self._dice.sample(self._running, len(self._running))
        (_, paused), *others = sorted(shuffled, key=lambda one: one[1] not in at_work)
        killed = self._dice.sample(others, min(2, len(others)))
        if not self._paused:
            os.kill(paused, signal.SIGSTOP)
            self._paused.append((time.monotonic() + 2 * self.shared.lease_seconds, paused))
            self.counts["pauses"] += 1
        for one in killed:
            self._end(one)
            self.start(one[0])
            self.counts["kills"] += 1

    def wake(self) -> None:
        for until, process in list(self._paused):
            if time.monotonic() >= until:
                self._paused.remove((until, process))
                os.kill(process, signal.SIGCONT)

    def stop(self) -> None:
        for one in list(self._running):
            self._end(one)

    def check_alive(self) -> None:
        """Raises RuntimeError if a worker ended that nobody killed."""
        for host, worker in self._running:
            if not is_there(worker):
                raise RuntimeError(f"A worker of {host} ended by itself.")

    def _end(self, one: tuple[str, int]) -> None:
        worker = one[1]
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        while is_there(worker):
            time.sleep(0.005)
        self._running.remove(one)
        self._paused = [(until, process) for until, process in self._paused if process != worker]


def submit(library: Library, folder: Path, options: argparse.Namespace) -> None:
    for number in range(options.documents):
        path = folder / f"{number}.txt"
        path.write_text(prose(number, options.characters))
        library.documents.submit(path)


def made(library: Library) -> dict[str, list[str]]:
    """By source: of every document with that name, a digest of its blocks and of all their keys and values."""
    catalogue, store = library.view.workspace.catalogue, library.view.workspace.loaded().store
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
    chosen = sorted(library.documents.list(), key=lambda document: document.source)[:ASKED]
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
    states = Counter(job.state for job in shared.view.workspace.catalogue.jobs())
    if set(states) != {"done"}:
        wrong.append(f"jobs: {dict(states)}")
    report = shared.maintenance.verify()
    wrong += [f"damaged: {each}" for each in report.damage]
    site.counts["orphans"] = len(report.orphans)  # of the killed: what `cairn gc` is for
    return wrong


def campaign(site: Site, options: argparse.Namespace) -> list[str]:
    shared, folder = site.shared, site.shared.folder
    with opened(folder / "alone", shared.lease_seconds) as alone:
        submit(alone, folder, options)
        while alone.jobs.run_next() is not None:
            pass
        with shared.open(HOSTS[0]) as library:
            submit(library, folder, options)
        for number in range(options.workers):
            site.start(HOSTS[number % 2])
        struck, stored, began = 0.0, -1, time.monotonic()
        with shared.open("machine-c") as library:
            catalogue = library.view.workspace.catalogue
            while left := library.jobs.num_active():
                if time.monotonic() - began > options.patience:
                    return [f"{left} documents were not stored in {options.patience} s"]
                site.check_alive()
                site.wake()
                if time.monotonic() - struck >= options.every and (now := len(catalogue.shards())) != stored:
                    struck, stored = time.monotonic(), now
                    running = [job.worker for job in catalogue.jobs(active_only=True) if job.state == "running"]
                    site.strike({int(worker.split("/")[1]) for worker in running})
                    print(f"{left} left", file=sys.stderr, flush=True)
                time.sleep(0.1)
            site.counts["seconds at work"] = round(time.monotonic() - began)
            until = time.monotonic() + 3 * shared.lease_seconds  # for whoever was paused to do harm
            while time.monotonic() < until:
                site.wake()
                time.sleep(0.1)
            site.stop()
            site.counts["leases lost"] = shared.journal.read_text().count("was taken over")
            return violations(site, library, alone)


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'shared.sqlite3'}"
        return
    with postgresql.running_server() as server:
        databases = postgresql.Databases(server)
        yield databases.take_bare()
        databases.close()


def bucket(kind: str) -> str | None:
    if kind == "file":
        return None
    return object_server.new_store()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=60)
    parser.add_argument("--characters", type=int, default=1500, help="of each document")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between strikes")
    parser.add_argument("--lease", type=float, default=1.0, help="seconds")
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds until it counts as stuck")
    parser.add_argument("--catalogue", choices=["sqlite", "postgresql"], default="postgresql")
    parser.add_argument("--store", choices=["file", "s3"], default="s3")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    options = parsed()
    os.environ |= object_server.ACCESS
    nursery = Nursery()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # each request of the bucket
    with (
        closing(nursery),
        tempfile.TemporaryDirectory(prefix="cairn-machines-") as name,
        database(options.catalogue, Path(name)) as database_url,
    ):
        store_url = bucket(options.store)
        shared = Shared(Path(name), database_url, store_url, options.lease, options.unchecked)
        site = Site(nursery, shared, options.seed)
        try:
            found = campaign(site, options)
        finally:
            site.stop()
    result = {name: getattr(options, name) for name in ("catalogue", "store", "documents", "workers", "lease", "every")}
    result |= {"unchecked": options.unchecked, "counts": dict(site.counts), "violations": found[:20]}
    print(json.dumps({**machine.described(1), **result}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
