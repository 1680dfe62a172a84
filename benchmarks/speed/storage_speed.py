"""How fast memory is written, fetched and checked, beside what it could be at best and the same blobs in SQLite.

    python benchmarks/speed/storage_speed.py [--documents 4] [--dtype bf16]

- cold: the file's pages are dropped from the page cache before each round; warm: they are in it.
- memcpy: the same bytes copied from one buffer in RAM to another, piece by piece.
- sqlite: the same pieces as BLOBs, fetched by primary key.
Rounds are interleaved. Printed as JSON: the best round (what the code costs on a busy machine),
the median and the interquartile range.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch

from storage.kv.format import KV_DTYPES, KVLayout
from storage.kv.store import KVBlockStore
from storage.kv.verify import verify_file
from storage.records import ShardFile

LAYOUT = {"layers": tuple(range(1, 30)), "kv_heads": 3, "block_size": 64, "head_dim": 64}  # a 135M model
BLOCKS = 64
FETCHED = 8  # blocks of every head in every layer: one question


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def summary(seconds: list[float], size_bytes: int) -> dict[str, float]:
    low, median, high = statistics.quantiles(seconds, n=4)
    return {
        "best_milliseconds": round(1e3 * min(seconds), 2),
        "median_milliseconds": round(1e3 * median, 2),
        "interquartile_milliseconds": round(1e3 * (high - low), 2),
        "best_gigabytes_per_second": round(size_bytes / min(seconds) / 1e9, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=4, help="shards of 64 blocks (4,032 tokens) to write")
    parser.add_argument("--dtype", default="bf16", choices=KV_DTYPES)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    layout = KVLayout(**LAYOUT, dtype=arguments.dtype)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        print(json.dumps(measure(Path(name), layout, arguments.documents, arguments.rounds), indent=2))


def write_shards(store: KVBlockStore, layout: KVLayout, number: int) -> tuple[list[float], list[ShardFile]]:
    """Seconds of each shard's writing, and the shards."""
    shape = (BLOCKS, len(layout.layers), layout.kv_heads, layout.block_size, layout.head_dim)
    keys, values = torch.randn(shape).bfloat16(), torch.randn(shape).bfloat16()
    lengths = torch.full((BLOCKS,), layout.block_size - 1)
    seconds: list[float] = []
    shards: list[ShardFile] = []
    for _ in range(number):
        seconds.append(timed(lambda: shards.append(store.write(keys, values, lengths))))
    return seconds, shards


def blobs_in_sqlite(path: Path, number: int, size: int) -> sqlite3.Connection:
    """A table of so many random pieces."""
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE pieces (id INTEGER PRIMARY KEY, content BLOB)")
    database.executemany("INSERT INTO pieces VALUES (?, ?)", ((i, os.urandom(size)) for i in range(number)))
    database.commit()
    return database


def drop_pages(files: list[Path]) -> None:
    """Nothing of these files stays in the system's cache."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure(folder: Path, layout: KVLayout, documents: int, rounds: int) -> dict[str, object]:
    store = KVBlockStore(folder / "kv", layout, "fingerprint")
    write_seconds, shards = write_shards(store, layout, documents + 1)
    dice = random.Random(0)
    pieces_per_question = len(layout.layers) * layout.kv_heads * FETCHED
    size_bytes = pieces_per_question * layout.piece_bytes
    number = len(layout.layers) * layout.kv_heads * BLOCKS
    database = blobs_in_sqlite(folder / "blobs.sqlite3", number, layout.piece_bytes)
    buffer, target = bytearray(number * layout.piece_bytes), bytearray(size_bytes)

    wanted = {
        layer: [
            (dice.choice(shards).name, head, dice.randrange(BLOCKS))
            for head in range(layout.kv_heads)
            for _ in range(FETCHED)
        ]
        for layer in layout.layers
    }

    def question(reader: KVBlockStore) -> None:
        for layer, pieces in wanted.items():  # one layer after the other, as attention asks
            reader.read_pieces(layer, pieces)

    def copy() -> None:
        size = layout.piece_bytes
        source, sink = memoryview(buffer), memoryview(target)
        for index in range(pieces_per_question):
            start = dice.randrange(number) * size
            sink[index * size : (index + 1) * size] = source[start : start + size]

    def from_sqlite() -> None:
        for _ in range(pieces_per_question):
            database.execute("SELECT content FROM pieces WHERE id = ?", (dice.randrange(number),)).fetchone()

    def fresh() -> KVBlockStore:
        return KVBlockStore(store.folder, layout, "fingerprint")

    seconds: dict[str, list[float]] = {}
    files = [*(store.folder / shard.name for shard in shards), folder / "blobs.sqlite3"]
    for _ in range(rounds):
        drop_pages(files)
        reader = fresh()
        seconds.setdefault("cold, checked", []).append(timed(lambda r=reader: question(r)))  # type: ignore[misc]
        reader = fresh()
        question(store)
        seconds.setdefault("warm, first touch (checked)", []).append(timed(lambda r=reader: question(r)))  # type: ignore[misc]
        seconds.setdefault("warm, verified before", []).append(timed(lambda: question(store)))
        seconds.setdefault("memcpy", []).append(timed(copy))
        seconds.setdefault("sqlite, warm", []).append(timed(from_sqlite))
    verify_seconds = [
        timed(lambda s=shard: verify_file(store.folder / s.name, s.name, checksum=s.checksum))  # type: ignore[misc]
        for shard in shards
    ]
    shard_bytes = shards[0].size_bytes
    return {
        **machine.described(1),
        "dtype": layout.dtype,
        "question": f"{pieces_per_question} pieces of {layout.piece_bytes} bytes, {size_bytes / 1e6:.1f} MB",
        "fetch": {name: summary(values, size_bytes) for name, values in seconds.items()},
        "write": summary(write_seconds[1:], shard_bytes) | {"tokens_per_shard": BLOCKS * (layout.block_size - 1)},
        "verify": summary(verify_seconds, shard_bytes),
    }


if __name__ == "__main__":
    main()
