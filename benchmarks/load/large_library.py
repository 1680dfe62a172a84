"""A library as large as it is, beside its own beginnings: disk, memory, opening, first word, reading.

    python benchmarks/load/large_library.py --home HOME --tokens 100000 1000000 --work FOLDER

`HOME` holds real documents, stored by `cairn ingest`; it is only read, and may grow meanwhile. At each of `--tokens`,
and once whole, its oldest documents are taken into `FOLDER` (on the same disk: shards are linked, the catalogue is
copied), and a process of its own opens that and asks. Some questions are asked twice: "fresh" is a first time, when
hardly any of its blocks was read before, "again" the second. Sizes take turns, `--rounds` times. Seconds of the
processor stand beside those of the clock, because a busy machine moves these. Prints one JSON object; `over_smallest`
are ratios of this run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import subject

from retrieval.library import Library
from retrieval.types.answers import AnswerToken

QUESTIONS = ROOT / "benchmarks" / "questions" / "public_pdfs.jsonl"
TIMED = (
    "open_processor_seconds",
    "first_question_processor_seconds",
    "fresh_processor_seconds",
    "again_processor_seconds",
)
ROWS_OF_A_DOCUMENT = ("blocks", "shards", "pages", "title_keys", "document_texts")


def first_word(library: Library, question: str) -> tuple[float, float]:
    """Seconds of the clock and of the processor from asking to the first word."""
    began, worked = time.perf_counter(), time.process_time()
    for item in library.ask(question, anyway=True):
        if isinstance(item, AnswerToken):
            break
    return time.perf_counter() - began, time.process_time() - worked


def part_of(home: Path, folder: Path, tokens: int | None) -> Path:
    """The oldest documents of a home, with at least so many tokens; None for all that are ready."""
    folder.mkdir(parents=True)
    for name in ("home.json", "home.mark"):  # before the catalogue, which must not be older than its home's mark
        if (home / name).is_file():
            shutil.copy2(home / name, folder / name)
    with sqlite3.connect(f"file:{home / 'cairn.sqlite3'}?mode=ro", uri=True) as source:
        catalogue = sqlite3.connect(folder / "cairn.sqlite3")
        source.backup(catalogue)
    kept, stored = set(), 0
    for document_id, count in catalogue.execute(
        "select id, num_tokens from documents where state = 'ready' order by rowid"
    ):
        if tokens is not None and stored >= tokens:
            break
        kept.add(document_id)
        stored += count
    catalogue.execute("create temp table kept (id text primary key)")
    catalogue.executemany("insert into kept values (?)", [(each,) for each in sorted(kept)])
    catalogue.execute("delete from jobs")
    for table in ROWS_OF_A_DOCUMENT:
        catalogue.execute(f"delete from {table} where document_id not in (select id from kept)")
    catalogue.execute("delete from documents where id not in (select id from kept)")
    catalogue.commit()
    catalogue.execute("vacuum")
    catalogue.close()
    for document_id in sorted(kept):
        (folder / "kv" / document_id).mkdir(parents=True)
        for shard in (home / "kv" / document_id).iterdir():
            os.link(shard, folder / "kv" / document_id / shard.name)
    return folder


def asked(home: Path, questions: list[str], threads: int, index: str) -> dict[str, Any]:
    """Measured in this process, which has asked nothing before."""
    model = subject.load(None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, worked = time.perf_counter(), time.process_time()
    with Library.open(home, model, threads=threads, index=index) as library:
        opened = time.perf_counter() - began, time.process_time() - worked
        library.view.workspace.loaded()
        began, worked = time.perf_counter(), time.process_time()
        with library.view.index.open_snapshot(library.view.catalogue):
            landmarks = time.perf_counter() - began, time.process_time() - worked
        first = first_word(library, questions[0])
        fresh = [first_word(library, question) for question in questions[1:]]
        again = [first_word(library, question) for question in questions[-6:] for _ in range(2)][1::2]
        figures, kind = library.maintenance.figures(), library.view.index.kind
        resident = figures.resident_bytes
    return {
        "tokens": figures.num_tokens,
        "documents": figures.num_documents,
        "index": kind,
        "open_seconds": opened[0],
        "open_processor_seconds": opened[1],
        "landmarks_seconds": landmarks[0],
        "landmarks_processor_seconds": landmarks[1],
        "first_question_seconds": first[0] + landmarks[0],
        "first_question_processor_seconds": first[1] + landmarks[1],
        "fresh_seconds": statistics.median(clock for clock, _ in fresh),
        "fresh_processor_seconds": statistics.median(worked for _, worked in fresh),
        "again_seconds": statistics.median(clock for clock, _ in again),
        "again_processor_seconds": statistics.median(worked for _, worked in again),
        "held_bytes": resident,
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "resident_bytes_before_opening": before * 1024,
    }


def in_a_process(home: Path, given: argparse.Namespace, index: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--ask", str(home), "--questions", str(given.questions)]
    command += ["--threads", str(given.threads), "--count", str(given.count), "--index", index]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def disk(home: Path) -> dict[str, int]:
    """Bytes of each part."""
    found = {}
    for part in ("kv", "files", "pages", "sidecars", "index", "backups"):
        found[part] = sum(file.stat().st_size for file in (home / part).rglob("*") if file.is_file())
    found["catalogue"] = sum(file.stat().st_size for file in home.glob("cairn.sqlite3*"))
    return found


def reading(home: Path) -> dict[str, Any]:
    """What the catalogue knows of the ingestion: from the first document's arrival to the last one's end."""
    with sqlite3.connect(f"file:{home / 'cairn.sqlite3'}?mode=ro", uri=True) as catalogue:
        tokens, blocks, count = catalogue.execute(
            "select sum(num_tokens), sum(num_blocks), count(*) from documents where state = 'ready'"
        ).fetchone()
        times = "select min(started_at), max(finished_at) from jobs where state = 'done'"
        first, last = catalogue.execute(times).fetchone()
    seconds = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds() if last else None
    return {
        "tokens": tokens,
        "blocks": blocks,
        "documents": count,
        "reading_seconds": seconds,
        "tokens_a_second": tokens / seconds if seconds else None,
        "disk_bytes": disk(home),
        "memory_bytes_a_token": disk(home)["kv"] / tokens,
    }


def ratios(sizes: list[dict[str, Any]]) -> list[dict[str, float]]:
    return [{"tokens": one["tokens"]} | {kind: round(one[kind] / sizes[0][kind], 2) for kind in TIMED} for one in sizes]


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the rounds of one size."""
    found = dict(runs[0])
    for name, value in runs[0].items():
        if isinstance(value, float):
            found[name] = round(statistics.median(run[name] for run in runs), 4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--work", type=Path, help="folder on the same disk, made and removed")
    parser.add_argument("--tokens", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--count", type=int, default=24, help="questions of each size")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--index", default="auto")
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    texts = [json.loads(line)["question"] for line in given.questions.read_text(encoding="utf-8").splitlines()]
    questions = texts[:: max(1, len(texts) // given.count)][: given.count]
    if given.ask:
        print(json.dumps(asked(given.ask, questions, given.threads, given.index)))
        return
    if not (given.home and given.work):
        parser.error("--home and --work are needed")
    whole = reading(given.home)
    given.work.mkdir(parents=True)
    try:
        wanted = [*sorted(tokens for tokens in given.tokens if tokens < whole["tokens"]), None]
        homes = [part_of(given.home, given.work / str(number), tokens) for number, tokens in enumerate(wanted)]
        for home in homes:  # the first opening writes the file of landmarks; all that are measured find it
            in_a_process(home, argparse.Namespace(**vars(given) | {"count": 2}), given.index)
        runs = [[in_a_process(home, given, given.index) for home in homes] for _ in range(given.rounds)]
        sizes = [middle([run[number] for run in runs]) for number in range(len(homes))]
        for one, home in zip(sizes, homes, strict=True):
            one["index_file_bytes"] = disk(home)["index"]
    finally:
        shutil.rmtree(given.work)
    result = machine.described(given.threads) | {"whole": whole, "sizes": sizes, "over_smallest": ratios(sizes)}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
