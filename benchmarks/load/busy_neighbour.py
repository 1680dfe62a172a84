"""Ingestion and questions beside other work on the machine: tokens per second and seconds per question, with and
without a neighbour that keeps every core busy.

    python benchmarks/load/busy_neighbour.py --before CHECKOUT --tokens 6000 --questions 4 --runs 5

`--before` names an older checkout with its own `.venv`. Both sides run in processes of their own, opened the way the
command line opens a library, and take turns: each run measures every side without and with the neighbour. Medians are
compared; prints one JSON object. The goal is a slowdown of at most 2. Anything else on the machine is a neighbour
too, so run it on an idle one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

SPIN = "while True: pass"
WORDS = ["year", "people", "way", "day", "man", "thing", "life", "child", "world", "school", "state", "group"]
QUESTION = "What moves the people near water?"


def make_text(count: int, seed: int) -> str:
    chance = random.Random(seed)
    sentences = []
    for _ in range(count):
        one, two, three = chance.sample(WORDS, 3)
        sentences.append(f"The {one} moves the {two} near {three} {chance.randrange(1000)}. ")
    return "".join(sentences)


def serve() -> None:
    """One side: reads requests from standard input, answers with what it measured. Knows calls of any release."""
    from app.assembly import open_library
    from app.settings import load_settings

    with tempfile.TemporaryDirectory() as folder, open_library(load_settings(home=Path(folder) / "home")) as library:
        for number, line in enumerate(sys.stdin):
            request = json.loads(line)
            path = Path(folder) / f"{number}.txt"
            path.write_text(make_text(request["tokens"] // 9, seed=number))
            job = library.run_job(library.submit(path).id)
            assert job.state == "done", job.error
            seconds = []
            for _ in range(request["questions"]):
                began = time.perf_counter()
                list(library.ask(QUESTION, k=4))
                seconds.append(time.perf_counter() - began)
            median = statistics.median(seconds)
            print(json.dumps({"tokens_per_second": job.tokens_per_second, "question_seconds": median}), flush=True)


class Side:
    """A process that measures when it is asked to, and sleeps otherwise."""

    def __init__(self, checkout: Path, environment: dict[str, str]) -> None:
        python = checkout / ".venv" / "bin" / "python"
        self._process = subprocess.Popen(
            [str(python if python.exists() else sys.executable), __file__, "--serve"],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout)} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, tokens: int, questions: int) -> dict[str, float]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"tokens": tokens, "questions": questions}) + "\n")
        self._process.stdin.flush()
        measured: dict[str, float] = json.loads(self._process.stdout.readline())
        return measured

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


@contextlib.contextmanager
def neighbour(cores: int) -> Iterator[None]:
    """A process that spins on each of so many cores."""
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN], start_new_session=True) for _ in range(cores)]
    try:
        time.sleep(1.0 if cores else 0.0)
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--before", type=Path, help="an older checkout with its own .venv")
    parser.add_argument("--set", action="append", default=[], help="another side: NAME=VALUE,... for its environment")
    parser.add_argument("--tokens", type=int, default=6000)
    parser.add_argument("--questions", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    return parser.parse_args()


def main() -> None:
    given = parsed()
    if given.serve:
        return serve()
    sides = {"now": Side(ROOT, {})}
    if given.before:
        sides["before"] = Side(given.before, {})
    for text in given.set:
        sides[text] = Side(ROOT, dict(pair.split("=") for pair in text.split(",")))
    measured: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    try:
        for side in sides.values():
            side.measure(500, 1)  # loads the model
        for _ in range(given.runs):
            for name, side in sides.items():
                for beside, cores in (("alone", 0), ("beside", os.cpu_count() or 1)):
                    with neighbour(cores):
                        measured[name, beside].append(side.measure(given.tokens, given.questions))
                    print(name, beside, measured[name, beside][-1], file=sys.stderr, flush=True)
    finally:
        for side in sides.values():
            side.end()
    result: dict[str, Any] = machine.described() | {"tokens": given.tokens, "runs": given.runs}
    for name in sides:
        alone, beside = (medians(measured[name, kind]) for kind in ("alone", "beside"))
        slower = {
            "ingestion": alone["tokens_per_second"] / beside["tokens_per_second"],
            "questions": beside["question_seconds"] / alone["question_seconds"],
        }
        result[name] = {"alone": alone, "beside": beside, "slower": slower}
    print(json.dumps(result))


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


if __name__ == "__main__":
    main()
