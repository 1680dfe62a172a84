"""The writer of tests/storage/crash.py over a bucket, killed again and again; each time examined with an empty cache.

    python -m tests.storage.blobs.crash --kills 100

The server, each writer and each examination are processes of their own, forked from one that never talks to a server.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from storage.blobs.s3 import open_blobs
from storage.catalogue import Catalogue
from storage.kv.store import KVBlockStore
from tests.object_server import ACCESS, endpoint, new_store
from tests.storage.crash import check, kill_once
from tests.storage.stored import FINGERPRINT, LAYOUT, database_url


def serve(told: int) -> None:
    os.write(told, (new_store() + "\n").encode())
    assert endpoint()
    signal.pause()


def forked(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"failed: {error!r}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return child


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a writer to a bucket at random moments; check what it left.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # no pool of threads may exist when forking
    os.environ.update(ACCESS)
    reading, told = os.pipe()
    server = forked(lambda: serve(told))
    url = os.read(reading, 1000).decode().strip()
    dice = random.Random(arguments.seed)
    try:
        with tempfile.TemporaryDirectory() as folder:
            violations = kill(Path(folder), url, arguments.kills, arguments.seed, dice)
            journal = (Path(folder) / "journal").read_text()
    finally:
        os.kill(server, signal.SIGTERM)
        os.waitpid(server, 0)
    print(json.dumps({"kills": arguments.kills, "violations": violations, "ready": journal.count('"ready"')}))
    sys.exit(violations != 0)


def kill(home: Path, url: str, kills: int, seed: int, dice: random.Random) -> int:
    def opened(folder: Path) -> tuple[Catalogue, KVBlockStore]:
        blobs = open_blobs(url, folder)
        catalogue = Catalogue.open(database_url(folder), folder, blobs=blobs)
        digest = catalogue.put_fingerprint(FINGERPRINT)
        return catalogue, KVBlockStore(folder / "kv", LAYOUT, digest, blobs=blobs.inside("kv"))

    os.waitpid(forked(lambda: opened(home)[0].close()), 0)
    (home / "journal").touch()
    violations, longest = 0, 1.0
    number = 0
    while number < kills or (number < kills + 10 and not (home / "journal").read_text().count('"ready"')):
        before = (home / "journal").read_text().count('"ready"')
        kill_once(home, seed + number, dice.uniform(0.0, longest), from_opening=number % 4 != 0, open_=opened)
        shutil.rmtree(home / "cache", ignore_errors=True)  # what it holds is not the truth
        _, status = os.waitpid(forked(lambda: check(home, opened)), 0)
        violations += status != 0
        got_ahead = (home / "journal").read_text().count('"ready"') > before
        longest = max(1.0, longest / 1.3) if got_ahead else min(10.0, longest * 1.3)
        number += 1
    return violations


if __name__ == "__main__":
    main()
