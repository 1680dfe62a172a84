"""Exact landmark search against FAISS: seconds of a search and recall of the best 32 blocks, ties counted as found.

    python benchmarks/speed/landmark_search.py --blocks 16000 160000
    python benchmarks/speed/landmark_search.py --library HOME --questions FILE.jsonl  # of a real memory

A library is only read. `--questions` has a "question" a line, packed with xz or not; `--model` must be what read the
documents. Kinds of FAISS index that need more blocks for training than there are say so.

Without a library, keys are random around document centres and queries are random: the harder case for an approximate
index, as queries of attention are not distributed like its keys. Prints one JSON line an index.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import numpy as np
import subject
import torch
from torch import Tensor

from retrieval.errors import InvalidRequest
from retrieval.index.exact import ExactLandmarkIndex
from retrieval.index.faiss import FaissLandmarkIndex
from retrieval.index.snapshot import AUTO_MAPPED_BLOCKS
from retrieval.library import Library
from retrieval.query.question import encode_question

COUNT = 32
FACTORIES = ("Flat", "SQ8", "HNSW32", "IVF{lists},Flat", "IVF{lists},SQ8", "IVF{lists},PQ{parts}")


def synthetic(blocks: int, shape: tuple[int, int, int], queries: int) -> tuple[Tensor, list[Tensor]]:
    rng = torch.Generator().manual_seed(0)
    centres = torch.randn(max(1, blocks // 50), *shape, generator=rng)
    keys = centres.repeat_interleave(50, 0)[:blocks]
    keys = torch.cat([keys, torch.randn(blocks - len(keys), *shape, generator=rng)])
    keys += torch.randn(keys.shape, generator=rng)
    return keys, [torch.randn(shape, generator=rng) for _ in range(queries)]


def real(home: Path, model_path: str | None, questions: Path, count: int) -> tuple[Tensor, list[Tensor]]:
    model = subject.load(model_path)
    asked = [row["question"] for row in subject.rows_of(questions)]
    asked = random.Random(0).sample(asked, min(count, len(asked)))
    with Library.open(home, model) as library, library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        keys = torch.stack([snapshot.landmarks.landmarks(layer).transpose(0, 1) for layer in model.memory_layers], 1)
        return keys.float().clone(), [encode_question(model, question).mean_query_YGD for question in asked]


def measure(name: str, index: ExactLandmarkIndex | FaissLandmarkIndex, keys: Tensor, queries: list[Tensor]) -> dict:
    began = time.perf_counter()
    index.add(np.arange(len(keys)), keys)
    snapshot = index.snapshot()
    found = [snapshot.rank(queries[0], COUNT)]
    build = time.perf_counter() - began
    seconds = []
    found = []
    for query in queries:
        began = time.perf_counter()
        found.append(snapshot.rank(query, COUNT))
        seconds.append(time.perf_counter() - began)
    truth = [torch.einsum("nygd,ygd->n", keys, query) for query in queries]
    recalls = []
    for ranking, logits in zip(found, truth, strict=True):
        worst = logits.topk(min(COUNT, len(logits))).values[-1] - 1e-4
        recalls.append(float((logits[ranking.indices] >= worst).sum()) / min(COUNT, len(logits)))
    return {
        "index": name,
        "blocks": len(keys),
        "numbers_per_block": keys[0].numel(),
        "search_ms": 1000 * statistics.median(seconds),
        "recall": statistics.mean(recalls),
        "worst_recall": min(recalls),
        "build_seconds": build,
        "exact_bytes": keys.numel() * 4,
    }


def main() -> None:
    parser = subject.options(__doc__)
    parser.add_argument("--blocks", type=int, nargs="*", default=[16_000])
    parser.add_argument("--shape", type=int, nargs=3, default=[7, 4, 64], metavar=("LAYERS", "KV_HEADS", "DIM"))
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--questions", type=Path)
    arguments = subject.parse(parser)
    if arguments.library and not arguments.questions:
        parser.error("--library needs --questions FILE.jsonl: what to search it for")
    if arguments.library and not (arguments.library / "cairn.sqlite3").is_file():
        parser.error(f"there is no library in {arguments.library}")
    print(json.dumps(machine.described(arguments.threads) | {"automatic_from_blocks": AUTO_MAPPED_BLOCKS}), flush=True)
    if arguments.library:
        sets = [real(arguments.library, arguments.model, arguments.questions, arguments.queries)]
    else:
        sets = [synthetic(blocks, tuple(arguments.shape), arguments.queries) for blocks in arguments.blocks]
    for keys, queries in sets:
        count, layers, groups, width = keys.shape
        exact = ExactLandmarkIndex(range(layers), groups, width)
        print(json.dumps(measure("exact", exact, keys, queries)), flush=True)
        lists = max(1, min(4096, count // 40))
        for factory in FACTORIES:
            name = factory.format(lists=lists, parts=layers * groups * width // 16)
            index = FaissLandmarkIndex(range(layers), groups, width, factory=name)
            try:
                print(json.dumps(measure(name, index, keys, queries)), flush=True)
            except (InvalidRequest, RuntimeError) as error:  # FAISS refuses to train on so few blocks
                print(json.dumps({"index": name, "blocks": count, "error": str(error).splitlines()[-1]}), flush=True)


if __name__ == "__main__":
    main()
