"""A write or an allocation that fails, at every place: is the library still readable, and does the next try succeed?

    python tests/stress/failing_disk.py --failures 500
    python tests/stress/failing_disk.py --failures 200 --kinds "an allocation fails" "no memory is left"

A library with a few documents is copied; a child process opens the copy, hands in and reads a document, renames one,
asks, deletes one, collects garbage and backs up, while one of its writes fails: the disk is full from then on, or one
call returns an input/output error, or writes only half; or an allocation of half a kilobyte or more fails, or from one
on all of 16 kB or more. A child may end by that, as any program in which C code meets no memory, but not hang. Then, on
a machine that works, nothing that was acknowledged may be missing, nothing may be damaged or half visible, each failure
must have been a sentence for a person, an answer that was given must be the usual one, and the same work must succeed.
Prints one JSON object; exit status 1 otherwise.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # it forks
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from tests.stress.shim import KINDS, begin_again_with_shim

if TYPE_CHECKING:
    from retrieval.library import Library

QUESTION = "What does the keeper of the tower carry?"
SHARD_BYTES = 20_000
DOCUMENTS = 3
MEMORY = {"an allocation fails": (512, False), "no memory is left": (16 << 10, True)}
"""Kind -> allocations of how many bytes or more, and whether all that follow fail too."""
EVERY_KIND = (*KINDS, *MEMORY)
PATIENCE_SECONDS = 300  # of a child; it needs one or two


class Saboteur:
    """Runs the work in children that fail, and examines what they left."""

    def __init__(self, folder: Path, shim: ctypes.CDLL, seed: int):
        from retrieval.extraction import extract
        from tests.retrieval.conftest import prose
        from tests.retrieval.reading_here import ReadingHere
        from tests.tiny_model import tiny_model

        extract.SANDBOX = ReadingHere()  # a process for each file would take most of the time
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
        with self.open(folder / "before") as library:
            for path in self.files[:DOCUMENTS]:
                assert library.jobs.run(library.documents.submit(path).id).state == "done"
            self.before = {document.id: document.source for document in library.documents.list()}
            self.usual = self.answer(library)  # and loads what only answers need
        self.places = {kind: self._count_places(kind) for kind in ("disk full", *MEMORY)}

    def open(self, home: Path) -> Library:
        from retrieval.library import Library

        return Library.open(home, self.model, shard_bytes=SHARD_BYTES)

    def answer(self, library: Library) -> str:
        """About the document that nothing happens to."""
        from retrieval.types.records import Scope

        *tokens, answer = library.ask(QUESTION, k=2, max_tokens=2, within=Scope((list(self.before)[-1],)))
        return repr([*((token.token_id, token.logprob) for token in tokens), *(one.text for one in answer.passages)])

    def _arm(self, kind: str, place: int) -> None:
        """-1: count only."""
        if kind in MEMORY:
            self.shim.failing_memory_arm(place, *MEMORY[kind])
        else:
            self.shim.failing_disk_arm(str(self.home).encode(), place, KINDS[kind])

    def _count_places(self, kind: str) -> int:
        """How many calls the work makes that can fail so."""
        shutil.copytree(self.folder / "before", self.home)
        said = self._in_child(lambda: self._arm(kind, -1))
        assert said[-1]["what"] == "places", said
        shutil.rmtree(self.home)
        return int(said[-1]["memory" if kind in MEMORY else "disk"])

    def round(self, kind: str) -> None:
        shutil.copytree(self.folder / "before", self.home)
        place = self.random.randrange(self.places[kind if kind in MEMORY else "disk full"])
        where = f"{kind} at {place}"
        said = self._in_child(lambda: self._arm(kind, place))
        failed = [line for line in said if line["what"] == "failed"]
        ended = said[-1]["what"] != "places"
        self.counts[f"{kind}: {'ended the process' if ended else 'noticed' if failed else 'unnoticed'}"] += 1
        if said[-1]["what"] == "hung" or (ended and kind not in MEMORY):
            self.violations.append(f"{where}: {said[-1]}")
        for line in failed:
            if not line["plain"]:
                self.violations.append(f"{where}: {line['step']} gave no sentence for a person but {line['error']}")
        done = {line["step"]: line for line in said if line["what"] == "done"}
        if "ask" in done and done["ask"]["result"] != self.usual:
            self.violations.append(f"{where}: another answer, {done['ask']['result']}")
        try:
            self._examine(where, done)
        except Exception as error:  # whatever it is, it is what a user would meet
            self.violations.append(f"{where}: afterwards {type(error).__name__}: {error}")
        shutil.rmtree(self.home)

    def _in_child(self, arm: Callable[[], object]) -> list[dict]:
        """What the child said, line by line; a last line if it ended early or hung."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            log = os.open(os.devnull, os.O_WRONLY)
            os.dup2(log, 2)
            signal.alarm(PATIENCE_SECONDS)
            try:
                _Work(self, writing).run(arm)
            finally:
                os._exit(1)
        os.close(writing)
        with os.fdopen(reading) as lines:
            said = [json.loads(line) for line in lines if line.endswith("\n")]
        _, status = os.waitpid(child, 0)
        if not said or said[-1]["what"] != "places":
            hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
            said.append({"what": "hung" if hung else "ended", "status": status})
        return said

    def _examine(self, where: str, done: dict[str, dict]) -> None:
        with self.open(self.home) as library:
            report = library.maintenance.verify()
            self._expect(report.ok, f"{where}: damage {report.damage}")
            documents = {document.id: document for document in library.documents.list()}
            deleted = set(self.before) - set(documents)
            allowed = {done["delete"]["result"]} if "delete" in done else {next(iter(self.before))}
            self._expect(deleted <= allowed, f"{where}: lost {deleted - allowed}")
            self._expect("delete" not in done or deleted == allowed, f"{where}: a deleted document is back")
            if "ingest" in done:
                state = documents[done["ingest"]["result"]].state if done["ingest"]["result"] in documents else "lost"
                self._expect(state == "ready", f"{where}: the acknowledged document is {state}")
            for document_id in set(self.before) - deleted:
                self._expect(documents[document_id].state == "ready", f"{where}: {document_id} is half visible")
            for job in library.jobs.list():
                if job.state == "failed":
                    library.jobs.retry(job.id)
            while library.jobs.run_next() is not None:
                pass
            again = library.jobs.run(library.documents.submit(self.files[DOCUMENTS]).id)
            self._expect(again.state == "done", f"{where}: the next try fails: {again.error}")
            library.maintenance.gc(grace_seconds=0)
            left = library.maintenance.verify()
            self._expect(left.ok and not left.orphans, f"{where}: after gc {left.damage} {left.orphans}")
            self._expect(self.answer(library) == self.usual, f"{where}: afterwards another answer")

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
            plain = user_message(error) is not None
            self._say(what="failed", step=name, plain=plain, error=f"{type(error).__name__}: {error}"[:300])
            return None
        self._say(what="done", step=name, result=result if isinstance(result, str) else "")
        return result

    def run(self, arm: Callable[[], object]) -> None:
        saboteur = self._saboteur
        arm()
        opened = []
        self._step("open", lambda: opened.append(saboteur.open(saboteur.home)))
        if opened:
            library = opened[0]
            first, second = list(saboteur.before)[:2]
            self._step("ingest", lambda: self._ingest(library))
            self._step("rename", lambda: library.documents.rename(second, "Another title"))
            self._step("ask", lambda: saboteur.answer(library))
            self._step("delete", lambda: (library.documents.delete([first]), first)[1])
            self._step("gc", lambda: library.maintenance.gc())
            library.maintenance.keep_backup().join()
        shim = saboteur.shim
        self._say(what="places", disk=shim.failing_disk_seen(), memory=shim.failing_memory_seen())

    def _ingest(self, library: Library) -> str:
        from retrieval.errors import CairnError

        job = library.jobs.run(library.documents.submit(self._saboteur.files[DOCUMENTS]).id)
        if job.state != "done":
            raise (AssertionError if job.error.startswith("Something unexpected") else CairnError)(job.error)
        return job.document_id


def main() -> int:
    shim = begin_again_with_shim()
    import machine
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--failures", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="and then stop, however far it came")
    parser.add_argument("--kinds", nargs="+", choices=EVERY_KIND, default=EVERY_KIND, metavar="KIND")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a forked child must not wait for threads that it does not have
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cairn-disk-") as folder:
        saboteur = Saboteur(Path(folder), shim, arguments.seed)
        for number in range(arguments.failures):
            if time.monotonic() > began + 60 * arguments.minutes:
                break
            saboteur.round(arguments.kinds[number % len(arguments.kinds)])
            if number % 20 == 19:
                print(f"{number + 1} of {arguments.failures}: {len(saboteur.violations)} violations", file=sys.stderr)
    result = {
        **machine.described(1),
        "failures": saboteur.counts.total(),
        "places": saboteur.places,
        "counts": dict(sorted(saboteur.counts.items())),
        "violations": saboteur.violations,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    return 1 if saboteur.violations else 0


if __name__ == "__main__":
    sys.exit(main())
