"""What opening a library of many documents takes more than opening an empty one, and what its first question then adds.

    python benchmarks/speed/open_library.py --documents 1000

Documents are written through the store and the catalogue (random keys and values), as ingestion would. Prints one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.library import Library
from storage.records import NewBlock, NewDocument, Page
from tests.tiny_model import tiny_model

BLOCKS = 40


def fill(library: Library, number: int) -> None:
    """`number` ready documents of 40 blocks."""
    workspace = library._workspace
    loaded, catalogue = workspace.loaded(), workspace.catalogue
    digest, layout = catalogue.put_fingerprint(loaded.fingerprint), loaded.layout
    shape = (BLOCKS, len(layout.layers), layout.kv_heads, layout.block_size, layout.head_dim)
    per_block = layout.block_size - 1
    for index in range(number):
        name = uuid4().hex
        catalogue.add_document(NewDocument(name, f"document {index}.pdf", f"Document {index}", "pdf", name * 2, digest))
        pages = [Page(0, "1", 595, 842, 0, BLOCKS * per_block)]
        catalogue.save_extracted(name, text="x" * BLOCKS * per_block, pages_read=pages, num_tokens=BLOCKS * per_block)
        lengths = torch.full((BLOCKS,), per_block)
        shard = loaded.store.write(torch.randn(shape), torch.randn(shape), lengths, group=name)
        blocks = [NewBlock(n * per_block, (n + 1) * per_block, tuple(range(per_block))) for n in range(BLOCKS)]
        catalogue.commit_shard(name, shard, blocks)
        catalogue.finish_document(name)


def open_seconds(home: Path, model: LandmarkModel, runs: int) -> tuple[float, float]:
    """Median seconds of opening, and of opening and listing the documents."""
    opened, listed = [], []
    for _ in range(runs):
        began = time.perf_counter()
        with Library.open(home, model) as library:
            opened.append(time.perf_counter() - began)
            library.documents()
            listed.append(time.perf_counter() - began)
    return statistics.median(opened), statistics.median(listed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    model = tiny_model(block_size=16)
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        Library.open(empty, model).close()
        with Library.open(full, model) as library:
            fill(library, arguments.documents)
        empty_open, empty_list = open_seconds(empty, model, arguments.runs)
        full_open, full_list = open_seconds(full, model, arguments.runs)
        with Library.open(full, model) as library:
            library._workspace.loaded()
            began = time.perf_counter()
            library.search("anything at all", 8)
            first = time.perf_counter() - began
            began = time.perf_counter()
            library.search("anything at all", 8)
            second = time.perf_counter() - began
            began = time.perf_counter()
            library.delete_documents([document.id for document in library.documents()[:10]])
            delete = time.perf_counter() - began
    result = {
        **machine.described(),
        "documents": arguments.documents,
        "blocks": arguments.documents * BLOCKS,
        "open_empty_seconds": empty_open,
        "open_seconds": full_open,
        "more_seconds": full_open - empty_open,
        "open_and_list_empty_seconds": empty_list,
        "open_and_list_seconds": full_list,
        "first_search_seconds": first,
        "next_search_seconds": second,
        "delete_ten_seconds": delete,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
