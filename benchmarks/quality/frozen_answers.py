"""Does a change keep every answer? Text, outcome, block ids and timings of the question sets, saved and compared.

    python benchmarks/quality/frozen_answers.py --pdfs FOLDER --data FOLDER --out after.json [--home DIR]
    python benchmarks/quality/frozen_answers.py --compare before.json after.json

The questions and claims of benchmarks/questions are asked of a library of the documents that they name (in `--pdfs`),
and development questions (`qa/*.dev.jsonl.xz` in `--data`) of a library of their contexts. `--home` keeps both
libraries, so that a later run asks the same stored memory. `--compare` lists every difference, and what each
takes on either side; scores may differ by 1e-4.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from app.assembly import open_library
from app.settings import load_settings
from retrieval.library import Library
from retrieval.writers.claims import ClaimChecker

QUESTIONS = ROOT / "benchmarks" / "questions"
TOLERANCE = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, help="folder with the PDFs that the questions name")
    parser.add_argument("--data", type=Path, help="folder with qa/")
    parser.add_argument("--drawn", type=int, default=100, help="development questions (default: 100)")
    parser.add_argument("--every", type=int, default=1, help="ask only every so many questions and claims")
    parser.add_argument("--home", type=Path, help="keep the libraries there")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    arguments = parser.parse_args()
    if arguments.compare:
        raise SystemExit(compare(*(json.loads(path.read_text(encoding="utf-8")) for path in arguments.compare)))
    if not (arguments.pdfs and arguments.data and arguments.out):
        parser.error("name --pdfs, --data and --out, or two files to --compare")
    with home_folder(arguments.home) as home:
        kept = saved(arguments.pdfs, arguments.data, arguments.drawn, arguments.every, home)
    arguments.out.write_text(json.dumps(kept, ensure_ascii=False, indent=1), encoding="utf-8")
    print(json.dumps(kept["machine"] | {"median_ms": median_ms(kept["answers"])}))


@contextlib.contextmanager
def home_folder(chosen: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as temporary:
        yield chosen or Path(temporary)


def saved(pdfs: Path, data: Path, count: int, every: int, home: Path) -> dict[str, Any]:
    questions, claims = rows_of(QUESTIONS / "public_pdfs.jsonl"), rows_of(QUESTIONS / "claims.jsonl")
    drawn = development_questions(data, count)
    answers: dict[str, Any] = {}
    with opened(home / "pdfs") as library:
        for name in sorted({row["document"] for row in questions}):
            store(library, pdfs / name)
        library.warm_up()
        asking = questions[::every]
        answers |= {f"pdf: {row['document']}: {row['question']}": asked(library, row["question"]) for row in asking}
        checker = ClaimChecker(library.view.workspace, library.view.index, library.view.passages, None)
        answers |= {f"claim: {row['claim']}": checked(checker, row["claim"]) for row in claims[::every]}
    with opened(home / "development") as library:
        contexts = home / "contexts"
        contexts.mkdir(exist_ok=True)
        for number, context in enumerate(sorted({row["context"] for row in drawn})):
            file = contexts / f"{number}.txt"
            file.write_text(context, encoding="utf-8")
            store(library, file)
        library.warm_up()
        answers |= {f"development: {row['id']}": asked(library, row["question"]) for row in drawn[::every]}
    return {"machine": machine.described(), "answers": answers}


@contextlib.contextmanager
def opened(home: Path) -> Iterator[Library]:
    home.mkdir(parents=True, exist_ok=True)
    with open_library(load_settings(home=home)) as library:
        yield library


def store(library: Library, file: Path) -> None:
    job = library.jobs.run(library.documents.submit(file).id)
    assert job.state == "done", f"{file}: {job.error}"


def asked(library: Library, question: str) -> dict[str, Any]:
    began = time.perf_counter()
    *_, answer = library.ask(question)
    seconds = time.perf_counter() - began
    return {
        "text": answer.text,
        "outcome": answer.outcome,
        "span": "".join(token.text for token in answer.tokens if token.pointed),
        "blocks": [list(each.block_ids) for each in answer.passages],
        "scores": [each.score for each in answer.passages],
        "near_misses": [list(each.block_ids) for each in answer.near_misses],
        "others": [each.passage.text for each in answer.other_sentences],
        "confidence": answer.confidence,
        "ms": round(1000 * seconds, 1),
    }


def checked(checker: ClaimChecker, claim: str) -> dict[str, Any]:
    began = time.perf_counter()
    support = checker.support(claim)
    seconds = time.perf_counter() - began
    return {
        "outcome": support.verdict if support else "not_found",
        "text": support.sentence.text if support else "",
        "coverage": support.coverage if support else 0.0,
        "ms": round(1000 * seconds, 1),
    }


def rows_of(path: Path) -> list[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def development_questions(data: Path, count: int) -> list[dict[str, Any]]:
    rows = [row for file in sorted((data / "qa").glob("*.dev.jsonl.xz")) for row in rows_of(file)]
    return random.Random(0).sample(rows, count)


def median_ms(answers: dict[str, Any]) -> dict[str, float]:
    kinds: dict[str, list[float]] = {}
    for name, answer in answers.items():
        kinds.setdefault(name.partition(":")[0], []).append(answer["ms"])
    return {kind: round(statistics.median(each), 1) for kind, each in kinds.items()}


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """1 if anything differs, after saying what."""
    old, new = before["answers"], after["answers"]
    if old.keys() != new.keys():
        print(
            f"Other questions: {len(old.keys() - new.keys())} only before, {len(new.keys() - old.keys())} only after."
        )
    fields: dict[str, int] = {}
    for name in (name for name in old if name in new):
        for field in old[name]:
            if field != "ms" and not alike(old[name][field], new[name].get(field)):
                fields[field] = fields.get(field, 0) + 1
                print(f"{name}\n  {field}: {old[name][field]!r}\n  {' ' * len(field)}  {new[name].get(field)!r}")
    print(f"{len(old)} compared; differences: {fields or 'none'}")
    print(f"median ms before {median_ms(old)}, after {median_ms(new)}")
    return int(bool(fields) or old.keys() != new.keys())


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= TOLERANCE
    if isinstance(one, Sequence) and isinstance(other, Sequence) and not isinstance(one, str):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


if __name__ == "__main__":
    main()
