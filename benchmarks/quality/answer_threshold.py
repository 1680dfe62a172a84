"""How well the search's confidence tells questions that a memory can answer from those that it cannot, and the
threshold for it.

    python benchmarks/quality/answer_threshold.py --questions squad20.dev.jsonl.xz --contexts 240 [--write]

Half of the contexts are stored; questions about the other half, and questions marked as unanswerable, have no answer
there. The threshold is the highest that refuses at most `--refused` of the answerable questions. `--write` puts it into
the checkpoint's config.json. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import subject
import torch

from retrieval.library import Library
from retrieval.query.search import find_blocks

PER_FILE = 8


def questions_by_context(path: Path) -> dict[str, list[tuple[str, bool]]]:
    """Context -> (question, whether the context answers it)."""
    found: dict[str, list[tuple[str, bool]]] = {}
    with lzma.open(path, "rt") if path.suffix == ".xz" else open(path) as lines:
        for line in lines:
            row = json.loads(line)
            if row.get("context"):
                found.setdefault(row["context"], []).append((row["question"], bool(row["answers"])))
    return found


def separation(answerable: list[float], others: list[float]) -> float:
    """Chance that an answerable question is more confident than another (area under the ROC curve)."""
    both = sorted([(score, True) for score in answerable] + [(score, False) for score in others])
    below = wins = 0
    for _, is_answerable in both:
        wins += below if is_answerable else 0
        below += not is_answerable
    return wins / max(1, len(answerable) * len(others))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--contexts", type=int, default=240)
    parser.add_argument("--at", type=float, help="report this threshold instead of choosing one")
    parser.add_argument("--refused", type=float, default=0.05)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = subject.load(arguments.model)
    asked = questions_by_context(arguments.questions)
    contexts = random.Random(0).sample(sorted(asked), min(arguments.contexts, len(asked)))
    stored, absent = contexts[::2], contexts[1::2]
    answerable, unanswerable, foreign = [], [], []
    with tempfile.TemporaryDirectory() as folder, Library.open(Path(folder) / "home", model) as library:
        for number in range(0, len(stored), PER_FILE):
            path = Path(folder) / f"{number}.txt"
            path.write_text("\n\n".join(stored[number : number + PER_FILE]))
            job = library.run_job(library.submit(path).id)
            assert job.state == "done", job.error
        with library._index.open_snapshot(library._catalogue) as snapshot:

            def confidence(question: str) -> float:
                return find_blocks(library._workspace, snapshot, question, 1, None).confidence

            for context in stored:
                for question, has_answer in asked[context][:4]:
                    (answerable if has_answer else unanswerable).append(confidence(question))
            foreign = [confidence(question) for context in absent for question, _ in asked[context][:2]]
    threshold = sorted(answerable)[int(arguments.refused * len(answerable))]
    if arguments.at is not None:
        threshold = arguments.at
    result = {
        "model": model.source,
        "answerable": len(answerable),
        "separation_from_foreign": separation(answerable, foreign),
        "separation_from_unanswerable": separation(answerable, unanswerable) if unanswerable else None,
        "median_confidence": [
            statistics.median(each) if each else None for each in (answerable, unanswerable, foreign)
        ],
        "threshold": threshold,
        "answerable_refused": sum(score < threshold for score in answerable) / len(answerable),
        "foreign_refused": sum(score < threshold for score in foreign) / max(1, len(foreign)),
    }
    print(json.dumps(result))
    if arguments.write:
        path = Path(arguments.model or subject.DEFAULT) / "config.json"
        config = json.loads(path.read_text())
        config["landmark"]["answer_threshold"] = round(threshold, 6)
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
