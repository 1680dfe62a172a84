"""A write that fails, at every place that writes: is the library still readable, and does the next try succeed?

    python benchmarks/campaign/failing_disk.py --failures 500

A library with a few documents is copied; a child process opens the copy, hands in and reads a document, renames one,
asks, deletes one, collects garbage and backs up, while one of its writes fails: the disk is full from then on, or one
call returns an input/output error, or writes only half. One in five children instead runs out of memory at a random
limit. Then, on a disk that works, nothing that was acknowledged may be missing, nothing may be damaged or half visible,
each failure must have been a sentence for a person, and the same work must succeed. Prints one JSON object; exit status
1 otherwise.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # it forks
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from campaign.shim import KINDS, begin_again_with_shim

QUESTION = "What does the keeper of the tower carry?"
SHARD_BYTES = 20_000
DOCUMENTS = 3
MEMORY = "out of memory"


class Saboteur:
    """Runs the work in children that fail, and examines what they left."""

    def __init__(self, folder: Path, shim: ctypes.CDLL, seed: int):
        from retrieval.extraction import extract
        from tests.retrieval.conftest import prose
        from tests.retrieval.reading_here import ReadingHere
        from tests.tiny_model import tiny_model

        extract._SANDBOX = ReadingHere()  # a process for each file would take most of the time
        self.folder, self.shim, self.random = folder, shim, random.Random(seed)
        self.model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
        self.files = []
        for number in range(DOCUMENTS + 1):
            path = folder / f"text-{number}.txt"
            path.write_text(prose(100 + number, 600 + 250 * number))
            self.files.append(path)
        self.home = folder / "home"
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        with self._open(folder / "before") as library:
            for path in self.files[:DOCUMENTS]:
                assert library.run_job(library.submit(path).id).state == "done"
            self.before = {document.id: document.source for document in library.documents()}
            list(library.ask(QUESTION, k=2, max_tokens=1))  # loads what only answers need, before anything is limited
        self.places = self._count_places()

    def _open(self, home: Path):  # type: ignore[no-untyped-def]
        from retrieval.library import Library

        return Library.open(home, self.model, shard_bytes=SHARD_BYTES)

    def _count_places(self) -> int:
        """How many calls the work makes that can fail."""
        shutil.copytree(self.folder / "before", self.home)
        said = self._in_child(lambda: self.shim.failing_disk_arm(str(self.home).encode(), -1, 0))
        assert said[-1]["what"] == "places", said
        shutil.rmtree(self.home)
        return int(said[-1]["count"])

    def round(self, kind: str) -> None:
        shutil.copytree(self.folder / "before", self.home)
        place = self.random.randrange(self.places)
        if kind == MEMORY:
            megabytes = self.random.randrange(12)
            said = self._in_child(lambda: _limit_memory(megabytes << 20))
        else:
            said = self._in_child(lambda: self.shim.failing_disk_arm(str(self.home).encode(), place, KINDS[kind]))
        where = f"{kind} at {megabytes} MB" if kind == MEMORY else f"{kind} at write {place}"
        failed = [line for line in said if line["what"] == "failed"]
        self.counts[f"{kind}: {'noticed' if failed else 'unnoticed'}"] += 1
        for line in failed:
            if not line["plain"]:
                self.violations.append(f"{where}: {line['step']} gave no sentence for a person but {line['error']}")
        try:
            self._examine(where, {line["step"]: line for line in said if line["what"] == "done"})
        except Exception as error:  # whatever it is, it is what a user would meet
            self.violations.append(f"{where}: afterwards {type(error).__name__}: {error}")
        shutil.rmtree(self.home)

    def _in_child(self, arm: Callable[[], object]) -> list[dict]:
        """What the child said, line by line. It works until it is done or its process ends."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            log = os.open(os.devnull, os.O_WRONLY)
            os.dup2(log, 2)
            try:
                _Work(self, writing).run(arm)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as lines:
            said = [json.loads(line) for line in lines]
        os.waitpid(child, 0)
        return said

    def _examine(self, where: str, done: dict[str, dict]) -> None:
        with self._open(self.home) as library:
            report = library.verify()
            self._expect(report.ok, f"{where}: damage {report.damage}")
            documents = {document.id: document for document in library.documents()}
            deleted = set(self.before) - set(documents)
            allowed = {done["delete"]["id"]} if "delete" in done else {next(iter(self.before))}
            self._expect(deleted <= allowed, f"{where}: lost {deleted - allowed}")
            self._expect("delete" not in done or deleted == allowed, f"{where}: a deleted document is back")
            if "ingest" in done:
                state = documents[done["ingest"]["id"]].state if done["ingest"]["id"] in documents else "lost"
                self._expect(state == "ready", f"{where}: the acknowledged document is {state}")
            for document_id in set(self.before) - deleted:
                self._expect(documents[document_id].state == "ready", f"{where}: {document_id} is half visible")
            for job in library.jobs():
                if job.state == "failed":
                    library.retry_job(job.id)
            while library.run_next_job() is not None:
                pass
            again = library.run_job(library.submit(self.files[DOCUMENTS]).id)
            self._expect(again.state == "done", f"{where}: the next try fails: {again.error}")
            library.gc(grace_seconds=0)
            left = library.verify()
            self._expect(left.ok and not left.orphans, f"{where}: after gc {left.damage} {left.orphans}")
            *_, answer = library.ask(QUESTION, k=2, max_tokens=1)
            self._expect(bool(answer.passages), f"{where}: no answer")

    def _expect(self, held: bool, complaint: str) -> None:
        if not held:
            self.violations.append(complaint)


