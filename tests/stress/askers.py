"""Many questions while documents come and go: is each answer the one it would have been alone?

    python tests/stress/askers.py --askers 8 --answers 1000      # at once
    python tests/stress/askers.py --askers 1 --answers 10000     # one after another, for memory and handles
    python tests/stress/askers.py --askers 50 --answers 100 --at-once 4 --shipped

Some documents stay, each with a needle of its own; others are read and deleted all the time by another thread. Every
second question is about one document that stays, and must give the tokens and passages that it gave before anything
moved. The others see everything: each passage must be what its document says at that place, and no document may show
that was deleted before the question was asked; an answer whose document was deleted meanwhile says so. In between,
memory and open handles are counted, fifty times: after the first tenth of the answers neither may go on growing.
`--at-once 4` lets four questions be at work and the others wait for their turn, as a server does. `--shipped` asks the
checkpoint in model/default, whose answers must hold the needles. Prints one JSON object; exit status 1 if anything did
not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import psutil
import torch

from app.limits.fair_queue import FairQueue
from retrieval.errors import DeletedMeanwhile, NotFound
from retrieval.extraction import extract
from retrieval.library import Library
from retrieval.types.answers import Answer
from retrieval.types.records import Scope
from tests.retrieval.conftest import prose
from tests.retrieval.reading_here import ReadingHere
from tests.tiny_model import shipped_model, tiny_model

STAYING = 6
ANSWERS_PER_DOCUMENT = 10  # that comes and goes
TOKENS = 2  # of an answer of the tiny model
GROWTH = 1.15  # of memory after the first tenth of the answers
NOTES = 50  # of memory
GROWTH_BYTES = 64 << 20  # as much again as allocators and caches may take
OWNERS = ("lighthouse", "harbour", "orchard", "mill", "quarry", "chapel")


class Hall:
    """A library with people who ask, and one who brings and takes documents."""

    def __init__(self, folder: Path, *, shipped: bool, seed: int, at_once: int):
        self.folder, self.seed = folder, seed
        self.turns, self._counting = FairQueue("asking", at_once=at_once, each_waiting=1), threading.Lock()
        self.shipped = shipped
        model = shipped_model() if shipped else tiny_model(block_size=16, window_blocks=4, context_blocks=2)
        self.library = Library.open(folder / "home", model, shard_bytes=100_000)
        self.texts: dict[str, str] = {}
        self.deleted: dict[str, float] = {}
        self.last_deletion = 0.0
        self.ended = threading.Event()
        self.counts, self.violations = Counter[str](), list[str]()
        self.memory: list[tuple[int, int, int]] = []  # answers, bytes, handles
        self.needles = [f"{4000 + 37 * number}" for number in range(STAYING)]
        self.staying = [self._bring(f"stays-{n}.txt", prose(n, 900, self._needle(n))) for n in range(STAYING)]
        self.calm = [self._ask(number) for number in range(STAYING)]

    def _needle(self, number: int) -> str:
        return f"The secret number of the {OWNERS[number]} is {self.needles[number]}. "

    def _bring(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        job = self.library.documents.submit(path)
        self.texts[job.document_id] = text  # before anybody can read it
        ended = self.library.jobs.run(job.id)
        path.unlink()
        assert ended.state == "done", ended
        return job.document_id

    def come_and_go(self) -> None:
        try:
            self._come_and_go()
        except Exception as error:
            self.violations.append(f"documents came and went until {type(error).__name__}: {error}")

    def _come_and_go(self) -> None:
        number, here = 0, list[str]()
        while not self.ended.is_set():
            number += 1
            here.append(self._bring(f"passes-{number}.txt", prose(1000 + self.seed + number, 700)))
            if len(here) > 3:
                gone = here.pop(0)
                self.last_deletion = float("inf")  # it goes on
                self.library.documents.delete([gone])
                self.last_deletion = self.deleted[gone] = time.monotonic()
            self.counts["documents read"] = number
            while self.counts["answers"] < number * ANSWERS_PER_DOCUMENT and not self.ended.wait(0.05):
                pass  # else reading would take most of the machine

    def _ask(self, number: int | None) -> Answer:
        """About the document that stays with this number; None: about everything."""
        question = f"What is the secret number of the {OWNERS[(number or 0) % STAYING]}?"
        within = None if number is None else Scope((self.staying[number],))
        *_, answer = self.library.ask(question, within=within, max_tokens=None if self.shipped else TOKENS)
        assert isinstance(answer, Answer)
        return answer

    def ask_many(self, asker: int, answers: int, ends: float, every: int) -> None:
        chance = Random(f"{self.seed} {asker}")
        for number in range(answers):
            if time.monotonic() > ends:
                return
            self._one(f"asker {asker}", chance, calm=number % 2 == 0)
            with self._counting:
                self.counts["answers"] += 1
                if self.counts["answers"] % every == 0:
                    self._note_memory(self.counts["answers"])

    def _one(self, asker: str, chance: Random, *, calm: bool) -> None:
        asked_at = time.monotonic()
        number = chance.randrange(STAYING) if calm else None
        try:
            answer = self.turns.submit(asker, self._ask, number).result()
        except DeletedMeanwhile as error:
            self.counts["refused: its document was deleted"] += 1
            if calm or self.last_deletion < asked_at:
                self.violations.append(f"nothing was deleted, but: {error}")
            return
        except Exception as error:
            self.violations.append(f"{type(error).__name__}: {error}")
            return
        if number is not None:
            before = self.calm[number]
            if _shown(answer) != _shown(before):
                self.violations.append(f"{OWNERS[number]}: {answer.text!r} where it was {before.text!r}")
            if self.shipped and self.needles[number] not in answer.text:
                self.violations.append(f"{OWNERS[number]}: {answer.text!r} has no {self.needles[number]}")
        for passage in answer.passages:
            said = self.texts[passage.document_id][passage.start_index : passage.end_index]
            if said != passage.text:
                self.violations.append(f"{passage.source} does not say {passage.text!r}")
            if self.deleted.get(passage.document_id, asked_at) < asked_at:
                self.violations.append(f"{passage.source} was deleted before")

    def _note_memory(self, answers: int) -> None:
        process = psutil.Process()
        self.memory.append((answers, process.memory_info().rss, process.num_fds()))
        print(*self.memory[-1], round(time.monotonic()), file=sys.stderr, flush=True)

    def examine_movement(self) -> None:
        """Documents must have come and gone, or nothing was tried."""
        wanted = self.counts["answers"] // ANSWERS_PER_DOCUMENT // 20
        if self.counts["documents read"] < wanted:
            self.violations.append(f"{self.counts['documents read']} documents were read, not even {wanted}")

    def examine_memory(self) -> None:
        settled = self.memory[max(1, len(self.memory) // 10) :]
        if len(settled) < 2:
            return
        (_, first_bytes, first_handles), (_, last_bytes, last_handles) = settled[0], settled[-1]
        if last_bytes > GROWTH * first_bytes + GROWTH_BYTES:
            self.violations.append(f"memory grew from {first_bytes:,} to {last_bytes:,} bytes")
        if last_handles > first_handles + 16:
            self.violations.append(f"open handles grew from {first_handles} to {last_handles}")

    def close(self) -> None:
        while self.library.jobs.run_next() is not None:
            pass
        report = self.library.maintenance.verify()
        if not report.ok:
            self.violations.append(f"damage: {report.damage}")
        self.turns.close()
        for gone in self.deleted:
            try:
                self.library.documents.get(gone)
            except NotFound:
                continue
            self.violations.append(f"{gone} is there again")
        self.library.close()


def _shown(answer: Answer) -> list[object]:
    return [answer.text, [(passage.document_id, passage.text) for passage in answer.passages]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--askers", type=int, default=8)
    parser.add_argument("--answers", type=int, default=1000, help="of each asker")
    parser.add_argument("--at-once", type=int, help="questions at work; unset: all")
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="and then stop, however far it came")
    given = parser.parse_args()
    torch.set_num_threads(1)
    extract.SANDBOX = ReadingHere()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cairn-askers-") as folder:
        hall = Hall(Path(folder), shipped=given.shipped, seed=given.seed, at_once=given.at_once or given.askers)
        mover = threading.Thread(target=hall.come_and_go)
        ends = began + 60 * given.minutes
        every = max(1, given.askers * given.answers // NOTES)
        each = (given.answers, ends, every)
        askers = [threading.Thread(target=hall.ask_many, args=(number, *each)) for number in range(given.askers)]
        for thread in (mover, *askers):
            thread.start()
        for thread in askers:
            thread.join()
        hall.ended.set()
        mover.join()
        hall.examine_movement()
        hall.examine_memory()
        hall.close()
    result = {
        "askers": given.askers,
        "answers each": given.answers,
        "at once": given.at_once,
        "counts": dict(hall.counts),
        "memory": hall.memory,
    }
    result |= {"violations": hall.violations[:20], "seconds": round(time.monotonic() - began, 1)}
    print(json.dumps({**machine.described(1), **result}))
    return 1 if hall.violations else 0


if __name__ == "__main__":
    sys.exit(main())
