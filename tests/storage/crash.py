"""A writer that is killed again and again, and a look at what it left each time.

    python -m tests.storage.crash --kills 200

The writer ingests, rewrites and deletes tiny documents in a loop and appends a line to a journal whenever something was
acknowledged (that is: a call returned). It is killed with SIGKILL at a random moment. Then, in a store that nobody has
cleaned up:

- every acknowledged document is there, ready, and equal to its recipe, number for number;
- every acknowledged deletion is complete: no row, no answer that used it;
- everything else is there whole, or unfinished and invisible to questions, or absent;
- the next writer takes up the unfinished work where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import torch

from storage.catalogue import Catalogue
from storage.errors import NotFound
from storage.kv.store import KVBlockStore
from storage.maintenance import catalogue_problems, verify
from storage.records import Document, Job, JobProgress
from storage.workers import this_worker
from tests.storage.stored import (
    LAYOUT,
    collect_garbage,
    new_blocks,
    new_document,
    open_home,
    random_blocks,
    read_blocks,
)

BLOCKS = 3
Open: TypeAlias = Callable[[Path], tuple[Catalogue, KVBlockStore]]


def recipe(seed: int) -> int:
    """How many shards the document of that seed has."""
    return 1 + seed % 4


class Writer:
    """Ingests, rewrites and deletes until it is killed."""

    def __init__(self, home: Path, seed: int, open_: Open = open_home):
        self.catalogue, self.store = open_(home)
        self.journal = os.open(home / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.random = random.Random(seed)
        self.next_seed = seed * 1000

    def note(self, what: str, **details: object) -> None:
        os.write(self.journal, (json.dumps({"what": what} | details) + "\n").encode())

    def run(self) -> None:
        self.note("open")
        self.catalogue.recover_jobs()
        while (job := self.catalogue.claim_next_job(this_worker())) is not None:
            self.note("resumed", shards=len(self.catalogue.shards(job.document_id)))
            self.finish(job)
        if self.store.blobs.settle_seconds == 0:  # else all is too young
            collect_garbage(self.catalogue, self.store.folder.parent)
        while True:
            self.ingest()
            ready = [each for each in self.catalogue.documents() if each.state == "ready"]
            if len(ready) > 6:
                self.delete(self.random.choice(ready))
            self.rewrite(self.random.choice(ready))

    def ingest(self) -> None:
        self.next_seed += 1
        submitted = self.catalogue.add_document(new_document(self.next_seed))
        self.note("submitted", id=submitted.document.id, seed=self.next_seed)
        job = self.catalogue.claim_next_job(this_worker())
        assert job is not None and job.document_id == submitted.document.id
        self.finish(job)

    def finish(self, job: Job) -> None:
        document_id = job.document_id
        seed = int(self.catalogue.document(document_id).content_sha256, 16)
        for number in range(len(self.catalogue.shards(document_id)), recipe(seed)):
            self.note("writing")
            shard = self.store.write(*random_blocks(LAYOUT, BLOCKS, 10 * seed + number), group=document_id)
            self.note("committing")
            blocks, progress = new_blocks(BLOCKS, BLOCKS * number), JobProgress("reading")
            self.catalogue.commit_shard(document_id, shard, blocks, job=job, progress=progress)
        self.note("finishing")
        self.catalogue.finish_document(document_id, job=job)
        self.note("ready", id=document_id, seed=seed)
        self.catalogue.save_answer(question="q", text="a", body="{}", document_ids=[document_id])

    def rewrite(self, document: Document) -> None:
        """What a repair does: the same blocks in a new file, then the old file goes."""
        seed = int(document.content_sha256, 16)
        try:
            old = self.catalogue.shards(document.id)[-1]
            made = self.store.write(*random_blocks(LAYOUT, BLOCKS, 10 * seed + recipe(seed) - 1), group=document.id)
            self.note("replacing")
            self.catalogue.replace_shard(old.name, made)
            self.note("replaced")
            self.store.delete([old.name])
        except (NotFound, IndexError):
            pass  # it was the one deleted just before

    def delete(self, document: Document) -> None:
        self.note("deleting", id=document.id)
        deleted = self.catalogue.delete_documents([document.id])
        self.note("deleted", id=document.id)
        self.store.delete(deleted.shards)
        self.note("files deleted")


def check(home: Path, open_: Open = open_home) -> None:
    """Raises `AssertionError` if the promise of the module is broken."""
    lines = [json.loads(line) for line in (home / "journal").read_text().splitlines()]
    acknowledged = {line["id"]: line["seed"] for line in lines if line["what"] == "ready"}
    doubtful = {line["id"] for line in lines if line["what"] == "deleting"}
    gone = {line["id"] for line in lines if line["what"] == "deleted"}
    catalogue, store = open_(home)
    try:
        found = {document.id: document for document in catalogue.documents()}
        lost = acknowledged.keys() - doubtful - {id_ for id_, document in found.items() if document.state == "ready"}
        assert not lost, f"acknowledged, and lost: {lost}"
        assert not gone & found.keys(), f"deleted, and still there: {gone & found.keys()}"
        for document in found.values():
            check_document(catalogue, store, document)
        visible = {
            catalogue.blocks_by_id([id_])[id_].document_id for id_ in catalogue.all_block_refs().block_ids.tolist()
        }
        assert visible == {id_ for id_, document in found.items() if document.state == "ready"}
        answered = {id_ for head in catalogue.answers(limit=None) for id_ in catalogue.answer(head.id).document_ids}
        assert answered <= found.keys()
        assert all(catalogue.answer(head.id).document_ids for head in catalogue.answers(limit=None))
        assert verify(catalogue, store.blobs) == catalogue_problems(catalogue) == []
    finally:
        catalogue.close()
        store.close()


def check_document(catalogue: Catalogue, store: KVBlockStore, document: Document) -> None:
    seed = int(document.content_sha256, 16)
    shards = catalogue.shards(document.id)
    assert document.state in ("ready", "ingesting"), (document, catalogue.jobs())
    assert len(shards) == recipe(seed) or (document.state == "ingesting" and len(shards) < recipe(seed))
    assert document.num_blocks == BLOCKS * len(shards) == len(catalogue.blocks_of_document(document.id))
    for number, shard in enumerate(shards):
        keys_NYGLD, values_NYGLD, lengths_N = random_blocks(LAYOUT, BLOCKS, 10 * seed + number)
        for y, layer in enumerate(LAYOUT.layers):
            keys_NGLD, values_NGLD = read_blocks(store, shard.name, layer, range(BLOCKS))
            assert torch.equal(keys_NGLD, keys_NYGLD[:, y].bfloat16())
            assert torch.equal(values_NGLD, values_NYGLD[:, y].bfloat16())
        assert torch.equal(store.lengths(shard.name), lengths_N)


def kill_once(home: Path, seed: int, seconds: float, *, from_opening: bool, open_: Open = open_home) -> None:
    """Run a writer in a process of its own for that long, from its first note or its very start, then SIGKILL."""
    before = (home / "journal").stat().st_size
    child = os.fork()
    if child == 0:
        try:
            Writer(home, seed, open_).run()
        except BaseException as error:
            print(f"the writer failed: {error!r}", file=sys.stderr)
        os._exit(1)
    deadline = time.monotonic() + 30
    while from_opening and (home / "journal").stat().st_size == before and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the writer ended by itself"


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a writer at random moments and check what it left.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # no pool of threads may exist when forking
    dice = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        open_home(home)[0].close()
        (home / "journal").touch()
        longest = 0.4
        for kill in range(arguments.kills):
            before = (home / "journal").read_text().count('"ready"')
            kill_once(home, arguments.seed + kill, dice.uniform(0.0, longest), from_opening=kill % 4 != 0)
            check(home)
            got_ahead = (home / "journal").read_text().count('"ready"') > before
            longest = max(0.4, longest / 1.3) if got_ahead else min(10.0, longest * 1.3)  # as fast as the machine is
        lines = [json.loads(line)["what"] for line in (home / "journal").read_text().splitlines()]
        print(json.dumps({"kills": arguments.kills, "violations": 0, "journal": dict(Counter(lines))}))


if __name__ == "__main__":
    main()
