"""Documents that nothing was made for, asked as people ask: how often is the answer right, shown, or wrongly refused?

    python benchmarks/quality/held_out.py --realdocs FOLDER --text FOLDER --home DIR [--split development] [--out FILE]
    python benchmarks/quality/held_out.py --fresh FOLDER [--questions third] --home DIR [--split test] [--out FILE]

All documents of one split of the held-out questions (benchmarks/questions/held_out) are stored in one library, and
every question is asked of all of them; with `--fresh` those of benchmarks/questions/fresh, or of another set of
them, of which FOLDER has the documents. Test is opened once, at the end: nothing may be chosen by it.

- answer: the answer given holds it; of lists and two-part questions the share of the parts
- shown: the answer or one of the sentences offered beside it does
- passages: a passage that was shown does, also under a refusal
- file: the first passage comes from the right file
- refused: no answer was given. For unanswerable questions that is right, for all others wrong

By type, style and kind of file, with 95 % intervals of a bootstrap over documents. Comparing ignores case, punctuation
and white space.
"""

import argparse
import json
import random
import re
import statistics
import sys
import time
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "questions" / "held_out")]

import documents as held_out
import machine

from app.assembly import open_library
from app.settings import load_settings
from benchmarks.questions.fresh import documents as fresh
from retrieval.types.answers import Answer

COLUMNS = ("answer", "shown", "passages", "file", "refused")
SAMPLES = 1000
_BETWEEN_WORDS = re.compile(r"(?:[^\w$%€£#]|[\u3040-\u30ff\u4e00-\u9fff])+")
_WITHOUT_SPACES = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--realdocs", type=Path, help="folder with the whole files")
    parser.add_argument("--text", type=Path, help="folder with records to cut from")
    parser.add_argument("--fresh", type=Path, help="folder with the documents of the fresh questions, asked instead")
    parser.add_argument("--questions", choices=fresh.SETS, default="fresh", help="the set that --fresh is about")
    parser.add_argument("--home", type=Path, required=True, help="of the library, which is kept")
    parser.add_argument("--split", choices=("train", "development", "test"), default="development")
    parser.add_argument("--every", type=int, default=1, help="ask only every so many questions")
    parser.add_argument("--model", help="folder of a checkpoint (default: the shipped one)")
    parser.add_argument("--out", type=Path, help="write every question with its answer and its marks, a line each")
    arguments = parser.parse_args()
    if not arguments.fresh and not (arguments.realdocs and arguments.text):
        parser.error("--realdocs and --text, or --fresh")
    print(json.dumps(machine.described()))
    of_document: dict[str, list[Record]] = defaultdict(list)
    for question in fresh.read_questions(arguments.questions) if arguments.fresh else held_out.read_questions():
        if question["split"] == arguments.split:
            of_document[question["document"]].append(question)
    if arguments.fresh:
        there = fresh.documents(arguments.fresh, arguments.questions)
        print(f"{len(of_document.keys() & there)} of {len(of_document)} documents are there")
        files = {digest: path for digest, path in there.items() if digest in of_document}
        of_document = {digest: of_document[digest] for digest in files}
    else:
        files = held_out.write_documents(of_document, arguments.realdocs, arguments.text, arguments.home / "files")
    given = {"home": arguments.home / "library"} | ({"model": arguments.model} if arguments.model else {})
    with open_library(load_settings(**given)) as library:
        stored = {digest: store(library, path) for digest, path in files.items()}
        library.warm_up()
        questions = [one for digest in sorted(of_document) for one in of_document[digest]][:: arguments.every]
        records = [asked(library, one, stored[one["document"]], files[one["document"]]) for one in questions]
    if arguments.out:
        lines = (json.dumps(record, ensure_ascii=False) for record in records)
        arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    report(records)


def store(library: Any, file: Path) -> str:
    """The id of the stored document; "" of one that cannot be read, whose questions count as wrong."""
    job = library.jobs.run(library.documents.submit(file).id)
    if job.state != "done":
        print(f"not read: {file.name}: {job.error}")
        return ""
    return str(job.document_id)


