"""Real PDFs, asked as people ask: does the answer hold what it should, and is it on the screen at all?

    python benchmarks/quality/real_documents.py --pdfs FOLDER [--questions FILE] [--home DIR] [--alone] [--show]

All documents are stored in one library, and every question is asked of all of them (`--alone`: of its own document),
with the checkpoint's second look and from stored keys only (`--side` for one of them). By type of question:

- answer: the answer given holds it; of lists the share of items
- shown: the answer or one of the sentences offered beside it does
- passages: a passage that was shown does, also under a refusal
- file, page: the first passage comes from the right file, and from the right page
- refused: no answer was given. For unanswerable questions that is right, for all others wrong

Comparing ignores case, punctuation and white space. Questions with their format: benchmarks/questions/README.md.
"""

import argparse
import contextlib
import json
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
from load.large_library import part_of

from app.assembly import open_library
from app.settings import load_settings
from retrieval.types.records import Scope

QUESTIONS = ROOT / "benchmarks" / "questions" / "public_pdfs.jsonl"
SIDES = ("second look", "stored keys")
OF_ITEMS = ("list", "whole")
COLUMNS = ("answer", "shown", "passages", "file", "page", "refused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, required=True, help="folder with the PDFs that the questions name")
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--alone", action="store_true", help="ask only the document that a question is about")
    parser.add_argument("--model", help="folder of a checkpoint (default: the shipped one)")
    parser.add_argument("--home", type=Path, help="keep the library there; documents stored already are not read again")
    parser.add_argument(
        "--among", type=Path, help="a large library, of which a copy in --home (on the same disk) holds the PDFs, too"
    )
    parser.add_argument("--side", choices=SIDES, action="append", help="measure only this side")
    parser.add_argument("--every", type=int, default=1, help="ask only every so many questions")
    parser.add_argument("--out", type=Path, help="write every question with its answer and its marks")
    parser.add_argument("--show", action="store_true", help="print every question with its answer")
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    questions = [json.loads(line) for line in arguments.questions.read_text(encoding="utf-8").splitlines()]
    questions = questions[:: arguments.every]
    results: dict[str, list[dict[str, Any]]] = {}
    with home_folder(arguments.home) as folder:
        home = folder / "among" if arguments.among else folder
        if arguments.among and not home.exists():
            part_of(arguments.among, home, None)
        given = {"home": home} | ({"model": arguments.model} if arguments.model else {})
        documents: dict[str, str] = {}
        for side in arguments.side or SIDES:
            with open_library(load_settings(**given, second_look=side == SIDES[0])) as library:
                documents = documents or {
                    name: store(library, arguments.pdfs / name) for name in sorted({q["document"] for q in questions})
                }
                library.warm_up()
                results[side] = [asked(library, question, documents, alone=arguments.alone) for question in questions]
    for side, records in results.items():
        report(side, records, show=arguments.show)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, ensure_ascii=False, indent=1))


@contextlib.contextmanager
def home_folder(chosen: Path | None) -> Iterator[Path]:
    """The folder for a library: one that is chosen stays, another is removed."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def report(side: str, records: Sequence[dict[str, Any]], *, show: bool) -> None:
    print(f"\n{side}")
    for record in records if show else ():
        print(f"{record['type']:12} {record['answer']:.2f} {record['question']}\n{'':17} -> {record['said']}")
    print(table(records))
    for outcome in ("found", "perhaps", "not_found"):
        given = [record for record in records if record["outcome"] == outcome]
        right = sum(record["answer"] for record in given) / max(1, len(given))
        print(f"{outcome}: {len(given)} answers, {right:.2f} of them right")
    print(f"{statistics.median(record['seconds'] for record in records):.2f} s an answer (median)")


def store(library: Any, file: Path) -> str:
    job = library.run_job(library.submit(file).id)
    assert job.state == "done", f"{file}: {job.error}"
    return str(job.document_id)


def asked(library: Any, question: dict[str, Any], documents: dict[str, str], *, alone: bool) -> dict[str, Any]:
    within = Scope(document_ids=(documents[question["document"]],)) if alone else None
    began = time.perf_counter()
    answer = list(library.ask(question["question"], within=within))[-1]
    seconds = time.perf_counter() - began
    said = answer.text if answer.found else ""
    beside = [other.passage.text for other in answer.other_sentences]
    passages = [*answer.passages, *answer.near_misses]
    first = passages[0] if passages else None
    held = marks(question)
    return {
        **question,
        "said": said,
        "confidence": answer.confidence,
        "answer": held([said]),
        "shown": held([said, *beside]),
        "passages": held([said, *beside, *(passage.text for passage in passages)]),
        "file": float(first is not None and first.document_id == documents[question["document"]]),
        "page": float(first is not None and str(question["page"]) in first.page_labels),
        "refused": float(not answer.found),
        "outcome": answer.outcome,
        "seconds": seconds,
    }


def marks(question: dict[str, Any]) -> Any:
    """How much of the answer some texts hold, 0 to 1, as a function of the texts."""
    wanted = [plain(answer) for answer in question["answers"]]

    def held(texts: Sequence[str]) -> float:
        if not wanted:
            return 0.0
        there = [any(f" {answer} " in f" {plain(text)} " for text in texts) for answer in wanted]
        return sum(there) / len(there) if question["type"] in OF_ITEMS else float(any(there))

    return held


def plain(text: str) -> str:
    return re.sub(r"[^\w$%#]+", " ", text.lower()).strip()


def table(records: Sequence[dict[str, Any]]) -> str:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[record["type"]].append(record)
        if record["answers"]:
            groups["all answerable"].append(record)
    lines = [f"{'':16}{'n':>5}" + "".join(f"{column:>10}" for column in COLUMNS)]
    for name, group in groups.items():
        means = (statistics.mean(record[column] for record in group) for column in COLUMNS)
        lines.append(f"{name:16}{len(group):5}" + "".join(f"{mean:10.2f}" for mean in means))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