class _Work:
    """One child: it goes on after a step that failed, as a server would."""

    def __init__(self, saboteur: Saboteur, writing: int):
        self._saboteur, self._writing = saboteur, writing

    def _say(self, **line: object) -> None:
        os.write(self._writing, (json.dumps(line) + "\n").encode())

    def _step(self, name: str, act: Callable[[], object]) -> object:
        from app.cli.output import user_message

        try:
            result = act()
        except Exception as error:
            plain = user_message(error) is not None or isinstance(error, MemoryError)
            self._say(what="failed", step=name, plain=plain, error=f"{type(error).__name__}: {error}"[:300])
            return None
        self._say(what="done", step=name, id=result if isinstance(result, str) else "")
        return result

    def run(self, arm: Callable[[], object]) -> None:
        saboteur = self._saboteur
        arm()
        opened = []
        self._step("open", lambda: opened.append(saboteur._open(saboteur.home)))
        if opened:
            library = opened[0]
            first, second = list(saboteur.before)[:2]
            self._step("ingest", lambda: self._ingest(library))
            self._step("rename", lambda: library.rename_document(second, "Another title"))
            self._step("ask", lambda: list(library.ask(QUESTION, k=2, max_tokens=1)))
            self._step("delete", lambda: (library.delete_documents([first]), first)[1])
            self._step("gc", lambda: library.gc())
            library.keep_backup().join()
        self._say(what="places", count=saboteur.shim.failing_disk_seen())

    def _ingest(self, library) -> str:  # type: ignore[no-untyped-def]
        from retrieval.errors import CairnError

        job = library.run_job(library.submit(self._saboteur.files[DOCUMENTS]).id)
        if job.state != "done":
            raise (AssertionError if job.error.startswith("Something unexpected") else CairnError)(job.error)
        return job.document_id


def _limit_memory(more_bytes: int) -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + more_bytes, size + more_bytes))


def main() -> int:
    shim = begin_again_with_shim()
    import machine
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--failures", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a forked child must not wait for threads that it does not have
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cairn-disk-") as folder:
        saboteur = Saboteur(Path(folder), shim, arguments.seed)
        for number in range(arguments.failures):
            saboteur.round([*KINDS, "disk full", MEMORY][number % 5])
            if number % 20 == 19:
                print(f"{number + 1} of {arguments.failures}: {len(saboteur.violations)} violations", file=sys.stderr)
    result = {
        **machine.described(1),
        "failures": arguments.failures,
        "places": saboteur.places,
        "counts": dict(sorted(saboteur.counts.items())),
        "violations": saboteur.violations,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    return 1 if saboteur.violations else 0


if __name__ == "__main__":
    sys.exit(main())
