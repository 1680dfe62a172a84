"""Found, perhaps or not found: what is said of right and wrong answers, and of questions that the memory cannot answer.

    python benchmarks/quality/doubt.py --questions squad20.dev.jsonl.xz [more files] [--contexts 80] [--out FILE.json]

Half of the contexts are stored. Asked are questions about them (answerable, or marked as unanswerable) and about the
other half ("foreign"). An answer is right if the sentence given holds it. With `--out` the numbers that the outcome is
made of are written for every question. Thresholds are settings of the checkpoint (`LandmarkConfig`).
"""

import argparse
import json
import lzma
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
from answer_threshold import separation
from real_documents import plain, store

from app.assembly import open_library
from app.settings import load_settings

PER_FILE = 8
OUTCOMES = ("found", "perhaps", "not_found")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=Path, nargs="+", required=True)
    parser.add_argument("--contexts", type=int, default=80)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    chosen = random.Random(1)
    rows: dict[str, list[dict[str, Any]]] = {}
    for file in arguments.questions:
        with lzma.open(file, "rt") as lines:
            for row in map(json.loads, lines):
                if row.get("context"):
                    rows.setdefault(row["context"], []).append(row)
    contexts = chosen.sample(sorted(rows), min(arguments.contexts, len(rows)))
    stored, absent = contexts[::2], contexts[1::2]
    records = []
    with tempfile.TemporaryDirectory() as home, open_library(load_settings(home=Path(home))) as library:
        for number in range(0, len(stored), PER_FILE):
            text = Path(home) / f"{number}.txt"
            text.write_text("\n\n".join(stored[number : number + PER_FILE]), encoding="utf-8")
            store(library, text)
        library.warm_up()
        for context in contexts:
            asked = chosen.sample(rows[context], min(3, len(rows[context])))
            records += [record(library, row, foreign=context in absent) for row in asked]
    report(records)
    if arguments.out:
        arguments.out.write_text(json.dumps(records))


def record(library: Any, row: dict[str, Any], *, foreign: bool) -> dict[str, Any]:
    answer = list(library.ask(row["question"]))[-1]
    right = answer.found and any(plain(wanted) in plain(answer.text) for wanted in row["answers"])
    kind = "foreign" if foreign else "unanswerable" if not row["answers"] else "right" if right else "wrong"
    return {"question": row["question"], "kind": kind, "outcome": answer.outcome, "confidence": answer.confidence}


def report(records: list[dict[str, Any]]) -> None:
    print(f"{'':14}{'n':>5}" + "".join(f"{outcome:>11}" for outcome in OUTCOMES))
    for kind in ("right", "wrong", "unanswerable", "foreign"):
        counts = Counter(each["outcome"] for each in records if each["kind"] == kind)
        total = max(1, sum(counts.values()))
        print(
            f"{kind:14}{sum(counts.values()):5}" + "".join(f"{counts[outcome] / total:11.2f}" for outcome in OUTCOMES)
        )
    by_kind = {kind: [each["confidence"] for each in records if each["kind"] == kind] for kind in ("right", "foreign")}
    print(f"confidence alone tells right answers from foreign questions: {separation(*by_kind.values()):.2f} (AUC)")


if __name__ == "__main__":
    main()
