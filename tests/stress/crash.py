"""kill -9 at random moments of all that writes; after each kill the library is opened and examined.

    python tests/stress/crash.py --kills 200

Killed are: ingest, delete, repair (of a damaged shard), gc (of planted orphans, without grace), backup, migrate (of a
home as release 0.2.0 left it) and rescue (of a catalogue turned into noise; it is begun again after the kill).

What must hold after every kill, before anything is put right: each acknowledged document is there, whole, undamaged,
and answers as in a library that was never disturbed; no document is half visible; nothing that was acknowledged as
deleted is left. And after the waiting jobs, `repair` and `gc`: no damage, no orphan. Prints one JSON object; exit
status 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # it forks
import machine
import torch

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.extraction import extract
from retrieval.library import Library
from retrieval.types.answers import Answer
from retrieval.types.records import Scope
from storage.backups import kept_backups
from storage.kv.format import KV_DTYPES
from storage.recovery import needs_rescue, rescue
from tests.retrieval.conftest import prose
from tests.retrieval.reading_here import ReadingHere
from tests.tiny_model import tiny_model

ACTIONS = ("ingest", "delete", "repair", "gc", "backup", "migrate", "rescue")
SHARD_BYTES = 20_000
QUESTION = "What does the keeper of the tower carry?"
NUM_TEXTS = 6


def open_library(home: Path, model: LandmarkModel, kv_dtype: str) -> Library:
    return Library.open(home, model, kv_dtype=kv_dtype, shard_bytes=SHARD_BYTES)


def answer_of(library: Library, document_id: str) -> list[tuple]:
    """What an answer from one document consists of, free of ids and times, and of the confidence, which compares the
    document with whatever else is stored at the moment."""
    *_, answer = library.ask(QUESTION, k=3, max_tokens=3, within=Scope((document_id,)))
    assert isinstance(answer, Answer)
    tokens = [(token.token_id, token.logprob, token.memory_share) for token in answer.tokens]
    return [answer.text, tokens, [(p.text, p.score) for p in answer.passages]]


class Disturber:
    """Runs actions in child processes, kills them, and examines what is left."""

    def __init__(self, folder: Path, seed: int, kv_dtype: str):
        self.random, self.kv_dtype = random.Random(seed), kv_dtype
        self.home = folder / "home"
        self.model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
        self.files = []
        for number in range(NUM_TEXTS):
            path = folder / f"text-{number}.txt"
            path.write_text(prose(100 + number, 300 + 150 * number))
            self.files.append(path)
        self.calm = self._calm(folder / "calm")
        self.seconds = dict.fromkeys(ACTIONS, 0.5)
        self.violations: list[str] = []
        self._round = ""
        self.counts: Counter[str] = Counter()

    def _calm(self, home: Path) -> dict[str, tuple[int, list[tuple]]]:
        """By source: blocks and answer of the undisturbed document."""
        with open_library(home, self.model, self.kv_dtype) as library:
            found = {}
            for path in self.files:
                job = library.jobs.run(library.documents.submit(path).id)
                found[path.name] = (job.blocks, answer_of(library, job.document_id))
            return found

    @property
    def kills(self) -> int:
        return sum(self.counts[f"{action} killed"] for action in self.seconds)

    def round(self) -> None:
        with open_library(self.home, self.model, self.kv_dtype) as library:
            ready = [document for document in library.documents.list() if document.state == "ready"]
        action = self.random.choice([*ACTIONS, "ingest"]) if ready else "ingest"
        if action in ("repair", "gc", "migrate", "rescue"):
            getattr(self, f"_before_{action}")()
        acknowledged, finished = self._run_and_kill(action, [document.id for document in ready])
        self.counts[f"{action} {'finished first' if finished else 'killed'}"] += 1
        self._round = f"{self.kills} kills, {action} {'finished' if finished else 'killed'}"
        self._examine(action, acknowledged, {document.id for document in ready})

    def _before_gc(self) -> None:
        for number in range(20):
            path = self.home / "kv" / f"{self.random.getrandbits(128):032x}" / f"{number}.kv"
            path.parent.mkdir()
            path.write_bytes(b"orphan")

    def _before_migrate(self) -> None:
        (self.home / "home.json").unlink()
        with closing(sqlite3.connect(self.home / "cairn.sqlite3")) as connection:
            since = ("home", "document_properties", "folder_files", "folders", "user_groups", "collection_groups")
            for table in (*since, "shared_values", "shard_terms", "shard_vectors"):
                connection.execute(f"DROP TABLE {table}")
            connection.execute("DROP INDEX uq_users_issuer_subject")
            for column in ("issuer", "subject"):
                connection.execute(f"ALTER TABLE users DROP COLUMN {column}")
            connection.execute("UPDATE alembic_version SET version_num = '0003'")
            connection.commit()

    def _before_rescue(self) -> None:
        for path in self.home.glob("cairn.sqlite3*"):
            path.write_bytes(b"noise" * 5000)

    def _before_repair(self) -> None:
        path = self.random.choice(sorted((self.home / "kv").rglob("*.kv")))
        data = bytearray(path.read_bytes())
        data[self.random.randrange(len(data))] ^= 255
        path.write_bytes(data)

    def _run_and_kill(self, action: str, ready: list[str]) -> tuple[list[str], bool]:
        """Acknowledgements that were read before the child died, and whether it had finished."""
        file, victim = self.random.choice(self.files), self.random.choice(ready) if ready else ""
        delay = self.random.uniform(0, 1.15 * self.seconds[action])
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            status = 1
            try:
                self._act(action, file, victim, writing)
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        began = time.monotonic()
        while (
            time.monotonic() - began < delay
            and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        ):
            time.sleep(0.002)
        took = time.monotonic() - began
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        finished = os.WIFEXITED(status)
        if finished and os.WEXITSTATUS(status):
            self.violations.append(f"{action} failed by itself")
        self.seconds[action] = 0.7 * self.seconds[action] + 0.3 * (took if finished else 1.5 * self.seconds[action])
        with os.fdopen(reading) as lines:
            return lines.read().split(), finished

    def _act(self, action: str, file: Path, victim: str, acknowledge: int) -> None:
        if action == "rescue":
            rescue(self.home / "cairn.sqlite3", self.home)
            return
        with open_library(self.home, self.model, self.kv_dtype) as library:
            if action == "ingest":
                job = library.documents.submit(file)
                if job.state != "done":
                    job = library.jobs.run(job.id)
                os.write(acknowledge, f"stored:{job.document_id}\n".encode())
            elif action == "delete":
                library.documents.delete([victim])
                os.write(acknowledge, f"deleted:{victim}\n".encode())
            elif action == "repair":
                library.maintenance.repair()
                os.write(acknowledge, b"repaired\n")
            elif action == "gc":
                library.maintenance.gc(grace_seconds=0)
            elif action == "backup":
                library.collections.create(uuid4().hex)
                library.maintenance.keep_backup().join()

    def _examine(self, action: str, acknowledged: list[str], before: set[str]) -> None:
        catalogue = self.home / "cairn.sqlite3"
        if action == "rescue" and needs_rescue(catalogue, self.home):
            rescue(catalogue, self.home)
        for copy in kept_backups(catalogue):
            with closing(sqlite3.connect(copy)) as connection:
                found = connection.execute("PRAGMA integrity_check").fetchall()
            self._expect(found == [("ok",)], f"a backup is damaged after {action}: {found}")
        with open_library(self.home, self.model, self.kv_dtype) as library:
            damaged = {each.document_id for each in library.maintenance.verify().damage}
            if action != "repair" or "repaired" in acknowledged:
                self._expect(not damaged, f"damage after {action}: {damaged}")
            documents = {document.id: document for document in library.documents.list()}
            ready = {document_id for document_id, document in documents.items() if document.state == "ready"}
            for line in acknowledged:
                what, _, document_id = line.partition(":")
                self._expect(what != "stored" or document_id in ready, "an acknowledged document is lost")
                self._expect(what != "deleted" or document_id not in documents, "a deleted document is back")
            lost = before - ready
            self._expect(len(lost) <= (action == "delete"), f"documents lost: {lost}")
            if not damaged:  # else the library may rightly refuse to answer; it is asked after the repair
                self._expect_calm_answers(library, ready)
            while library.jobs.run_next() is not None:
                pass
            library.maintenance.repair()
            library.maintenance.gc()
            report = library.maintenance.verify()
            self._expect(report.ok, f"damage after repair: {report.damage}")
            self._expect(not report.orphans, f"orphans after gc: {report.orphans}")
            self._expect(all(d.state == "ready" for d in library.documents.list()), "a job did not end")
            self._expect_calm_answers(library, {document.id for document in library.documents.list()})

    def _expect_calm_answers(self, library: Library, document_ids: set[str]) -> None:
        for document_id in document_ids:
            document = library.documents.get(document_id)
            blocks, answer = self.calm[document.source]
            self._expect(document.blocks == blocks, f"{document.source} is half visible")
            self._expect(answer_of(library, document_id) == answer, f"{document.source} answers differently")

    def _expect(self, held: bool, complaint: str) -> None:
        if not held:
            self.violations.append(f"{complaint} ({self._round})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kv-dtype", choices=KV_DTYPES, default="bf16")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a forked child must not wait for threads that it does not have
    extract.SANDBOX = ReadingHere()  # a process for each file would take most of the time
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cairn-crash-") as folder:
        disturber = Disturber(Path(folder), arguments.seed, arguments.kv_dtype)
        for _ in range(3 * arguments.kills):  # some actions finish before their kill comes
            if disturber.kills >= arguments.kills:
                break
            disturber.round()
    result = {
        **machine.described(1),
        "kills": disturber.kills,
        "kv_dtype": arguments.kv_dtype,
        "counts": dict(disturber.counts),
        "violations": disturber.violations,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    return 1 if disturber.violations else 0


if __name__ == "__main__":
    sys.exit(main())
