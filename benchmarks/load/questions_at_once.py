"""Many people asking at once against one question after the other: answers per second, waiting times, and whether the
answers are the same.

    python benchmarks/load/questions_at_once.py --data FOLDER --before CHECKOUT --askers 16 --threads 2

`--before` names an older checkout with its own `.venv`. Each side is a process with a library of its own, stored from
the contexts of question sets (`FOLDER/qa/*.dev.jsonl.xz`), and a queue like the server's: every asker asks the next
question when the one before is answered. Sides and kinds of asking take turns, `--rounds` times. Seconds are of the
clock, and of the processor, which other work on the machine does not change as much. What the memory of each side is
made of is told after every round, so that many rounds are a soak. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SERVES = "--serve" in sys.argv  # a side, whose code is that of its own checkout
sys.path[:0] = [] if SERVES else [str(ROOT), str(ROOT / "benchmarks")]

if not SERVES:
    import machine

AT_ONCE = 4
"""Questions that a server has at work (CAIRN_QUESTIONS_AT_ONCE); the others wait in its queue."""
CONTEXTS_A_DOCUMENT = 10


def serve() -> None:
    """One side: stores what it is given, then asks as it is told. Knows calls of any release."""
    from app.assembly import open_library
    from app.settings import load_settings

    with tempfile.TemporaryDirectory() as folder, open_library(load_settings(home=Path(folder) / "home")) as library:
        for number, text in enumerate(json.loads(sys.stdin.readline())):
            path = Path(folder) / f"{number}.txt"
            path.write_text(text, encoding="utf-8")
            assert library.jobs.run(library.documents.submit(path).id).state == "done"
        library.warm_up()
        print("{}", flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(ask_all(library, request["questions"], request["askers"])), flush=True)


def ask_all(library: Any, questions: list[str], askers: int) -> dict[str, Any]:
    from app.limits.fair_queue import FairQueue

    queue = FairQueue("asking", at_once=AT_ONCE, each_waiting=1)
    left, lock = list(enumerate(questions)), threading.Lock()
    seconds, answers = [0.0] * len(questions), [None] * len(questions)

    def answered(question: str) -> list[Any]:
        answer = list(library.ask(question))[-1]
        slots = [[one.source, one.start_index, one.end_index] for one in answer.passages]
        return [answer.text, slots, answer.confidence]

    def asker(name: str) -> None:
        while True:
            with lock:
                if not left:
                    return
                number, question = left.pop(0)
            began = time.perf_counter()
            answers[number] = queue.submit(name, answered, question).result()
            seconds[number] = time.perf_counter() - began

    people = [threading.Thread(target=asker, args=(f"asker {number}",)) for number in range(askers)]
    began, worked = time.perf_counter(), time.process_time()
    for person in people:
        person.start()
    for person in people:
        person.join()
    took, worked = time.perf_counter() - began, time.process_time() - worked
    queue.close()
    memory = memory_parts(library)
    return {"took": took, "processor": worked, "seconds": seconds, "answers": answers, "memory": memory}


def memory_parts(library: Any) -> dict[str, float]:
    """Megabytes: what is resident and was at most; of it the index, and what the allocator keeps of what was given
    back."""
    import ctypes

    import psutil

    class MallInfo(ctypes.Structure):
        _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "used", "free", "keepcost")
        _fields_ = list(zip(_names, [ctypes.c_size_t] * len(_names), strict=True))

    told = ctypes.CDLL(None).mallinfo2
    told.restype = MallInfo
    parts = {
        "resident": psutil.Process().memory_info().rss,
        "at_most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "kept_by_the_allocator": told().free,
        "landmarks_and_cached_blocks": library.view.index.size_bytes,
    }
    return {name: round(size / 1e6) for name, size in parts.items()}


class Side:
    """A process that answers when it is asked to, and sleeps otherwise."""

    def __init__(self, checkout: Path, documents: list[str], threads: int) -> None:
        python = checkout / ".venv" / "bin" / "python"
        self._process = subprocess.Popen(
            [str(python if python.exists() else sys.executable), __file__, "--serve"],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout), "CAIRN_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.call(documents)

    def call(self, request: Any) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def read_data(folder: Path, contexts: int, questions: int) -> tuple[list[str], list[str]]:
    """Documents of `contexts` passages in all, and questions about them, no two the same."""
    import subject

    rows = [row for file in sorted((folder / "qa").glob("*.dev.jsonl.xz")) for row in subject.rows_of(file)]
    rng = random.Random(0)
    chosen = rng.sample(sorted({row["context"] for row in rows}), contexts)
    asked = sorted({row["question"] for row in rows if row["context"] in set(chosen)})
    groups = [chosen[first : first + CONTEXTS_A_DOCUMENT] for first in range(0, contexts, CONTEXTS_A_DOCUMENT)]
    return ["\n\n".join(group) for group in groups], rng.sample(asked, questions)


def figures(runs: list[dict[str, Any]], questions: int) -> dict[str, float]:
    seconds = [one for run in runs for one in run["seconds"]]
    median, p99 = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
    return {
        "answers_per_second": round(statistics.median(questions / run["took"] for run in runs), 3),
        "processor_seconds_an_answer": round(statistics.median(run["processor"] / questions for run in runs), 3),
        "median_seconds": round(median, 3),
        "p99_seconds": round(p99, 3),
        "p99_over_median": round(p99 / median, 2),
    }


def unlike(one: list[Any], other: list[Any]) -> dict[str, Any]:
    """Answers with another text or other passages, and the largest difference of a confidence."""
    pairs = list(zip(one, other, strict=True))
    return {
        "of": len(pairs),
        "other_text": sum(a[0] != b[0] for a, b in pairs),
        "other_passages": sum(a[1] != b[1] for a, b in pairs),
        "confidence_differs_by_at_most": max(abs(a[2] - b[2]) for a, b in pairs),
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help="folder with qa/")
    parser.add_argument("--before", type=Path, help="an older checkout with its own .venv")
    parser.add_argument("--askers", type=int, default=16)
    parser.add_argument("--questions", type=int, default=48, help="in each round")
    parser.add_argument("--contexts", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    given = parsed()
    if given.serve:
        return serve()
    documents, questions = read_data(given.data, given.contexts, given.questions)
    sides = {"now": Side(ROOT, documents, given.threads)}
    if given.before:
        sides["before"] = Side(given.before, documents, given.threads)
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    try:
        for side in sides.values():
            side.call({"questions": questions[:5], "askers": 2})  # what the first questions load
        for _ in range(given.rounds):
            for name, side in sides.items():
                for askers in (1, given.askers):
                    run = side.call({"questions": questions, "askers": askers})
                    runs.setdefault((name, askers), []).append(run)
                    print(name, askers, f"{given.questions / run['took']:.2f}/s", file=sys.stderr, flush=True)
    finally:
        for side in sides.values():
            side.end()
    result: dict[str, Any] = machine.described(given.threads) | {"askers": given.askers, "rounds": given.rounds}
    for name in sides:
        one, many = runs[name, 1], runs[name, given.askers]
        result[name] = {
            "one_after_the_other": figures(one, given.questions),
            "at_once": figures(many, given.questions),
            "unlike": unlike(one[0]["answers"], many[0]["answers"]),
            "memory_megabytes": [run["memory"] for run in many],
        }
        speeds = [result[name][kind]["answers_per_second"] for kind in ("at_once", "one_after_the_other")]
        result[name]["times_the_throughput"] = round(speeds[0] / speeds[1], 2)
    if given.before:
        rates = (
            result["now"]["at_once"]["answers_per_second"],
            result["before"]["one_after_the_other"]["answers_per_second"],
        )
        result["at_once_now_over_one_after_the_other_before"] = round(rates[0] / rates[1], 2)
        result["unlike_before"] = unlike(runs["before", 1][0]["answers"], runs["now", 1][0]["answers"])
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
