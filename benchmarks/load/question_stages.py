"""Which stages of a question gain from a batch: processor milliseconds a question, one by one and sixteen together.

    python benchmarks/load/question_stages.py --threads 1

Encoding the question, scoring landmarks (as one matrix product), the second look (rows of all questions sorted by
length), and the pass that reads the quoted sentence with each block copied for each token, and fetched once. Both
sides take turns, seven times; medians. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import subject
import torch

from model.attention import positions
from model.attention.memory import InMemoryReader, KVBlock
from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel
from model.inference.session import LandmarkSession
from model.precision import fast_precision
from model.reading.rows import length_groups
from model.reading.second_look import SecondLook, load_second_look

QUESTION_TOKENS, QUOTED_TOKENS, CANDIDATES = 27, 24, 20
ROWS_A_QUESTION, SHORTEST_ROW, LONGEST_ROW = 6, 80, 180
ROUNDS = 7


def together(count: int, one_by_one: Callable[[], Any], batch: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds of processor time a question."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(1 + ROUNDS):
        for kept, work in zip(seconds, (one_by_one, batch), strict=True):
            began = time.process_time()
            work()
            kept.append(1000 * (time.process_time() - began) / count)
    alone, joint = (statistics.median(kept[1:]) for kept in seconds)
    return {"before_ms": round(alone, 2), "after_ms": round(joint, 2), "saved_ms": round(alone - joint, 2)}


def encoding(model: LandmarkModel, count: int) -> dict[str, float]:
    ids_BT = torch.randint(100, 20_000, (count, QUESTION_TOKENS))
    return together(
        count,
        lambda: [model.encode(ids_BT[row : row + 1], model.context()) for row in range(count)],
        lambda: model.encode(ids_BT, model.context()),
    )


def landmarks(model: LandmarkModel, count: int, blocks: int) -> dict[str, float]:
    landmarks_GND = torch.randn(model.num_kv_heads, blocks, model.head_dim)
    queries_GDB = torch.randn(model.num_kv_heads, model.head_dim, count)
    return together(
        count,
        lambda: [(landmarks_GND @ queries_GDB[..., one : one + 1]).sum(0) for one in range(count)],
        lambda: (landmarks_GND @ queries_GDB).sum(0),
    )


def second_look(look: SecondLook, count: int) -> dict[str, dict[str, float]]:
    """Padding all rows of a question to its longest, against groups of like length, of one question and of all."""
    chance = random.Random(0)
    lengths = [[chance.randint(SHORTEST_ROW, LONGEST_ROW) for _ in range(ROWS_A_QUESTION)] for _ in range(count)]

    def read(rows: list[int]) -> None:
        shape = (len(rows), max(rows))
        ids_RT, valid_RT = torch.randint(1000, 20_000, shape), torch.zeros(shape, dtype=torch.bool)
        for row, length in enumerate(rows):
            valid_RT[row, :length] = True
        with torch.autocast("cpu", torch.bfloat16, enabled=fast_precision("cpu") == "bf16"):
            look.reader.read(ids_RT, torch.zeros(shape, dtype=torch.long), valid_RT)

    def grouped(rows: list[int]) -> None:
        for group in length_groups(rows, 40):
            read([rows[row] for row in group])

    return {
        "rows of like length together": together(
            count, lambda: [read(rows) for rows in lengths], lambda: [grouped(rows) for rows in lengths]
        ),
        "and rows of all questions": together(
            count,
            lambda: [grouped(rows) for rows in lengths],
            lambda: grouped([row for rows in lengths for row in rows]),
        ),
    }


def quotation(model: LandmarkModel) -> dict[str, float]:
    shape = (len(model.memory_layers), model.num_kv_heads, model.config.block_size, model.head_dim)
    blocks = [KVBlock(torch.randn(shape), torch.randn(shape), shape[2] - 1) for _ in range(CANDIDATES)]
    memory = InMemoryReader.from_blocks(model.memory_layers, blocks)
    most = positions._SHARED_MOST

    def read(shared: int) -> None:
        positions._SHARED_MOST = shared
        session = LandmarkSession(model, memory=memory, policy=SelectionPolicy(top_k=8))
        session.feed(list(range(100, 100 + QUESTION_TOKENS)))
        session.feed_apart(list(range(200, 200 + QUOTED_TOKENS)))

    try:
        return together(1, lambda: read(0), lambda: read(most))
    finally:
        positions._SHARED_MOST = most


def main() -> None:
    parser = subject.options(__doc__, threads=1)
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=20_000, help="stored blocks whose landmarks are scored")
    given: argparse.Namespace = subject.chosen(parser)
    model, look = subject.load(given.model), load_second_look(subject.DEFAULT / "reader")
    with torch.inference_mode():
        stages = {
            "encoding": encoding(model, given.questions),
            "landmarks": landmarks(model, given.questions, given.blocks),
            **{f"second look: {name}": found for name, found in second_look(look, given.questions).items()},
            "prompt and quotation: each block fetched once": quotation(model),
        }
    print(json.dumps(machine.described(given.threads) | {"questions": given.questions, "stages": stages}, indent=1))


if __name__ == "__main__":
    main()
