"""What the second stage of search costs a question: reading the keys of the proposed blocks, and matching them.

    python benchmarks/speed/token_keys.py [--blocks 2048] [--proposed 128] [--heads 6] [--dtypes bf16 k4v2]

- cold: the files' pages are dropped from the page cache, and every block is read and checked for the first time.
- first touch: in the page cache, but still to be checked, so keys and values are read.
- checked: in the page cache and checked before: keys alone are read.
- hot: in the cache of hot blocks.
Beside it, what attention's way of reading costs: keys and values in float32 (checked, not hot). Printed as JSON:
median wall-clock milliseconds a question, and the milliseconds of computing in it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import numpy as np
import torch

from model.scoring.late_interaction import best_matches, block_scores, token_matches
from retrieval.index.block_cache import BlockCache, BlockShape
from storage.kv.format import KV_DTYPES, KVLayout
from storage.kv.store import KVBlockStore

BLOCK_SIZE, LAYER, BLOCKS_PER_SHARD, QUESTION_TOKENS, HOT_BYTES = 64, 3, 256, 14, 1 << 30


def median_ms(action: Callable[[Sequence[int]], object], questions: Sequence[Sequence[int]]) -> list[float]:
    """[wall clock, computing]"""
    rows = []
    for asked in questions:
        wall, computing = time.perf_counter(), time.process_time()
        action(asked)
        rows.append((time.perf_counter() - wall, time.process_time() - computing))
    return [round(1000 * statistics.median(row[which] for row in rows), 2) for which in (0, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=2048)
    parser.add_argument("--proposed", type=int, default=128)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtypes", nargs="+", choices=KV_DTYPES, default=["bf16"], help="number formats, in one run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to write; default: the system's folder for such files")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    size = {"proposed": given.proposed, "keys_width": given.heads * given.head_dim}
    figures = {kv_dtype: measured(given, kv_dtype) for kv_dtype in given.dtypes}
    print(json.dumps(machine.described(given.threads) | size | {"ms": figures}, indent=1))


def measured(given: argparse.Namespace, kv_dtype: str) -> dict[str, list[float]]:
    layout = KVLayout((1, LAYER), given.heads, BLOCK_SIZE, given.head_dim, kv_dtype)
    shape = BlockShape(layout.layers, given.heads, BLOCK_SIZE, given.head_dim, torch.float32, torch.device("cpu"))
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        refs = written(KVBlockStore(Path(folder), layout, "f"), given.blocks)
        questions = [random.Random(seed).sample(range(len(refs)), given.proposed) for seed in range(10)]

        def checked_store() -> KVBlockStore:
            store = KVBlockStore(Path(folder), layout, "f")
            for start in range(0, len(refs), 128):
                store.read_keys(refs[start : start + 128], LAYER)
            return store

        def read(cache: BlockCache, asked: Sequence[int]) -> torch.Tensor:
            return cache.read_keys(LAYER, np.array(asked), [refs[block] for block in asked])

        def keys_of(store: KVBlockStore) -> BlockCache:
            return BlockCache(store, shape, HOT_BYTES, key_layers=(LAYER,), key_dtype=layout.landmark_dtype)

        def fresh(store: KVBlockStore) -> Callable[[Sequence[int]], torch.Tensor]:
            return lambda asked: read(
                BlockCache(store, shape, HOT_BYTES, key_layers=(LAYER,), key_dtype=layout.landmark_dtype), asked
            )

        def cold(asked: Sequence[int]) -> torch.Tensor:
            return fresh(KVBlockStore(Path(folder), layout, "f"))(asked)

        def whole(asked: Sequence[int]) -> object:
            cache = BlockCache(store, shape, HOT_BYTES)
            pick = torch.arange(len(asked)).expand(1, given.heads, 1, -1)
            return cache.read(LAYER, np.array(asked), [refs[block] for block in asked], pick)

        figures = {}
        rounds = []
        for asked in questions:
            forget_pages(Path(folder))
            rounds.append(median_ms(cold, [asked]))
        figures["cold"] = [statistics.median(row[which] for row in rounds) for which in (0, 1)]
        figures["first touch"] = median_ms(cold, questions)
        store = checked_store()
        figures["checked"] = median_ms(fresh(store), questions)
        figures["keys and values, checked"] = median_ms(whole, questions)
        cache = keys_of(store)
        for asked in questions:
            read(cache, asked)
        figures["hot"] = median_ms(lambda asked: read(cache, asked), questions)
        queries = torch.randn(QUESTION_TOKENS, 1, given.heads, given.head_dim)
        lengths = torch.full((given.proposed,), BLOCK_SIZE - 1)
        keys, place = [read(cache, questions[0])], torch.arange(given.proposed)

        def matching(_: object) -> torch.Tensor:
            return block_scores(best_matches(token_matches(queries, keys, lengths)), place)

        figures["matching"] = median_ms(matching, questions)
    return figures


def written(store: KVBlockStore, count: int) -> list[tuple[str, int]]:
    """(shard, block) of `count` stored blocks, rounded up to whole shards."""
    layout, refs = store.layout, []
    rows = torch.randn(BLOCKS_PER_SHARD, len(layout.layers), layout.kv_heads, BLOCK_SIZE, layout.head_dim).bfloat16()
    for _ in range(-(-count // BLOCKS_PER_SHARD)):
        shard = store.write(rows, rows, torch.full((BLOCKS_PER_SHARD,), BLOCK_SIZE - 1)).name
        refs += [(shard, block) for block in range(BLOCKS_PER_SHARD)]
    os.sync()
    return refs


def forget_pages(folder: Path) -> None:
    """Drop what the system keeps of the files in its page cache."""
    for path in folder.rglob("*.kv"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


if __name__ == "__main__":
    main()