def asked(library: Any, question: Record, document_id: str, file: Path) -> Record:
    began = time.perf_counter()
    answer: Answer = list(library.ask(question["question"]))[-1]
    seconds = time.perf_counter() - began
    said = answer.text if answer.found else ""
    beside = [other.passage.text for other in answer.other_sentences]
    passages = [*answer.passages, *answer.near_misses]
    held = held_by(question)
    return {
        **question,
        "kind": file.suffix[1:],
        "said": said,
        "asked": answer.settings.get("asked", question["question"]),
        "outcome": answer.outcome,
        "answer": held([said]),
        "shown": held([said, *beside]),
        "passages": held([said, *beside, *(passage.text for passage in passages)]),
        "file": float(bool(passages) and passages[0].document_id == document_id),
        "refused": float(not answer.found),
        "seconds": seconds,
    }


def held_by(question: Record) -> Callable[[Sequence[str]], float]:
    """How much of the answer some texts hold, 0 to 1."""
    wanted = question["answers"]

    def held(texts: Sequence[str]) -> float:
        if not wanted:
            return 0.0
        there = [any(holds(text, answer) for text in texts) for answer in wanted]
        return sum(there) / len(there) if question.get("all") else float(any(there))

    return held


def holds(text: str, answer: str) -> bool:
    """Whether whole words of a text, in whatever case, are the answer; letters where it is written without spaces."""
    if _WITHOUT_SPACES.search(answer):
        return held_out.letters(answer) in held_out.letters(text)
    return words(answer) in words(text)


def words(text: str) -> str:
    """Whole words in one case between spaces, without those that have no spaces between them."""
    return f" {_BETWEEN_WORDS.sub(' ', unicodedata.normalize('NFKC', text).casefold()).strip()} "


def report(records: Sequence[Record]) -> None:
    answerable = [record for record in records if record["answers"]]
    print(f"\n{'':22}{'n':>5}" + "".join(f"{column:>10}" for column in COLUMNS))
    groups: dict[str, list[Record]] = {"all answerable": answerable}
    groups["unanswerable"] = [record for record in records if not record["answers"]]
    for field in ("type", "style", "kind"):
        for record in answerable:
            groups.setdefault(f"{field}: {record[field]}", []).append(record)
    for name, group in groups.items():
        means = "".join(f"{statistics.fmean(one[column] for one in group):10.3f}" for column in COLUMNS)
        print(f"{name:22}{len(group):5}{means}")
    documents = len({record["document"] for record in records})
    print(f"\n95 % intervals over {documents} documents")
    for column in COLUMNS[:3]:
        print(f"{column}: {interval(answerable, column)}")
    print(f"wrongly refused: {interval(answerable, 'refused')}, rightly: {interval(groups['unanswerable'], 'refused')}")
    for outcome in ("found", "perhaps"):
        said = [record for record in records if record["outcome"] == outcome]
        right = statistics.fmean(record["answer"] for record in said) if said else 0.0
        print(f"{outcome}: {len(said)} answers, {right:.3f} of them right")
    print(f"{statistics.median(record['seconds'] for record in records):.2f} s an answer (median)")


def interval(records: Sequence[Record], column: str) -> str:
    """The mean, with the middle 95 % of means over documents drawn anew."""
    of_document: dict[str, list[float]] = defaultdict(list)
    for record in records:
        of_document[record["document"]].append(record[column])
    rng, values, means = random.Random(0), list(of_document.values()), []
    for _ in range(SAMPLES):
        drawn = rng.choices(values, k=len(values))
        means.append(sum(map(sum, drawn)) / sum(map(len, drawn)))
    means.sort()
    mean = statistics.fmean(record[column] for record in records)
    return f"{mean:.3f} ({means[SAMPLES // 40]:.3f} to {means[-SAMPLES // 40]:.3f})"


if __name__ == "__main__":
    main()
