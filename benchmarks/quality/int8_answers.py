"""What storing memory in fewer bits does to answers: the same documents and questions with bf16 and with each of some
number formats, in one run.

    python benchmarks/quality/int8_answers.py squad11.dev.jsonl.xz --contexts 300 --questions 200 --dtypes int8 k4v2

Prints one JSON object: shares of questions with the same quoted answer, the same first passage and of the same blocks
among the best eight; how both do against the gold answers (exact, F1 and whether the answer holds one); and the bytes
that each memory takes on disk. `--repeat` stores bf16 twice and tells how far it agrees with itself.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import subject

from model.checkpoint.landmark_model import LandmarkModel
from model.training.evaluation.answer_scores import exact_and_f1
from retrieval.library import Library
from retrieval.types.passages import Answer, Passage
from storage.kv.format import KV_DTYPES

BEST = 8
PER_FILE = 8

Place = tuple[str, int]


@dataclass(frozen=True)
class Memory:
    """What one memory answered, question by question."""

    texts: list[str]
    firsts: list[Place | None]
    best: list[frozenset[Place]]
    size_bytes: int
    seconds: float


def place(passage: Passage) -> Place:
    """Documents have other ids in every library; file and character do not change."""
    return passage.source, passage.start_index


def remember(
    folder: Path, model: LandmarkModel, kv_dtype: str, contexts: Sequence[str], questions: Sequence[str]
) -> Memory:
    began = time.monotonic()
    home = folder / "home"
    with Library.open(home, model, kv_dtype=kv_dtype) as library:
        for number in range(0, len(contexts), PER_FILE):
            path = folder / f"{number:05}.txt"
            path.write_text("\n\n".join(contexts[number : number + PER_FILE]), encoding="utf-8")
            job = library.run_job(library.submit(path).id)
            assert job.state == "done", job.error
        texts, firsts, best = [], [], []
        for question in questions:
            found = library.search(question, BEST)
            firsts.append(place(found[0]) if found else None)
            best.append(frozenset((each.source, block.start) for each in found for block in each.blocks))
            *_, answer = library.ask(question, k=BEST, quote=True)
            assert isinstance(answer, Answer)
            texts.append(answer.text if answer.found else "")
    size_bytes = sum(path.stat().st_size for path in (home / "kv").rglob("*.kv"))
    return Memory(texts, firsts, best, size_bytes, time.monotonic() - began)


def agreement(one: Memory, other: Memory) -> dict[str, float]:
    pairs = list(zip(one.best, other.best, strict=True))
    return {
        "same_answer": statistics.mean(a == b for a, b in zip(one.texts, other.texts, strict=True)),
        "same_first_passage": statistics.mean(a == b for a, b in zip(one.firsts, other.firsts, strict=True)),
        f"overlap_of_best_{BEST}": statistics.mean(len(a & b) / max(1, len(a)) for a, b in pairs),
    }


def against_gold(memory: Memory, gold: Sequence[Sequence[str]]) -> dict[str, float]:
    scores = [exact_and_f1(text, answers) for text, answers in zip(memory.texts, gold, strict=True)]
    holds = [
        any(answer.lower() in text.lower() for answer in answers)
        for text, answers in zip(memory.texts, gold, strict=True)
    ]
    exact, f1 = (statistics.mean(column) for column in zip(*scores, strict=True))
    return {"exact": exact, "f1": f1, "holds_the_answer": statistics.mean(holds)}


def main() -> None:
    parser = subject.options(__doc__, threads=1)
    parser.add_argument("questions_file", type=Path, help="JSON lines with context, question and answers; may be .xz")
    parser.add_argument("--contexts", type=int, default=300)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--dtypes", nargs="+", choices=KV_DTYPES, default=["int8"], help="compared with bf16")
    parser.add_argument("--repeat", action="store_true", help="store bf16 twice, compare that as well")
    arguments = subject.chosen(parser)
    model = subject.load(arguments.model)
    rows = [row for row in subject.rows_of(arguments.questions_file) if row.get("context") and row["answers"]]
    contexts = list(dict.fromkeys(row["context"] for row in rows))[: arguments.contexts]
    rows = [row for row in rows if row["context"] in set(contexts)]
    rows = random.Random(0).sample(rows, min(arguments.questions, len(rows)))
    questions, gold = [row["question"] for row in rows], [row["answers"] for row in rows]
    memories: dict[str, Memory] = {}
    for name in ("bf16", *arguments.dtypes, *(("bf16 again",) if arguments.repeat else ())):
        with tempfile.TemporaryDirectory() as folder:
            memories[name] = remember(Path(folder), model, name.split()[0], contexts, questions)
    result = {
        **machine.described(arguments.threads),
        "model": model.source,
        "contexts": len(contexts),
        "questions": len(questions),
        **{f"{name}_like_bf16": agreement(memories["bf16"], memories[name]) for name in arguments.dtypes},
        "against_gold": {name: against_gold(memory, gold) for name, memory in memories.items()},
        "size_bytes": {name: memory.size_bytes for name, memory in memories.items()},
        "seconds": {name: round(memory.seconds, 1) for name, memory in memories.items()},
    }
    if arguments.repeat:
        result["bf16_like_itself"] = agreement(memories["bf16"], memories["bf16 again"])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
