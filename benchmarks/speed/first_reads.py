"""Processor milliseconds of reading the keys of 512 blocks that were never read before, and of reading them again.

    python benchmarks/speed/first_reads.py --home HOME

So many blocks a question proposes; in a large library they lie in some hundred files. Blocks are drawn at random from a
real library, which is only read. To compare with another checkout, run the file in each of them by turns. Prints one
JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import subject
import torch

from retrieval.library import Library

BLOCKS = 512


def main() -> None:
    parser = subject.options(__doc__, threads=1)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=12)
    given = subject.chosen(parser)
    model = subject.load(given.model)
    first: list[float] = []
    again: list[float] = []
    files = 0
    with Library.open(given.home, model, threads=given.threads) as library:
        store = library._workspace.loaded().store
        with library._index.open_snapshot(library._catalogue) as snapshot:
            order = torch.randperm(snapshot.num_blocks, generator=torch.Generator().manual_seed(0))
            for drawn in order.split(BLOCKS)[: given.rounds]:
                refs = snapshot.blocks.refs(drawn.sort().values.numpy())
                files = len({name for name, _ in refs})
                for taken in (first, again):
                    began = time.process_time()
                    for layer in model.searched_layers:
                        store.read_keys(refs, layer)
                    taken.append(1000 * (time.process_time() - began))
    milliseconds = {"first_ms": round(statistics.median(first), 1), "again_ms": round(statistics.median(again), 1)}
    print(json.dumps(machine.described(given.threads) | {"files_at_once": files, **milliseconds}))


if __name__ == "__main__":
    main()
