"""Landmark search over sizes that no library here has: seconds, recall, bytes of each index.

    python benchmarks/speed/large_landmarks.py --library HOME --blocks 160000 1600000 --work FOLDER

Landmarks are made like those of a real library: each is the mean of a real document's landmarks and what a block of
another real document differs from its own mean by, so that both the spread of documents and that of blocks in them are
real. Queries are those of real questions. Without `--blocks`, the real landmarks themselves. `mapped` is what large
libraries use, `exact` what small ones do (only up to `--exact-most` blocks, as it takes RAM), `IVF1024,SQ8` what
`CAIRN_INDEX=faiss` takes; `HNSW32` up to `--graph-most` blocks, for its building takes long. Recall is that of the best
512 of an exact search, ties counted. Prints one JSON line an index.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import faiss
import machine
import numpy as np
import subject
import torch
from torch import Tensor

from retrieval.index.exact import ExactLandmarkIndex
from retrieval.index.landmark_file import Contents, LandmarkFile, write_landmark_file
from retrieval.index.mapped import MappedLandmarkIndex
from retrieval.library import Library
from retrieval.query.question import encode_question

COUNT = 512
QUESTIONS = ROOT / "benchmarks" / "questions" / "public_pdfs.jsonl"
FILE_ROWS = 1024
Rows = Callable[[int, int], Tensor]


def real_landmarks(home: Path, questions: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """keys_NK (one layer or many, flattened), the document of each, and the queries."""
    model = subject.load(None)
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["question"] for line in lines][:: max(1, len(lines) // questions)][:questions]
    with Library.open(home, model) as library, library._index.open_snapshot(library._catalogue) as snapshot:
        of_layers = [snapshot.landmarks.landmarks(layer).transpose(0, 1) for layer in model.memory_layers]
        keys_NK = torch.stack(of_layers, 1).flatten(1).float()
        document_N = torch.from_numpy(np.array(snapshot.document_N, dtype=np.int64))
        return keys_NK, document_N, [encode_question(model, text).mean_query_YGD for text in texts]


def made_like(keys_NK: Tensor, document_N: Tensor) -> Rows:
    """rows(start, stop) of as many landmarks as wanted, always the same."""
    count = int(document_N.max()) + 1
    sizes_X = torch.bincount(document_N, minlength=count).clamp_min(1)
    means_XK = torch.zeros(count, keys_NK.shape[1]).index_add_(0, document_N, keys_NK) / sizes_X[:, None]
    rest_NK = keys_NK - means_XK[document_N]
    noise_K = 0.1 * rest_NK.std(0)

    def rows(start: int, stop: int) -> Tensor:
        parts = []
        for page in range(start // FILE_ROWS, -(-stop // FILE_ROWS)):
            chance = torch.Generator().manual_seed(page)
            # Runs of 32 blocks share a document, as in a library.
            of_X = torch.randint(count, (FILE_ROWS // 32,), generator=chance).repeat_interleave(32)
            picked = torch.randint(len(rest_NK), (FILE_ROWS,), generator=chance)
            noise = torch.randn(FILE_ROWS, keys_NK.shape[1], generator=chance) * noise_K
            parts.append(means_XK[of_X] + rest_NK[picked] + noise)
        first = start // FILE_ROWS * FILE_ROWS
        return torch.cat(parts)[start - first : stop - first].half().float()

    return rows


def truth(rows: Rows, blocks: int, queries: list[Tensor]) -> list[Tensor]:
    """The exact logits_N of each query."""
    queries_KQ = torch.stack([query.flatten() for query in queries], 1)
    logits_NQ = torch.cat([rows(a, min(a + FILE_ROWS, blocks)) @ queries_KQ for a in range(0, blocks, FILE_ROWS)])
    return list(logits_NQ.unbind(1))


def measured(
    name: str, blocks: int, search: Callable[[Tensor], Tensor], queries: list[Tensor], logits: list[Tensor]
) -> dict[str, Any]:
    search(queries[0])
    clock, worked, recalls = [], [], []
    for query, logits_N in zip(queries, logits, strict=True):
        began, work = time.perf_counter(), time.process_time()
        positions = search(query)
        clock.append(time.perf_counter() - began)
        worked.append(time.process_time() - work)
        worst = logits_N.topk(min(COUNT, blocks)).values[-1] - 1e-4 * float(query.norm())
        recalls.append(float((logits_N[positions] >= worst).sum()) / min(COUNT, blocks))
    return {
        "index": name,
        "blocks": blocks,
        "tokens_like": blocks * 62,
        "search_ms": round(1000 * statistics.median(clock), 1),
        "processor_ms": round(1000 * statistics.median(worked), 1),
        "recall": round(statistics.mean(recalls), 4),
        "worst_recall": round(min(recalls), 4),
    }


def write_made(path: Path, rows: Rows, blocks: int, numbers: int) -> None:
    none = np.zeros(blocks, dtype=np.int8)
    names = ("shard", "row", "length", "document", "ordinal", "shard_ids", "shard_first", "shard_blocks")
    tables = {"ids": np.arange(blocks)} | {name: none for name in names}
    contents = Contents(blocks, numbers, torch.float16, rows, tables, [], [])
    write_landmark_file(path, contents, fingerprint="made", mark="made")


def indexes(
    given: argparse.Namespace, rows: Rows, blocks: int, shape: tuple[int, int, int]
) -> Iterator[tuple[str, Callable[[Tensor], Tensor], dict[str, Any]]]:
    layers, groups, width = shape
    numbers = layers * groups * width
    path = given.work / "landmarks.map"
    began = time.perf_counter()
    write_made(path, rows, blocks, numbers)
    built = time.perf_counter() - began
    began = time.perf_counter()
    mapped = MappedLandmarkIndex(range(layers), groups, width, file=LandmarkFile(path)).snapshot()
    opened = time.perf_counter() - began
    facts = {"build_seconds": built, "open_seconds": opened, "file_bytes": path.stat().st_size, "ram_bytes": 0}
    yield "mapped", lambda query: mapped.rank(query, COUNT).positions, facts
    path.unlink()
    if blocks <= given.exact_most:
        exact = ExactLandmarkIndex(range(layers), groups, width)
        for start in range(0, blocks, FILE_ROWS):
            part = rows(start, min(start + FILE_ROWS, blocks))
            exact.add(np.arange(start, start + len(part)), part.view(-1, layers, groups, width))
        snapshot = exact.snapshot()
        yield "exact", lambda query: snapshot.rank(query, COUNT).positions, {"ram_bytes": exact.size_bytes}
        del exact, snapshot
    if not given.faiss:
        return
    kinds = [f"IVF{min(1024, max(1, blocks // 40))},SQ8"] + (["HNSW32"] if blocks <= given.graph_most else [])
    for kind in kinds:
        began = time.perf_counter()
        index = faiss.index_factory(numbers, kind, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.train(rows(0, min(blocks, 102_400)).numpy())
        for start in range(0, blocks, FILE_ROWS):
            index.add(rows(start, min(start + FILE_ROWS, blocks)).numpy())
        if hasattr(index, "nprobe"):
            index.nprobe = 32
        else:
            index.hnsw.efSearch = 2 * COUNT
        found = index
        facts = {"build_seconds": time.perf_counter() - began, "ram_bytes": len(faiss.serialize_index(index))}
        yield kind, lambda query, of=found: searched(of, query), facts


def searched(index: faiss.Index, query: Tensor) -> Tensor:
    _, positions = index.search(query.reshape(1, -1).float().numpy(), COUNT)
    return torch.from_numpy(positions[0][positions[0] >= 0])


def main() -> None:
    parser = subject.options(__doc__, threads=1)
    parser.add_argument("--library", type=Path, required=True, help="its landmarks are what others are made like")
    parser.add_argument("--blocks", type=int, nargs="*", default=[0], help="0: the library's own landmarks")
    parser.add_argument("--work", type=Path, required=True, help="folder for the mapped file, made and removed")
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--exact-most", type=int, default=2_000_000)
    parser.add_argument("--graph-most", type=int, default=200_000)
    parser.add_argument("--faiss", action=argparse.BooleanOptionalAction, default=True)
    given = subject.chosen(parser)
    faiss.omp_set_num_threads(given.threads)
    keys_NK, document_N, queries = real_landmarks(given.library, given.questions)
    print(json.dumps(machine.described(given.threads) | {"real_blocks": len(keys_NK)}), flush=True)
    given.work.mkdir(parents=True)
    try:
        for wanted in given.blocks:
            blocks = wanted or len(keys_NK)
            rows = made_like(keys_NK, document_N) if wanted else lambda start, stop: keys_NK[start:stop]
            logits = truth(rows, blocks, queries)
            shape = (queries[0].shape[0], queries[0].shape[1], queries[0].shape[2])
            for name, search, facts in indexes(given, rows, blocks, shape):
                rounded = {key: round(value, 3) for key, value in facts.items()}
                made = {"made": bool(wanted)} | rounded
                print(json.dumps(measured(name, blocks, search, queries, logits) | made), flush=True)
    finally:
        shutil.rmtree(given.work)


if __name__ == "__main__":
    main()
