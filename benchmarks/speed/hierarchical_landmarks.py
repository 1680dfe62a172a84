"""Two levels of landmarks against one: recall of the best blocks, and time of a search, on synthetic keys.

    python benchmarks/speed/hierarchical_landmarks.py --blocks 20000 200000 1600000

Blocks of 64 tokens, so 1,600,000 blocks stand for 102 million tokens; one head of 32 dimensions, groups of 64 blocks.
Keys share a direction with their neighbours in the text: `likeness` 0 is none (keys are random, and their means say
nothing), 0.5 is half of a key's variance, over stretches of 256 blocks that begin and end anywhere. A query is a noisy
copy of one block's key, as a question is of its passage. `first`: that block is found; `recall`: share of the 8 best
blocks of one level that two levels find. Both searches run in turn, for the same queries, one at a time; times are
medians. Prints one JSON line a row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch
from torch import Tensor

from model.attention.hierarchy import LandmarkHierarchy
from model.attention.selection import choose_blocks

DIM, FAN_OUT, K, STRETCH, TOKENS = 32, 64, 8, 256, 64
NOISE = 0.5
"""Standard deviation of a query around its key, whose own is 1."""


def synthetic(blocks: int, likeness: float, random: torch.Generator) -> Tensor:
    """landmarks_BGND of one head: neighbours share `likeness` of their variance."""
    borders = torch.rand(blocks, generator=random) < 1 / STRETCH
    topic_N = borders.cumsum(0)
    topics = torch.randn(int(topic_N[-1]) + 1, DIM, generator=random)
    own = torch.randn(blocks, DIM, generator=random)
    return (likeness**0.5 * topics[topic_N] + (1 - likeness) ** 0.5 * own)[None, None]


def measure(blocks: int, likeness: float, groups: list[int], queries: int) -> list[dict[str, object]]:
    random = torch.Generator().manual_seed(0)
    landmarks = synthetic(blocks, likeness, random)
    levels = LandmarkHierarchy.of(landmarks, FAN_OUT)
    asked = torch.randint(0, blocks, (queries,), generator=random).tolist()
    vectors = landmarks[0, 0, asked] + NOISE * torch.randn(queries, DIM, generator=random)
    flat: list[float] = []
    tiered: dict[int, list[float]] = {count: [] for count in groups}
    hits, first, first_flat = dict.fromkeys(groups, 0), dict.fromkeys(groups, 0), 0
    for source, vector in zip(asked, vectors, strict=True):
        query = vector.view(1, 1, 1, 1, DIM)
        wanted, seconds = timed(lambda query=query: choose_blocks(query, landmarks, K))
        flat.append(seconds)
        first_flat += source in wanted
        for count in groups:
            found, seconds = timed(lambda query=query, count=count: levels.choose(query, K, count))
            tiered[count].append(seconds)
            hits[count] += len(wanted & found)
            first[count] += source in found
    rows: list[dict[str, object]] = []
    for count in groups:
        flat_ms, ms = (statistics.median(times) * 1000 for times in (flat, tiered[count]))
        products = -(-blocks // FAN_OUT) + min(count * FAN_OUT, blocks)
        rows.append({
            "blocks": blocks, "tokens": blocks * TOKENS, "likeness": likeness, "groups": count,
            "products": round(products / blocks, 4), "recall": round(hits[count] / (K * queries), 3),
            "first": round(first[count] / queries, 3), "first_flat": round(first_flat / queries, 3),
            "flat_ms": round(flat_ms, 3), "hierarchy_ms": round(ms, 3), "faster": round(flat_ms / ms, 1),
        })  # fmt: skip
    return rows


def timed(search) -> tuple[set[int], float]:  # type: ignore[no-untyped-def]
    start = time.perf_counter()
    found = search()
    return set(found.flatten().tolist()), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs="+", default=[20_000, 200_000, 1_600_000])
    parser.add_argument("--likeness", type=float, nargs="+", default=[0.0, 0.25, 0.5, 0.75])
    parser.add_argument("--groups", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    print(json.dumps(machine.described(asked.threads)))
    for blocks in asked.blocks:
        for likeness in asked.likeness:
            for row in measure(blocks, likeness, asked.groups, asked.queries):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
