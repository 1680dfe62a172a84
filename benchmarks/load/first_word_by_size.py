"""Seconds until the first word of an answer, of opening, and bytes held in RAM, as a library grows by made documents.

    python benchmarks/load/first_word_by_size.py --data FOLDER --tokens 100000 1000000 10000000 --threads 2

Some documents are really read, from contexts of question sets (`FOLDER/qa/*.dev.jsonl.xz`). The others are copies of
their memory and text under other names, written through the store and the catalogue as ingestion would, with noise of
`--noise` standard deviations on every landmark: as many near misses as a large library has. At each size the library is
opened anew; the same questions are asked at every size, once to load what the first one loads, then measured. Prints
one JSON object; `over_smallest` are ratios of this run.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import subject
import torch
from torch import Tensor

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.library import Library
from retrieval.types.passages import AnswerToken
from storage.records import NewBlock, NewDocument, Page

CONTEXTS_A_DOCUMENT = 30


@dataclass(frozen=True)
class Read:
    """A document that was really read: what its copies are made of."""

    text: str
    pages: list[Page]
    blocks: list[NewBlock]
    keys_NYGLD: Tensor
    values_NYGLD: Tensor
    lengths_N: Tensor
    num_tokens: int


def read_in(library: Library, folder: Path, texts: list[str]) -> list[Read]:
    """Read them, and what is stored of each."""
    catalogue, loaded = library._workspace.catalogue, library._workspace.loaded()
    found = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.txt"
        path.write_text(text, encoding="utf-8")
        job = library.run_job(library.submit(path).id)
        assert job.state == "done", job.error
        document = catalogue.document(job.document_id)
        blocks = catalogue.blocks_of_document(document.id)
        refs = [(block.shard, block.index_in_shard) for block in blocks]
        layers = [loaded.store.read_many(refs, layer) for layer in loaded.layout.layers]
        keys, values = (torch.stack([layer[part].float() for layer in layers], 1) for part in (0, 1))
        lengths = torch.tensor([len(block.tokens) for block in blocks])
        plain = [NewBlock(block.start, block.end, block.tokens) for block in blocks]
        page = Page(0, "1", 595, 842, 0, len(text))
        found.append(Read(text, [page], plain, keys, values, lengths, document.num_tokens))
    return found


def copy_of(library: Library, one: Read, number: int, noise: float) -> int:
    """Store a copy of it under another name. Returns its tokens."""
    catalogue, loaded = library._workspace.catalogue, library._workspace.loaded()
    digest, name = catalogue.put_fingerprint(loaded.fingerprint), uuid4().hex
    chance = torch.Generator().manual_seed(number)
    keys_NYGLD = one.keys_NYGLD.clone()
    landmarks = keys_NYGLD[..., -1, :]
    keys_NYGLD[..., -1, :] += noise * landmarks.std() * torch.randn(landmarks.shape, generator=chance)
    catalogue.add_document(NewDocument(name, f"copy {number}.txt", f"Copy {number}", "txt", name * 2, digest))
    catalogue.save_extracted(name, text=one.text, pages_read=one.pages, num_tokens=one.num_tokens)
    shard = loaded.store.write(keys_NYGLD, one.values_NYGLD, one.lengths_N, group=name)
    catalogue.commit_shard(name, shard, one.blocks)
    catalogue.finish_document(name)
    return one.num_tokens


def first_word(library: Library, question: str) -> tuple[float, float]:
    """Seconds of the clock and of the processor from asking to the first word."""
    began, worked = time.perf_counter(), time.process_time()
    for item in library.ask(question, anyway=True):
        if isinstance(item, AnswerToken):
            break
    return time.perf_counter() - began, time.process_time() - worked


def measured(home: Path, model: LandmarkModel, questions: list[str], threads: int) -> dict[str, Any]:
    began = time.perf_counter()
    with Library.open(home, model, threads=threads) as library:
        opened = time.perf_counter() - began
        first, _ = first_word(library, questions[0])
        taken = [first_word(library, question) for question in questions for _ in range(2)]
        figures = library.figures()
        tokens = figures.num_tokens
        return {
            "tokens": tokens,
            "documents": figures.num_documents,
            "open_seconds": round(opened, 3),
            "first_question_seconds": round(first, 3),
            "first_word_seconds": round(statistics.median(clock for clock, _ in taken[1::2]), 4),
            "first_word_processor_seconds": round(statistics.median(worked for _, worked in taken[1::2]), 4),
            "resident_bytes": figures.resident_bytes,
            "stored_bytes_a_token": round(figures.stored_bytes / tokens, 1),
        }


def texts_and_questions(folder: Path, documents: int, questions: int) -> tuple[list[str], list[str]]:
    rows = [row for file in sorted((folder / "qa").glob("*.dev.jsonl.xz")) for row in subject.rows_of(file)]
    chance = random.Random(0)
    contexts = chance.sample(sorted({row["context"] for row in rows}), documents * CONTEXTS_A_DOCUMENT)
    asked = sorted({row["question"] for row in rows if row["context"] in set(contexts)})
    groups = [contexts[start::documents] for start in range(documents)]
    return ["\n\n".join(group) for group in groups], chance.sample(asked, questions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with qa/")
    parser.add_argument("--tokens", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--documents", type=int, default=3, help="that are really read")
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    texts, questions = texts_and_questions(given.data, given.documents, given.questions)
    model, sizes, stored, number = subject.load(None), [], 0, 0
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        with Library.open(home, model, threads=given.threads) as library:
            read = read_in(library, Path(name), texts)
        stored = sum(one.num_tokens for one in read)
        for wanted in sorted(given.tokens):
            with Library.open(home, model, threads=given.threads) as library:
                library._workspace.loaded()
                while stored < wanted:
                    stored += copy_of(library, read[number % len(read)], number, given.noise)
                    number += 1
            sizes.append(measured(home, model, questions, given.threads))
            print(sizes[-1], file=sys.stderr, flush=True)
    kinds = ("open_seconds", "first_word_seconds", "first_word_processor_seconds")
    ratios = [{kind: round(size[kind] / sizes[0][kind], 2) for kind in kinds} for size in sizes]
    print(json.dumps(machine.described(given.threads) | {"sizes": sizes, "over_smallest": ratios}))


if __name__ == "__main__":
    main()
